"""Stored plans: any change of one is a difference to review. ``python tools/golden_plans.py`` makes them again."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_scenarios import SCENARIOS, stored_text

_FOLDER = Path(__file__).parent / "plans"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_plan_is_as_stored(name: str) -> None:
    stored = (_FOLDER / f"{name}.json").read_text(encoding="utf-8")

    assert stored_text(name) == stored, "run tools/golden_plans.py, and review the difference"


def test_each_stored_plan_has_a_scenario() -> None:
    assert {path.stem for path in _FOLDER.iterdir()} == set(SCENARIOS)
