"""Messages as AMQP frames: columns of text as bytes, message properties, and a batch of messages in one join.

No object is created per message, for speed. On the wire (AMQP 0-9-1, 4.2.6.1) the properties of a message are 16 flags for the present
properties, and the values in the order of the flags.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from operator import add, index
from typing import Any, NoReturn, TypeAlias, TypedDict, TypeVar

from rabbit_chx.amqp.fields import PROPERTY_FLAGS, encode_headers
from rabbit_chx.amqp.frames import (
    FRAME_END,
    FRAME_OVERHEAD,
    MAX_PROPERTIES,
    body_head,
    body_size,
    header_head,
    publish_head,
    split_body,
)
from rabbit_chx.checks import MAX_SHORTSTR, short_string, similar, too_long
from rabbit_chx.errors import InputError, RowError

_CHANNEL = 1
_SHOWN_BYTES = 24
_LENGTHS = tuple(bytes((n,)) for n in range(256))
_T = TypeVar("_T")
_Encode: TypeAlias = Callable[[Sequence[Any], str, int], list[bytes]]
#: The number of cached pieces, one for each length; about 2 MB.
_KEPT_LENGTHS = 16_384


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of messages, validated and in bytes; kept until the broker has answered all of them.

    Attributes:
        properties: the property flags and values of each message; None if all messages have the publisher's.
        exchanges: the exchange of each message; None if all messages use the publisher's.
    """

    keys: Sequence[bytes]
    bodies: Sequence[bytes]
    properties: Sequence[bytes] | None = None
    exchanges: Sequence[bytes] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def pick(self, indices: Sequence[int]) -> Rows:
        """Return the messages with these indices, in this order."""
        if len(indices) == len(self.keys):
            return self
        return Rows(
            [self.keys[i] for i in indices],
            [self.bodies[i] for i in indices],
            self.properties and [self.properties[i] for i in indices],
            self.exchanges and [self.exchanges[i] for i in indices],
        )


def as_bytes(
    values: Sequence[str | bytes], what: str, first_row: int, longest: int | None = None
) -> Sequence[bytes]:
    """Return a column of text as bytes, with str as UTF-8; `what` and `first_row` are for the error, `longest` is in bytes."""
    data = of_rows(_as_bytes, values, what, first_row)
    if longest is not None and max(map(len, data), default=0) > longest:
        _refuse_long(data, what, first_row, longest)
    return data


def one_as_bytes(value: str | bytes, what: str, longest: int | None = None) -> bytes:
    """Return the text of one message as `as_bytes` does for a column."""
    data = value.encode() if type(value) is str and value.isascii() else value
    if type(data) is bytes and (longest is None or len(data) <= longest):
        return data
    return as_bytes((value,), what, 0, longest)[0]


def of_rows(
    encode: Callable[[Sequence[Any], str, int], Sequence[_T]],
    values: Sequence[Any],
    what: str,
    first_row: int,
) -> Sequence[_T]:
    """Return what `encode` makes of a column. An error that the methods of a value raise is a RowError with the value's message."""
    try:
        return encode(values, what, first_row)
    except (InputError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  # a value may be of any class
        return [
            piece for i, value in enumerate(values) for piece in _of_row(encode, value, what, first_row + i)
        ]


def _of_row(
    encode: Callable[[Sequence[Any], str, int], Sequence[_T]], value: object, what: str, row: int
) -> Sequence[_T]:
    try:
        return encode((value,), what, row)
    except (InputError, MemoryError):
        raise
    except Exception as cause:
        raise RowError(
            f"row {row}: the {what} is of type {type(value).__name__}, and reading it raises {type(cause).__name__}; pass a value "
            "of a built-in type"
        ) from cause


def _as_bytes(values: Sequence[str | bytes], what: str, first_row: int) -> Sequence[bytes]:
    if values and isinstance(values[0], str):
        try:
            return list(map(str.encode, values))  # type: ignore[arg-type]
        except (TypeError, UnicodeEncodeError):  # the loop below finds the invalid value
            pass
    elif set(map(type, values)) <= {bytes}:
        return values  # type: ignore[return-value]  # all values are bytes
    return [_check_bytes(value, what, first_row + i) for i, value in enumerate(values)]


def _check_bytes(value: object, what: str, row: int) -> bytes:
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError as cause:
            raise RowError(
                f"row {row}: the {what} is not valid Unicode text ({cause.reason} at character {cause.start}); "
                "pass the bytes that are meant"
            ) from None
    if isinstance(value, (bytes, bytearray)):
        return b"".join((value,))  # a subclass may have its own __bytes__
    if value is None:
        raise RowError(f"row {row}: the {what} is missing (None); fill it, or leave the message out")
    raise RowError(f"row {row}: the {what} is of type {type(value).__name__}; pass a str or bytes")


def _refuse_long(values: Sequence[bytes], what: str, first_row: int, longest: int) -> NoReturn:
    row, value = next((i, value) for i, value in enumerate(values) if len(value) > longest)
    raise RowError(
        too_long(f"row {first_row + row}: the {what} {value[:_SHOWN_BYTES]!r}...", len(value))
        + "; shorten it, or use its hash"
    )


# -- message properties


class Properties:
    """Encodes message properties; `constants` are those of messages without their own, and `constant` is their encoded form."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._given = dict(constants)
        self._constants: dict[str, bytes] = {}
        for name, value in constants.items():
            check_name(name)
            if value is None:
                continue
            try:
                (self._constants[name],) = _ENCODERS[name]([value], name, 0)
            except RowError as cause:
                raise InputError(str(cause).removeprefix("row 0: the ")) from None
        present = [name for name in _ENCODERS if name in self._constants]
        flags = sum(PROPERTY_FLAGS[name] for name in present)
        self.constant = flags.to_bytes(2, "big") + b"".join(self._constants[name] for name in present)
        if len(self.constant) > MAX_PROPERTIES:
            raise InputError(too_large(self.constant))

    def with_headers(self, headers: Mapping[str, str]) -> Properties:
        """Return properties with further constant headers; a present header keeps its value."""
        return Properties({**self._given, "headers": with_headers(self._given.get("headers"), headers)})

    def of_rows(self, columns: Mapping[str, Sequence[Any]], first_row: int) -> list[bytes]:
        """Return the flags and values of each message from columns by property name; None is the constant, if any."""
        rows = len(next(iter(columns.values())))
        # In the order of the wire: one part for all rows, or one for each.
        parts: list[bytes | Sequence[bytes]] = []
        fixed = 0
        open_flags: list[tuple[int, Sequence[bytes]]] = []  # of columns with a row without a value

        for name in _ENCODERS:
            if name not in columns:
                if name in self._constants:
                    fixed |= PROPERTY_FLAGS[name]
                    parts.append(self._constants[name])
                continue
            column = self._column(name, columns[name], first_row)
            parts.append(column)
            if all(column):
                fixed |= PROPERTY_FLAGS[name]
            else:
                open_flags.append((PROPERTY_FLAGS[name], column))

        head: bytes | list[bytes] = fixed.to_bytes(2, "big")
        if open_flags:
            flags = [fixed] * rows
            for flag, pieces in open_flags:
                flags = [old | flag if piece else old for old, piece in zip(flags, pieces, strict=True)]
            head = [row_flags.to_bytes(2, "big") for row_flags in flags]

        joined = _join([head, *parts], rows)
        if max(map(len, joined)) > MAX_PROPERTIES:
            row, longest = next((i, piece) for i, piece in enumerate(joined) if len(piece) > MAX_PROPERTIES)
            raise RowError(f"row {first_row + row}: {too_large(longest)}")
        return joined

    def _column(self, name: str, values: Sequence[Any], first_row: int) -> list[bytes]:
        encode = _ENCODERS[name]
        if name == "headers" and self._given.get("headers"):
            values = of_rows(self._with_constant_headers, values, name, first_row)
        if type(None) not in set(map(type, values)):
            return encode(values, name, first_row)
        piece = self._constants.get(name, b"")
        return [
            piece if value is None else encode((value,), name, first_row + i)[0]
            for i, value in enumerate(values)
        ]

    def _with_constant_headers(self, values: Sequence[Any], _what: str, _first_row: int) -> list[Any]:
        """Return headers of messages with those of all messages; other types are refused later."""
        constant = self._given["headers"]
        return [
            with_headers(own, constant) if isinstance(own, (Mapping, list, tuple)) else own for own in values
        ]


def with_headers(headers: Any, added: Any) -> list[tuple[str, Any]]:  # mappings or pairs
    """Return headers with further ones; a present header keeps its value."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    further = added.items() if isinstance(added, Mapping) else added
    present = {name for name, _ in pairs}
    return [*((name, value) for name, value in further if name not in present), *pairs]


def check_name(name: str) -> None:
    """Check the name of a message property."""
    if name not in _ENCODERS:
        near = similar(str(name), _ENCODERS)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(_ENCODERS)}"
        raise InputError(f"there is no message property {name!r:.60}: {hint}")


def too_large(properties: bytes, most: int = MAX_PROPERTIES) -> str:
    """Return what is wrong with properties of more bytes than this."""
    return (
        f"the properties are {len(properties):,} bytes long; one frame holds {most:,}: "
        "shorten the headers, or move them to the body"
    )


def _join(parts: list[bytes | Sequence[bytes]], rows: int) -> list[bytes]:
    """Join the parts of each message; adjacent parts that are the same for all messages are joined once."""
    merged: list[bytes | Sequence[bytes]] = []
    for part in parts:
        if merged and isinstance(part, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    columns = [repeat(part, rows) if isinstance(part, bytes) else part for part in merged]
    if len(columns) == 2:
        return list(map(add, *columns))
    return list(map(b"".join, zip(*columns, strict=True)))


# -- the kinds of values: a column to pieces of the wire


def _shortstrs(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
    data = as_bytes(values, name, first_row, MAX_SHORTSTR)
    return list(map(add, map(_LENGTHS.__getitem__, map(len, data)), data))


def _expirations(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
    for i, value in enumerate(values):
        # For any other value the broker would close the channel.
        text = _check_bytes(value, name, first_row + i) if isinstance(value, (str, bytes)) else b""
        if not text.isdigit():
            raise RowError(f"row {first_row + i}: the {name} is {value!r:.40}; pass milliseconds, as '60000'")
    return _shortstrs(values, name, first_row)


def _whole(least: int, most: int, size: int) -> _Encode:
    def encode(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
        pieces = []
        for i, value in enumerate(values):
            number = value if type(value) is int else _as_int(value)
            if number is None or not least <= number <= most:
                raise RowError(
                    f"row {first_row + i}: the {name} is {value!r:.40}; "
                    f"pass a whole number from {least} to {most}"
                )
            pieces.append(number.to_bytes(size, "big"))
        return pieces

    return encode


def _as_int(value: object) -> int | None:
    """Return an integer of any type, such as NumPy's, as an int; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return int.__int__(index(value))  # type: ignore[arg-type]  # a TypeError is the answer
    except TypeError:
        return None


_seconds = _whole(0, (1 << 64) - 1, 8)


def _timestamps(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
    # As pika: a naive datetime means UTC, fractions of a second are dropped.
    return _seconds([_timegm(v) if isinstance(v, datetime) else v for v in values], name, first_row)


def _timegm(moment: datetime) -> object:
    try:
        return calendar.timegm(moment.utctimetuple())
    except (ValueError, OverflowError):  # pandas' NaT is a datetime, too
        return moment


def _headers(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
    pieces = []
    for i, value in enumerate(values):
        try:
            pieces.append(encode_headers(value))
        except InputError as cause:
            raise RowError(f"row {first_row + i}: the {name} cannot be sent: {cause}") from None
    return pieces


def _with_rows(encode: _Encode) -> _Encode:
    return lambda values, name, first_row: list(of_rows(encode, values, name, first_row))


#: Those of properties that are not short strings.
_BY_NAME: dict[str, _Encode] = {
    "headers": _headers,
    "delivery_mode": _whole(1, 2, 1),
    "priority": _whole(0, 255, 1),
    "expiration": _expirations,
    "timestamp": _timestamps,
}
#: In the order of the wire.
_ENCODERS = {name: _with_rows(_BY_NAME.get(name, _shortstrs)) for name in PROPERTY_FLAGS}
#: The properties that a message may have.
PROPERTY_NAMES: tuple[str, ...] = tuple(_ENCODERS)


# -- whole messages


class _Pieces(dict["Any", bytes]):
    """A cache that makes each missing piece."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        self._make = make

    def __missing__(self, key: object) -> bytes:
        if len(self) >= _KEPT_LENGTHS:
            self.clear()
        self[key] = piece = self._make(key)
        return piece


def exchange_name(exchange: str) -> bytes:
    """Return the encoded name."""
    if not isinstance(exchange, str):
        raise InputError(f"the exchange is {exchange!r:.60}: pass its name as a str")
    return short_string(exchange, "the exchange name", exchange=exchange)


#: Class, weight and body size, before the properties in their frame.
_HEADER_BYTES = 12


def longest_properties(frame_max: int) -> int:
    """Return the most bytes of properties for frames of this size; the broker closes a connection with longer ones (501)."""
    return frame_max - FRAME_OVERHEAD - _HEADER_BYTES


class Encoder:
    """Encodes messages.

    Args:
        exchange: the encoded exchange of messages without their own.
        properties: the encoded properties of messages without their own.
        frame_max: the negotiated largest frame, in bytes.
        mandatory: whether the broker returns unroutable messages.
    """

    def __init__(self, exchange: bytes, properties: bytes, frame_max: int, *, mandatory: bool) -> None:
        channel = _CHANNEL
        self._properties = properties
        self._chunk = chunk = frame_max - FRAME_OVERHEAD
        self._by_key_length = tuple(
            FRAME_END + publish_head(channel, exchange, n) for n in range(MAX_SHORTSTR + 1)
        )
        self._by_exchange = _Pieces(lambda route: FRAME_END + publish_head(channel, *route))
        self._by_properties_length = _Pieces(lambda n: header_head(channel, n, mandatory=mandatory))
        self._body_size = _Pieces(body_size)
        self._body_head = _Pieces(lambda n: body_head(channel, n, chunk))
        before = self._by_properties_length[len(properties)]
        self._by_body_length = _Pieces(
            lambda n: before + body_size(n) + properties + body_head(channel, n, chunk)
        )

    def check(self, rows: Rows, first_row: int) -> None:
        """Raise a RowError for properties that do not fit into a frame of this connection."""
        most = longest_properties(self._chunk + FRAME_OVERHEAD)
        for row, properties in enumerate(rows.properties or (self._properties,)):
            if len(properties) > most:
                raise RowError(f"row {first_row + row}: {too_large(properties, most)}")

    def encode(self, rows: Rows) -> bytes:
        """Return the messages as bytes of the wire."""
        bodies = rows.bodies
        body_lengths = list(map(len, bodies))
        if max(body_lengths, default=0) > self._chunk:
            bodies = [
                split_body(_CHANNEL, body, self._chunk) if len(body) > self._chunk else body
                for body in bodies
            ]
        between = self._between(rows.properties, body_lengths)
        columns = (self._publish_heads(rows), rows.keys, *between, bodies)
        pieces = [FRAME_END] * (len(columns) * len(bodies) + 1)
        for i, column in enumerate(columns):
            pieces[i : -1 : len(columns)] = column
        # The frame end of a message is joined to the head of the next, which saves one piece per message.
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
        if properties is None:
            return (map(self._by_body_length.__getitem__, body_lengths),)
        return (
            map(self._by_properties_length.__getitem__, map(len, properties)),
            map(self._body_size.__getitem__, body_lengths),
            properties,
            map(self._body_head.__getitem__, body_lengths),
        )


# -- Types of message properties, so that a type checker finds a misspelt name or a value of another type


#: Headers by name, or pairs; a value is an `AmqpField`, or a Python value that a client hands out.
Headers: TypeAlias = Mapping[str, object] | Iterable[tuple[str, object]]
_Text: TypeAlias = str | bytes
_TextColumn: TypeAlias = Iterable[_Text | None]
_NumberColumn: TypeAlias = Iterable[int | None]


class MessageProperties(TypedDict, total=False):
    """The properties of a message. None is the publisher's own value, if any."""

    content_type: _Text | None
    content_encoding: _Text | None
    headers: Headers | None
    delivery_mode: int | None
    priority: int | None
    correlation_id: _Text | None
    reply_to: _Text | None
    expiration: _Text | None
    message_id: _Text | None
    timestamp: int | datetime | None
    type: _Text | None
    user_id: _Text | None
    app_id: _Text | None
    cluster_id: _Text | None


class PropertyColumns(TypedDict, total=False):
    """Columns of properties, with one value for each message."""

    content_type: _TextColumn
    content_encoding: _TextColumn
    headers: Iterable[Headers | None]
    delivery_mode: _NumberColumn
    priority: _NumberColumn
    correlation_id: _TextColumn
    reply_to: _TextColumn
    expiration: _TextColumn
    message_id: _TextColumn
    timestamp: Iterable[int | datetime | None]
    type: _TextColumn
    user_id: _TextColumn
    app_id: _TextColumn
    cluster_id: _TextColumn
