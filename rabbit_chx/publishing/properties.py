"""Message properties: those that all messages share, and those that a column gives row by row.

On the wire (AMQP 0-9-1, 4.2.6.1) they are 16 flags that say which are there, and the values in the order of the flags.
"""

from __future__ import annotations

import calendar
import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from operator import add, index
from typing import Any, NamedTuple, TypeAlias

from rabbit_chx.amqp.frames import MAX_PROPERTIES, MAX_SHORTSTR
from rabbit_chx.amqp.header_table import PROPERTY_FLAGS, encode_headers
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.publishing.rows import as_bytes

_LENGTHS = tuple(bytes((n,)) for n in range(256))
_Encode: TypeAlias = Callable[[Sequence[Any], str, int], list[bytes]]


class Properties:
    """Writes the properties of messages.

    Args:
        constants: the properties of every message whose row does not say otherwise, by name.

    Attributes:
        constant: flags and values of a message whose row says nothing.

    Raises:
        InputError: a name is not the name of a message property, or AMQP cannot carry the value.
    """

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants: dict[str, bytes] = {}
        for name, value in constants.items():
            check_name(name)
            if value is None:
                continue
            try:
                (self._constants[name],) = _KINDS[name].encode([value], name, 0)
            except RowError as cause:
                raise InputError(str(cause).removeprefix("row 0: the ")) from None
        present = [name for name in _KINDS if name in self._constants]
        flags = sum(_KINDS[name].flag for name in present)
        self.constant = flags.to_bytes(2, "big") + b"".join(self._constants[name] for name in present)
        if len(self.constant) > MAX_PROPERTIES:
            raise InputError(_too_long(self.constant))

    def of_rows(self, columns: Mapping[str, Sequence[Any]], first_row: int) -> list[bytes]:
        """Return the flags and values of each row.

        Args:
            columns: by property name, one entry for each row; None is the constant, if there is one.
            first_row: the number of the first of these rows, for errors.

        Raises:
            RowError: AMQP cannot carry a value.
        """
        rows = len(next(iter(columns.values())))
        # In the order of the wire: one part for all rows, or one for each.
        parts: list[bytes | Sequence[bytes]] = []
        fixed = 0
        open_flags: list[tuple[int, Sequence[bytes]]] = []  # of the columns in which a row has nothing
        for name, kind in _KINDS.items():
            if name not in columns:
                if name in self._constants:
                    fixed |= kind.flag
                    parts.append(self._constants[name])
                continue
            column = self._column(name, columns[name], first_row)
            parts.append(column)
            if all(column):
                fixed |= kind.flag
            else:
                open_flags.append((kind.flag, column))
        head: bytes | list[bytes] = fixed.to_bytes(2, "big")
        if open_flags:
            flags = [fixed] * rows
            for flag, pieces in open_flags:
                flags = [old | flag if piece else old for old, piece in zip(flags, pieces, strict=True)]
            head = [row_flags.to_bytes(2, "big") for row_flags in flags]
        joined = _joined([head, *parts], rows)
        if max(map(len, joined)) > MAX_PROPERTIES:
            row, longest = next((i, piece) for i, piece in enumerate(joined) if len(piece) > MAX_PROPERTIES)
            raise RowError(f"row {first_row + row}: {_too_long(longest)}")
        return joined

    def _column(self, name: str, values: Sequence[Any], first_row: int) -> list[bytes]:
        encode = _KINDS[name].encode
        if type(None) not in set(map(type, values)):
            return encode(values, name, first_row)
        piece = self._constants.get(name, b"")
        return [
            piece if value is None else encode((value,), name, first_row + i)[0]
            for i, value in enumerate(values)
        ]


def check_name(name: str) -> None:
    """Check the name of a message property.

    Raises:
        InputError: it is not the name of a message property.
    """
    if name not in _KINDS:
        near = difflib.get_close_matches(str(name), _KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_KINDS)}"
        raise InputError(f"there is no message property {name!r:.60}: {hint}")


def _too_long(properties: bytes) -> str:
    return (
        f"the properties are {len(properties):,} bytes long; one frame holds {MAX_PROPERTIES:,}: "
        "shorten the headers, or move them to the body"
    )


def _joined(parts: list[bytes | Sequence[bytes]], rows: int) -> list[bytes]:
    """Join the parts of each row; neighbours that are the same for all rows are joined once."""
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
        if not (isinstance(value, (str, bytes)) and value.isascii() and value.isdigit()):
            raise RowError(
                f"row {first_row + i}: the {name} is {value!r:.40}; give milliseconds as text, such as '60000'"
            )
    return _shortstrs(values, name, first_row)


def _whole(least: int, most: int, size: int) -> _Encode:
    def encode(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
        pieces = []
        for i, value in enumerate(values):
            number = value if type(value) is int else _as_int(value)
            if number is None or not least <= number <= most:
                raise RowError(
                    f"row {first_row + i}: the {name} is {value!r:.40}; "
                    f"give a whole number from {least} to {most}"
                )
            pieces.append(number.to_bytes(size, "big"))
        return pieces

    return encode


def _as_int(value: object) -> int | None:
    """Return a whole number of any type, such as NumPy's, as an int; None where it is not a whole number."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        return None


_seconds = _whole(0, (1 << 64) - 1, 8)


def _timestamps(values: Sequence[Any], name: str, first_row: int) -> list[bytes]:
    # As pika does: a naive datetime means UTC, parts of a second are left out.
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


class _Kind(NamedTuple):
    flag: int
    encode: _Encode


_ENCODERS: dict[str, _Encode] = {
    "content_type": _shortstrs,
    "content_encoding": _shortstrs,
    "headers": _headers,
    "delivery_mode": _whole(1, 2, 1),
    "priority": _whole(0, 255, 1),
    "correlation_id": _shortstrs,
    "reply_to": _shortstrs,
    "expiration": _expirations,
    "message_id": _shortstrs,
    "timestamp": _timestamps,
    "type": _shortstrs,
    "user_id": _shortstrs,
    "app_id": _shortstrs,
}
#: In the order of the wire.
_KINDS = {name: _Kind(flag, _ENCODERS[name]) for name, flag in PROPERTY_FLAGS.items() if name in _ENCODERS}
#: The properties that a message may have beside key and body.
PROPERTY_NAMES: tuple[str, ...] = tuple(_KINDS)
