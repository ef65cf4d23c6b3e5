"""The records of `make long WHAT=fire` and `WHAT=soak` in docs/figures: totals for docs/guarantees.md, and every run for the site."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from tables import table

_ROOT = Path(__file__).resolve().parents[1]
RESULTS = _ROOT / "docs" / "figures" / "guarantees.jsonl"
SOAK_RESULTS = _ROOT / "docs" / "figures" / "soak.json"
_PATHS = (
    "Publisher",
    "Spark batch",
    "Spark stream",
    "StreamPublisher",
    "StreamReader",
    "Spark into streams",
    "Spark from streams into streams",
    "ConsumerGroup",
    "StreamGroup",
    "apply",
)
_SUBJECTS = {"Spark batch": "Spark into queues", "Spark stream": "Spark into queues"}
_RULE_OF_THREE = 3  # no event in n trials: with 95% confidence its rate is below 3/n
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
    "two members at once, s",
)
_OF_GROUP = (
    "refused",
    "queue_pause_s",
    "group_pause_s",
    "all_back_s",
    "overlap_s",
    "repeats_at_change",
    "repeats_bound",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRecord:
    """One run of one test on one release.

    Attributes:
        path: what published: ``"Publisher"``, ``"Spark batch"``, ...; or what consumed: ``"ConsumerGroup"``.
        fault: what happened, in words for users.
        promise: what is promised under it, in words for users.
        release: the broker's version.
        test: the test's node id without the release.
        rows: rows that were handed over.
        confirmed: rows that were reported as confirmed.
        lost: confirmed rows that are in no queue; of a group, those that were not handled.
        repeated: copies beyond the first of a row; of a group, messages that were handled again.
        out_of_order: first copies that overtook another of their key; None where order is not promised.
        wrong_queue: rows in another queue than predicted; None where that was not checked.
        recover_s: seconds from the end of the fault until the next confirm, or until a group handles the next message; None where
            that makes no sense.
        outcome: ``"complete"``, or the error's first words.
        seconds: how long the whole test took.
        date: the day of the run, such as ``"2026-01-31"``.
        machine: what it ran on.
        gone: confirmed rows that the fault itself removed, such as those of a queue that it deletes.
        moved: copies in another queue than the ring named at first, since the fault has changed the ring.
        refused: of a group: effects that a store refused, as it had seen a higher generation; None where it does not ask.
        queue_pause_s: of a group: the longest time without an effect of one of the queues.
        group_pause_s: of a group: the longest time without any effect; None for a publisher's record.
        all_back_s: of a group: seconds from the end of the fault until each member has handled a message again.
        overlap_s: of a group: the longest time for which a member still wrote effects of a queue that another one had; None in older
            records.
        repeats_at_change: of a group of streams: the most rows of a stream that one change of its owner repeated.
        repeats_bound: the largest number of rows that it may repeat.
    """

    path: str
    fault: str
    promise: str
    release: str
    test: str
    rows: int
    confirmed: int
    lost: int
    repeated: int
    out_of_order: int | None
    wrong_queue: int | None
    recover_s: float | None
    outcome: str
    seconds: float
    date: str
    machine: str
    gone: int = 0
    moved: int = 0
    refused: int | None = None
    queue_pause_s: float | None = None
    group_pause_s: float | None = None
    all_back_s: float | None = None
    overlap_s: float | None = None
    repeats_at_change: int | None = None
    repeats_bound: int | None = None

    @property
    def of_group(self) -> bool:
        """Whether it is of a group of consumers."""
        return self.group_pause_s is not None

    @property
    def place(self) -> tuple[str, str]:
        """The key of the record."""
        return self.test, self.release


def read_records(path: Path) -> list[FireRecord]:
    """Return the records of a file, in its order; none where there is no file."""
    return _parsed(path.read_text(encoding="utf-8")) if path.exists() else []


def replace_records(
    path: Path, records: Iterable[FireRecord], *, gone: Iterable[tuple[str, str]] = ()
) -> None:
    """Put records into a file in place of the older ones of the same tests and releases.

    Several processes may do so at once.

    Args:
        path: the file, a line of JSON for each record, sorted by test and release.
        records: the new ones.
        gone: test and release of records that are no longer valid.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        file.seek(0)
        by_place = {record.place: record for record in _parsed(file.read())}
        for place in gone:
            by_place.pop(place, None)
        by_place |= {record.place: record for record in records}
        file.seek(0)
        file.truncate()
        file.writelines(
            json.dumps(_fields(by_place[place]), ensure_ascii=False) + "\n" for place in sorted(by_place)
        )


def _fields(record: FireRecord) -> dict[str, Any]:
    """Return the fields of a record, of those of groups only the measured ones."""
    return {
        name: value for name, value in asdict(record).items() if value is not None or name not in _OF_GROUP
    }


def _parsed(text: str) -> list[FireRecord]:
    return [FireRecord(**json.loads(line)) for line in text.splitlines()]


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
    share = f"{100 * _RULE_OF_THREE / len(records):.1f}%"
    return (
        f"With 95% confidence, fewer than {share} of such runs lose a row. The bound counts runs, since the rows of a run "
        "share its fault." + _recovery(records)
    )


def _recovery(records: Iterable[FireRecord]) -> str:
    """Return how long publishers waited for the next confirm."""
    waits = [
        record.recover_s
        for record in records
        if record.recover_s is not None and _plain_path(record) == "Publisher"
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
        _seconds(record.overlap_s),
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


def soak(measured: Mapping[str, Any] | None = None) -> str:
    """Return what was measured: a sentence, and a row for the processes of each role."""
    run: Mapping[str, Any] = (
        json.loads(SOAK_RESULTS.read_text(encoding="utf-8")) if measured is None else measured
    )
    columns = (
        "processes",
        "number",
        "MB each, mean",
        "MB/h, steepest",
        "bound",
        "open files each, mean",
        "files/h, steepest",
    )
    rows: str = table(columns, _soak_rows(run))
    left = " and ".join(f"{count} {kind}" for kind, count in run["left"].items())
    return (
        f"{run['minutes']:g} minutes on {run['machine']}, RabbitMQ {run['release']} in a container on the same machine: "
        f"{run['rows']:,} rows, {run['restarts']} kills, {run['lost']:,} rows lost, {run['repeated']:,} repeated. Reading "
        f"resumed within {run['read_again_within_s']:g} s of each start. After the run the broker had {left}, and every "
        "process had ended.\n\n" + rows
    )


def _soak_rows(run: Mapping[str, Any]) -> Iterator[Sequence[str]]:
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
