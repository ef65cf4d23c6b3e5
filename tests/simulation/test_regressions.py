"""Runs that once showed a fault. Each file holds its scenario whole, and the story of the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_run import simulate
from simulated_scenarios import Scenario

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_run_that_once_failed_keeps_its_promises(file: Path) -> None:
    scenario = Scenario.from_json(file.read_text(encoding="utf-8"))
    assert scenario.story, "say what was wrong"
    outcome = simulate(scenario)
    assert not outcome.faults, f"{scenario.story}\n{outcome}"
