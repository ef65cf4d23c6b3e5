"""Scenarios of plans, of tests/unit/topology/planning/plans.toml: both sides of each, and the texts of its plan that are stored.

The stored plans are in tests/unit/topology/planning/plans; ``tests/unit/topology/planning/test_stored_plans.py --update`` writes them.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from sides import as_live
from stored_scenarios import read_scenarios

from rabbit_chx.cli.plan_report import PlanReport
from rabbit_chx.cli.printed import WordedReport
from rabbit_chx.rendering import ConsoleOutput, MarkdownOutput
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)

_FILE = Path(__file__).parents[1] / "unit" / "topology" / "planning" / "plans.toml"
_WIDTH = 100
#: The scenarios whose Markdown is stored too. It has the same blocks as the text for a terminal.
_PAGES = {
    "04-a-queue-is-added-in-the-middle",
    "21-what-is-owned-is-deleted",
    "37-names-that-a-page-or-a-terminal-takes-for-something-else",
    "39-half-of-many-queues-goes",
    "46-slots-for-another-queue",
}

#: No topology file may contain these names.
_ODD_NAMES = ["q{1..3}", "*new*\n# b", "@ops", "#12", "a\\b", "<br>", "\x1b[31m"]


def _odd_ring(names: list[str]) -> ExchangeDefinition:
    return ExchangeDefinition("orders | `all`", "x-consistent-hash", ring=tuple(map(RingMember, names)))


def _odd_names() -> tuple[Topology, LiveTopology]:
    limits = {"max-length": 5, "alternate-exchange": "a|b`c`"}
    wanted = Topology(
        (_odd_ring(_ODD_NAMES),), policies=(PolicyDefinition("p_1_", "^q|b$", definition=limits),)
    )
    there = [name for name in _ODD_NAMES if name != "*new*\n# b"]
    queues = (QueueDefinition("*new*\n# b"), QueueDefinition("left|over"))
    held = Topology((_odd_ring(there),), queues, cluster="rabbit@prod")
    release = Release("4.3.6")
    ring = HashRing.from_buckets(there, release, next_bucket=len(there))
    return wanted, as_live(held, release=release).with_rings({"orders | `all`": ring})


SCENARIOS: dict[str, tuple[Topology, LiveTopology]] = {
    name: (scenario.wanted, scenario.live)
    for name, scenario in read_scenarios(_FILE).items()
    if scenario.wanted
} | {"37-names-that-a-page-or-a-terminal-takes-for-something-else": _odd_names()}


def stored_texts(name: str) -> dict[str, str]:
    """Return the stored plan of a scenario by file ending: JSON, text for a terminal, and of some scenarios Markdown."""
    made = plan(*SCENARIOS[name])
    report = WordedReport(PlanReport(made, [("file", "topology.toml")]))
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
