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

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from time import struct_time
from typing import Any, Literal, TypeAlias, get_args

from rabbit_chx.checks import bytes_of, is_number, is_whole, short_string, shown
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
    (:func:`rabbit_chx.amqp.client_fields.field_for`). Two fields are equal if every client sends the same bytes for them:
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
