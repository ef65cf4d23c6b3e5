"""The results of `make fire` in docs/figures/guarantees.jsonl: totals for docs/guarantees.md, and every run for the site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median

from fire_record import FireRecord, read_records
from tables import table

_ROOT = Path(__file__).resolve().parents[1]
RESULTS = _ROOT / "docs" / "figures" / "guarantees.jsonl"
_PATHS = (
    "Publisher",
    "AsyncPublisher",
    "Spark batch",
    "Spark stream",
    "StreamPublisher",
    "StreamReader",
    "Spark into streams",
    "Spark from streams into streams",
    "ConsumerGroup",
)
_SUBJECTS = {"Spark batch": "Spark into queues", "Spark stream": "Spark into queues"}
_RULE_OF_THREE = 3  # no event in n trials: with 95 % confidence its rate is below 3/n
_TOTALS = ("", "runs", "confirmed", "lost", "repeated", "out of order", "removed")
_COLUMNS = (
    "fault",
    "guarantee",
    "RabbitMQ",
    "rows",
    "confirmed",
    "lost",
    "repeated",
    "out of order",
    "wrong queue",
    "recovered after, s",
    "result",
)
_GROUP_COLUMNS = (
    "fault",
    "guarantee",
    "RabbitMQ",
    "messages",
    "lost",
    "repeated",
    "out of order",
    "refused by the store",
    "longest pause of a queue, s",
    "longest pause of the group, s",
    "handles again after, s",
    "each member after, s",
)


def measured(records: Sequence[FireRecord] | None = None) -> str:
    """Return when and where the runs were made, their totals for each subject, and a bound on the rate of loss."""
    records = _records() if records is None else records
    days = sorted({record.date for record in records})
    machines = " and ".join(sorted({record.machine for record in records}))
    releases = " and ".join(sorted({record.release for record in records}, key=_version, reverse=True))
    return (
        f"{len(records):,} runs, {' to '.join(dict.fromkeys((days[0], days[-1])))}, RabbitMQ {releases} in containers "
        f"on the same machine ({machines}):\n\n{table(_TOTALS, _totals(records))}\n\n{_confidence(records)}"
    )


def _totals(records: Iterable[FireRecord]) -> Iterator[Sequence[str]]:
    by_subject: dict[str, list[FireRecord]] = {}
    for record in sorted(records, key=lambda record: _path_rank(_plain_path(record))):
        path = _plain_path(record)
        by_subject.setdefault(_SUBJECTS.get(path, path), []).append(record)
    for subject, members in by_subject.items():
        counts = (
            len(members),
            sum(record.confirmed for record in members),
            sum(record.lost for record in members),
            sum(record.repeated for record in members),
            sum(record.out_of_order or 0 for record in members),
            sum(record.gone for record in members),
        )
        yield subject, *(f"{count:,}" for count in counts)


def _confidence(records: Sequence[FireRecord]) -> str:
    lost = sum(record.lost for record in records)
    if lost:
        return f"{lost:,} confirmed rows were lost."
    share = f"{100 * _RULE_OF_THREE / len(records):.1f} %"
    return (
        f"With 95 % confidence, fewer than {share} of such runs lose a row. The bound counts runs, since the rows of a run "
        "share its fault." + _recovery(records)
    )


def _recovery(records: Iterable[FireRecord]) -> str:
    """Return how long publishers waited for the next confirm."""
    waits = [
        record.recover_s
        for record in records
        if record.recover_s is not None and _plain_path(record) in {"Publisher", "AsyncPublisher"}
    ]
    if not waits:
        return ""
    return (
        f" After the end of a fault, publishers received the next confirm within {median(waits):.1f} s (median) and "
        f"{max(waits):.1f} s (maximum)."
    )


def runs(records: Sequence[FireRecord] | None = None) -> str:
    """Return every run, in a table for each path."""
    records = _records() if records is None else records
    parts = []
    for path in sorted({record.path for record in records}, key=_path_rank):
        of_path = [record for record in records if record.path == path]
        of_group = of_path[0].of_group
        columns, row = (_GROUP_COLUMNS, _group_figures) if of_group else (_COLUMNS, _publisher_figures)
        parts.append(f"## {path}\n\n" + table(columns, _rows(of_path, row)))
    return "\n\n".join(parts)


def _rows(
    records: Iterable[FireRecord], figures_of: Callable[[FireRecord], Sequence[str]]
) -> Iterator[Sequence[str]]:
    for (fault, promise), members in groupby(records, key=lambda record: (record.fault, record.promise)):
        for number, record in enumerate(members):
            yield *((fault, promise) if number == 0 else ("", "")), record.release, *figures_of(record)


def _publisher_figures(record: FireRecord) -> Sequence[str]:
    return (
        f"{record.rows:,}",
        f"{record.confirmed:,}",
        f"{record.lost:,}",
        f"{record.repeated:,}",
        _count(record.out_of_order),
        _count(record.wrong_queue),
        _seconds(record.recover_s),
        _result(record),
    )


def _group_figures(record: FireRecord) -> Sequence[str]:
    return (
        f"{record.confirmed:,}",
        f"{record.lost:,}",
        f"{record.repeated:,}",
        _count(record.out_of_order),
        _count(record.refused),
        _seconds(record.queue_pause_s),
        _seconds(record.group_pause_s),
        _seconds(record.recover_s),
        _seconds(record.all_back_s),
    )


def _result(record: FireRecord) -> str:
    removed = f"{record.gone:,} confirmed rows removed by the fault" if record.gone else ""
    moved = f"{record.moved:,} rows in another queue after a change of the ring" if record.moved else ""
    return "; ".join(part for part in (record.outcome, removed, moved) if part)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


@cache
def _records() -> list[FireRecord]:
    """Return all records, in the order of the paths and of the tests in their files."""
    return sorted(
        read_records(RESULTS),
        key=lambda record: (
            _path_rank(record.path),
            _test_position(record.test),
            record.fault,
            [-part for part in _version(record.release)],
        ),
    )


def _test_position(test: str) -> tuple[str, int]:
    """Return the file of a test and its position in the file.

    Raises:
        SystemExit: the test does not exist, so its records are stale.
    """
    file, _, rest = test.partition("::")
    name = rest.partition("[")[0]
    path = _ROOT / file
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    position = source.find(f"def {name}(")
    if position < 0:
        raise SystemExit(f"{RESULTS.name} has records of {test}, which does not exist: remove these lines")
    return file, position


def _plain_path(record: FireRecord) -> str:
    return record.path.partition(",")[0]


def _path_rank(path: str) -> tuple[bool, int, str]:
    """Sort plain paths first, then variants such as ``"Publisher, three nodes"``."""
    plain, comma, _ = path.partition(",")
    return bool(comma), _PATHS.index(plain) if plain in _PATHS else len(_PATHS), path


def _version(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]
