"""Other ways to the same members, with their figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from one_hash_exchange import hashing, with_buckets

from rabbit_chx.planning.proposals import find_least_moved
from rabbit_chx.planning.ring_plan import KeyMapPlan
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, RingMember, Topology, plan


def _weighted(there: Mapping[Any, int], wanted: Mapping[Any, int]) -> tuple[Topology, LiveTopology]:
    """Return a ring with other weights than it has, and the ring."""
    ours, theirs = (
        hashing(*(RingMember(name, str(weight)) for name, weight in side.items())) for side in (wanted, there)
    )
    return ours, with_buckets(theirs, *(name for name, weight in there.items() for _ in range(weight)))


def test_slots_move_what_their_plan_moves() -> None:
    """There is a slot for each bucket, so little moves in the end."""
    wanted, live = _weighted({"a": 20, "b": 20}, {"a": 10, "b": 10, "c": 10})
    ring = plan(wanted, live).rings["orders"]
    slots = ring.proposals[-1]
    assert (slots.strategy, slots.slots) == ("slots", 40)
    assert slots.ring == tuple(RingMember(name, "10") for name in "abc")
    assert slots.moved < 0.4 < ring.moved
    says = "replace ring by slots = 40, orders.slot.00 to orders.slot.39, with the same queues as members"
    assert says in slots.description

    into, finer = (_into_slots(live, count, slots.ring) for count in (40, 80))
    assert (slots.moved, slots.moved_at_worst) == (into.moved, into.moved_at_worst)
    assert f"a new exchange moves at most {slots.moved:.3%}" in slots.description
    assert slots.description.endswith(f"with twice as many slots {finer.moved:.3%}")


def _slotted(count: int, members: tuple[RingMember, ...], **about: Any) -> ExchangeDefinition:
    return ExchangeDefinition("orders", "x-consistent-hash", slots=count, members=members, **about)


def _into_slots(live: LiveTopology, count: int, members: tuple[RingMember, ...]) -> KeyMapPlan:
    return plan(Topology((_slotted(count, members),), live.queues), live).rings["orders"]


#: A ring of ten and twenty buckets, and members with slots in this ratio.
_, LIVE = _weighted({"a": 10, "b": 20}, {"a": 1})
MEMBERS = (RingMember("a", "1"), RingMember("b", "2"))


def test_the_way_to_slots_is_compared_with_one_for_each_bucket() -> None:
    other = _into_slots(LIVE, 48, MEMBERS)
    as_written, slots = other.proposals
    assert [proposal.strategy for proposal in other.proposals] == ["as-written", "slots"]
    assert (as_written.moved, as_written.moved_at_worst) == (other.moved, other.moved_at_worst)
    assert (slots.slots, slots.moved, slots.ring) == (30, 0.0, MEMBERS)

    best = _into_slots(LIVE, 30, MEMBERS)
    assert best.moved == 0 < best.moved_at_worst
    assert [proposal.strategy for proposal in best.proposals] == ["as-written"]

    listed = (RingMember("a", slots=tuple(range(10))), RingMember("b", slots=tuple(range(10, 48))))
    assert "slots" not in {proposal.strategy for proposal in _into_slots(LIVE, 48, listed).proposals}


@pytest.mark.parametrize(
    ("there", "wanted", "is_proposed"),
    [
        ({"b": 20, "a": 80}, {"a": 18, "b": 2}, True),
        ({"b": 10, "a": 90}, {"a": 18, "b": 1}, False),
        ({"a": 10, ExchangeRef("y"): 10}, {ExchangeRef("y"): 10, "a": 10}, False),
    ],
)
def test_slots_are_proposed_where_each_queue_has_ten(
    there: dict[Destination, int], wanted: dict[Destination, int], *, is_proposed: bool
) -> None:
    strategies = [proposal.strategy for proposal in plan(*_weighted(there, wanted)).rings["orders"].proposals]
    assert strategies[:2] == ["as-written", "least-moving-order"]
    assert ("slots" in strategies) == is_proposed


def test_slots_are_not_rated_for_a_ring_with_an_exchange() -> None:
    mixed, queues = (
        HashRing.from_buckets([*["a"] * 10, *[ExchangeRef("y")] * 10]),
        HashRing.from_buckets(["a"] * 20),
    )
    found = [find_least_moved(*each) for each in ((mixed, queues), (queues, mixed), (queues, queues))]
    assert [each and each[1] for each in found] == [None, None, 0.0]
