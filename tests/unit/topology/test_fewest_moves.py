"""The fewest moves: against each way to share out the slots of small cases, and by their bounds in large ones."""

from __future__ import annotations

import random
from itertools import product

import pytest

from rabbit_chx.topology.balance_moves import MoveProblem, fewest_moves, greedy_moves

STEPS = 100_000


def small_problem(numbers: random.Random) -> MoveProblem:
    """Return up to seven slots and three queues; one queue may have to give all its slots away."""
    queues = numbers.randint(2, 3)
    loads: list[float] = [numbers.choice((0, 1, 2, 3, 5, 8, 13)) for _ in range(numbers.randint(1, 7))]
    if numbers.random() < 0.3:
        loads = [numbers.random() for _ in loads]
    fixed = [numbers.choice((0, 0, 0, 2)) for _ in range(queues)]
    part = (sum(loads) + sum(fixed)) / queues
    limits: list[float | None] = [numbers.choice((1.0, 1.1, 1.3, 2.0)) * part + 1e-9 for _ in range(queues)]
    if numbers.random() < 0.25:
        limits[0] = None
    return MoveProblem(loads, [numbers.randrange(queues) for _ in loads], limits, fixed)


def best_of_all(problem: MoveProblem) -> tuple[int, float] | None:
    """Return the fewest moves, and the least load among those, of all ways to share out the slots."""
    costs = []
    for queues in product(range(len(problem.limits)), repeat=len(problem.loads)):
        moves = {slot: queue for slot, queue in enumerate(queues) if queue != problem.owners[slot]}
        if problem.solved_by(moves):
            costs.append(problem.cost(moves))
    return min(costs, default=None)


def test_no_way_to_share_out_the_slots_is_better() -> None:
    numbers = random.Random(20261121)  # noqa: S311  # no secret
    solved = impossible = 0
    for _ in range(600):
        problem = small_problem(numbers)
        found, best = fewest_moves(problem, STEPS), best_of_all(problem)
        assert problem.at_least <= found.at_least
        if best is None:
            assert (found.moves, found.impossible) == (None, True)
            impossible += 1
            continue
        assert found.moves is not None
        assert problem.solved_by(found.moves)
        count, load = problem.cost(found.moves)
        assert count == best[0]
        assert load == pytest.approx(best[1])
        assert (found.at_least, found.least_load) == (count, True)
        solved += 1
    assert min(solved, impossible) > 100


def large_problem(slots: int, queues: int, factor: float, seed: int) -> MoveProblem:
    """Return slots with the load of a few heavy keys and a long tail, none of them too hot for a queue."""
    numbers = random.Random(seed)  # noqa: S311  # no secret
    loads = [0] * slots
    for rank in range(1, 5_001):
        loads[numbers.randrange(slots)] += 100_000 // rank
    most = sum(loads) * 9 // 10 // queues
    loads = [min(load, most) for load in loads]
    limits = [factor * sum(loads) / queues] * queues
    return MoveProblem(loads, [slot % queues for slot in range(slots)], limits, [0] * queues)


@pytest.mark.parametrize(("slots", "queues"), [(64, 4), (128, 16), (1_024, 200)])
@pytest.mark.parametrize("factor", [1.2, 1.5, 2.0])
def test_large_cases_reach_the_target_and_say_how_far_they_may_be_from_the_fewest(
    slots: int, queues: int, factor: float
) -> None:
    problem = large_problem(slots, queues, factor, seed=slots)
    found = fewest_moves(problem, 10_000)
    if found.moves is None:
        assert problem.hopeless
        return
    assert problem.solved_by(found.moves)
    assert problem.at_least <= found.at_least <= len(found.moves)


def test_the_quick_way_alone_is_a_way() -> None:
    numbers = random.Random(7)  # noqa: S311  # no secret
    ways = 0
    for _ in range(300):
        problem = small_problem(numbers)
        moves = greedy_moves(problem)
        if moves is not None:
            assert problem.solved_by(moves)
            ways += 1
    assert ways > 50


def test_a_search_that_ends_early_says_so() -> None:
    problem = large_problem(64, 4, 1.05, seed=64)
    searched, early = fewest_moves(problem, STEPS), fewest_moves(problem, 5)
    assert searched.moves is not None
    assert early.moves is not None
    assert early.at_least <= len(searched.moves) <= len(early.moves)
    assert not early.least_load


def test_a_swap_where_nothing_fits() -> None:
    """No slot fits into the other queue, but the heavy one and the light one can change places."""
    problem = MoveProblem([5, 2, 4, 1], [0, 0, 1, 1], [6, 6], [0, 0])
    assert greedy_moves(problem) == fewest_moves(problem, STEPS).moves == {1: 1, 3: 0}
