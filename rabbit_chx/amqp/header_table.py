"""Header tables to bytes of the wire and back. Every field keeps its type, which the clients' own parsers partly lose.

Mirrors rabbitmq-server ``deps/rabbit_common/src/rabbit_binary_parser.erl``, ``parse_table/1`` (v3.10.0 to v4.3.6), and AMQP 0-9-1, 4.2.5.5
and 4.2.6.1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from rabbit_chx.amqp.client_fields import Headers, HeaderTable, table_for
from rabbit_chx.amqp.fields import AmqpField, FieldType, pairs_of, too_deep
from rabbit_chx.checks import MAX_SHORTSTR
from rabbit_chx.errors import InputError

#: The flag of each property of AMQP 0-9-1 (class basic, 4.2.6.1), in the order of the wire.
PROPERTY_FLAGS: dict[str, int] = {
    "content_type": 1 << 15,
    "content_encoding": 1 << 14,
    "headers": 1 << 13,
    "delivery_mode": 1 << 12,
    "priority": 1 << 11,
    "correlation_id": 1 << 10,
    "reply_to": 1 << 9,
    "expiration": 1 << 8,
    "message_id": 1 << 7,
    "timestamp": 1 << 6,
    "type": 1 << 5,
    "user_id": 1 << 4,
    "app_id": 1 << 3,
    "cluster_id": 1 << 2,  # reserved; clients still support it
}

#: Fields of a fixed size: tag and form.
_FIXED: dict[FieldType, tuple[bytes, struct.Struct]] = {
    "byte": (b"b", struct.Struct(">b")),
    "unsignedbyte": (b"B", struct.Struct(">B")),
    "short": (b"s", struct.Struct(">h")),
    "unsignedshort": (b"u", struct.Struct(">H")),
    "signedint": (b"I", struct.Struct(">i")),
    "unsignedint": (b"i", struct.Struct(">I")),
    "long": (b"l", struct.Struct(">q")),
    "bool": (b"t", struct.Struct(">?")),
    "double": (b"d", struct.Struct(">d")),
    "float": (b"f", struct.Struct(">f")),
    "decimal": (b"D", struct.Struct(">BI")),
    "timestamp": (b"T", struct.Struct(">Q")),
    "void": (b"V", struct.Struct("")),
}
#: Fields with a length prefix.
_SIZED: dict[FieldType, bytes] = {"longstr": b"S", "binary": b"x", "array": b"A", "table": b"F"}

_PACKED = {
    type_: (tag, form.pack) for type_, (tag, form) in _FIXED.items() if type_ not in ("decimal", "void")
}
_FIXED_BY_TAG = {tag: (type_, form) for type_, (tag, form) in _FIXED.items()}
_FIXED_BY_TAG[b"L"] = _FIXED_BY_TAG[b"l"]  # the server reads both
_SIZED_BY_TAG = {tag: type_ for type_, tag in _SIZED.items()}

#: The kinds of NumPy's booleans, integers and floats.
_NUMBERS = ("b", "i", "u", "f")
_LENGTH = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">Q")


def encode_headers(headers: Headers) -> bytes:
    """Return a table as the publishers send it, including its length. A NumPy scalar is the number that it holds."""
    if type(headers) is dict and len(headers) < 64:  # names and values that are text need no fields
        parts: list[bytes] = []
        for name, value in headers.items():
            if type(name) is not str or type(value) is not str or not (name + value).isascii():
                break
            if len(name) > MAX_SHORTSTR:
                break
            parts += (bytes((len(name),)), name.encode(), b"S", _LENGTH.pack(len(value)), value.encode())
        else:
            return _with_length(b"".join(parts))
    if not isinstance(headers, Mapping):
        headers = pairs_of(headers)
    try:
        return encode_table(table_for(headers))
    except InputError:
        return encode_table(table_for(_with_plain_numbers(headers)))


def _with_plain_numbers(value: Any) -> Any:
    """Return a value whose NumPy scalars, also inside it, are numbers and booleans of Python. NumPy is not imported."""
    try:
        if isinstance(value, Mapping):
            return {name: _with_plain_numbers(inner) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(_with_plain_numbers, value))
    except RecursionError:
        raise too_deep() from None
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    shape = getattr(value, "shape", None)
    if kind in _NUMBERS and shape == ():
        number = value.item()
        return number if type(number) in (bool, int, float) else value
    return value


def encode_table(table: HeaderTable) -> bytes:
    """Return the bytes of a table, including its length."""
    return _with_length(b"".join(bytes((len(name),)) + name + _encode_field(field) for name, field in table))


def _with_length(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _encode_field(field: AmqpField) -> bytes:
    type_ = field.type
    value = field.value
    if type_ in _PACKED:
        tag, pack = _PACKED[type_]
        return tag + pack(value)
    match type_:
        case "longstr" | "binary":
            return _SIZED[type_] + _with_length(value)
        case "array":
            return _SIZED[type_] + _with_length(b"".join(map(_encode_field, value)))
        case "table":
            return _SIZED[type_] + encode_table(value)
    tag, form = _FIXED[type_]
    return tag + (form.pack(*value) if type_ == "decimal" else b"")  # else void


def properties_in(properties: bytes) -> dict[str, Any]:
    """Return the properties of a message by name, in wire order; ``timestamp`` is in seconds since 1970, ``headers`` a table."""
    found: dict[str, Any] = {}
    try:
        (flags,) = struct.unpack_from(">H", properties)
        at = 2
        for name, flag in PROPERTY_FLAGS.items():
            if not flags & flag:
                continue
            if name in ("delivery_mode", "priority"):
                found[name], at = properties[at], at + 1
            elif name == "timestamp":
                (found[name],), at = _TIMESTAMP.unpack_from(properties, at), at + _TIMESTAMP.size
            elif name == "headers":
                (size,) = _LENGTH.unpack_from(properties, at)
                found[name], at = parse_table(properties[at + 4 : at + 4 + size]), at + 4 + size
            else:
                start = at + 1
                at = at + 1 + properties[at]
                found[name] = properties[start:at].decode(errors="replace")
    except (struct.error, IndexError):
        at = len(properties) + 1
    if at > len(properties):
        raise InputError("these bytes are not message properties: they end too early")
    return found


def parse_table(data: bytes) -> HeaderTable:
    """Return the pairs of a table, in wire order."""
    try:
        return _pairs(data)
    except (struct.error, IndexError):
        raise InputError("these bytes are not a header table: they end too early") from None
    except RecursionError:
        raise too_deep() from None


def _pairs(data: bytes) -> HeaderTable:
    pairs: list[tuple[bytes, AmqpField]] = []
    position = 0
    while position < len(data):
        start = position + 1
        end = start + data[position]
        field, position = _parse_field(data, end)
        pairs.append((data[start:end], field))
    return tuple(pairs)


def _elements(data: bytes) -> list[AmqpField]:
    fields: list[AmqpField] = []
    position = 0
    while position < len(data):
        field, position = _parse_field(data, position)
        fields.append(field)
    return fields


def _parse_field(data: bytes, position: int) -> tuple[AmqpField, int]:
    """Return the field at a position, and the position after it."""
    tag = data[position : position + 1]
    start = position + 1
    if tag in _FIXED_BY_TAG:
        type_, form = _FIXED_BY_TAG[tag]
        values: tuple[Any, ...] = form.unpack_from(data, start)
        value = values if type_ == "decimal" else values[0] if values else None
        return AmqpField(type_, value), start + form.size
    (size,) = _LENGTH.unpack_from(data, start)
    start, end = start + 4, start + 4 + size
    if end > len(data):
        raise InputError(f"these bytes are not a header table: a field of {size} bytes ends after them")
    if tag not in _SIZED_BY_TAG:
        raise InputError(f"these bytes are not a header table: {tag!r} is not a field type")
    content = data[start:end]
    type_ = _SIZED_BY_TAG[tag]
    if type_ == "table":
        return AmqpField(type_, _pairs(content)), end
    return AmqpField(type_, _elements(content) if type_ == "array" else content), end
