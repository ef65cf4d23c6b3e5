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

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args
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
