"""An apply that has begun: what the broker keeps of it until it ends. Values, without I/O.

It is stored once, in the arguments of an exchange that is made before the first change and deleted after the last one, with the steps of each
ring and the record of the ring before. Nobody stores how far the apply got: until it ends, the order of these rings is not determined. The
same file repeats it from its first step. The plan of that has the same checksum, and counts shares from before the first change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.records.mark import Mark
from rabbit_chx.records.ring_history import RingHistory
from rabbit_chx.records.ring_records import (
    DamagedRecord,
    Records,
    RingRecord,
    doubt_since,
    record_content,
    record_in,
    record_name,
    seal,
    unseal,
)
from rabbit_chx.routing import Binding, HashRing
from rabbit_chx.routing.bindings import destination_from_json, place_to_json
from rabbit_chx.topology.objects.objects import RingMember

_FORMAT, _FORMAT_VERSION = "rabbit-chx/apply", 2


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """The change of a key map as an apply planned it.

    Attributes:
        record: the ring before the first change, with the history, the begin and the number of the record that the apply will store; None of
            an exchange without a ring.
        steps: its binds (True) and unbinds, in order.
        early: the number of steps before objects are replaced.
        moments: the shares of keys that have moved, and that are lost, after each step.
        about: the fields `way`, `unknown` and `transient_share` of its plan.
    """

    record: RingRecord | None
    steps: tuple[tuple[bool, Binding], ...]
    early: int
    moments: tuple[tuple[float, float], ...]
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PendingApply:
    """An apply that has begun.

    Attributes:
        where: the cluster and the vhost.
        file: the digest of the wanted topology.
        checksum: the checksum of the plan.
        written: the time of its begin, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        changes: the changes of the plan, as texts.
        rings: the key maps that change, by their exchanges.
    """

    where: tuple[str | None, str | None]
    file: str
    checksum: str
    written: str
    writer: str
    changes: tuple[str, ...]
    rings: Mapping[str, PlannedSteps]

    def __str__(self) -> str:
        return f"the apply of {self.written} by {self.writer}"

    def steps_of(self, exchange: str, record: RingRecord | DamagedRecord | None) -> PlannedSteps | None:
        """Return the steps of a ring that may not all be done; None if it has none, or a record that was stored since the begin."""
        planned = self.rings.get(exchange)
        is_made = any(f"{action} exchange {exchange}" in self.changes for action in ("create", "replace"))
        if planned is None or planned.record is None or not (planned.steps or is_made):
            return None
        is_newer = isinstance(record, RingRecord) and record.number >= planned.record.number
        return None if is_newer else planned

    def has_ended(self, records: Records) -> bool:
        """Return True if all its rings have the records that are stored at its end, or later ones. An import may have brought it back."""
        numbers = {name: ring.record.number for name, ring in self.rings.items() if ring.record is not None}
        found = {name: records.get(record_name(name)) for name in numbers}
        return bool(found) and all(
            isinstance(record, RingRecord) and record.number > numbers[name] for name, record in found.items()
        )

    def covers(self, changes: Iterable[object]) -> bool:
        """Return True if some changes are all among those of the plan, of which some may be done."""
        planned = Counter(self.changes)
        return not Counter(_as_planned(str(change), planned) for change in changes) - planned


def _as_planned(change: str, planned: Mapping[str, int]) -> str:
    """Return a change as the first run planned it: of a replacement, the deletion may be done, and the creation left."""
    replacement = change.replace("create ", "replace ", 1)
    return replacement if change not in planned and replacement in planned else change


class Kept(NamedTuple):
    """What a broker keeps of rings: the records by the names of their exchanges, and an apply that has not ended."""

    records: Records
    pending: PendingApply | None

    def about(self, exchange: str) -> tuple[RingRecord | DamagedRecord | None, PlannedSteps | None]:
        """Return the record of a ring, and the steps of it that may not all be done."""
        record = self.records.get(record_name(exchange))
        return record, None if self.pending is None else self.pending.steps_of(exchange, record)


def history_of(
    exchange: str, kept: Kept, ring: HashRing, bound: Iterable[RingMember], mark: Mark
) -> RingHistory:
    """Return the history of a ring, as far as it is known now: `bound` are the bindings that the broker lists."""
    record, planned = kept.about(exchange)
    if planned is not None and planned.record is not None:
        return RingHistory(planned.record.past, ring, f"{kept.pending} has not ended")
    if not isinstance(record, RingRecord):
        return RingHistory((), ring, "no record of it is on the broker")
    return RingHistory(record.history, ring, doubt_since(record, ring, bound, mark))


def pending_arguments(pending: PendingApply, frame_max: int) -> dict[str, Any] | None:
    """Return the arguments of the exchange; None if they do not fit into a frame of so many bytes."""
    content = {
        "where": pending.where,
        "file": pending.file,
        "checksum": pending.checksum,
        "written": pending.written,
        "writer": pending.writer,
        "changes": pending.changes,
        "rings": {name: _ring_content(ring) for name, ring in pending.rings.items()},
    }
    return seal(_FORMAT, _FORMAT_VERSION, {}, content, frame_max)


def _ring_content(ring: PlannedSteps) -> dict[str, Any]:
    return {
        "record": None if ring.record is None else record_content(ring.record),
        "steps": [[is_bind, place_to_json(place), key] for is_bind, (place, key) in ring.steps],
        "early": ring.early,
        "moments": ring.moments,
        "about": dict(ring.about),
    }


def read_pending(arguments: Mapping[str, Any]) -> PendingApply | None:
    """Return the apply in the arguments of an exchange; None if they are of another format, or damaged."""
    try:
        content = unseal(_FORMAT, _FORMAT_VERSION, "an apply", arguments)
        cluster, vhost = content["where"]
        return PendingApply(
            (cluster, vhost),
            str(content["file"]),
            str(content["checksum"]),
            str(content["written"]),
            str(content["writer"]),
            tuple(map(str, content["changes"])),
            {str(name): _ring_of(ring) for name, ring in content["rings"].items()},
        )
    except (RabbitChxError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _ring_of(content: Any) -> PlannedSteps:
    record = content["record"]
    return PlannedSteps(
        None if record is None else record_in(record),
        tuple(
            (is_bind is True, (destination_from_json(place), str(key)))
            for is_bind, place, key in content["steps"]
        ),
        int(content["early"]),
        tuple((float(moved), float(lost)) for moved, lost in content["moments"]),
        {name: content["about"][name] for name in ("way", "unknown", "transient_share")},
    )
