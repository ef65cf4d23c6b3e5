"""What the messages of an exchange reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from sides import as_live

from rabbit_chx import ExchangeRef, HashRing, Release, Topology
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.reach import Reach, select_reached, transient_destinations

A, RELEASE = ExchangeRef("a"), Release("3.10.8")

TOPOLOGY = Topology.from_toml(Path(__file__).with_name("reach.toml").read_text(encoding="utf-8"))


def test_an_exchange_includes_everything_that_its_messages_reach() -> None:
    found = select_reached(as_live(TOPOLOGY), ["orders"])
    assert " ".join(exchange.name for exchange in found.exchanges) == "audit dead late orders unroutable"
    assert [queue.name for queue in found.queues] == ["audit.all", "dead.all", "orders.1", "orders.2"]
    assert {binding.source for binding in found.bindings} == {"audit", "dead"}
    assert [policy.name for policy in found.policies] == ["dead letters", "of exchanges"]
    assert found.cluster == "rabbit@prod"


def test_several_exchanges_come_together() -> None:
    found = select_reached(as_live(TOPOLOGY), ["other", "dead"])
    assert [exchange.name for exchange in found.exchanges] == ["dead", "other"]
    assert [queue.name for queue in found.queues] == ["dead.all", "others"]


def test_a_circle_ends_and_a_policy_whose_pattern_python_cannot_read_counts() -> None:
    circle = '[[exchanges]]\nname = "{0}"\n[[bindings]]\nsource = "{0}"\nexchange = "{1}"\n'
    policy = '[[policies]]\nname = "p"\npattern = "(?<n"\ndefinition = { max-length = 5 }\n'
    topology = Topology.from_toml(circle.format("a", "b") + circle.format("b", "a") + policy)
    assert select_reached(as_live(topology), ["a"]).as_wanted() == topology


def ring_over(*bound: BindingDefinition, **exchanges: str) -> LiveTopology:
    """Return an exchange that hashes, with the queue `q` and the exchange `a` as members, and other exchanges of these types."""
    x = ExchangeDefinition("x", "x-consistent-hash", ring=(RingMember("q"), RingMember(A)))
    others = tuple(ExchangeDefinition(name, type_) for name, type_ in exchanges.items())
    ring = HashRing.from_buckets(["q", A], RELEASE)
    live = LiveTopology((x, *others), (QueueDefinition("q"), QueueDefinition("end")), bound)
    return as_live(live, rings={"x": ring})


@pytest.mark.parametrize(
    ("live", "is_lost"),
    [
        (ring_over(), True),
        (ring_over(a="fanout"), True),
        (ring_over(BindingDefinition("a", "end"), a="fanout"), False),
        (ring_over(BindingDefinition("a", "end", "other"), a="direct"), False),
        (ring_over(BindingDefinition("a", ExchangeRef("b")), a="fanout", b="topic"), True),
        (ring_over(BindingDefinition("a", ExchangeRef("b")), BindingDefinition("b", "end"), a="fanout", b="topic"), False),
        (ring_over(BindingDefinition("a", ExchangeRef("x")), a="fanout"), True),
        (ring_over(BindingDefinition("a", ExchangeRef("amq.topic")), a="fanout"), True),
    ],
    ids=["missing", "unbound", "bound", "filtered", "behind", "bound behind", "circle", "own"],
)  # fmt: skip
def test_keys_are_lost_where_no_path_leads_to_a_queue(live: LiveTopology, is_lost: bool) -> None:  # noqa: FBT001
    found = Reach(live).unroutable_of(
        live.exchanges[[one.name for one in live.exchanges].index("x")], live.rings["x"]
    )
    share = live.rings["x"].shares()[A]
    assert found.by_place == ({A: share} if is_lost else {})
    assert found.share == (share if is_lost else 0.0)


def test_a_queue_that_the_broker_named_with_a_prefix_is_transient() -> None:
    """RabbitMQ 4.4 makes such names (`x-name-prefix`)."""
    prefix = {"x-name-prefix": "own-"}
    queues = (
        QueueDefinition("own-Xy1", arguments=prefix),
        QueueDefinition("other", arguments=prefix),
        QueueDefinition("own-2"),
    )
    ring = tuple(RingMember(queue.name) for queue in queues)
    live = LiveTopology(exchanges=(ExchangeDefinition("x", "x-consistent-hash", ring=ring),), queues=queues)
    assert list(transient_destinations(live)) == ["own-Xy1"]
