"""Stored plans of each scenario of tests/support/plan_scenarios.py; review any difference.

``PYTHONPATH=tests/support python tests/unit/topology/planning/test_stored_plans.py --update`` writes them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plan_scenarios import SCENARIOS, stored_texts

pytestmark = pytest.mark.all_seeds

_FOLDER = Path(__file__).parent / "plans"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_plan_is_as_stored_in_every_form(name: str) -> None:
    for ending, text in stored_texts(name).items():
        stored = (_FOLDER / f"{name}{ending}").read_text(encoding="utf-8")
        assert text == stored, (
            f"{name}{ending} differs: run this file with --update, and review the difference"
        )


def test_no_plan_has_the_words_of_version_1() -> None:
    for path in _FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert '"says"' not in text
        assert '"cure"' not in text


def test_each_stored_plan_has_a_scenario() -> None:
    stored = {path.name for path in _FOLDER.iterdir()}
    assert {name + ending for name in SCENARIOS for ending in (".json", ".txt")} <= stored
    assert {Path(name).stem for name in stored} == {*SCENARIOS}
    assert len(SCENARIOS) >= 40


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    for path in _FOLDER.iterdir():
        path.unlink()
    for name in SCENARIOS:
        for ending, text in stored_texts(name).items():
            (_FOLDER / f"{name}{ending}").write_text(text, encoding="utf-8")
