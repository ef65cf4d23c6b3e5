"""Which keys end in no queue: holes, ghosts, and exchanges that lead nowhere."""

from __future__ import annotations

import pytest
from sides import as_live

from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, LiveTopology, QueueDefinition
from rabbit_chx.topology.reach import Reach

CHX = "x-consistent-hash"
A, B = ExchangeRef("a"), ExchangeRef("b")
RELEASE = Release("3.8.9")


def share(
    rings: dict[str, list[Place]],
    *exchanges: ExchangeDefinition,
    bound: tuple[tuple[str, Destination], ...] = (),
    root: ExchangeDefinition | None = None,
) -> float:
    """Return the share of ``x`` that ends nowhere, where the queues q1 and q2 exist."""
    hashing = tuple(ExchangeDefinition(name, CHX, ring=()) for name in rings if name != "x")
    there = {exchange.name: exchange for exchange in (*hashing, *exchanges)}
    there["x"] = root or ExchangeDefinition("x", CHX, ring=())
    live = LiveTopology(
        tuple(there.values()),
        (QueueDefinition("q1"), QueueDefinition("q2")),
        tuple(BindingDefinition(source, to) for source, to in bound),
    )
    read = {name: HashRing.from_buckets(buckets, RELEASE) for name, buckets in rings.items()}
    live = as_live(live, rings=read)
    found = Reach(live).unroutable_of(there["x"])
    assert sum(found.by_place.values()) == found.share
    return found.share


def ring_share(buckets: list[Place], place: Place) -> float:
    return HashRing.from_buckets(buckets, RELEASE).shares()[place]


def fanout(name: str, **about: object) -> ExchangeDefinition:
    return ExchangeDefinition(name, "fanout", **about)  # type: ignore[arg-type]


def with_alternate(name: str) -> ExchangeDefinition:
    return ExchangeDefinition("x", CHX, ring=(), arguments={"alternate-exchange": name})


def test_a_hole_and_a_ghost_are_exact() -> None:
    buckets: list[Place] = ["q1", None, "gone", "q2"]
    expected = ring_share(buckets, None) + ring_share(buckets, "gone")
    assert share({"x": buckets}) == expected
    assert share({"x": ["q1", "q2"]}) == 0.0
    assert share({"x": []}) == 1.0


def test_an_alternate_exchange_gets_holes_and_no_ghosts() -> None:
    buckets: list[Place] = ["q1", None, "gone", "q2"]
    root = with_alternate("a")
    leading = share({"x": buckets}, fanout("a"), bound=(("a", "q1"),), root=root)
    assert leading == ring_share(buckets, "gone")
    assert share({"x": buckets}, fanout("a"), root=root) == share({"x": buckets})
    assert share({"x": []}, fanout("a"), bound=(("a", "q1"),), root=root) == 0.0
    assert share({"x": []}, root=with_alternate("nowhere")) == 1.0
    assert share({"x": []}, root=with_alternate("amq.fanout")) == 1.0


@pytest.mark.parametrize(
    ("bound", "nowhere"),
    [
        ((), True),
        ((("a", "q1"),), False),
        ((("a", B),), True),
        ((("a", B), ("b", "q1")), False),
        ((("a", B), ("b", A)), True),  # a circle
        ((("a", "gone"), ("a", B)), False),  # what is bound exists, whatever lists show
    ],
)
def test_fanouts_are_followed(bound: tuple[tuple[str, Destination], ...], *, nowhere: bool) -> None:
    buckets: list[Place] = ["q1", A, "q2"]
    expected = ring_share(buckets, A) if nowhere else 0.0
    assert share({"x": buckets}, fanout("a"), fanout("b"), bound=bound) == expected


def test_an_exchange_that_does_not_exist_leads_nowhere() -> None:
    buckets: list[Place] = ["q1", A]
    assert share({"x": buckets}) == ring_share(buckets, A)


def test_keys_behind_an_alternate_exchange_are_routable_if_it_leads_to_a_queue() -> None:
    slot = fanout("a", arguments={"alternate-exchange": "b"})
    assert share({"x": ["q1", A]}, slot, fanout("b"), bound=(("b", "q1"),)) == 0.0
    assert share({"x": ["q1", A]}, slot, fanout("b")) == ring_share(["q1", A], A)


def test_what_a_topic_exchange_drops_is_not_counted() -> None:
    topic = ExchangeDefinition("a", "topic")
    assert share({"x": ["q1", A]}, topic, bound=(("a", "q1"),)) == 0.0
    assert share({"x": ["q1", A]}, topic) == ring_share(["q1", A], A)


@pytest.mark.parametrize("kind", ["topic", "direct", "headers"])
def test_what_matches_no_binding_goes_to_the_alternate_exchange(kind: str) -> None:
    """Whatever is bound to the exchange leads nowhere. A fanout matches always, so nothing goes to its alternate exchange."""
    about = {"alternate-exchange": "b"}
    bound: tuple[tuple[str, Destination], ...] = (("a", ExchangeRef("dead")), ("b", "q1"))
    exchanges = fanout("b"), fanout("dead")
    member = ExchangeDefinition("a", kind, arguments=about)
    assert share({"x": ["q1", A]}, member, *exchanges, bound=bound) == 0.0
    assert share({"x": ["q1", A]}, member, *exchanges, bound=bound[:1]) == ring_share(["q1", A], A)
    matching = fanout("a", arguments=about)
    assert share({"x": ["q1", A]}, matching, *exchanges, bound=bound) == ring_share(["q1", A], A)


def test_a_ring_behind_a_ring_that_hashes_the_same_is_exact() -> None:
    outer: list[Place] = ["q1", A, A]
    inner: list[Place] = ["q1", None, "q2"]
    found = share({"x": outer, "a": inner})
    both = (
        (HashRing.from_buckets(outer).indices_of_all_seeds() == 1)
        & (HashRing.from_buckets(inner, RELEASE).indices_of_all_seeds() == -1)
    )  # fmt: skip
    assert found == both.mean() > 0
    header = ExchangeDefinition("a", CHX, ring=(), arguments={"hash-header": "h"})
    assert share({"x": outer, "a": inner}, header) == 0.0
    assert share({"x": outer, "a": []}, header) == ring_share(outer, A)
