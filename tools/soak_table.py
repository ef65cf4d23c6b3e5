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
    found: Mapping[str, Any] = json.loads(_RESULTS.read_text()) if measured is None else measured
    columns = (
        "processes",
        "number",
        "MB each, mean",
        "MB/h, steepest",
        "at most",
        "open files each, mean",
        "files/h, steepest",
    )
    rows: str = table(columns, _rows(found))
    left = " and ".join(f"{count} {kind}" for kind, count in found["left"].items())
    return (
        f"{found['minutes']:g} minutes on {found['machine']}, RabbitMQ {found['release']} in a container on the same machine: "
        f"{found['rows']:,} rows, {found['restarts']} times `kill -9` and a start. After each start rows were read "
        f"again within {found['read_again_within_s']:g} s. {found['lost']:,} rows are lost, {found['repeated']:,} came twice. "
        f"At the end {left} are left on the broker, and no process.\n\n" + rows
    )


def _rows(found: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for what, members in groupby(found["growth"], key=lambda one: one["what"]):
        ones = list(members)
        files = [one for one in ones if one["mean_files"] is not None]
        yield (
            what,
            str(len(ones)) if files else "",
            f"{sum(one['mean_mb'] for one in ones) / len(ones):.0f}",
            f"{max(one['mb_per_hour'] for one in ones):+.1f}",
            f"{found['most_mb_per_hour'][what]:g}",
            f"{sum(one['mean_files'] for one in files) / len(files):.0f}" if files else "",
            f"{max(one['files_per_hour'] for one in files):+.1f}" if files else "",
        )
