"""Header tables with any wire type: neither pika nor aio-pika can send all that the broker reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import pika

from rabbit_chx.amqp import AmqpField

FIXED = {
    "byte": ("b", "b"),
    "unsignedbyte": ("B", "B"),
    "short": ("s", "h"),
    "unsignedshort": ("u", "H"),
    "signedint": ("I", "i"),
    "unsignedint": ("i", "I"),
    "long": ("l", "q"),
    "bool": ("t", "?"),
    "double": ("d", "d"),
    "float": ("f", "f"),
    "decimal": ("D", "BI"),
    "timestamp": ("T", "Q"),
}
LONG = {"longstr": b"S", "binary": b"x", "array": b"A", "table": b"F"}


class _TypedProperties(pika.BasicProperties):
    """Properties with the header table alone, written by us."""

    def encode(self) -> list[bytes]:
        table = _table((name.encode(), field) for name, field in (self.headers or {}).items())
        return [struct.pack(">H", self.FLAG_HEADERS), _long(table)]


def typed_properties(headers: Mapping[str, Any] | None) -> pika.BasicProperties | None:
    """Properties that pika sends as they are, if all headers are fields; else None, and pika writes them itself."""
    if not headers or not all(isinstance(value, AmqpField) for value in headers.values()):
        return None
    return _TypedProperties(headers=headers)


def _table(pairs: Iterable[tuple[bytes, AmqpField]]) -> bytes:
    return b"".join(bytes([len(name)]) + name + _field(field) for name, field in pairs)


def _field(field: AmqpField) -> bytes:
    if field.type == "void":
        return b"V"
    if field.type in FIXED:
        tag, layout = FIXED[field.type]
        values = field.value if isinstance(field.value, tuple) else (field.value,)
        return tag.encode() + struct.pack(f">{layout}", *values)
    data = field.value
    if field.type == "array":
        data = b"".join(map(_field, field.value))
    elif field.type == "table":
        data = _table(field.value)
    return LONG[field.type] + _long(data)


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
