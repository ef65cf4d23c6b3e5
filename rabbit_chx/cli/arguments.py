"""Text of the command line made bindings, header fields and destinations."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from rabbit_chx.amqp.client_fields import field_for
from rabbit_chx.amqp.fields import INTEGER_RANGES, AmqpField, FieldType
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from rabbit_chx.routing import Destination, HashRing

__all__ = [
    "FIELD_TYPES",
    "bound_destination",
    "header_value",
    "parse_binding",
    "parse_destination",
    "parse_field",
    "parse_header",
    "parse_property",
    "parse_unbind",
    "property_value",
]

_T = TypeVar("_T")

FIELD_TYPES: tuple[FieldType, ...] = get_args(FieldType)
_MAX_DECIMALS = 255
_EXCHANGE = "exchange:"
_BOOLS = {"true": True, "false": False}
_SHOWN_DESTINATIONS = 10

# Python reads more as a number than a shell means: 1_000, blanks around, the digits of other scripts.
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", re.ASCII)


def parse_destination(text: str) -> Destination:
    """A queue's name, or ``exchange:NAME``."""
    return ExchangeRef(text.removeprefix(_EXCHANGE)) if text.startswith(_EXCHANGE) else text


def parse_binding(text: str) -> tuple[Destination, str]:
    """``DESTINATION=WEIGHT``, split at the last equals sign, as names may hold some.

    Raises:
        InputError: it has none.
    """
    name, equals, weight = text.rpartition("=")
    if not equals:
        raise InputError(f"the binding {text!r} has no weight: write QUEUE=WEIGHT, as in q1=10")
    return parse_destination(name), weight


def bound_destination(text: str, ring: HashRing) -> Destination:
    """A destination that has buckets in the ring.

    Raises:
        InputError: it has none there.
    """
    destination = parse_destination(text)
    if destination not in ring.destinations:
        shown = [
            f"{_EXCHANGE}{place.name}" if isinstance(place, ExchangeRef) else place
            for place in ring.destinations[:_SHOWN_DESTINATIONS]
        ]
        more = ", ..." if len(ring.destinations) > _SHOWN_DESTINATIONS else ""
        raise InputError(
            f"{text} has no bucket: the ring has {', '.join(shown) or 'no destinations'}{more}; give one of them"
        )
    return destination


def parse_unbind(text: str, ring: HashRing) -> tuple[Destination, str | None]:
    """``DESTINATION`` with all its bindings, or ``DESTINATION=WEIGHT``; a name may hold an equals sign.

    Raises:
        InputError: there is no such destination.
    """
    name, equals, weight = text.rpartition("=")
    if not equals or parse_destination(text) in ring.destinations:
        return bound_destination(text, ring), None
    return bound_destination(name, ring), weight


def parse_header(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` or ``NAME:TYPE=VALUE``, split at the first equals sign, as values may hold some.

    Raises:
        InputError: it has none, or the value is none of that type.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"the header {text!r} has no value: write NAME=VALUE, or NAME:TYPE=VALUE")
    stem, colon, type_ = name.rpartition(":")
    if colon and type_ in FIELD_TYPES:
        return stem, parse_field(type_, value)
    return name, parse_field("longstr", value)


def parse_property(text: str) -> tuple[str, str | int]:
    """``NAME=VALUE``; a timestamp is a whole number of seconds.

    Raises:
        InputError: it has no value, or the timestamp is no number.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"the property {text!r} has no value: write NAME=VALUE, as in message_id=m1")
    return name, property_value(name, value)


def property_value(name: str, text: str) -> str | int:
    """The value of a property, read from text."""
    return _integer("timestamp", text) if name == "timestamp" else text


def parse_field(type_: FieldType, text: str) -> AmqpField:
    """A header field, read from text.

    Args:
        type_: its wire type.
        text: the text itself; a number; true or false; 3.14 for a decimal; seconds since 1970 for a timestamp;
            nothing for void; JSON for an array or a table.

    Raises:
        InputError: the text is none of that type.
    """
    try:
        return field_for(AmqpField(type_, _value(type_, text)))
    except RecursionError:
        raise InputError(f"{text!r:.60} is no {type_} that can be sent: it is nested too deeply") from None


def header_value(type_: FieldType, text: str) -> str | int | AmqpField:
    """A header's value, read from text: bare where the type says all, as whole columns are hashed quickly then.

    Raises:
        InputError: as in `parse_field`.
    """
    if type_ == "longstr":
        return text
    return _integer(type_, text) if type_ in INTEGER_RANGES else parse_field(type_, text)


def _value(type_: FieldType, text: str) -> Any:  # noqa: ANN401
    if type_ in INTEGER_RANGES:
        return _integer(type_, text)
    if type_ in ("double", "float"):
        return _number(float, type_, text)
    if type_ == "bool":
        return _read(_BOOLS.__getitem__, type_, text)
    if type_ == "decimal":
        return _decimal(text)
    if type_ in ("array", "table"):
        return _read(_json, type_, text)
    return (text or None) if type_ == "void" else text


def _integer(type_: str, text: str) -> int:
    return _number(int, type_, text)


def _decimal(text: str) -> tuple[int, int]:
    number = _number(Decimal, "decimal", text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -_MAX_DECIMALS <= exponent <= 0:
        raise InputError(
            f"{text!r:.60} is no decimal: write it out, as in 3.14, with at most {_MAX_DECIMALS} decimals"
        )
    return -exponent, int(number.scaleb(-exponent))


def _json(text: str) -> Any:  # noqa: ANN401
    return json.loads(text, object_pairs_hook=_table)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise InputError(
            f"a table has a name twice among {', '.join(name for name, _ in pairs):.60}: give it once"
        )
    return table


def _number(reader: Callable[[str], _T], type_: str, text: str) -> _T:
    if not _NUMBER.fullmatch(text):
        raise InputError(f"{text!r:.60} is no {type_}: write a number in plain digits")
    return _read(reader, type_, text)


def _read(reader: Callable[[str], _T], type_: str, text: str) -> _T:
    try:
        return reader(text)
    except InputError:
        raise
    except (ValueError, KeyError, ArithmeticError):
        raise InputError(f"{text!r:.60} is no {type_}") from None
