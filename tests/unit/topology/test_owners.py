"""The fewest slots move, held against all owners of small cases; of several queues a slot has the first that is a member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.slots import SlotNames, assign_owners

_QUEUES = ("a", "b", "c")
#: Each queue that a slot may have, and none; "d" is no member.
_SETS = [(), *((queue,) for queue in (*_QUEUES, "d"))]
_EMPTY = HashRing.from_buckets([])


def _moved(bound: Mapping[str, tuple[str, ...]], owners: dict[str, str]) -> int:
    return sum(owners[slot] not in queues for slot, queues in bound.items())


def _owners(bound: Mapping[str, tuple[str, ...]], weights: dict[str, int]) -> dict[str, str]:
    members = [RingMember(queue, str(weight)) for queue, weight in weights.items()]
    return assign_owners(
        SlotNames("x", len(bound)),
        members,
        _EMPTY,
        {ExchangeRef(slot): queues for slot, queues in bound.items()},
    )


def _least(bound: Mapping[str, tuple[str, ...]], weights: dict[str, int]) -> int:
    """Return the fewest slots that move, of all ways to give each queue its quota, rounded down or up."""
    total, count = sum(weights.values()), len(bound)
    found = []
    for queues in product(weights, repeat=count):
        held = Counter(queues)
        if all(count * w // total <= held[q] <= -(-count * w // total) for q, w in weights.items()):
            found.append(_moved(bound, dict(zip(bound, queues, strict=True))))
    return min(found)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(_SETS), min_size=3, max_size=6),
    st.sampled_from(
        [{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"b": 2, "c": 1}, {"a": 2, "b": 3}]
    ),
)
def test_no_other_owners_move_fewer_slots(sets: list[tuple[str, ...]], weights: dict[str, int]) -> None:
    bound = dict(zip(SlotNames("x", len(sets)).slots, sets, strict=True))
    owners = _owners(bound, weights)
    held, total = Counter(owners.values()), sum(weights.values())
    assert all(abs(held[q] * total - len(sets) * w) < total for q, w in weights.items())
    assert _moved(bound, owners) == _least(bound, weights)


def test_a_slot_with_several_queues_keeps_the_first_that_is_a_member() -> None:
    """A mover leaves none such, because it unbinds before it binds."""
    sets = [("a", "b"), ("d", "b"), ("b",), ("a", "b", "c")]
    bound = dict(zip(SlotNames("x", 4).slots, sets, strict=True))
    assert list(_owners(bound, {"a": 1, "b": 1}).values()) == ["a", "b", "b", "a"]


def test_a_slot_with_two_queues_moves_where_the_weights_do_not_let_it_stay() -> None:
    bound = dict(zip(SlotNames("x", 4).slots, [("a", "b"), ("a",), ("a",), ("a",)], strict=True))
    assert Counter(_owners(bound, {"a": 1, "b": 1}).values()) == {"a": 2, "b": 2}
