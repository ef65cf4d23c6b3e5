"""The table of docs/performance.md that compares other clients, and the programs of the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import peer_table

ROOT = Path(__file__).resolve().parents[3]
OURS = {"client": "rabbit_chx", "mode": "none", "into": "sub-entries", "rate": 1_300_000, "of_ours": 1.0}
COSTS = {"client_cpu": 0.0241, "broker_cpu": 0.018, "lacks": "each row once"}
RUN: dict[str, Any] = {
    "release": "4.3.6",
    "date": "2026-01-31",
    "cores": 2,
    "load": 0.1,
    "rounds": 3,
    "quick": False,
    "versions": {"rabbit_chx": "1.0", "rbfly": "0.10.0"},
    "missing": {"Java client": "javac is not on PATH"},
    "ways": [OURS | COSTS, OURS | COSTS | {"client": "rbfly", "rate": 650_000, "of_ours": 0.5}],
}


def rows(run: dict[str, Any]) -> dict[str, list[str]]:
    """Return the cells of each row by the client."""
    lines = [
        line.strip("|").split("|") for line in peer_table.peers(run).splitlines() if line.startswith("|")
    ]
    return {cells[0]: cells[1:] for cells in lines}


def test_a_client_that_was_measured() -> None:
    table = rows(RUN)
    assert table["rabbit_chx"][1:4] == ["1,300,000", "1.00", "0.024"]
    assert table["rbfly 0.10.0"] == [
        "sub-entries, none",
        "650,000",
        "0.50",
        "0.024",
        "0.018",
        "each row once",
    ]


def test_clients_that_were_not_measured_are_in_the_table() -> None:
    table = rows(RUN)
    assert table["Java client"] == ["not installed", "", "", "", "", "javac is not on PATH"]
    published = [cells for cells in table.values() if cells[-1] == "not measured by us"]
    assert len(published) == 4
    assert all("](https://" in cells[0] for cells in published)


def test_a_quick_run_is_marked() -> None:
    assert "medians of 3 rounds" in peer_table.peers(RUN)
    assert "not a figure" in peer_table.peers(RUN | {"quick": True})


def test_the_file_of_the_page_has_every_client_of_the_benchmark() -> None:
    run = json.loads(peer_table.RESULTS.read_text(encoding="utf-8"))
    listed = {way["client"] for way in run["ways"]} | {name.partition(",")[0] for name in run["missing"]}
    command = "import peers; print(*peers.CLIENTS, sep=chr(10))"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT / "bench", capture_output=True, text=True, check=True
    )
    assert listed == set(done.stdout.split("\n")[:-1])
