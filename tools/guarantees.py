"""The parts of docs/guarantees.md that say what `make fire` has measured, from docs/figures/guarantees.jsonl."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

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
    "ConsumerGroup",
)
_RULE_OF_THREE = 3  # no event in n trials: with 95 % confidence its rate is below 3/n


def measured(records: Sequence[FireRecord] | None = None) -> str:
    """Return when, where and how much was measured, and what is lost."""
    records = _records() if records is None else records
    groups = [record for record in records if record.of_group]
    streams = [record for record in records if record.of_stream]
    records = [record for record in records if not record.of_group and not record.of_stream]
    confirmed, lost = sum(record.confirmed for record in records), sum(record.lost for record in records)
    repeated, handed = sum(record.repeated for record in records), sum(record.rows for record in records)
    gone = sum(record.gone for record in records)
    return (
        f"{_where(records)}\n\n"
        f"**{lost:,} of {confirmed:,} confirmed rows are lost, in {len(records):,} runs.** "
        f"Not counted are {gone:,} rows of queues that were deleted. "
        f"{handed:,} rows were handed over, and {repeated:,} copies came beyond the first of a row.\n\n"
        + _confidence(lost, confirmed, len(records))
        + (f"\n\n{_measured_of_streams(streams)}" if streams else "")
        + (f"\n\n{_measured_of_groups(groups)}" if groups else "")
    )


def _measured_of_streams(records: Sequence[FireRecord]) -> str:
    confirmed, lost = sum(record.confirmed for record in records), sum(record.lost for record in records)
    repeated = sum(record.repeated for record in records)
    gone = sum(record.gone for record in records)
    late = sum(record.out_of_order or 0 for record in records)
    return (
        f"**Into streams, with a name and ids, {lost:,} of {confirmed:,} confirmed rows are lost, in {len(records):,} runs.** {late:,} are "
        f"out of order. {repeated:,} are there twice, where the stream had forgotten the name. Not counted are {gone:,} rows that went "
        f"with their stream or by its retention. {_where(records)}"
    )


def _where(records: Sequence[FireRecord]) -> str:
    days = sorted({record.date for record in records})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machines = " and ".join(sorted({record.machine for record in records}))
    releases = _listed(sorted({record.release for record in records}, key=_version, reverse=True))
    return f"Measured {when} on {machines}, RabbitMQ {releases} in containers on the same machine."


def _measured_of_groups(records: Sequence[FireRecord]) -> str:
    confirmed, lost = sum(record.confirmed for record in records), sum(record.lost for record in records)
    repeated, late = (
        sum(record.repeated for record in records),
        sum(record.out_of_order or 0 for record in records),
    )
    return (
        f"**A ConsumerGroup left {lost:,} of {confirmed:,} messages without being handled, in {len(records):,} runs.** {late:,} were "
        f"out of order. {repeated:,} were handled again, after a connection or a member was lost. {_where(records)}"
    )


def promises(records: Sequence[FireRecord] | None = None) -> str:
    """Return what is promised under each fault, and the test that shows it."""
    records = _records() if records is None else records
    paths_of: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], FireRecord] = {}
    for record in records:
        line = record.fault, record.promise
        first.setdefault(line, record)
        paths = paths_of.setdefault(line, [])
        if record.path not in paths:
            paths.append(record.path)
    parts = []
    lines = sorted(
        first, key=lambda line: [_path_rank(path) for path in sorted(paths_of[line], key=_path_rank)]
    )
    for paths, members in groupby(lines, key=lambda line: sorted(paths_of[line], key=_path_rank)):
        rows = ((fault, promise, _link(first[fault, promise].test)) for fault, promise in members)
        parts.append(f"### {_listed(paths)}\n\n" + table(("what happens", "what is promised", "test"), rows))
    return "\n\n".join(parts)


def figures(records: Sequence[FireRecord] | None = None) -> str:
    """Return all figures, a table for each path."""
    records = _records() if records is None else records
    parts = []
    for path in sorted({record.path for record in records}, key=_path_rank):
        of_path = [record for record in records if record.path == path]
        of_group = of_path[0].of_group
        columns, row = (_GROUP_COLUMNS, _group_figures) if of_group else (_COLUMNS, _publisher_figures)
        parts.append(f"### {path}\n\n" + table(columns, _figure_rows(of_path, row)))
    return "\n\n".join(parts)


_COLUMNS = (
    "what happens",
    "RabbitMQ",
    "rows",
    "confirmed",
    "lost",
    "repeated",
    "out of order",
    "wrong queue",
    "recovered, s",
    "ended with",
)


_GROUP_COLUMNS = (
    "what happens",
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


def _figure_rows(
    records: Iterable[FireRecord], figures_of: Callable[[FireRecord], Sequence[str]]
) -> Iterable[Sequence[str]]:
    for fault, members in groupby(records, key=lambda record: record.fault):
        for number, record in enumerate(members):
            yield fault if number == 0 else "", record.release, *figures_of(record)


def _publisher_figures(record: FireRecord) -> Sequence[str]:
    return (
        f"{record.rows:,}",
        f"{record.confirmed:,}",
        f"{record.lost:,}",
        f"{record.repeated:,}",
        _or_none(record.out_of_order),
        _or_none(record.wrong_queue),
        _seconds(record.recover_s),
        _end(record),
    )


def _group_figures(record: FireRecord) -> Sequence[str]:
    return (
        f"{record.confirmed:,}",
        f"{record.lost:,}",
        f"{record.repeated:,}",
        _or_none(record.out_of_order),
        _or_none(record.refused),
        _seconds(record.queue_pause_s),
        _seconds(record.group_pause_s),
        _seconds(record.recover_s),
        _seconds(record.all_back_s),
    )


def _end(record: FireRecord) -> str:
    """Return how a run ended, and what the fault did to rows besides."""
    where = "are gone" if record.of_stream else "went with the queue"
    gone = f"{record.gone:,} confirmed rows {where}" if record.gone else ""
    moved = (
        f"{record.moved:,} rows in another queue than before, as the ring has changed" if record.moved else ""
    )
    return "; ".join(part for part in (record.outcome, gone, moved) if part)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def _or_none(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _confidence(lost: int, confirmed: int, runs: int) -> str:
    if lost or not confirmed:
        return "Rows are lost, so no bound is given."
    per_million = _RULE_OF_THREE / confirmed * 1_000_000
    return (
        f"Nothing lost in {confirmed:,} rows bounds the rate of loss under these faults below {per_million:.2g} in a "
        f"million with 95 % confidence, if each row is a trial of its own. The rows of a run share its fault, so the "
        f"careful reading counts runs: with 95 % confidence fewer than {_RULE_OF_THREE / runs:.1%} of such runs lose "
        "anything."
    )


@cache
def _records() -> list[FireRecord]:
    """Return all records, in the order of the paths and of the tests in their files."""
    return sorted(
        read_records(RESULTS),
        key=lambda record: (
            _path_rank(record.path),
            _place(record.test),
            record.fault,
            [-part for part in _version(record.release)],
        ),
    )


def _place(test: str) -> tuple[str, int]:
    """Return the file of a test and its place in the file.

    Raises:
        SystemExit: there is no such test, so its records say nothing any more.
    """
    file, _, rest = test.partition("::")
    name = rest.partition("[")[0]
    path = _ROOT / file
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    place = source.find(f"def {name}(")
    if place < 0:
        raise SystemExit(f"{RESULTS.name} has a record of {test}, which is not there: remove its lines")
    return file, place


def _link(test: str) -> str:
    file, _, rest = test.partition("::")
    name = rest.partition("[")[0]
    words = name.removeprefix("test_").replace("_", " ")
    return f"[{words}](../{file})"


def _path_rank(path: str) -> tuple[bool, int, str]:
    """Plain paths come first, then those with more words, such as ``"Publisher, three nodes"``, in the same order."""
    plain, comma, _ = path.partition(",")
    return bool(comma), _PATHS.index(plain) if plain in _PATHS else len(_PATHS), path


def _version(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
