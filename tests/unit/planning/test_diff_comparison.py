"""The objects of the broker itself are not compared; `steps.toml` has what the two sides of a plan have in common."""

from __future__ import annotations

from sides import as_live

from rabbit_chx import Topology
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition, plan


def test_exchanges_of_the_broker_are_neither_missed_nor_deleted() -> None:
    topic = ExchangeDefinition("amq.topic", "topic", owner="external")
    binding = BindingDefinition("amq.topic", "a", "#")
    wanted = Topology((topic,), (QueueDefinition("a"),), (binding,), owns=("*",))
    live = Topology((ExchangeDefinition("amq.direct"),), (QueueDefinition("amq.gen-1"),))

    planned = plan(wanted, as_live(live))
    assert [change.action for change in planned.changes] == ["create", "bind"]
    assert (planned.refusals, planned.unmanaged) == ((), ())
