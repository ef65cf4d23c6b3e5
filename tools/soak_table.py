"""The part of docs/guarantees.md that says what `make soak` has measured, from docs/figures/soak.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tables import table

_RESULTS = Path(__file__).resolve().parents[1] / "docs" / "figures" / "soak.json"


def soak(measured: Mapping[str, Any] | None = None) -> str:
    """Return what was measured: a sentence, and a row for the processes of each role."""
    run: Mapping[str, Any] = json.loads(_RESULTS.read_text()) if measured is None else measured
    columns = (
        "processes",
        "number",
        "MB each, mean",
        "MB/h, steepest",
        "bound",
        "open files each, mean",
        "files/h, steepest",
    )
    rows: str = table(columns, _rows(run))
    left = " and ".join(f"{count} {kind}" for kind, count in run["left"].items())
    return (
        f"{run['minutes']:g} minutes on {run['machine']}, RabbitMQ {run['release']} in a container on the same machine: "
        f"{run['rows']:,} rows, {run['restarts']} kills, {run['lost']:,} rows lost, {run['repeated']:,} repeated. Reading "
        f"resumed within {run['read_again_within_s']:g} s of each start. After the run the broker had {left}, and every "
        "process had ended.\n\n" + rows
    )


def _rows(run: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for what, members in groupby(run["growth"], key=lambda process: process["what"]):
        processes = list(members)
        files = [process for process in processes if process["mean_files"] is not None]
        yield (
            what,
            str(len(processes)) if files else "",
            f"{sum(process['mean_mb'] for process in processes) / len(processes):.0f}",
            f"{max(process['mb_per_hour'] for process in processes):+.1f}",
            f"{run['most_mb_per_hour'][what]:g}",
            f"{sum(process['mean_files'] for process in files) / len(files):.0f}" if files else "",
            f"{max(process['files_per_hour'] for process in files):+.1f}" if files else "",
        )
