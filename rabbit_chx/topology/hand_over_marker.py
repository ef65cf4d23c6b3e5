"""The markers of a hand-over: messages that the mover of a slot and the consumers of both queues know by their header.

For anyone else a marker is an empty message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from rabbit_chx.errors import InputError

#: flush, begin and end are sent by the one who moves a slot; flushed and taken are replies of the consumers.
MarkerKind: TypeAlias = Literal["flush", "begin", "end", "flushed", "taken"]

_KINDS: tuple[MarkerKind, ...] = get_args(MarkerKind)
_FIELDS = ("kind", "slot", "id", "park")


@dataclass(frozen=True, slots=True)
class HandOverMarker:
    """A marker.

    Attributes:
        kind: ``flush`` asks the consumer of the old queue to reply ``flushed`` when it has handled all that came before.
            ``begin`` asks the consumer of the new queue to read the parking queue up to ``end``, and to reply ``taken`` then.
        slot: the name of the slot exchange.
        id: tells this hand-over from others. Replies have that of the question.
        park: the name of the parking queue.

    Raises:
        InputError: a field is not text, or the kind is none of those.
    """

    HEADER: ClassVar[str] = "x-rabbit-chx-hand-over"

    kind: MarkerKind
    slot: str
    id: str
    park: str

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InputError(f"the {name} of a hand-over marker is {value!r:.60}: give text")
        if self.kind not in _KINDS:
            raise InputError(
                f"a hand-over marker of the kind {self.kind!r:.60}: give one of {', '.join(_KINDS)}"
            )

    def headers(self) -> dict[str, dict[str, str]]:
        """Return the headers of the message, as pika and aio-pika take them."""
        return {self.HEADER: {name: str(getattr(self, name)) for name in _FIELDS}}

    def as_kind(self, kind: MarkerKind) -> HandOverMarker:
        """Return another marker of the same hand-over."""
        return HandOverMarker(kind, self.slot, self.id, self.park)

    def reply(self, kind: Literal["flushed", "taken"]) -> HandOverMarker:
        """Return the reply to this marker."""
        return self.as_kind(kind)

    @classmethod
    def from_headers(cls, headers: Mapping[str, Any] | None) -> HandOverMarker | None:
        """Return the marker that a message is; None if it is none.

        Args:
            headers: the message's headers, as pika or aio-pika gives them; None where it has none.
        """
        table = (headers or {}).get(cls.HEADER)
        if not isinstance(table, Mapping):
            return None
        kind, *rest = (table.get(name) for name in _FIELDS)
        known = next((marker for marker in _KINDS if marker == kind), None)
        if known is None or not all(isinstance(value, str) for value in rest):
            return None
        return cls(known, *map(str, rest))
