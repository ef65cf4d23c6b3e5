"""Values of AMQP 1.0 with their wire types, in application properties and ids.

===============================  ======================================================================
type                             value
===============================  ======================================================================
``null``                         None
``boolean``                      bool
``ubyte ushort uint ulong``      int, from 0 to 2^8 - 1, 2^16 - 1, 2^32 - 1 and 2^64 - 1
``byte short int long``          int, from -2^7, -2^15, -2^31 and -2^63
``float double``                 float; ``float`` is rounded to 32 bits
``char``                         one character, or its code point
``timestamp``                    int, milliseconds since 1970, -2^63 to 2^63 - 1
``uuid``                         ``uuid.UUID``, or its 16 bytes
``binary``                       bytes
``string``                       str, or its UTF-8
``symbol``                       str, or its bytes
``list map array``               not inspected: RabbitMQ ignores them for routing
``decimal32 decimal64``          the same
``decimal128``                   the same
===============================  ======================================================================

The names are those of the specification. A bare Python value gets the type that Qpid Proton 0.40 sends for it; RabbitMQ's own client for
Python uses Proton. None is null, bool boolean, int long (in an id: ulong), float double, str string, bytes and bytearray binary, UUID uuid,
list and tuple list, dict map; Proton's own classes, such as ``ulong`` or ``symbol``, have their types. Mirrors ``proton/_data.py``,
``Data.put_mappings``, and ``cproton.py``, ``py2msgid``. Proton is not imported.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import UUID

from rabbit_chx.amqp.fields import Headers, integer_in, pairs_of
from rabbit_chx.checks import bytes_of, is_number, is_whole, shown
from rabbit_chx.errors import InputError

#: The primitive types of AMQP 1.0.
Amqp10Type: TypeAlias = Literal[
    "null", "boolean", "ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "float", "double", "char",
    "timestamp", "uuid", "binary", "string", "symbol", "list", "map", "array", "decimal32", "decimal64", "decimal128",
]  # fmt: skip

#: The range of each integer type, including the milliseconds of a timestamp and code points.
INTEGER_RANGES_10: dict[str, range] = {
    "ubyte": range(1 << 8),
    "ushort": range(1 << 16),
    "uint": range(1 << 32),
    "ulong": range(1 << 64),
    "byte": range(-(1 << 7), 1 << 7),
    "short": range(-(1 << 15), 1 << 15),
    "int": range(-(1 << 31), 1 << 31),
    "long": range(-(1 << 63), 1 << 63),
    "timestamp": range(-(1 << 63), 1 << 63),
    "char": range(0x110000),
}
#: The properties section of AMQP 1.0 (3.2.4), in its order.
PROPERTIES_10 = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
_NOT_SIMPLE = {"list", "map", "array", "decimal32", "decimal64", "decimal128"}
_ID_TYPES = ("string", "binary", "uuid", "ulong")

_OF_PYTHON: dict[type, Amqp10Type] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    bytearray: "binary",
    UUID: "uuid",
    list: "list",
    tuple: "list",
    dict: "map",
}
_OF_PROTON: dict[str, Amqp10Type] = {
    **{name: name for name in get_args(Amqp10Type)},
    "int32": "int",
    "float32": "float",
    "Array": "array",
}


@dataclass(frozen=True, slots=True)
class Amqp10Value:
    """An AMQP 1.0 value with its wire type.

    Attributes:
        type: the wire type, by the specification's name.
        value: text, bytes and UUIDs as bytes, characters as code points; None for types that RabbitMQ does not inspect.

    Raises:
        InputError: the type does not exist, or the value does not fit it.
    """

    type: Amqp10Type
    value: Any = None

    def __post_init__(self) -> None:
        if self.type not in get_args(Amqp10Type):
            raise InputError(
                f"{self.type!r} is not a type of AMQP 1.0: pass one of {', '.join(get_args(Amqp10Type))}"
            )
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "value", _value_of(self.type, self.value))

    @property
    def is_simple(self) -> bool:
        """True if RabbitMQ uses the value for routing: not a list, map, array or decimal, and neither infinity nor NaN."""
        if isinstance(self.value, float):
            return math.isfinite(self.value)
        return self.type not in _NOT_SIMPLE


def value_for(value: Any) -> Amqp10Value:
    """Return the value that Proton sends for a bare value; an Amqp10Value is returned unchanged."""
    if isinstance(value, Amqp10Value):
        return value
    kind = type(value)
    type_ = _OF_PYTHON.get(kind)
    if "proton" in kind.__module__.split("."):
        type_ = _OF_PROTON.get(kind.__name__)
    if type_ is None:
        raise InputError(f"AMQP 1.0 has nothing for {shown(value)} ({kind.__name__}): pass an Amqp10Value")
    return Amqp10Value(type_, value)


def id_for(name: str, value: Any) -> Amqp10Value | None:
    """Return a message_id or correlation_id; None if there is none."""
    id_ = Amqp10Value("ulong", value) if is_whole(value) else value_for(value)
    if id_.type == "null":
        return None
    if id_.type not in _ID_TYPES:
        raise InputError(f"the {name} is a {id_.type}: AMQP 1.0 has {', '.join(_ID_TYPES)} there")
    return id_


def named_values(headers: Headers) -> tuple[tuple[bytes, Amqp10Value], ...]:
    """Return application properties or annotations, given as a mapping or as pairs of name and value."""
    return tuple(
        (bytes_of(name, "the name of an application property or annotation"), value_for(value))
        for name, value in pairs_of(headers)
    )


def _value_of(type_: str, value: Any) -> Any:
    if type_ in _NOT_SIMPLE:
        return None
    if type_ in INTEGER_RANGES_10:
        return _integer(type_, value)
    if not isinstance(value, _SINGLE_TYPES.get(type_, object)):
        raise _mismatch(type_, value)
    return _READERS[type_](type_, value) if type_ in _READERS else value


def _bytes(type_: str, value: Any) -> bytes:
    return bytes_of(bytes(value) if isinstance(value, bytearray) else value, f"a value of type {type_}")


def _uuid(type_: str, value: Any) -> bytes:
    data = value.bytes if isinstance(value, UUID) else value
    if not isinstance(data, bytes) or len(data) != 16:
        raise _mismatch(type_, value)
    return data


def _float(type_: str, value: Any) -> float:
    if not is_number(value):
        raise _mismatch(type_, value)
    try:
        number = float(value)
        return number if type_ == "double" else float(struct.unpack(">f", struct.pack(">f", number))[0])
    except OverflowError:
        raise InputError(f"{shown(value)} does not fit into a {type_}") from None


def _integer(type_: str, value: Any) -> int:
    if type_ == "char" and isinstance(value, str) and len(value) == 1:
        return ord(value)
    if not is_whole(value):
        raise _mismatch(type_, value)
    return integer_in(INTEGER_RANGES_10[type_], type_, value)


def _mismatch(type_: str, value: object) -> InputError:
    return InputError(f"{shown(value)} ({type(value).__name__}) is not of the AMQP 1.0 type {type_}")


_SINGLE_TYPES: dict[str, type] = {"null": type(None), "boolean": bool}
_READERS: dict[str, Callable[[str, Any], Any]] = {
    "float": _float,
    "double": _float,
    "uuid": _uuid,
    "binary": _bytes,
    "string": _bytes,
    "symbol": _bytes,
}


# -- Parser of one AMQP 1.0 message of a stream: its body, its key, and the rest as text. No I/O
# `rows` parses rows of the common layouts in bulk. This module defines the result, and parses all other rows.


# Sections of a message (AMQP 1.0, part 3.2), by their codes and their names.
HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
_SECTIONS = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_NOT_BODY = (HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, FOOTER)
#: The sections of a column; of two values with one name the later one counts.
SECTIONS_OF = {"properties": (PROPERTIES,), "headers": (ANNOTATIONS, APPLICATION)}
COLUMN_OF = {code: name for name, codes in SECTIONS_OF.items() for code in codes}
#: Binary, string and symbol, each with a size of 1 and of 4 bytes.
TEXT_TYPES = (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)
#: The `struct` formats of the simple types of fixed size.
FORMATS = {
    0x50: "B", 0x51: "b", 0x52: "B", 0x53: "B", 0x54: "b", 0x55: "b", 0x56: "?", 0x60: "H", 0x61: "h", 0x70: "I",
    0x71: "i", 0x72: "f", 0x73: "I", 0x74: "4s", 0x80: "Q", 0x81: "q", 0x82: "d", 0x83: "q", 0x84: "8s", 0x94: "16s",
    0x98: "16s",
}  # fmt: skip
#: The types that are values by themselves.
FIXED = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_LISTS = (0xC0, 0xD0)
_MAPS = (0xC1, 0xD1)
_ARRAYS = (0xE0, 0xF0)
_DESCRIBED = 0x00
_EMPTY_LIST = 0x45
_MOST_NESTED = 32
_DAMAGE = (ValueError, IndexError, TypeError, struct.error)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Names and values as text, in their order.
Texts: TypeAlias = dict[str, str | None]


class StoredMessage(NamedTuple):
    """The fields of a row, by the names of their columns."""

    value: bytes
    key: bytes | None = None
    exchange: str | None = None
    message_id: str | None = None
    properties: list[tuple[str, str | None]] | None = None
    headers: list[tuple[str, str | None]] | None = None
    filter_value: bytes | None = None


def read_message(row: bytes) -> StoredMessage:
    """Return the fields of a row. The value of a row that is not a message is the whole row."""
    try:
        body, places = _body_and_sections(row)
    except _DAMAGE:
        return StoredMessage(row)

    try:
        annotations, _ = _read(row, places[ANNOTATIONS])
        names = ("x-routing-key", "x-exchange", "x-stream-filter-value")
        key, exchange, filter_value = map(annotations.get, names)
    except (KeyError, AttributeError, *_DAMAGE):
        key = exchange = filter_value = None

    texts = {code: texts_in(code, row[at:]) for code, at in places.items() if code in COLUMN_OF}
    properties = texts.get(PROPERTIES, {})
    headers = {**texts.get(ANNOTATIONS, {}), **texts.get(APPLICATION, {})}

    return StoredMessage(
        body,
        _encoded(key) if isinstance(key, (str, bytes)) else None,
        as_text(exchange) if isinstance(exchange, (str, bytes)) else None,
        _message_id(row, places.get(PROPERTIES, len(row))),
        list(properties.items()) or None,
        list(headers.items()) or None,
        _encoded(filter_value) if isinstance(filter_value, (str, bytes)) else None,
    )


def _message_id(row: bytes, at: int) -> str | None:
    """Return the first property; the rest of the section is not parsed."""
    try:
        begin, end = _bounds(row, row[at], at + 1)
        first = begin + (begin - at - 1)
        if row[at] not in _LISTS or not any(row[begin:first]):
            return None
        value, behind = _read(row, first)
    except _DAMAGE:
        return None
    return as_text(value) if behind <= end else None


def _body_and_sections(row: bytes) -> tuple[bytes, dict[int, int]]:
    """Return the body, and the positions of the constructors of the other sections. A row that is not a message raises one of _DAMAGE."""
    places: dict[int, int] = {}
    data: list[memoryview] = []
    sequences: list[Any] = []
    value: Any = None
    at = 0

    while at < len(row):
        if row[at] != _DESCRIBED:
            raise ValueError

        descriptor, at = _read(row, at + 1)
        code = _SECTIONS.get(descriptor) if isinstance(descriptor, str) else descriptor
        if code in _NOT_BODY:
            places[code] = at
            if row[at] == _EMPTY_LIST:
                at += 1
            else:
                _, at = _bounds(row, row[at], at + 1)
            continue

        content, at = _read(row, at)
        if code == DATA:
            data.append(memoryview(content))
        elif code == SEQUENCE and isinstance(content, list):
            sequences += content
        elif code == VALUE:
            value = content
        else:
            raise ValueError

    if sequences:
        return (as_text(sequences) or "").encode(), places
    if isinstance(value, (int, float, list, dict)):
        return (as_text(value) or "").encode(), places
    return b"".join(data) if value is None else _encoded(value), places


def _read(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value at a position, and its end. Damaged data raises one of _DAMAGE."""
    return _content(data, data[at], at + 1, depth)


def _content(data: bytes, constructor: int, at: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value of a type, and its end. Invalid UTF-8 in a text becomes surrogates."""
    if constructor in FIXED:
        return FIXED[constructor], at
    if constructor in FORMATS:
        (value,) = struct.unpack_from(">" + FORMATS[constructor], data, at)
        return _readable(constructor, value), at + struct.calcsize(FORMATS[constructor])
    if constructor in TEXT_TYPES:
        begin, end = _bounds(data, constructor, at)
        text = data[begin:end]
        return text if constructor in (0xA0, 0xB0) else text.decode(errors="surrogateescape"), end
    if depth > _MOST_NESTED and constructor != _EMPTY_LIST:
        # The rest is not parsed, so that the row keeps its key.
        begin, end = _bounds(data, constructor, at)
        return data[begin:end], end
    if constructor == _DESCRIBED:  # its description is left out
        _, at = _read(data, at, depth + 1)
        return _read(data, at, depth + 1)
    return ([], at) if constructor == _EMPTY_LIST else _compound(data, constructor, at, depth + 1)


def _compound(data: bytes, constructor: int, at: int, depth: int) -> tuple[Any, int]:
    begin, end = _bounds(data, constructor, at)
    place = begin + (begin - at)
    count = int.from_bytes(data[begin:place])
    if place > end or count > end - place or constructor not in (*_LISTS, *_MAPS, *_ARRAYS):
        raise ValueError

    items = []
    inner = data[place] if constructor in _ARRAYS else None
    place += inner is not None
    for _ in range(count):
        if inner is None:
            item, place = _read(data, place, depth)
        else:
            item, place = _content(data, inner, place, depth)
        items.append(item)

    if place != end:
        raise ValueError
    if constructor in _MAPS:
        return {as_text(name) or "": item for name, item in zip(items[::2], items[1::2], strict=True)}, end
    return items, end


def _bounds(data: bytes, constructor: int, at: int) -> tuple[int, int]:
    """Return the begin and end of the content of a value with a size field."""
    begin = at + (4 if constructor & 0x10 else 1)
    end = begin + int.from_bytes(data[at:begin])
    if constructor < 0xA0 or end > len(data):
        raise ValueError
    return begin, end


def _readable(constructor: int, value: Any) -> Any:
    """Return a simple value of fixed size as a JSON value."""
    if constructor == 0x83:
        return time_text(value)
    if constructor == 0x98:
        return str(UUID(bytes=value))
    if constructor == 0x73:
        return chr(value) if value < 0xD800 or 0xE000 <= value < 0x110000 else "\ufffd"
    return value.hex() if isinstance(value, bytes) else value


def time_text(milliseconds: int) -> str | int:
    """Return a time since 1970 as ISO 8601 in UTC; the number if it is out of the range of dates."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def as_text(value: object) -> str | None:
    """Return a value as text: numbers as JSON has them, bytes as their UTF-8 or else in hexadecimal, lists and dicts as JSON."""
    if value is None or isinstance(value, str):
        return value and value.encode(errors="surrogateescape").decode(errors="replace")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return as_text(json.dumps(value, default=as_text, ensure_ascii=False))


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode(errors="surrogateescape")


def texts_in(code: int, data: bytes) -> Texts:
    """Return the names and texts of a section, which begins with its constructor; none if it is damaged."""
    try:
        found, _ = _read(data, 0)
    except _DAMAGE:
        return {}
    if code == PROPERTIES and isinstance(found, list):
        return {
            name: as_text(value)
            for name, value in zip(PROPERTIES_10, found, strict=False)
            if value is not None
        }
    return {name: as_text(value) for name, value in found.items()} if isinstance(found, dict) else {}


def id_text(constructor: int, value: bytes | None) -> str | None:
    """Return an id as text, by its type and content."""
    if value is None or constructor in (0xA0, 0xB0):
        return as_text(value)
    if constructor in TEXT_TYPES:
        return value.decode(errors="replace")
    return as_text(_content(value, constructor, 0)[0])
