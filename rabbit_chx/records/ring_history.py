"""The history of a ring: what its last records say of their times. Values, without I/O.

A record has its ring behind those of the former ones (:mod:`rabbit_chx.records.ring_records`), in the order in which they were stored. A ring lasted
from the time at which its record was written until the next change began. If that time is not known, because another program, a restart or an
apply that ended early changed the ring, nothing is known of the time until the next record. The times are those of the writers' clocks: they
are compared only where they rise from record to record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, pairwise, takewhile
from typing import Any

from rabbit_chx.rendering.document import Data, Line, Part
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import Place, destination_from_json, place_to_json
from rabbit_chx.routing.ground import Ground
from rabbit_chx.times import time_text

#: The most records of a ring that are kept, with the one that holds.
MOST_RECORDS = 10


@dataclass(frozen=True, slots=True)
class DatedRing:
    """The ring of a record.

    Attributes:
        written: the time at which the record was written, in ISO 8601 and UTC.
        writer: who wrote it; empty for a ring that an apply found, and no record.
        buckets: the ring.
        release: the release of the broker.
        began: the time until which the ring of the former record lasted; empty if that is not known.
    """

    written: str
    writer: str
    buckets: tuple[Place, ...]
    release: Release
    began: str = ""

    @property
    def ring(self) -> HashRing:
        """The ring."""
        return HashRing(self.buckets, self.release, Ground("recorded"))

    @property
    def about(self) -> str:
        """The time and the writer, in words."""
        return f"{self.written} by {self.writer}" if self.writer else self.written

    def repeats(self, former: DatedRing) -> bool:
        """Return True if the former ring lasted until it was written, and is the same."""
        same = (self.buckets, self.release) == (former.buckets, former.release)
        return same and self.began == self.written

    def doubt_before(self, moment: datetime) -> str:
        """Return why the former ring may not have been there at a time before this one; empty if it was."""
        if not self.began:
            return f"it was changed before {self.written}, and the time is not known"
        if moment >= _time(self.began):
            return f"an apply of {self.writer} changed the ring from {self.began} to {self.written}"
        return ""


def extended(rings: Sequence[DatedRing], ring: DatedRing) -> tuple[DatedRing, ...]:
    """Return a history with a further ring, without its last one if that says nothing new, and without those that are too old."""
    if len(rings) > 1 and rings[-1].repeats(rings[-2]):
        rings = rings[:-1]
    return (*rings, ring)[-MOST_RECORDS:]


@dataclass(frozen=True, slots=True)
class RingAtTime:
    """The ring of a time. It is assumed, with the reason, if the records do not determine it."""

    moment: datetime
    record: DatedRing | None
    ring: HashRing

    @property
    def time(self) -> str:
        """The time as records have it."""
        return time_text(self.moment)

    def parts(self) -> list[Part]:
        """Return the time and the record, for a report."""
        time, record = self.time, self.record
        said = None if record is None else {"written": record.written, "writer": record.writer}
        doubt = self.ring.ground.doubt
        known = "" if record is None else f"by the record of {record.about}"
        return [
            Data({"at": time, "record": said}),
            Line(f"at {time}: {f'not determined: {doubt}' if doubt else known}"),
        ]


@dataclass(frozen=True, slots=True)
class RingHistory:
    """The rings of the last records of an exchange, the oldest first.

    Attributes:
        rings: the rings.
        now: the ring of now.
        doubt: why the last of the rings may not be there any more; empty if it is.
    """

    rings: tuple[DatedRing, ...]
    now: HashRing
    doubt: str

    def at(self, moment: datetime) -> RingAtTime:
        """Return the ring of a time."""
        number = sum(_time(ring.written) <= moment for ring in self.rings) - 1
        record = self.rings[number] if number >= 0 else None
        if doubt := self._doubt_at(number, moment):
            likely = self.now if record is None else record.ring
            return RingAtTime(moment, record, replace(likely, ground=Ground("assumed", doubt)))
        assert record is not None  # a doubt says that there is none
        return RingAtTime(moment, record, record.ring)

    def _doubt_at(self, number: int, moment: datetime) -> str:
        """Return why the ring of a number may not be that of a time; empty if it is."""
        if not self.rings:
            return "no record of it is on the broker"
        following = self.rings[number + 1 : number + 2]
        for ring in (*self.rings[max(number, 0) : number + 1], *following):
            if not self._rises(ring):
                return f"the time of the record of {ring.written} does not fit the order of the records: the clock of a writer was wrong"
        if number < 0:
            return f"its records begin at {self.rings[0].written}"
        return following[0].doubt_before(moment) if following else self.doubt

    def _rises(self, ring: DatedRing) -> bool:
        """Return True if the record of a ring is not older than those before it, nor newer than those after it."""
        place, times = self.rings.index(ring), [_time(each.written) for each in self.rings]
        return max(times[: place + 1]) == times[place] == min(times[place:])

    def changes(self) -> list[tuple[DatedRing, float | None]]:
        """Return each ring with the exact share of the keys that moved since the former one, the newest first."""
        moved = [None, *(_share_moved(*pair) for pair in pairwise(self.rings))]
        return list(zip(self.rings, moved, strict=False))[::-1]


@lru_cache(maxsize=256)  # a page shows them again and again
def _share_moved(before: DatedRing, after: DatedRing) -> float:
    return 0.0 if before.buckets == after.buckets else before.ring.share_moved(after.ring)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- in a record: of each ring the runs of buckets that the next one does not have


def rings_to_json(rings: Sequence[DatedRing]) -> list[Any]:
    """Return a history, the newest ring first."""
    found, after = list[Any](), list[Any]()
    for ring in reversed(rings):
        runs = [[place_to_json(place), len(list(run))] for place, run in groupby(ring.buckets)]
        head = _common(runs, after)
        tail = _common(runs[head:][::-1], after[head:][::-1])
        release = [ring.release.version, ring.release.store if ring.release.store_known else None]
        changed = runs[head : len(runs) - tail]
        found.append([ring.written, ring.writer, ring.began, release, head, tail, changed])
        after = runs
    return found


def rings_from_json(found: Sequence[Any]) -> tuple[DatedRing, ...]:
    """Return a history, as `rings_to_json` has it."""
    rings, runs = list[DatedRing](), list[Any]()
    for written, writer, began, release, head, tail, changed in found:
        runs = [*runs[:head], *changed, *runs[len(runs) - tail :]]
        places: list[Place] = []
        for place, count in runs:
            places += [None if place is None else destination_from_json(place)] * count
        rings.append(DatedRing(str(written), str(writer), tuple(places), Release(*release), str(began)))
    return tuple(reversed(rings))


def _common(runs: Sequence[object], others: Sequence[object]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(runs, others, strict=False))))
