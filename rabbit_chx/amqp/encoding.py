"""A header table to the bytes of the wire, every field with the type that it bears.

The other way round than `amqp.decoding`, and by the same rules: AMQP 0-9-1, 4.2.5.5, with the server's tags.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.client_fields import table_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from rabbit_chx.amqp.client_fields import Headers, Table
    from rabbit_chx.amqp.fields import AmqpField, FieldType

__all__ = ["encode_headers", "encode_table"]

_LENGTH = struct.Struct(">I").pack
_FIXED: dict[FieldType, tuple[bytes, Callable[..., bytes]]] = {
    "byte": (b"b", struct.Struct(">b").pack),
    "unsignedbyte": (b"B", struct.Struct(">B").pack),
    "short": (b"s", struct.Struct(">h").pack),
    "unsignedshort": (b"u", struct.Struct(">H").pack),
    "signedint": (b"I", struct.Struct(">i").pack),
    "unsignedint": (b"i", struct.Struct(">I").pack),
    "long": (b"l", struct.Struct(">q").pack),
    "bool": (b"t", struct.Struct(">?").pack),
    "double": (b"d", struct.Struct(">d").pack),
    "float": (b"f", struct.Struct(">f").pack),
    "timestamp": (b"T", struct.Struct(">Q").pack),
}
_DECIMAL = struct.Struct(">BI").pack


def encode_headers(headers: Headers) -> bytes:
    """A table as pika would put it on the wire, its length included.

    Raises:
        InputError: pika cannot encode a name or a value, or it is no table.
    """
    if type(headers) is dict and len(headers) < 64:  # names and values that are text need no fields
        parts: list[bytes] = []
        for name, value in headers.items():
            if type(name) is not str or type(value) is not str or not (name + value).isascii():
                break
            if len(name) > 255:
                break
            parts += (bytes((len(name),)), name.encode(), b"S", _LENGTH(len(value)), value.encode())
        else:
            return _counted(b"".join(parts))
    return encode_table(table_for(headers))


def encode_table(table: Table) -> bytes:
    """A table of fields, its length included."""
    return _counted(b"".join(bytes((len(name),)) + name + _field(field) for name, field in table))


def _counted(data: bytes) -> bytes:
    return _LENGTH(len(data)) + data


def _field(field: AmqpField) -> bytes:
    value = field.value
    if field.type in _FIXED:
        tag, pack = _FIXED[field.type]
        return tag + pack(value)
    return _OTHERS[field.type](value)


_OTHERS: dict[FieldType, Callable[[Any], bytes]] = {
    "longstr": lambda value: b"S" + _counted(value),
    "binary": lambda value: b"x" + _counted(value),
    "decimal": lambda value: b"D" + _DECIMAL(*value),
    "array": lambda value: b"A" + _counted(b"".join(map(_field, value))),
    "table": lambda value: b"F" + encode_table(value),
    "void": lambda _: b"V",
}
