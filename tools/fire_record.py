"""What a run under a fault came to, and the file of such records from which docs/guarantees.md is made."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


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
        wrong_queue: rows in another queue than the mirror says; None where that was not checked.
        recover_s: seconds from the end of the fault until the next confirm, or until a group handles the next message; None where
            that makes no sense.
        outcome: ``"complete"``, or the error's first words.
        seconds: how long the whole test took.
        date: the day of the run, such as ``"2026-01-31"``.
        machine: what it ran on.
        gone: confirmed rows that the fault itself took away, such as those of a queue that it deletes.
        moved: copies in another queue than the ring named at first, since the fault has changed the ring.
        refused: of a group: effects that a store refused, as it had seen a higher generation; None where it does not ask.
        queue_pause_s: of a group: the longest time without an effect of one of the queues.
        group_pause_s: of a group: the longest time without any effect; None for a publisher's record.
        all_back_s: of a group: seconds from the end of the fault until each member has handled a message again.
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

    @property
    def of_group(self) -> bool:
        """Whether it is of a group of consumers."""
        return self.group_pause_s is not None

    @property
    def place(self) -> tuple[str, str]:
        """What there is one record of."""
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
        gone: test and release of records that hold no longer.
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
    """Return the fields of a record; a publisher's has none of a group."""
    group = () if record.of_group else ("refused", "queue_pause_s", "group_pause_s", "all_back_s")
    return {name: value for name, value in asdict(record).items() if name not in group}


def _parsed(text: str) -> list[FireRecord]:
    return [FireRecord(**json.loads(line)) for line in text.splitlines()]
