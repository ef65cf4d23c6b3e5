"""The wire types that pika, aio-pika and the publishers of this library send for a bare Python value.

The publishers (the client ``rabbit-chx``) send what pika sends, and what aio-pika hands out: a ``float`` as double, a ``bytearray`` as
binary.

====================  ==============================  ==================================================
Python                pika 1.4.4                      aio-pika (pamqp 4.0.1)
====================  ==============================  ==================================================
``str``               longstr                         longstr
``bytes``             binary                          refused
``bytearray``         refused                         binary
``bool``              bool                            bool
``int``               signedint, else long            byte, short, unsignedshort, signedint, unsignedint,
                                                      long: the first that holds it
``pika.compat.long``  long                            as ``int``
``float``             refused                         float: rounded to 32 bits
``Decimal``           decimal, normalized first       decimal as written: 1.50 is (2, 150)
``datetime``          timestamp, rounded down         timestamp, cut off
``struct_time``       refused                         timestamp
``list``              array                           array
``dict``              table in the dict's order       table sorted by name, names cut to 128 bytes
``None``              void                            void
====================  ==============================  ==================================================

A naive datetime means UTC in both. A value that the client refuses raises an InputError. Mirrors pika 1.4.4, ``pika/data.py``,
``encode_value``, and pamqp 4.0.1, ``pamqp/encode.py``, ``encode_table_value``, unless ``pamqp.encode.support_deprecated_rabbitmq`` was
called. Neither is imported.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from time import struct_time
from typing import Any, Literal, TypeAlias, get_args

from rabbit_chx.amqp.fields import INTEGER_RANGES, AmqpField, FieldType, pairs_of, too_deep
from rabbit_chx.checks import short_string, shown
from rabbit_chx.errors import InputError

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


def _decimal(value: Decimal, client: Client) -> AmqpField:
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


def _table(value: dict[Any, Any], client: Client) -> AmqpField:
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
    (Decimal, _decimal),
    (datetime, _datetime),
    (list, _array),
    (dict, _table),
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
