"""What the messages of an exchange reach."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from sides import as_live

from rabbit_chx import ExchangeRef, HashRing, Release, Topology
from rabbit_chx.routing import Destination
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.rules.reach import (
    Ends,
    KeyKnowledge,
    Reach,
    _all_of,
    select_reached,
    transient_destinations,
)

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


def test_a_ring_behind_a_ring_that_hashes_the_same_is_exact() -> None:
    outer: list[Place] = ["q1", A, A]
    inner: list[Place] = ["q1", None, "q2"]
    rings = {"x": HashRing.from_buckets(outer, RELEASE), "a": HashRing.from_buckets(inner, RELEASE)}
    x, a = (ExchangeDefinition(name, "x-consistent-hash", ring=()) for name in "xa")
    live = LiveTopology((x, a), (QueueDefinition("q1"), QueueDefinition("q2")))
    found = Reach(as_live(live, rings=rings)).unroutable_of(x)
    both = (rings["x"].indices_of_all_seeds() == 1) & (rings["a"].indices_of_all_seeds() == -1)
    assert found.share == sum(found.by_place.values()) == both.mean() > 0
    by_header = replace(live, exchanges=(x, replace(a, arguments={"hash-header": "h"})))
    for buckets, share in ((inner, 0.0), ([], rings["x"].shares()[A])):
        there = as_live(by_header, rings={**rings, "a": HashRing.from_buckets(buckets, RELEASE)})
        assert Reach(there).unroutable_of(x).share == share


def test_places_are_lost_behind_a_copy_only_if_they_are_behind_each() -> None:
    some, others = np.array([True, False, True]), np.array([True, True, False])
    assert _all_of([some, others]).tolist() == [True, False, False]  # type: ignore[union-attr]
    assert _all_of([False, some]) is False
    assert _all_of([]) is True


def test_an_exchange_that_filters_is_found_behind_one_that_copies() -> None:
    places = (
        ExchangeDefinition("x", "x-consistent-hash", ring=(RingMember(A),)),
        ExchangeDefinition("a", "fanout"),
    )
    bound = (BindingDefinition("a", ExchangeRef("t")), BindingDefinition("t", "q", "k"))
    live = LiveTopology((*places, ExchangeDefinition("t", "topic")), (QueueDefinition("q"),), bound)
    ((place, found),) = Reach(as_live(live, rings={"x": HashRing.from_buckets([A])})).filters_of(places[0])
    assert (place, found.name) == (A, "t")


def _route(live: LiveTopology, name: str, key: str, seen: set[str]) -> set[str]:
    """Return the queues of a message, as a broker routes it: without knowledge of what is not in the message."""
    exchange = live.exchange(name)
    if exchange is None or name in seen:
        return set()
    seen.add(name)
    expressions: dict[str, Callable[[str], str]]
    expressions = {"direct": re.escape, "fanout": lambda _: ".*", "topic": _expression_of}
    expression = expressions[exchange.type]
    places = [
        binding.destination
        for binding in live.bindings
        if binding.source == name and re.fullmatch(expression(binding.routing_key), key)
    ]
    if not places and exchange.alternate is not None:
        places = [ExchangeRef(exchange.alternate)]
    queues = {place for place in places if isinstance(place, str)}
    return queues.union(
        *(_route(live, place.name, key, seen) for place in places if isinstance(place, ExchangeRef))
    )


def _expression_of(pattern: str) -> str:
    """A pattern of a topic exchange of the words ``*``, ``a``, and at most one ``#``, at its end."""
    words = [{"*": "[^.]+"}.get(word, word) for word in pattern.split(".") if word != "#"]
    rest = r"(\..*)?" if words else ".*"
    return r"\.".join(words) + (rest if pattern.endswith("#") else "")


def test_the_ends_of_messages_are_those_of_each_of_their_keys() -> None:
    """Random topologies of direct, fanout and topic exchanges, with alternate exchanges and circles."""
    chance = random.Random(67)  # noqa: S311  # no secret
    keys = ("a", "b", "a.b", "a.b.a")
    patterns = (*keys, "#", "a.#", "*", "*.b", "a.*.#")
    for _ in range(400):
        names = [f"x{number}" for number in range(chance.randint(1, 4))]
        exchanges = [
            ExchangeDefinition(
                name,
                chance.choice(("direct", "fanout", "topic")),
                arguments={"alternate-exchange": chance.choice((*names, "none"))}
                if chance.random() < 0.4
                else {},
            )
            for name in names
        ]
        places: tuple[Destination, ...] = (*map(ExchangeRef, names), "q1", "q2", "q3")
        bindings = {
            BindingDefinition(chance.choice(names), chance.choice(places), chance.choice(patterns))
            for _ in range(chance.randint(0, 6))
        }
        live = LiveTopology(
            tuple(exchanges), tuple(map(QueueDefinition, ("q1", "q2", "q3"))), tuple(bindings)
        )
        reach = Reach(live)
        for name in names:
            of_any = reach.ends_of(name, KeyKnowledge.UNKNOWN)
            of_key = {key: _route(live, name, key, set()) for key in keys}
            for key, queues in of_key.items():
                assert reach.ends_of(name, key) == Ends(frozenset(queues))
                assert of_any.queues is not None
                assert queues <= of_any.queues
            assert reach.leads_nowhere(name) is (not of_any.queues)


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
