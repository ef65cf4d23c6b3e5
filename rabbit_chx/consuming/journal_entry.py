"""What the members of groups write into the journal, a stream of the vhost, and read from it in one order."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

__all__ = ["JOURNAL", "EntryKind", "JournalEntry"]

#: The stream that the groups of a vhost share, unless they are told otherwise.
JOURNAL = "rabbit-chx.groups"

#: ready: the member is healthy and takes its share; said again now and then, for those that read from later on. alive: it still is. left: it leaves. gone: another member has not seen it
#: alive for too long. claim: it has been delivered its first message of a queue. released: it has finished with a queue.
EntryKind: TypeAlias = Literal["ready", "alive", "left", "gone", "claim", "released"]
_KINDS: tuple[EntryKind, ...] = get_args(EntryKind)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry of the journal. Its place in the stream is the generation of a claim.

    Attributes:
        kind: what happened.
        member: the member that it happened to.
        at: when, in seconds since 1970 by the clock of the writer; for people, nothing is decided by it.
        weight: the member's weight (ready).
        queues: the queues that the member consumes (ready). Only this entry has them: an `alive` each few seconds is short.
        queue: the queue (claim, released).
        token: tells this claim from others (claim), or this run of the member (the others).
    """

    kind: EntryKind
    member: str
    at: float
    weight: float = 1.0
    queues: tuple[str, ...] = ()
    queue: str = ""
    token: str = ""

    def to_json(self) -> bytes:
        """Return the body of the message."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value not in ("", ())}
        ).encode()

    @classmethod
    def from_json(cls, body: bytes) -> JournalEntry | None:
        """Return the entry that a message is; None where it is none that this version knows.

        Args:
            body: the body of the message.
        """
        try:
            read: dict[str, Any] = json.loads(body)
            kind = next(one for one in _KINDS if one == read["kind"])
            return cls(
                kind,
                str(read["member"]),
                float(read["at"]),
                _weight(read.get("weight", 1.0)),
                tuple(map(str, read.get("queues", ()))),
                str(read.get("queue", "")),
                str(read.get("token", "")),
            )
        except (ValueError, TypeError, LookupError, StopIteration, AttributeError, RecursionError):
            return None


def _weight(value: Any) -> float:  # noqa: ANN401  # JSON
    weight = float(value)
    if not 0 < weight < float("inf"):
        raise ValueError(weight)
    return weight
