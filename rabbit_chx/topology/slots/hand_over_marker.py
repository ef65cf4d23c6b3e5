"""The markers of a hand-over of a slot, and the tags of the consumers that answer them. Values, without I/O."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from rabbit_chx.errors import InputError

_TAG_PREFIX = "rabbit-chx.group."
_TAG = re.compile(rf"{re.escape(_TAG_PREFIX)}(.+)\.[^.]+", re.DOTALL)
#: The mover of a slot sends flush, begin and end; the consumers reply flushed and taken.
MarkerKind: TypeAlias = Literal["flush", "begin", "end", "flushed", "taken"]
_KINDS: tuple[MarkerKind, ...] = get_args(MarkerKind)
_FIELDS = ("kind", "slot", "id", "park")


@dataclass(frozen=True, slots=True)
class HandOverMarker:
    """A marker.

    Attributes:
        kind: ``flush`` requests that the consumer of the old queue replies ``flushed`` when it has handled all earlier messages. ``begin``
            requests that the consumer of the new queue reads the parking queue up to ``end``, and then replies ``taken``.
        slot: the name of the slot exchange.
        id: identifies the hand-over. A reply has the id of its request.
        park: the name of the parking queue.

    Raises:
        InputError: a field is not text, or the kind is unknown.
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
                raise InputError(f"the {name} of a hand-over marker is {value!r:.60}: pass text")
        if self.kind not in _KINDS:
            raise InputError(
                f"a hand-over marker of the kind {self.kind!r:.60}: pass one of {', '.join(_KINDS)}"
            )

    def headers(self) -> dict[str, dict[str, str]]:
        """Return the headers of the message for pika and aio-pika."""
        return {self.HEADER: {name: str(getattr(self, name)) for name in _FIELDS}}

    def as_kind(self, kind: MarkerKind) -> HandOverMarker:
        """Return another marker of the same hand-over."""
        return HandOverMarker(kind, self.slot, self.id, self.park)

    def reply(self, kind: Literal["flushed", "taken"]) -> HandOverMarker:
        """Return the reply to this marker."""
        return self.as_kind(kind)

    @classmethod
    def from_headers(cls, headers: Mapping[str, Any] | None) -> HandOverMarker | None:
        """Return the marker in a message's headers; None if the message is not a marker or has no headers."""
        table = (headers or {}).get(cls.HEADER)
        if not isinstance(table, Mapping):
            return None
        kind, *rest = (table.get(name) for name in _FIELDS)
        known = next((marker for marker in _KINDS if marker == kind), None)
        if known is None or not all(isinstance(value, str) for value in rest):
            return None
        return cls(known, *map(str, rest))


def make_consumer_tag(member: str) -> str:
    """Return a new consumer tag of a group member."""
    return f"{_TAG_PREFIX}{member}.{secrets.token_hex(4)}"


def parse_member(consumer_tag: str) -> str | None:
    """Return the group member of a consumer tag; None if the consumer does not belong to a group."""
    match = _TAG.fullmatch(consumer_tag)
    return match and match[1]
