"""A header table read from the wire, with every type kept; the clients' own readers lose some.

Mirrors rabbitmq-server ``deps/rabbit_common/src/rabbit_binary_parser.erl``, ``parse_table/1`` (v3.7.8 to v4.3.6), and
AMQP 0-9-1, 4.2.5.5 and 4.2.6.1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from rabbit_chx.amqp.client_fields import Table
    from rabbit_chx.amqp.fields import FieldType

__all__ = ["headers_in", "parse_table"]

_FIXED: dict[bytes, tuple[FieldType, struct.Struct]] = {
    b"b": ("byte", struct.Struct(">b")),
    b"B": ("unsignedbyte", struct.Struct(">B")),
    b"s": ("short", struct.Struct(">h")),
    b"u": ("unsignedshort", struct.Struct(">H")),
    b"I": ("signedint", struct.Struct(">i")),
    b"i": ("unsignedint", struct.Struct(">I")),
    b"l": ("long", struct.Struct(">q")),
    b"L": ("long", struct.Struct(">q")),
    b"t": ("bool", struct.Struct(">?")),
    b"d": ("double", struct.Struct(">d")),
    b"f": ("float", struct.Struct(">f")),
    b"D": ("decimal", struct.Struct(">BI")),
    b"T": ("timestamp", struct.Struct(">Q")),
}
_HAS_CONTENT_TYPE, _HAS_CONTENT_ENCODING, _HAS_HEADERS = 1 << 15, 1 << 14, 1 << 13


def headers_in(properties: bytes) -> Table:
    """The header table of a message's properties, as they stand in its content header frame.

    Args:
        properties: the property flags and all behind them.

    Raises:
        InputError: the bytes are no properties.
    """
    try:
        (flags,) = struct.unpack_from(">H", properties)
        position = 2
        for flag in (_HAS_CONTENT_TYPE, _HAS_CONTENT_ENCODING):
            if flags & flag:
                position += 1 + properties[position]
        if not flags & _HAS_HEADERS:
            return ()
        (size,) = struct.unpack_from(">I", properties, position)
    except (struct.error, IndexError):
        raise InputError("these bytes are no message properties: they end too early") from None
    return parse_table(properties[position + 4 : position + 4 + size])


def parse_table(data: bytes) -> Table:
    """The pairs of a table, in the order of the wire.

    Args:
        data: the table without its length.

    Raises:
        InputError: the bytes are no table.
    """
    try:
        return _pairs(data)
    except (struct.error, IndexError):
        raise InputError("these bytes are no header table: they end too early") from None


def _pairs(data: bytes) -> Table:
    pairs: list[tuple[bytes, AmqpField]] = []
    position = 0
    while position < len(data):
        start = position + 1
        end = start + data[position]
        field, position = _field(data, end)
        pairs.append((data[start:end], field))
    return tuple(pairs)


def _items(data: bytes) -> list[AmqpField]:
    items: list[AmqpField] = []
    position = 0
    while position < len(data):
        field, position = _field(data, position)
        items.append(field)
    return items


def _field(data: bytes, position: int) -> tuple[AmqpField, int]:
    tag, start = data[position : position + 1], position + 1
    if tag == b"V":
        return AmqpField("void"), start
    if tag in _FIXED:
        type_, form = _FIXED[tag]
        values: tuple[Any, ...] = form.unpack_from(data, start)
        return AmqpField(type_, values if type_ == "decimal" else values[0]), start + form.size
    (size,) = struct.unpack_from(">I", data, start)
    start, end = start + 4, start + 4 + size
    if end > len(data):
        raise InputError(f"these bytes are no header table: a field of {size} bytes ends behind them")
    content = data[start:end]
    match tag:
        case b"S":
            return AmqpField("longstr", content), end
        case b"x":
            return AmqpField("binary", content), end
        case b"A":
            return AmqpField("array", _items(content)), end
        case b"F":
            return AmqpField("table", _pairs(content)), end
    raise InputError(f"these bytes are no header table: {tag!r} is no field type")
