"""The history of a ring: what its last records say of their times. Values, without I/O.

A record keeps the rings of the former ones (:mod:`rabbit_chx.topology.ring_records`). A ring lasted from the time at which its record was
written until the next change began, unless the next record says that it did not: another program, a restart or an apply that ended early
changed it at a time that nobody noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, pairwise, takewhile
from typing import Any

from rabbit_chx.rendering import Data, Line, Part
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import Place, destination_from_json, place_to_json
from rabbit_chx.routing.ground import Ground
from rabbit_chx.times import time_text

#: The most records of a ring that are kept, with the one that holds.
MOST_RECORDS = 10


@dataclass(frozen=True, slots=True)
class PastRing:
    """The ring of a record.

    Attributes:
        written: the time at which the record was written, in ISO 8601 and UTC.
        writer: who wrote it; empty for a ring that an apply found, and no record.
        buckets: the ring.
        release: the release of the broker.
        began: the time at which the writer began to change the ring; empty if it was so already.
        gap: why the ring of the former record did not last until then; empty if it did.
    """

    written: str
    writer: str
    buckets: tuple[Place, ...]
    release: Release
    began: str = ""
    gap: str = ""

    @property
    def ring(self) -> HashRing:
        """The ring."""
        return HashRing(self.buckets, self.release, Ground("recorded"))

    @property
    def about(self) -> str:
        """The time and the writer, in words."""
        return f"{self.written} by {self.writer}" if self.writer else self.written

    def repeats(self, former: PastRing) -> bool:
        """Return True if it says nothing that a former one does not say."""
        return not (self.gap or self.began) and (self.buckets, self.release) == (
            former.buckets,
            former.release,
        )

    def doubt_before(self, moment: datetime) -> str:
        """Return why the former ring may not have been there at a time before this one; empty if it was."""
        if self.began and moment >= _time(self.began):
            return f"an apply of {self.writer} changed the ring from {self.began} to {self.written}"
        return self.gap


def with_next(past: Sequence[PastRing], *rings: PastRing) -> tuple[PastRing, ...]:
    """Return a history with further rings, without those that say nothing new and those that are too old."""
    for ring in rings:
        past = past if past and ring.repeats(past[-1]) else (*past, ring)
    return tuple(past[-MOST_RECORDS + 1 :])


@dataclass(frozen=True, slots=True)
class RingAtTime:
    """The ring of a time. It is assumed, with the reason, if the records do not determine it."""

    moment: datetime
    record: PastRing | None
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

    rings: tuple[PastRing, ...]
    now: HashRing
    doubt: str

    def at(self, moment: datetime) -> RingAtTime:
        """Return the ring of a time."""
        known = len(list(takewhile(lambda ring: _time(ring.written) <= moment, self.rings)))
        if not known:
            doubt = (
                f"its records begin at {self.rings[0].written}"
                if self.rings
                else "no record of it is on the broker"
            )
            return RingAtTime(moment, None, replace(self.now, ground=Ground("assumed", doubt)))
        record = self.rings[known - 1]
        doubt = self.rings[known].doubt_before(moment) if known < len(self.rings) else self.doubt
        ring = replace(record.ring, ground=Ground("assumed", doubt)) if doubt else record.ring
        return RingAtTime(moment, record, ring)

    def changes(self) -> list[tuple[PastRing, float | None]]:
        """Return each ring with the exact share of the keys that moved since the former one, the newest first."""
        moved = [None, *(_share_moved(*pair) for pair in pairwise(self.rings))]
        return list(zip(self.rings, moved, strict=False))[::-1]


@lru_cache(maxsize=256)  # a page shows them again and again
def _share_moved(before: PastRing, after: PastRing) -> float:
    return 0.0 if before.buckets == after.buckets else before.ring.share_moved(after.ring)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- in a record: of each ring the runs of buckets that the next one does not have


def past_to_json(past: Sequence[PastRing], buckets: Sequence[Place]) -> list[dict[str, Any]]:
    """Return the history of a ring with these buckets."""
    found, after = [], _runs(buckets)
    for ring in reversed(past):
        runs = _runs(ring.buckets)
        head = _common(runs, after)
        tail = _common(runs[head:][::-1], after[head:][::-1])
        found.append(
            {
                "written": ring.written,
                "writer": ring.writer,
                "began": ring.began,
                "gap": ring.gap,
                "release": [ring.release.version, ring.release.store if ring.release.store_known else None],
                "kept": [head, tail],
                "runs": runs[head : len(runs) - tail],
            }
        )
        after = runs
    return found


def past_from_json(found: Sequence[Any], buckets: Sequence[Place]) -> tuple[PastRing, ...]:
    """Return the history of a ring with these buckets, as `past_to_json` has it."""
    past, after = [], _runs(buckets)
    for entry in found:
        head, tail = entry["kept"]
        after = [*after[:head], *entry["runs"], *after[len(after) - tail :]]
        version, store = entry["release"]
        places: list[Place] = []
        for place, count in after:
            places += [None if place is None else destination_from_json(place)] * count
        past.append(
            PastRing(
                str(entry["written"]),
                str(entry["writer"]),
                tuple(places),
                Release(version, store),
                str(entry["began"]),
                str(entry["gap"]),
            )
        )
    return tuple(reversed(past))


def _runs(buckets: Sequence[Place]) -> list[list[Any]]:
    return [[place_to_json(place), len(list(run))] for place, run in groupby(buckets)]


def _common(runs: Sequence[object], others: Sequence[object]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(runs, others, strict=False))))
