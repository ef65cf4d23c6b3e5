"""Runs that once showed a fault. Each file holds its scenario whole, and the story of the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_faults import Scenario
from simulated_run import simulate
from simulated_scenarios import scenario_of

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_run_that_once_failed_keeps_its_promises(file: Path) -> None:
    scenario = Scenario.from_json(file.read_text(encoding="utf-8"))
    assert scenario.story, "say what was wrong"
    outcome = simulate(scenario)
    assert not outcome.faults, f"{scenario.story}\n{outcome}"


def test_a_scenario_is_the_same_after_a_file() -> None:
    for seed in range(100):
        scenario = scenario_of(seed)
        assert Scenario.from_json(scenario.to_json()) == scenario


def test_a_run_is_the_same_each_time() -> None:
    for seed in range(20):
        first, second = simulate(scenario_of(seed)), simulate(scenario_of(seed))
        assert str(first) == str(second)
        assert first.seconds == second.seconds
