"""The fewest slots change hands: against all assignments of small cases, and by the bounds on generated ones."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.routing.slot_table import assign_slots, slot_counts

QUEUES = ("a", "b", "c")


def moved(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before.get(slot) != queue for slot, queue in after.items())


def within_bounds(after: dict[int, str], weights: dict[str, int]) -> bool:
    held, total = Counter(after.values()), sum(weights.values())
    floors = {queue: len(after) * weight // total for queue, weight in weights.items()}
    ceilings = {queue: -(-len(after) * weight // total) for queue, weight in weights.items()}
    return set(held) <= set(weights) and all(
        floors[queue] <= held[queue] <= ceilings[queue] for queue in weights
    )


@pytest.mark.parametrize("slots", [3, 4, 5, 6])
def test_no_assignment_within_the_bounds_moves_fewer(slots: int) -> None:
    every = [dict(enumerate(queues)) for queues in product(QUEUES, repeat=slots)]
    befores = [*every[::7], {}, {0: "gone", 1: "a"}]
    for weights in ({"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 1}, {"c": 1}):
        if slots < sum(weights.values()):
            continue  # a queue might get none, which is refused
        allowed = [after for after in every if within_bounds(after, weights)]
        for before in befores:
            after = assign_slots(range(slots), before, weights)
            assert within_bounds(after, weights)
            assert moved(before, after) == min(moved(before, other) for other in allowed)


def test_a_hundred_thousand_generated_cases_keep_the_bounds() -> None:
    """The fewest moves are counted from the numbers of slots alone, which takes no search."""
    numbers = random.Random(20261121)  # noqa: S311  # no secret
    for _ in range(100_000):
        count = numbers.randint(1, 12)
        weights = {f"q{n}": numbers.randint(1, 4) for n in numbers.sample(range(16), count)}
        slots = numbers.randint(4 * count, 4 * count + 40)
        held = Counter(f"q{numbers.randrange(16)}" for _ in range(slots))
        counts = slot_counts(slots, weights, held)
        total = sum(weights.values())
        assert sum(counts.values()) == slots
        extra = slots - sum(slots * weight // total for weight in weights.values())
        keepable = sum(min(held[queue], slots * weight // total) for queue, weight in weights.items())
        hungry = sum(
            held[queue] > slots * weight // total and slots * weight % total > 0
            for queue, weight in weights.items()
        )
        assert sum(min(held[queue], counts[queue]) for queue in weights) == keepable + min(extra, hungry)
        for queue, weight in weights.items():
            assert abs(counts[queue] * total - slots * weight) < total


@given(st.permutations([("a", 3), ("b", 1), ("c", 2), ("d", 1)]), st.integers(8, 64))
def test_the_order_of_the_weights_does_not_matter(weights: list[tuple[str, int]], slots: int) -> None:
    before = {slot: "abcd"[slot % 4] for slot in range(slots)}
    assert assign_slots(range(slots), before, dict(weights)) == assign_slots(
        range(slots), before, dict(sorted(weights))
    )


def test_the_same_weights_again_move_nothing() -> None:
    first = assign_slots(range(64), {}, {"a": 1, "b": 2, "c": 3})
    assert assign_slots(range(64), first, {"a": 1, "b": 2, "c": 3}) == first


@pytest.mark.parametrize(
    ("slots", "weights", "says"),
    [
        (4, {}, "no queue to share the slots"),
        (4, {"a": 0}, "the weight of 'a' is 0"),
        (4, {"a": True}, "the weight of 'a' is True"),
        (4, {"a": 1.5}, "the weight of 'a' is 1.5"),
        (4, {"a": 100, "b": 1}, "queue 'b' would get none of the 4 slots, with a weight of 1 of 101"),
        (1, {"a": 1, "b": 1}, "would get none of the 1 slots"),
    ],
)
def test_what_cannot_be_assigned(slots: int, weights: dict[str, int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        assign_slots(range(slots), {}, weights)
