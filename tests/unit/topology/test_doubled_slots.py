"""The fewest slots move where slots have several queues, or none: held against all owners of small cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import HashRing
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.objects import SlotNames
from rabbit_chx.topology.slot_owners import owners_of_slots

_QUEUES = ("a", "b", "c")
#: Each choice of queues that a slot may have; "d" is no member.
_SETS = [*chain.from_iterable(combinations(_QUEUES, size) for size in range(4)), ("d",), ("a", "d")]
_EMPTY = HashRing.from_buckets([])


def _moved(bound: Mapping[str, tuple[str, ...]], owners: dict[str, str]) -> int:
    return sum(owners[slot] not in queues for slot, queues in bound.items())


def _owners(bound: Mapping[str, tuple[str, ...]], weights: dict[str, int]) -> dict[str, str]:
    members = [RingMember(queue, str(weight)) for queue, weight in weights.items()]
    return owners_of_slots(SlotNames("x", len(bound)), members, _EMPTY, bound)


def _least(bound: Mapping[str, tuple[str, ...]], weights: dict[str, int]) -> int:
    """Return the fewest slots that move, of all ways to give each queue its quota, rounded down or up."""
    total, count = sum(weights.values()), len(bound)
    found = []
    for queues in product(weights, repeat=count):
        held = Counter(queues)
        if all(count * w // total <= held[q] <= -(-count * w // total) for q, w in weights.items()):
            found.append(_moved(bound, dict(zip(bound, queues, strict=True))))
    return min(found)


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(st.sampled_from(_SETS), min_size=3, max_size=6),
    st.sampled_from(
        [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"b": 2, "c": 1}, {"a": 2, "b": 3}]
    ),
)
def test_no_other_owners_move_fewer_slots(sets: list[tuple[str, ...]], weights: dict[str, int]) -> None:
    bound = dict(zip(SlotNames("x", len(sets)).slots, sets, strict=True))
    owners = _owners(bound, weights)
    held = Counter(owners.values())
    assert all(
        abs(held[q] * sum(weights.values()) - len(sets) * w) < sum(weights.values())
        for q, w in weights.items()
    )
    assert _moved(bound, owners) == _least(bound, weights)


@pytest.mark.parametrize("count", [4, 64])
def test_half_of_the_slots_need_not_move(count: int) -> None:
    """The first half has both queues, and the second half the first queue: nothing has to move."""
    bound = {
        slot: ("a", "b") if number < count // 2 else ("a",)
        for number, slot in enumerate(SlotNames("x", count).slots)
    }
    assert _moved(bound, _owners(bound, {"a": 1, "b": 1})) == 0


def test_many_slots_with_several_queues_do_not_take_long() -> None:
    queues = [f"q{n}" for n in range(50)]
    slots = SlotNames("x", 1024).slots
    bound = {slot: (queues[n % 25], queues[n % 25 + 25]) for n, slot in enumerate(slots)}
    assert _moved(bound, _owners(bound, dict.fromkeys(queues, 1))) == 0
