"""The table of docs/support.md: what `make long WHAT=releases` ran on each release."""

from __future__ import annotations

import json
import re
from collections import Counter
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
    lines = ["| RabbitMQ | date | passed | not run |", "| --- | --- | ---: | --- |"]
    for release, run in sorted(
        runs.items(), key=lambda item: tuple(map(int, item[0].split("."))), reverse=True
    ):
        lines.append(f"| {release} | {run['date']} | {run['passed']} | {_in_words(run['skipped'])} |")
    return "\n".join(lines)


def _in_words(skipped: dict[str, int]) -> str:
    """Return one text of the tests that did not run: those that need other releases by these, then the others by their reasons."""
    needs, counts, others = dict[str, list[str]](), Counter[str](), list[str]()
    for reason, count in skipped.items():
        if need := re.fullmatch(r"need (before )?([\d.]+)( or newer)?(?: \((.*)\))?", reason):
            releases = f"{need[1] or ''}{need[2].removesuffix('.0')}{need[3] or ''}"
            counts[releases] += count
            needs.setdefault(releases, []).extend([need[4]] if need[4] else [])
        elif missing := re.match(r"NOT TRIED: there is no (\S+) on this machine", reason):
            others.append(f"{count}: no {missing[1]} on the machine")
        else:
            others.append(f"{count}: {reason}")
    texts = [
        f"{counts[releases]} need {releases}" + (f" ({'; '.join(about)})" if about else "")
        for releases, about in needs.items()
    ]
    return "; ".join([*texts, *others]) or "none"
