"""Field values of AMQP 0-9-1 header tables, with their wire types.

=================  =====  ==========================================================================
type               tag    value
=================  =====  ==========================================================================
``longstr``        S      bytes, or str as its UTF-8
``binary``         x      the same
``byte``           b      int, -2^7 to 2^7 - 1
``unsignedbyte``   B      int, 0 to 2^8 - 1
``short``          s      int, -2^15 to 2^15 - 1
``unsignedshort``  u      int, 0 to 2^16 - 1
``signedint``      I      int, -2^31 to 2^31 - 1
``unsignedint``    i      int, 0 to 2^32 - 1
``long``           l, L   int, -2^63 to 2^63 - 1
``bool``           t      bool
``double``         d      finite float
``float``          f      finite float, rounded to 32 bits
``decimal``        D      ``(scale, unscaled)``: 0 to 2^8 - 1 and 0 to 2^32 - 1, as the server reads them
``timestamp``      T      int, seconds since 1970, 0 to 2^64 - 1
``void``           V      None
``array``          A      list of fields
``table``          F      dict or pairs of name and field, in the order of the wire
=================  =====  ==========================================================================

The names are those of the server. Mirrors rabbitmq-server ``deps/rabbit_common/src/rabbit_binary_parser.erl``, ``parse_table/1`` and
``parse_array/1`` (the same in v3.10.0 and v4.3.6), which reads neither infinities nor NaN.
"""

from __future__ import annotations

import calendar
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from time import struct_time
from typing import Any, Literal, TypeAlias, get_args

from rabbit_chx.checks import MAX_SHORTSTR, bytes_of, is_number, is_whole, short_string, shown
from rabbit_chx.errors import InputError

#: The types of a field in the headers of AMQP 0-9-1, by the broker's names.
FieldType: TypeAlias = Literal[
    "longstr", "binary", "byte", "unsignedbyte", "short", "unsignedshort", "signedint", "unsignedint", "long",
    "bool", "double", "float", "decimal", "timestamp", "void", "array", "table",
]  # fmt: skip

FIELD_TYPES: tuple[FieldType, ...] = get_args(FieldType)
_MAX_LONGSTR_BYTES = (1 << 32) - 1

#: The range of each integer type, including the seconds of a timestamp.
INTEGER_RANGES: dict[str, range] = {
    "byte": range(-(1 << 7), 1 << 7),
    "unsignedbyte": range(1 << 8),
    "short": range(-(1 << 15), 1 << 15),
    "unsignedshort": range(1 << 16),
    "signedint": range(-(1 << 31), 1 << 31),
    "unsignedint": range(1 << 32),
    "long": range(-(1 << 63), 1 << 63),
    "timestamp": range(1 << 64),
}

# Values that some client can send. The client determines the wire type.
_BARE = (str, bytes, bytearray, bool, int, float, Decimal, datetime, struct_time, dict, list, type(None))


@dataclass(frozen=True, slots=True, eq=False)
class AmqpField:
    """A field value with its wire type.

    Arrays and tables may mix fields and bare Python values; a client determines the types of bare values
    (:func:`rabbit_chx.amqp.fields.field_for`). Two fields are equal if every client sends the same bytes for them:
    ``AmqpField("byte", 5)`` differs from ``AmqpField("long", 5)``, and bare dicts of different order differ.

    Attributes:
        type: the wire type, by the server's name.
        value: text and bytes as bytes, arrays as a tuple, tables as a tuple of ``(name bytes, value)`` pairs.

    Raises:
        InputError: the type does not exist, the value does not fit it, or it is nested too deep for Python.
    """

    type: FieldType
    value: Any = None

    def __post_init__(self) -> None:
        if self.type not in FIELD_TYPES:
            raise InputError(f"{self.type!r} is not an AMQP field type: pass one of {', '.join(FIELD_TYPES)}")
        # dataclass(frozen=True) leaves no other way to set an attribute.
        try:
            object.__setattr__(self, "value", _value_of(self.type, self.value))
        except RecursionError:
            raise too_deep() from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AmqpField):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        if self.type == "array":
            return (self.type, *map(_with_type, self.value))
        if self.type == "table":
            return (self.type, *((name, _with_type(value)) for name, value in self.value))
        return (self.type, _with_type(self.value))


def too_deep() -> InputError:
    """Return the error for a value that exceeds Python's recursion limit."""
    return InputError("the value is nested too deep, or holds itself: pass one of at most 100 levels")


def _with_type(value: Any) -> tuple[type, Any]:
    """Return a value that differs for values that Python considers equal and the wire does not: 1, 1.0 and True; 1.5 and 1.50."""
    if isinstance(value, dict):
        return type(value), tuple((_with_type(name), _with_type(content)) for name, content in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_with_type, value))
    if isinstance(value, Decimal):
        return type(value), value.as_tuple()
    if isinstance(value, float):
        return type(value), value.hex()
    return type(value), bytes(value) if isinstance(value, bytearray) else value


def _value_of(type_: str, value: Any) -> Any:
    fits, held, read = (is_whole, "an int", None) if type_ in INTEGER_RANGES else _READERS[type_]
    if not fits(value):
        raise InputError(f"a field of type {type_} holds {held}, not {value!r:.60}")
    return read(value) if read is not None else integer_in(INTEGER_RANGES[type_], type_, value)


def integer_in(allowed: range, type_: str, value: int) -> int:
    """Return the value as an int; raise an InputError if it is outside the range of the wire type."""
    number = int(value)  # `in` is fast for an int itself, and compares one by one for a subclass
    if number not in allowed:
        raise InputError(f"{shown(number)} is out of range for {type_}: pass {allowed[0]} to {allowed[-1]}")
    return number


def _longstr(value: Any) -> bytes:
    data = bytes_of(value, "a field of type longstr or binary")
    if len(data) > _MAX_LONGSTR_BYTES:
        raise InputError(f"a field of {len(data)} bytes is too long: AMQP carries less than 4 GiB")
    return data


def _double(value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise InputError("the integer is too large for a field of type double or float") from None
    if not math.isfinite(number):
        raise InputError(f"RabbitMQ cannot read {number} in a field: pass a finite float")
    return number


def _float(value: Any) -> float:
    number = _double(value)
    try:
        rounded: float = struct.unpack(">f", struct.pack(">f", number))[0]
    except OverflowError:
        raise InputError(f"{number} does not fit into 32 bits: pass a field of type double") from None
    return rounded


def _decimal(value: Any) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InputError(
            f"a field of type decimal holds (scale, unscaled), as (2, 314) for 3.14, not {value!r:.60}"
        )
    for number, bits in zip(value, (8, 32), strict=True):
        if not is_whole(number, 0, (1 << bits) - 1):
            raise InputError(
                f"{value!r:.60} is not a decimal: the scale is at most 255 and the unscaled value at most 4294967295, both from "
                "0; what a client sends as -1 the server reads as 4294967295"
            )
    return int(value[0]), int(value[1])


def _table(value: Any) -> tuple[tuple[bytes, Any], ...]:
    return tuple(
        (short_string(name, "the name in a table"), _element(content)) for name, content in pairs_of(value)
    )


def _element(value: Any) -> Any:
    if isinstance(value, AmqpField):
        return value
    if not isinstance(value, _BARE):
        raise InputError(
            f"no client can send {value!r:.60} ({type(value).__name__}) in a table: pass an AmqpField"
        )
    if isinstance(value, list):
        return AmqpField("array", value)  # as every client does; this is also a copy
    return deepcopy(value) if isinstance(value, (dict, bytearray)) else value


def pairs_of(table: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the pairs of a table, in order; raise an InputError unless it is a mapping or pairs."""
    if isinstance(table, Mapping):
        return list(table.items())
    if isinstance(table, (str, bytes)) or not hasattr(table, "__iter__"):
        raise InputError(f"{table!r:.60} is not a table: pass a dict, or pairs of name and value")
    pairs = list(table)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"{pair!r:.60} is not a pair of name and value: pass a dict, or pairs")
    return [(name, value) for name, value in pairs]


def _is_any(_value: Any) -> bool:
    return True


#: Of each type: whether a value can be one, what it holds, and what reads it.
_READERS: dict[str, tuple[Callable[[Any], bool], str, Callable[[Any], Any]]] = {
    "longstr": (_is_any, "", _longstr),
    "binary": (_is_any, "", _longstr),
    "bool": (lambda value: isinstance(value, bool), "True or False", bool),
    "double": (is_number, "a float", _double),
    "float": (is_number, "a float", _float),
    "decimal": (_is_any, "", _decimal),
    "void": (lambda value: value is None, "nothing, as None", lambda _: None),
    "array": (
        lambda value: isinstance(value, (list, tuple)),
        "a list",
        lambda value: tuple(map(_element, value)),
    ),
    "table": (_is_any, "", _table),
}


# -- The wire types that pika, aio-pika and the publishers of this library send for a bare Python value
# The publishers (the client ``rabbit-chx``) send what pika sends, and what aio-pika hands out: a ``float`` as double, a ``bytearray`` as
# binary.
#
# ====================  ==============================  ==================================================
# Python                pika 1.4.4                      aio-pika (pamqp 4.0.1)
# ====================  ==============================  ==================================================
# ``str``               longstr                         longstr
# ``bytes``             binary                          refused
# ``bytearray``         refused                         binary
# ``bool``              bool                            bool
# ``int``               signedint, else long            byte, short, unsignedshort, signedint, unsignedint,
# long: the first that holds it
# ``pika.compat.long``  long                            as ``int``
# ``float``             refused                         float: rounded to 32 bits
# ``Decimal``           decimal, normalized first       decimal as written: 1.50 is (2, 150)
# ``datetime``          timestamp, rounded down         timestamp, cut off
# ``struct_time``       refused                         timestamp
# ``list``              array                           array
# ``dict``              table in the dict's order       table sorted by name, names cut to 128 bytes
# ``None``              void                            void
# ====================  ==============================  ==================================================
#
# A naive datetime means UTC in both. A value that the client refuses raises an InputError. Mirrors pika 1.4.4, ``pika/data.py``,
# ``encode_value``, and pamqp 4.0.1, ``pamqp/encode.py``, ``encode_table_value``, unless ``pamqp.encode.support_deprecated_rabbitmq`` was
# called. Neither is imported.


#: A client of AMQP 0-9-1, which determines the wire types of bare Python values in the headers.
Client: TypeAlias = Literal["rabbit-chx", "pika", "aio-pika"]
CLIENTS: tuple[Client, ...] = get_args(Client)
#: The sender of a message: a client of AMQP 0-9-1, or any client of AMQP 1.0.
Sender: TypeAlias = Client | Literal["amqp-1.0"]
Headers: TypeAlias = Mapping[str, Any] | Mapping[bytes, Any] | Iterable[tuple[str | bytes, Any]]
#: A header table as on the wire, without bare values.
HeaderTable: TypeAlias = tuple[tuple[bytes, AmqpField], ...]

#: The type that a client gives an int: the first whose range holds it.
INTEGER_TYPES: dict[Client, tuple[FieldType, ...]] = {
    "rabbit-chx": ("signedint", "long"),
    "pika": ("signedint", "long"),
    "aio-pika": ("byte", "short", "unsignedshort", "signedint", "unsignedint", "long"),
}

#: The length to which pamqp cuts a name in a dict.
PAMQP_NAME_BYTES = 128
_SIGNED_32 = INTEGER_RANGES["signedint"]
_LIBRARIES = {"rabbit-chx": "a publisher", "pika": "pika", "aio-pika": "aio-pika (pamqp)"}


def check_client(client: str) -> Client:
    """Return the name of a client of AMQP 0-9-1; raise an InputError for any other."""
    if not isinstance(client, str) or client not in CLIENTS:
        raise InputError(
            f"there is no client {client!r:.60} here: pass 'rabbit-chx', 'pika' or 'aio-pika', or 'amqp-1.0' where a message is routed"
        )
    return client


def field_for(value: Any, client: Client = "rabbit-chx") -> AmqpField:
    """Return the field that a client sends for a value, bare values inside included; an AmqpField keeps its type."""
    check_client(client)
    try:
        return _field(value, client)
    except RecursionError:
        raise too_deep() from None


def field_of_type(value: Any, type_: FieldType | None, client: Client) -> AmqpField:
    """Return the field of a value with the given wire type; None means the type that the client chooses."""
    if type_ is None or isinstance(value, AmqpField):
        return field_for(value, client)
    return field_for(AmqpField(type_, value), client)


def table_for(table: Headers, client: Client = "rabbit-chx") -> HeaderTable:
    """Return the header table that a client sends. The client may sort or cut names of a mapping; pairs are sent as given, duplicates
    included.
    """
    check_client(client)
    pairs = pairs_of(table)
    if isinstance(table, Mapping):
        pairs = _name_by_client(pairs, client)
    return tuple((short_string(name, "the header name"), field_for(value, client)) for name, value in pairs)


def _field(value: Any, client: Client) -> AmqpField:
    if isinstance(value, AmqpField):
        return _with_fields_inside(value, client)
    for type_, encode in _ENCODERS[client]:
        if isinstance(value, type_):
            return encode(value, client)
    raise _refusal(value, client, f"it has no encoding for {type(value).__name__}")


def _with_fields_inside(field: AmqpField, client: Client) -> AmqpField:
    if field.type == "array":
        return _array(field.value, client)
    if field.type == "table":
        return AmqpField("table", [(name, _field(value, client)) for name, value in field.value])
    return field


def _plain(type_: FieldType) -> _Encoder:
    return lambda value, _: AmqpField(type_, value)


def _integer(value: int, client: Client) -> AmqpField:
    types = ("long",) if client != "aio-pika" and _is_pika_long(value) else INTEGER_TYPES[client]
    number = int(value)  # `in` is fast for an int, and compares one by one for a subclass
    for type_ in types:
        if number in INTEGER_RANGES[type_]:
            return AmqpField(type_, number)
    raise _refusal(value, client, "it needs more than 64 bits")


def _is_pika_long(value: int) -> bool:
    """Return whether pika decoded this integer from an ``l``; it sends such integers as ``l``."""
    return any((base.__module__, base.__name__) == ("pika.compat", "long") for base in type(value).__mro__)


def _decimal_field(value: Decimal, client: Client) -> AmqpField:
    """Return the field of a decimal. pika normalizes the scale; pamqp keeps it. Both send a signed number, which the server reads as
    unsigned.
    """
    try:
        number = value if client == "aio-pika" else value.normalize()
    except ArithmeticError:
        number = Decimal("NaN")
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise _refusal(value, client, "AMQP has neither infinities nor NaN")
    if number and not -255 <= number.adjusted() <= 10:
        raise _refusal(value, client, "AMQP has 32 bits and 255 decimals")
    scale = max(-exponent, 0)
    if scale > 255:
        raise _refusal(value, client, "AMQP has at most 255 decimals")
    unscaled = int(number.scaleb(scale)) if number else 0
    if unscaled not in _SIGNED_32:
        raise _refusal(value, client, "its digits need more than 32 bits")
    return AmqpField("decimal", (scale, unscaled & 0xFFFFFFFF))


def _array(value: Iterable[Any], client: Client) -> AmqpField:
    return AmqpField("array", [_field(element, client) for element in value])


def _table_field(value: dict[Any, Any], client: Client) -> AmqpField:
    pairs = _name_by_client(list(value.items()), client)
    return AmqpField("table", [(name, _field(content, client)) for name, content in pairs])


def _datetime(value: datetime, client: Client) -> AmqpField:
    try:
        if client != "aio-pika":
            seconds = calendar.timegm(value.utctimetuple())
        else:
            aware = value if value.utcoffset() is not None else value.replace(tzinfo=UTC)
            seconds = int(aware.timestamp())
    except (ValueError, OverflowError):  # pandas' NaT is a datetime, too
        raise _refusal(value, client, "it is no time between the years 1 and 9999") from None
    return _seconds(seconds, value, client)


def _seconds(seconds: int, value: object, client: Client) -> AmqpField:
    if seconds < 0:
        raise _refusal(value, client, "AMQP's time begins with 1970")
    return AmqpField("timestamp", seconds)


def _name_by_client(pairs: list[tuple[Any, Any]], client: Client) -> list[tuple[bytes, Any]]:
    if client != "aio-pika":
        return [(short_string(name, "the name in a table"), value) for name, value in pairs]
    for name, _ in pairs:
        if not isinstance(name, str):
            raise _refusal(name, client, "a name in a table is a str")
    return [(_cut_by_pamqp(name), value) for name, value in sorted(pairs, key=lambda pair: pair[0])]


def _cut_by_pamqp(name: str) -> bytes:
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise _refusal(name, "aio-pika", "it holds half of a surrogate pair") from None
    return data[:PAMQP_NAME_BYTES].decode(errors="ignore").encode()


def _refusal(value: object, client: Client, why: str) -> InputError:
    return InputError(f"{_LIBRARIES[client]} cannot send {shown(value)}: {why}; pass an AmqpField")


_Encoder: TypeAlias = Callable[[Any, Client], AmqpField]

_BOTH: tuple[tuple[type, _Encoder], ...] = (
    (str, _plain("longstr")),
    (bool, _plain("bool")),
    (int, _integer),
    (Decimal, _decimal_field),
    (datetime, _datetime),
    (list, _array),
    (dict, _table_field),
    (type(None), _plain("void")),
)
_BYTEARRAY: tuple[type, _Encoder] = (bytearray, lambda value, _: AmqpField("binary", bytes(value)))
_ENCODERS: dict[Client, tuple[tuple[type, _Encoder], ...]] = {
    "rabbit-chx": (*_BOTH, (bytes, _plain("binary")), (float, _plain("double")), _BYTEARRAY),
    "pika": (*_BOTH, (bytes, _plain("binary"))),
    "aio-pika": (
        *_BOTH,
        (float, _plain("float")),
        _BYTEARRAY,
        (struct_time, lambda value, client: _seconds(calendar.timegm(value), value, client)),
    ),
}


# -- Header tables to bytes of the wire and back. Every field keeps its type, which the clients' own parsers partly lose
# Mirrors rabbitmq-server ``deps/rabbit_common/src/rabbit_binary_parser.erl``, ``parse_table/1`` (v3.10.0 to v4.3.6), and AMQP 0-9-1, 4.2.5.5
# and 4.2.6.1.


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
                found[name] = properties[at]
                at += 1
            elif name == "timestamp":
                (found[name],) = _TIMESTAMP.unpack_from(properties, at)
                at += _TIMESTAMP.size
            elif name == "headers":
                (size,) = _LENGTH.unpack_from(properties, at)
                start = at + _LENGTH.size
                at = start + size
                found[name] = parse_table(properties[start:at])
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
        value: Any = None
        if type_ == "decimal":
            value = values
        elif values:
            value = values[0]
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
