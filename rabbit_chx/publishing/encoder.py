"""Rows as frames: one join over ready-made pieces, with nothing built for a single message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rabbit_chx.amqp.frames import (
    FRAME_END,
    FRAME_OVERHEAD,
    MAX_SHORTSTR,
    body_head,
    body_size,
    header_head,
    publish_head,
    split_body,
)
from rabbit_chx.amqp.names import short_string
from rabbit_chx.errors import InputError
from rabbit_chx.publishing.rows import Rows

#: How many pieces are kept, one for each length; about 2 MB.
_KEPT_LENGTHS = 16_384


class _Pieces(dict["Any", bytes]):
    """Pieces by what they depend on, each made when first asked for."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        self._make = make

    def __missing__(self, key: object) -> bytes:
        if len(self) >= _KEPT_LENGTHS:
            self.clear()
        self[key] = piece = self._make(key)
        return piece


def exchange_name(exchange: str) -> bytes:
    """Return the name as it goes over the wire.

    Raises:
        InputError: AMQP cannot carry it.
    """
    if not isinstance(exchange, str):
        raise InputError(f"the exchange is {exchange!r:.60}: give its name as a str")
    return short_string(exchange, "the exchange name", exchange=exchange)


class Encoder:
    """Writes messages.

    Args:
        exchange: the exchange of rows that name none, as it goes over the wire.
        properties: property flags and values of rows that have none of their own, as they go over the wire.
        mandatory: whether the broker returns what it cannot route.
        frame_max: the largest frame that was agreed on, in bytes.
        channel: the channel's number.
    """

    def __init__(
        self, exchange: bytes, properties: bytes, *, mandatory: bool, frame_max: int, channel: int = 1
    ) -> None:
        self._channel = channel
        self._chunk = chunk = frame_max - FRAME_OVERHEAD
        self._by_key_length = tuple(
            FRAME_END + publish_head(channel, exchange, n) for n in range(MAX_SHORTSTR + 1)
        )
        self._by_exchange = _Pieces(lambda place: FRAME_END + publish_head(channel, place[0], place[1]))
        self._by_properties_length = _Pieces(lambda n: header_head(channel, n, mandatory=mandatory))
        self._body_size = _Pieces(body_size)
        self._body_head = _Pieces(lambda n: body_head(channel, n, chunk))
        before = self._by_properties_length[len(properties)]
        self._by_body_length = _Pieces(
            lambda n: before + body_size(n) + properties + body_head(channel, n, chunk)
        )

    def encode(self, rows: Rows) -> bytes:
        """Return the messages as they go over the wire."""
        bodies = rows.bodies
        body_lengths = list(map(len, bodies))
        if max(body_lengths, default=0) > self._chunk:
            bodies = [
                split_body(self._channel, body, self._chunk) if len(body) > self._chunk else body
                for body in bodies
            ]
        between = self._between(rows.properties, body_lengths)
        columns = (self._publish_heads(rows), rows.keys, *between, bodies)
        pieces = [FRAME_END] * (len(columns) * len(bodies) + 1)
        for place, column in enumerate(columns):
            pieces[place : -1 : len(columns)] = column
        # The frame end of a message is joined to the head of the next: one piece less for each message.
        pieces[0] = pieces[0].removeprefix(FRAME_END)
        return b"".join(pieces)

    def _publish_heads(self, rows: Rows) -> Iterable[bytes]:
        key_lengths = map(len, rows.keys)
        if rows.exchanges is None:
            return map(self._by_key_length.__getitem__, key_lengths)
        return map(self._by_exchange.__getitem__, zip(rows.exchanges, key_lengths, strict=True))

    def _between(
        self, properties: Sequence[bytes] | None, body_lengths: Sequence[int]
    ) -> tuple[Iterable[bytes], ...]:
        """Return the columns of what is between key and body."""
        if properties is None:
            return (map(self._by_body_length.__getitem__, body_lengths),)
        return (
            map(self._by_properties_length.__getitem__, map(len, properties)),
            map(self._body_size.__getitem__, body_lengths),
            properties,
            map(self._body_head.__getitem__, body_lengths),
        )
