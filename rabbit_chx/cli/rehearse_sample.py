"""The messages of a rehearsal: keys as each exchange hashes them, or traced messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Hashing
from rabbit_chx.cli.arguments import FIELD_TYPES
from rabbit_chx.cli.option_groups import HashedKeys
from rabbit_chx.errors import InputError
from rabbit_chx.topology.upgrade import hash_exchanges, hashed_on
from rabbit_chx.topology.upgrade_exchange import SampledMessage, hash_arguments

if TYPE_CHECKING:
    from rabbit_chx.amqp.fields import AmqpField, FieldType
    from rabbit_chx.broker.traced_message import TracedMessage
    from rabbit_chx.cli.sample_options import AskedSample, Sample
    from rabbit_chx.routing import HashedOn
    from rabbit_chx.topology import Topology

__all__ = ["KEY_PATTERN", "field_types", "samples_of", "traced_sample"]

KEY_PATTERN = "key-{n}"
_NUMBERS = "{n}"
#: The types whose values a number is not.
_NO_NUMBERS = ("longstr", "binary", "bool", "void", "array", "table")
_MODULUS_HEADERS = (b"CC", b"BCC")


def field_types(given: Sequence[str], topology: Topology) -> dict[str, FieldType]:
    """Return the wire type of each header that an exchange hashes, where one was given.

    Args:
        given: ``TYPE`` for all headers, or ``HEADER=TYPE``.
        topology: what there is.

    Raises:
        InputError: there is no such type, or no exchange hashes such a header.
    """
    asked = [hashed_on(one) for one in hash_exchanges(topology)]
    headers = [one.name.decode() for one in asked if one is not None and one.kind == "header"]
    if given and not headers:
        raise InputError(
            f"--type {given[0]} is the type of a header, and no exchange hashes one: leave it out"
        )
    found: dict[str, FieldType] = {}
    for text in given:
        header, _, name = text.rpartition("=")
        type_ = next((one for one in FIELD_TYPES if one == name), None)
        if type_ is None:
            raise InputError(
                f"--type {text}: {name!r:.60} is no AMQP field type: give one of {', '.join(FIELD_TYPES)}"
            )
        if header and header not in headers:
            raise InputError(
                f"--type {text}: no exchange hashes the header {header!r:.60}: give one of {', '.join(sorted(set(headers)))}"
            )
        for one in headers:
            if header in ("", one) and (header or one not in found):
                found[one] = type_
    return found


def samples_of(
    topology: Topology, asked: AskedSample, types: Mapping[str, FieldType]
) -> dict[str, list[SampledMessage]]:
    """Return the messages of each hash exchange: each has a key where the exchange looks for it.

    Args:
        topology: what there is.
        asked: the keys that were asked for.
        types: the wire types of headers; longstr where a header has none.

    Raises:
        InputError: the keys cannot be read, or one of them is no value of such a type.
    """
    read: dict[str, Sample] = {}
    made: dict[str, list[SampledMessage]] = {}
    for exchange in hash_exchanges(topology):
        hashing = _hashing(hashed_on(exchange), types)
        numeric = hashing.hash_property == "timestamp" or (hashing.field_type or "longstr") not in _NO_NUMBERS
        pattern = _NUMBERS if numeric else KEY_PATTERN
        source = "" if asked.key_file is not None else asked.pattern or pattern
        if source not in read:
            read[source] = asked.read_or_make(pattern)
        made[exchange.name] = _messages(exchange.name, hashing, read[source])
    return made


def _hashing(hashed: HashedOn | None, types: Mapping[str, FieldType]) -> Hashing:
    arguments = {} if hashed is None else hash_arguments(hashed)
    header = arguments.get("hash-header")
    type_ = None if header is None else types.get(header, "longstr")
    return Hashing(header, arguments.get("hash-property"), field_type=type_)


def _messages(exchange: str, hashing: Hashing, sample: Sample) -> list[SampledMessage]:
    keys = HashedKeys(hashing)
    made = []
    for number, key in enumerate(sample.keys, 1):
        try:
            made.append(SampledMessage.with_value(key, hashing, keys.value(key)))
        except InputError as error:
            where = f"key {key!r:.60}" if sample.source is None else f"line {number} of {sample.source}"
            raise InputError(
                f"{where} does not suit exchange {exchange!r}, which hashes "
                f"{hashing.hash_header or hashing.hash_property or 'the routing key'!r}: {error}"
            ) from None
    return made


def traced_sample(hashed: HashedOn | None, traced: Sequence[TracedMessage]) -> list[SampledMessage]:
    """Return traced messages with all that an exchange may hash of them, and nothing else.

    Args:
        hashed: what an ``x-consistent-hash`` exchange hashes; None for an ``x-modulus-hash`` exchange.
        traced: the messages.
    """
    return [_traced(hashed, message) for message in traced]


def _traced(hashed: HashedOn | None, message: TracedMessage) -> SampledMessage:
    routing_key = message.routing_key.decode(errors="backslashreplace")
    if hashed is None or hashed.kind == "routing-key":
        headers = tuple(one for one in message.headers if hashed is None and one[0] in _MODULUS_HEADERS)
        return SampledMessage(routing_key, message.routing_key, headers)
    if hashed.kind == "header":
        headers = tuple(one for one in message.headers if one[0] == hashed.name)
        named = _field_text(headers[0][1]) if headers else "(no header)"
        return SampledMessage(named, "", headers)
    name = hashed.name.decode()
    if name not in message.properties:
        return SampledMessage(f"(no {name})")
    value = message.properties[name]
    shown = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return SampledMessage(shown, properties={name: value})


def _field_text(field: AmqpField) -> str:
    if isinstance(field.value, bytes):
        text = field.value.decode(errors="backslashreplace")
        return text if field.type == "longstr" else f"{field.type} {text}"
    return f"{field.type} {field.value}"
