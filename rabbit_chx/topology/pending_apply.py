"""An apply that has begun: what the broker keeps of it until it ends, so that the same file resumes it. Values, without I/O.

It is in the arguments of an exchange that is made before the first change and deleted after the last one. A plan of the same file counts the
shares of keys from before that first change, takes the steps of rings that were left, and has the same checksum.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.routing import Binding, HashRing
from rabbit_chx.routing.bindings import destination_from_json, place_to_json
from rabbit_chx.words import plural

#: The exchange. The lock of an apply is a queue of this name, so that nobody applies without the permission to declare it.
PENDING_APPLY = "rabbit-chx.apply"
_FORMAT, _FORMAT_VERSION = "rabbit-chx/apply", 1
#: The arguments beside the contents, and the head of their frame.
_OTHER_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class PendingRing:
    """A key map as the first run of an apply planned it.

    Attributes:
        before: the ring before the first change; None if the exchange had none.
        steps: its binds (True) and unbinds, in order.
        early: the number of steps before objects are replaced.
        moments: the shares of keys that have moved, and that are lost, after each step.
        about: the fields `unknown`, `is_reset` and `transient_share` of its plan.
    """

    before: HashRing | None
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
    rings: Mapping[str, PendingRing]

    def resumed_by(self, changes: Iterable[object]) -> Resumed | None:
        """Return what some changes resume; None if one of them is not among those of the plan."""
        planned = Counter(self.changes)
        left = Counter(_as_planned(str(change), planned) for change in changes)
        if left - planned:
            return None
        return Resumed(self.written, self.writer, len(self.changes) - sum(left.values()), len(self.changes))


def _as_planned(change: str, planned: Mapping[str, int]) -> str:
    """Return a change as the first run planned it: of a replacement, the deletion may be done, and the creation left."""
    replacement = change.replace("create ", "replace ", 1)
    return replacement if change not in planned and replacement in planned else change


class Resumed(NamedTuple):
    """What a plan resumes: an apply, by its time and writer, and the numbers of its changes that are done, and of all."""

    written: str
    writer: str
    done: int
    planned: int

    def __str__(self) -> str:
        return f"the apply of {self.written} by {self.writer}, {self.done:,} of {plural(self.planned, 'change')} done"


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
    text = base64.b64encode(zlib.compress(json.dumps(content).encode(), 9)).decode()
    if len(text) > frame_max - _OTHER_BYTES:
        return None
    return {"format": _FORMAT, "format_version": _FORMAT_VERSION, "content": text}


def _ring_content(ring: PendingRing) -> dict[str, Any]:
    return {
        "before": None if ring.before is None else ring.before.to_json(),
        "steps": [[is_bind, place_to_json(place), key] for is_bind, (place, key) in ring.steps],
        "early": ring.early,
        "moments": ring.moments,
        "about": dict(ring.about),
    }


def read_pending(arguments: Mapping[str, Any]) -> PendingApply | None:
    """Return the apply in the arguments of an exchange; None if they are of another format, or damaged."""
    if (arguments.get("format"), arguments.get("format_version")) != (_FORMAT, _FORMAT_VERSION):
        return None
    try:
        content = json.loads(zlib.decompress(base64.b64decode(arguments["content"], validate=True)))
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
    except (RabbitChxError, ValueError, TypeError, KeyError, AttributeError, zlib.error):
        return None


def _ring_of(content: Any) -> PendingRing:
    before = content["before"]
    return PendingRing(
        None if before is None else HashRing.from_json(before),
        tuple(
            (is_bind is True, (destination_from_json(place), str(key)))
            for is_bind, place, key in content["steps"]
        ),
        int(content["early"]),
        tuple((float(moved), float(lost)) for moved, lost in content["moments"]),
        {name: content["about"][name] for name in ("unknown", "is_reset", "transient_share")},
    )


def left_by(pending: PendingApply, bound: Iterable[str], existing: Iterable[str]) -> Iterator[str]:
    """Yield the changes that an apply has left, as far as the names of bindings and of objects, with their kinds, show it."""
    there, changes = {*bound, *existing}, Counter(pending.changes)
    for change in pending.changes:
        action, _, name = change.partition(" ")
        opposite = {"bind": "unbind", "unbind": "bind", "create": "delete", "delete": "create"}.get(action)
        if (
            opposite
            and not changes[f"{opposite} {name}"]
            and (name in there) is (action in ("unbind", "delete"))
        ):
            yield change
