"""100 seeds (`make long WHAT=simulate`: 100,000): what is called confirmed is in its queue, the counts are true, and every run ends."""

from __future__ import annotations

import pytest
from simulated_run import simulate
from simulated_scenarios import doubtful, scenario_of


@pytest.mark.parametrize("first", [0, 50])
def test_promises_are_kept_under_any_mixture_of_faults(first: int) -> None:
    for seed in range(first, first + 50):
        outcome = simulate(scenario_of(seed, fewest=20, most=800))
        assert not outcome.faults, (
            f"{outcome}\nagain: python tests/simulation/explore.py --seed {seed} --fewest 20 --most 800"
        )


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.extended] if first else []) for first in range(0, 1000, 100)],
)
def test_no_report_counts_a_row_in_a_queue_as_one_in_none(first: int) -> None:
    for seed in range(first, first + 100):
        outcome = simulate(doubtful(scenario_of(seed, fewest=20, most=80)))
        assert not outcome.faults, (
            f"{outcome}\nagain: simulate(doubtful(scenario_of({seed}, fewest=20, most=80)))"
        )
