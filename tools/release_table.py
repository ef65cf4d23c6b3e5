"""The table of docs/reference/support.md: what `make long WHAT=releases` ran on each release."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "figures" / "releases.json"


def record_run(path: Path, release: str, passed: int, skipped: dict[str, int], date: str) -> None:
    """Write the result of a run on a release into the file, in place of an earlier one.

    Args:
        path: the JSON file.
        release: the version of the broker.
        passed: the number of tests that passed.
        skipped: the number of tests by the reason for which they did not run.
        date: the day in ISO form.
    """
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    runs[release] = {"date": date, "passed": passed, "skipped": dict(sorted(skipped.items()))}
    path.write_text(json.dumps(dict(sorted(runs.items())), indent=2) + "\n", encoding="utf-8")


def releases() -> str:
    """Return the table."""
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))
    if not runs:
        return "No run is recorded yet."
    lines = ["| RabbitMQ | date | passed | not run |", "| --- | --- | ---: | ---: |"]
    for release, run in sorted(
        runs.items(), key=lambda item: tuple(map(int, item[0].split("."))), reverse=True
    ):
        lines.append(f"| {release} | {run['date']} | {run['passed']} | {sum(run['skipped'].values())} |")
    return "\n".join(lines)
