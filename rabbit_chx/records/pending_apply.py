"""An apply that has begun: what the broker keeps of it until it ends. Values, without I/O.

It is stored once, in the arguments of an exchange that is made before the first change and deleted after the last one, with the steps of each
ring and the record of the ring before. Nobody stores how far the apply got: until it ends, the order of these rings is not determined. The
same file repeats it from its first step. The plan of that has the same checksum, and counts shares from before the first change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.records.ring_records import RingRecord, record_content, record_in, seal, unseal
from rabbit_chx.routing import Binding, HashRing
from rabbit_chx.routing.bindings import destination_from_json, place_to_json
from rabbit_chx.routing.ground import Ground

_FORMAT = "rabbit-chx/apply"
_FORMAT_VERSION = 4
#: The fields of the movement of a key map: after each step the shares of keys that have moved, and that are lost; `unknown`; `transient_share`.
PlannedMovement: TypeAlias = tuple[tuple[tuple[float, float], ...], str, float]


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """The change of a ring as an apply planned it.

    Attributes:
        record: the ring before the first change, with the number before that of the record that the apply will store.
        steps: its binds (True) and unbinds, in order.
        early: the number of steps before objects are replaced.
        way: how the ring is changed.
    """

    record: RingRecord
    steps: tuple[tuple[bool, Binding], ...]
    early: int
    way: Any  # a Way of planning

    @property
    def before(self) -> HashRing:
        """The ring before the first change, with what was known of it."""
        return replace(self.record.ring, ground=Ground(self.record.origin))

    def followed_by(self, record: RingRecord) -> RingRecord:
        """Return a later record of the ring."""
        return replace(record, number=self.record.number + 1)


@dataclass(frozen=True, slots=True)
class PendingApply:
    """An apply that has begun.

    Attributes:
        file: the digest of the wanted topology, the cluster and the vhost.
        checksum: the checksum of the plan.
        written: the time of its begin, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        changes: the changes of the plan, as texts.
        rings: the rings that change, by their exchanges.
        movements: the keys that move in each key map, by its exchange.
    """

    file: str
    checksum: str
    written: str
    writer: str
    changes: tuple[str, ...]
    rings: Mapping[str, PlannedSteps]
    movements: Mapping[str, PlannedMovement]

    def __str__(self) -> str:
        return f"the apply of {self.written} by {self.writer}"

    def has_ended(self, records: Mapping[str, RingRecord]) -> bool:
        """Return True if all its rings have the records that are stored at its end, or later ones. An import may have brought it back."""
        return bool(self.rings) and all(
            name in records and records[name].number > planned.record.number
            for name, planned in self.rings.items()
        )


def pending_arguments(pending: PendingApply, frame_max: int) -> dict[str, Any] | None:
    """Return the arguments of the exchange; None if they do not fit into a frame of so many bytes."""
    rings = {
        name: [
            record_content(ring.record),
            [[is_bind, place_to_json(place), key] for is_bind, (place, key) in ring.steps],
            ring.early,
            ring.way,
        ]
        for name, ring in pending.rings.items()
    }
    about = pending.file, pending.checksum, pending.written, pending.writer
    content = [*about, pending.changes, rings, dict(pending.movements)]
    return seal(_FORMAT, _FORMAT_VERSION, {}, content, frame_max)


def read_pending(arguments: Mapping[str, Any]) -> PendingApply | None:
    """Return the apply in the arguments of an exchange; None if they are of another format, or damaged."""
    try:
        content = unseal(_FORMAT, _FORMAT_VERSION, "an apply", arguments)
        file, checksum, written, writer, changes, rings, movements = content
        return PendingApply(
            str(file),
            str(checksum),
            str(written),
            str(writer),
            tuple(map(str, changes)),
            {str(name): _ring_of(*ring) for name, ring in rings.items()},
            {
                str(name): (tuple((float(moved), float(lost)) for moved, lost in moments), unknown, transient)
                for name, (moments, unknown, transient) in movements.items()
            },
        )
    except (RabbitChxError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _ring_of(record: Any, steps: Any, early: Any, way: Any) -> PlannedSteps:
    bindings = ((is_bind is True, (destination_from_json(place), str(key))) for is_bind, place, key in steps)
    return PlannedSteps(record_in(record), tuple(bindings), int(early), str(way))
