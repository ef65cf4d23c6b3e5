"""What the two sides of a plan have in common: which objects are missing, and which are not deleted."""

from __future__ import annotations

from dataclasses import replace

from one_hash_exchange import steps
from sides import as_live

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)

_CHX = "x-consistent-hash"


def test_what_the_file_only_names_is_not_deleted() -> None:
    wanted = Topology(
        (
            ExchangeDefinition("x", "topic", arguments={"alternate-exchange": "lost"}),
            ExchangeDefinition("orders", _CHX, ring=(RingMember("a"), RingMember(ExchangeRef("slot")))),
        ),
        owns=("*",),
    )
    live = replace(
        wanted,
        exchanges=(*wanted.exchanges, ExchangeDefinition("lost", "fanout"), ExchangeDefinition("slot")),
        queues=(QueueDefinition("a"),),
    )

    assert plan(wanted, as_live(live)).changes == ()


def test_an_exchange_that_takes_what_queues_drop_is_not_deleted() -> None:
    """An argument of a queue names it, or a policy alone."""
    dead, named = ExchangeDefinition("dead", "fanout"), {"dead-letter-exchange": "dead"}
    by_argument = QueueDefinition("a", arguments={"x-dead-letter-exchange": "dead"})

    for wanted in (
        Topology(queues=(by_argument,), owns=("*",)),
        Topology(policies=(PolicyDefinition("p", ".*", definition=named),), owns=("*",)),
    ):
        assert plan(wanted, as_live(replace(wanted, exchanges=(dead,)))).changes == ()
        others = ExchangeDefinition("other", "fanout")
        assert steps(wanted, as_live(replace(wanted, exchanges=(dead, others)))) == ["delete other"]


def test_exchanges_of_the_broker_are_neither_missed_nor_deleted() -> None:
    topic = ExchangeDefinition("amq.topic", "topic", owner="external")
    binding = BindingDefinition("amq.topic", "a", "#")
    wanted = Topology((topic,), (QueueDefinition("a"),), (binding,), owns=("*",))
    live = Topology((ExchangeDefinition("amq.direct"),), (QueueDefinition("amq.gen-1"),))

    planned = plan(wanted, as_live(live))
    assert [change.action for change in planned.changes] == ["create", "bind"]
    assert (planned.refusals, planned.unmanaged) == ((), ())


def test_an_exchange_and_a_queue_of_one_name_are_two_objects() -> None:
    planned = plan(Topology((ExchangeDefinition("a"),)), LiveTopology((), (QueueDefinition("a"),)))

    assert [(change.action, change.kind) for change in planned.changes] == [("create", "exchange")]
    assert [type(subject) for subject in planned.unmanaged] == [QueueDefinition]
