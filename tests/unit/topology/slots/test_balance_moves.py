"""The moves that are found: against each way to share out the slots of small cases, and by their bound in large ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product

import pytest

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.slots.balance import MoveProblem, find_moves, find_obstacle


def problem_of(
    loads: Sequence[float], owners: Sequence[int], limits: Sequence[float | None], own: Sequence[float]
) -> MoveProblem:
    """Return slots and queues that are given by their numbers."""
    slots = [ExchangeRef(f"slot.{number}") for number in range(len(loads))]
    return MoveProblem(
        dict(zip(slots, loads, strict=True)),
        {slot: f"q{owner}" for slot, owner in zip(slots, owners, strict=True)},
        {f"q{number}": limit for number, limit in enumerate(limits)},
        {f"q{number}": load for number, load in enumerate(own)},
    )


def small_problem(numbers: random.Random) -> MoveProblem:
    """Return up to seven slots and three queues; one queue may have to give all its slots away."""
    queues = numbers.randint(2, 3)
    loads: list[float] = [numbers.choice((0, 1, 2, 3, 5, 8, 13)) for _ in range(numbers.randint(1, 7))]
    if numbers.random() < 0.3:
        loads = [numbers.random() for _ in loads]
    own = [numbers.choice((0, 0, 0, 2)) for _ in range(queues)]
    part = (sum(loads) + sum(own)) / queues
    limits: list[float | None] = [numbers.choice((1.0, 1.1, 1.3, 2.0)) * part + 1e-9 for _ in range(queues)]
    if numbers.random() < 0.25:
        limits[0] = None
    return problem_of(loads, [numbers.randrange(queues) for _ in loads], limits, own)


def solves(problem: MoveProblem, moves: Mapping[ExchangeRef, str]) -> bool:
    """Return whether no queue is over its limit, or has a slot that it may not have."""
    holders, loads = {**problem.owners, **moves}.values(), problem.loads_after(moves)
    return all(
        queue not in holders if limit is None else loads[queue] <= limit
        for queue, limit in problem.limits.items()
    )


def bound(problem: MoveProblem) -> int:
    """Return the fewest moves that empty each queue down to its limit, whatever the others have room for."""
    count = 0
    for queue, slots in problem.slots_of.items():
        room = problem.rooms.get(queue or "", 0.0)
        left = sum(problem.loads[slot] for slot in slots)
        for slot in slots:
            if left <= room and queue in problem.rooms:
                break
            left -= problem.loads[slot]
            count += 1
    return count


def fewest(problem: MoveProblem) -> int | None:
    """Return the fewest moves of all ways to share out the slots."""
    counts = []
    for queues in product([str(queue) for queue in problem.limits], repeat=len(problem.loads)):
        owners = dict(zip(problem.loads, queues, strict=True))
        moves = {slot: queue for slot, queue in owners.items() if queue != problem.owners[slot]}
        if solves(problem, moves):
            counts.append(len(moves))
    return min(counts, default=None)


@pytest.mark.extended
def test_small_cases_are_held_against_each_way_to_share_out_the_slots() -> None:
    numbers = random.Random(20261121)  # noqa: S311  # no secret
    solvable = solved = best = 0
    for _ in range(600):
        problem = small_problem(numbers)
        least, moves = fewest(problem), find_moves(problem)
        if least is None:
            assert moves is None
            continue
        solvable += 1
        assert find_obstacle(problem, (), 1.0) is None
        assert bound(problem) <= least
        if moves is not None:
            assert solves(problem, moves)
            assert all(problem.owners[slot] != queue for slot, queue in moves.items())
            solved += 1
            best += len(moves) == least
    assert solvable > 100
    assert solved / solvable > 0.9
    assert best / solved > 0.98


def large_problem(slots: int, queues: int, factor: float, seed: int) -> MoveProblem:
    """Return slots with the load of a few heavy keys and a long tail, none of them too hot for a queue."""
    numbers = random.Random(seed)  # noqa: S311  # no secret
    loads = [0] * slots
    for rank in range(1, 5_001):
        loads[numbers.randrange(slots)] += 100_000 // rank
    most = sum(loads) * 9 // 10 // queues
    loads = [min(load, most) for load in loads]
    limits = [factor * sum(loads) / queues] * queues
    return problem_of(loads, [slot % queues for slot in range(slots)], limits, [0] * queues)


@pytest.mark.parametrize(("slots", "queues"), [(64, 4), (128, 16), (1_024, 200)])
@pytest.mark.parametrize("factor", [1.2, 1.5, 2.0])
def test_large_cases_reach_the_target_and_say_how_far_they_may_be_from_the_fewest(
    slots: int, queues: int, factor: float
) -> None:
    problem = large_problem(slots, queues, factor, seed=slots)
    moves = find_moves(problem)
    if moves is None:
        # Five slots for each queue, some of them heavy, leave no slot that fits.
        assert find_obstacle(problem, (), 1.0) or (slots, factor) == (1_024, 1.5)
        return
    assert solves(problem, moves)
    assert bound(problem) <= len(moves) <= 3 * bound(problem)


@pytest.mark.parametrize(
    ("loads", "owners", "limits", "moves"),
    [
        pytest.param([1], [0], [1, 0], {}, id="what is at its limit stays"),
        pytest.param([1], [1], [1, 0], {0: 0}, id="a slot that fits exactly"),
        pytest.param([2, 1], [0, 0], [2, 6], {1: 1}, id="a slot that is just enough"),
    ],
)
def test_of_all_ways_a_short_one_is_found(
    loads: list[float], owners: list[int], limits: list[float], moves: dict[int, int]
) -> None:
    problem = problem_of(loads, owners, limits, [0] * len(limits))
    found = find_moves(problem)
    assert found == {ExchangeRef(f"slot.{slot}"): f"q{queue}" for slot, queue in moves.items()}
