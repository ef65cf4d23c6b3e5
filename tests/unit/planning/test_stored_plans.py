"""Stored plans of each scenario of `plans.toml`, and the steps of those of `steps.toml`; review any difference.

``PYTHONPATH=tests/support python tests/unit/planning/test_stored_plans.py --update`` writes them.
"""

from __future__ import annotations

import io
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from plan_scenarios import SCENARIOS
from stored_scenarios import Scenario, read_scenarios, stored_sections, write_sections

from rabbit_chx.planning.plan_report import plan_parts, plan_report
from rabbit_chx.rendering.output import ConsoleOutput, MarkdownOutput
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import plan

pytestmark = pytest.mark.all_seeds

_FOLDER = Path(__file__).parent / "plans"
_STEPS = Path(__file__).with_name("steps.txt")
SMALL = read_scenarios(_STEPS.with_suffix(".toml"))
_WIDTH = 100
#: The scenarios whose Markdown is stored too. It has the same blocks as the text for a terminal.
_PAGES = {
    "04-a-queue-is-added-in-the-middle",
    "21-what-is-owned-is-deleted",
    "37-names-that-a-page-or-a-terminal-takes-for-something-else",
    "39-half-of-many-queues-goes",
    "46-slots-for-another-queue",
}


def stored_texts(name: str) -> dict[str, str]:
    """Return the stored plan of a scenario by file ending: JSON, text for a terminal, and of some scenarios Markdown."""
    made = plan(*SCENARIOS[name])
    report = plan_report(made, list(plan_parts(made, [("file", "topology.toml")])))
    console, page = io.StringIO(), io.StringIO()
    ConsoleOutput(console, _WIDTH).show(report)
    texts = {".json": _lines(report.as_json()), ".txt": console.getvalue()}
    if name in _PAGES:
        MarkdownOutput(page).show(report)
        texts[".md"] = page.getvalue()
    return texts


def _lines(document: dict[str, Any]) -> str:
    """Return the JSON, with each change, ring and refusal on a line of its own."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            entries = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in value)
            lines.append(f" {json.dumps(key)}: [\n{entries}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def steps_text(scenario: Scenario) -> str:
    """Return the steps of a plan, its rings with the shares moved, moved at the peak and lost, and what it prints."""
    assert scenario.wanted is not None
    made = plan(scenario.wanted, scenario.live)
    lines = [str(change) for change in made.changes]
    for name, ring in made.rings.items():
        after = ring.after.buckets if isinstance(ring.after, HashRing) else ring.after.destinations
        places = " ".join(f"{place}:{len(list(runs))}" for place, runs in groupby(after))
        lines.append(f"{name}: {places}; {ring.moved:.3%} {ring.moved_at_worst:.3%} {ring.lost_at_worst:.3%}")
    lines += [f"unmanaged {subject.kind} {subject.name}" for subject in made.unmanaged]
    lines += [f"refusal {found.kind} [{found.destination}] [{found.allow_with}]" for found in made.refusals]
    lines += [line for line in str(made).splitlines() if not line.startswith("checksum")]
    return "\n".join(lines)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_plan_is_as_stored_in_every_form(name: str) -> None:
    for ending, text in stored_texts(name).items():
        stored = (_FOLDER / f"{name}{ending}").read_text(encoding="utf-8")
        assert text == stored, (
            f"{name}{ending} differs: run this file with --update, and review the difference"
        )


@pytest.mark.parametrize("name", SMALL)
def test_the_steps_and_reasons_are_as_stored(name: str) -> None:
    assert steps_text(SMALL[name]) == stored_sections(_STEPS)[name], (
        "write it again, and review the difference"
    )


def test_each_stored_plan_has_a_scenario() -> None:
    stored = {path.name for path in _FOLDER.iterdir()}
    assert {name + ending for name in SCENARIOS for ending in (".json", ".txt")} <= stored
    assert {Path(name).stem for name in stored} == {*SCENARIOS}
    assert list(stored_sections(_STEPS)) == list(SMALL)
    assert [name for name, scenario in SMALL.items() if scenario.options] == []


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    for path in _FOLDER.iterdir():
        path.unlink()
    for name in SCENARIOS:
        for ending, text in stored_texts(name).items():
            (_FOLDER / f"{name}{ending}").write_text(text, encoding="utf-8")
    write_sections(_STEPS, {name: steps_text(scenario) for name, scenario in SMALL.items()})
