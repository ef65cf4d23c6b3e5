"""A message as its client sends it and as the broker receives it, and the part of it that an ``x-consistent-hash`` exchange hashes.

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``validate/1``, ``hash_args/1`` and ``value_to_hash/2``, v3.10.0 to
v4.3.6, and, from v3.13.0 on, ``deps/rabbit/src/mc_amqpl.erl``, ``routing_headers/2`` and ``property/2``.

For AMQP 1.0: ``deps/rabbit/src/mc_amqp.erl``, ``routing_headers/2``, ``property/2`` and ``essential_properties/1``,
``deps/rabbit/src/rabbit_amqp_session.erl``, ``lookup_routing_key``, and ``value_to_hash/2``, v4.0.5 and v4.3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, cast

from rabbit_chx.amqp.amqp10_values import (
    INTEGER_RANGES_10,
    PROPERTIES_10,
    Amqp10Value,
    id_for,
    named_values,
    value_for,
)
from rabbit_chx.amqp.fields import (
    CLIENTS,
    INTEGER_RANGES,
    PROPERTY_FLAGS,
    AmqpField,
    Client,
    Headers,
    HeaderTable,
    Sender,
    check_client,
    field_for,
    pairs_of,
    table_for,
)
from rabbit_chx.checks import bytes_of, is_whole, short_string, shown, similar
from rabbit_chx.erlang import Atom
from rabbit_chx.erlang.hashing import Term
from rabbit_chx.errors import ChannelClosedError, InputError, NotDeterminedError
from rabbit_chx.routing import rules
from rabbit_chx.routing.release import Release, Rule

#: The default of CC and BCC. `Message091.of` compares it by identity, to recognize a message that has only a routing key.
NO_KEYS: tuple[str | bytes, ...] = ()


class SentMessage(NamedTuple):
    """The arguments of `route`, unchecked.

    Attributes:
        headers: a mapping or pairs of header names and values; for AMQP 1.0 the application properties.
        properties: a mapping of property names, or an object with these attributes.
        cc: the routing keys of the header CC; for AMQP 1.0 those of the annotation ``x-cc``.
    """

    routing_key: str | bytes = ""
    headers: Headers | None = None
    properties: object = None
    cc: Iterable[str | bytes] = NO_KEYS
    bcc: Iterable[str | bytes] = NO_KEYS
    client: Sender = "rabbit-chx"


class HashedTerm(NamedTuple):
    """The hashed term.

    Attributes:
        term: the Erlang term; an integer is the seed itself; of a list the first element is hashed.
        rule: the rule of the release that determines it.
    """

    term: Term
    rule: Rule


#: The arguments of an exchange that select the hashed part.
HASH_ARGUMENTS = ("hash-header", "hash-property")

#: The properties that an exchange can hash.
HASH_PROPERTIES = ("correlation_id", "message_id", "timestamp")

_NEARNESS = 0.8


@dataclass(frozen=True, slots=True)
class HashedOn:
    """The part of a message that an exchange hashes.

    Attributes:
        kind: ``routing-key``, ``header`` or ``property``.
        name: the name of the header or property, as bytes; empty for the routing key.
    """

    kind: Literal["routing-key", "header", "property"]
    name: bytes = b""

    @classmethod
    def from_arguments(cls, arguments: Headers | None) -> HashedOn:
        """Parse the arguments of an exchange, a mapping or pairs, with the checks of the broker at its declaration.

        The broker ignores arguments of other names. A name similar to ``hash-header`` or ``hash-property`` is an error here, because the
        broker would silently hash the routing key.
        """
        named = _hash_arguments(arguments)
        for argument, field in named.items():
            if field.type != "longstr":
                raise InputError(
                    f"the argument {argument} is a {field.type}, which the broker refuses: pass text"
                )

        if len(named) > 1:
            raise InputError(
                "hash-header and hash-property are both given, which the broker refuses: pass one"
            )
        if "hash-header" in named:
            return cls("header", named["hash-header"].value)
        if "hash-property" not in named:
            return cls("routing-key")

        hashed: bytes = named["hash-property"].value
        if hashed.decode(errors="replace") not in HASH_PROPERTIES:
            raise InputError(
                f"the broker cannot hash the property {hashed.decode(errors='replace')!r}: pass one of "
                f"{', '.join(HASH_PROPERTIES)}"
            )

        return cls("property", hashed)

    def __str__(self) -> str:
        return (
            self.kind if self.kind == "routing-key" else f"{self.kind} {self.name.decode(errors='replace')!r}"
        )


def _hash_arguments(arguments: Headers | None) -> dict[str, AmqpField]:
    """Return the arguments that select the hashed part."""
    named: dict[str, AmqpField] = {}
    for name, value in pairs_of({} if arguments is None else arguments):
        raw = short_string(name, "the name of an argument")
        argument = raw.decode(errors="replace")
        if argument not in HASH_ARGUMENTS:
            refuse_misspelt([argument])
            continue
        if argument in named:
            raise InputError(f"the argument {argument} is given twice: pass it once")
        named[argument] = field_for(value)
    return named


def refuse_misspelt(names: Iterable[str]) -> None:
    """Raise an InputError for names of arguments that resemble ``hash-header`` or ``hash-property``."""
    for name in names:
        near = similar(name, HASH_ARGUMENTS, _NEARNESS)
        if near and name != near:
            raise InputError(
                f"the broker ignores the argument {name!r} and would hash the routing key: did you mean "
                f"{near!r}? If the exchange has it nevertheless, leave it out here"
            )


# -- AMQP 0-9-1


@dataclass(frozen=True, slots=True)
class Message091:
    """A message of AMQP 0-9-1 as the broker of a release receives it. Absent properties are None.

    Attributes:
        routing_keys: the routing key, then those of CC, then those of BCC.
        headers: the header table in wire order, without BCC.
        timestamp: seconds since 1970.
    """

    release: Release
    routing_keys: tuple[bytes, ...]
    headers: HeaderTable = ()
    message_id: bytes | None = None
    correlation_id: bytes | None = None
    timestamp: int | None = None
    client: Client = "rabbit-chx"

    @classmethod
    def of(cls, sent: SentMessage, release: Release) -> Message091:
        """Return the message that a client sends.

        Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_basic.erl``, ``header_routes/1`` and ``strip_bcc_header/1``, v3.10.0 to v4.3.6: the
        first CC and the first BCC count, with their elements of type longstr.
        """
        key = short_string(sent.routing_key, "the routing key")
        _, headers, properties, cc, bcc, client = sent
        only_a_key = headers is None and properties is None and cc is NO_KEYS and bcc is NO_KEYS
        if only_a_key and client in CLIENTS:  # the usual case
            return cls(release, (key,), client=client)

        client = check_client(client)
        table = _with_routes(_headers(headers, properties, client), cc, bcc)
        keys = (key, *_routes(table, b"CC"), *_routes(table, b"BCC"))
        visible = _without_first(table, b"BCC")
        if properties is None:
            return cls(release, keys, visible, client=client)

        return cls(
            release,
            keys,
            visible,
            property_bytes("message_id", _property(properties, "message_id"), client),
            property_bytes("correlation_id", _property(properties, "correlation_id"), client),
            property_seconds(_property(properties, "timestamp"), client),
            client,
        )

    def header_term(self, name: bytes) -> HashedTerm:
        """Return the term of a header, which may be missing."""
        values = [field for header, field in self.headers if header == name]
        if values and self.release.follows(rules.FIRST_HEADER_COUNTS):
            return field_term(values[0], self.release)
        if values and self.release.follows(rules.LAST_HEADER_COUNTS):
            return field_term(values[-1], self.release)
        if self.release.follows(rules.MISSING_HEADER_CRASHES):
            raise ChannelClosedError(
                f"the header {name.decode(errors='replace')!r} is missing: RabbitMQ {self.release.version} crashes on "
                "such a message and closes the connection; add the header, or update to 3.13.7",
                reply_code=541,
            )
        return HashedTerm(None, rules.MISSING_HEADER_IS_UNDEFINED)

    def property_term(self, name: str) -> HashedTerm:
        """Return the term of message_id, correlation_id or timestamp."""
        value = getattr(self, name)
        refuse_random_id(name, value, self.client)
        return HashedTerm(
            str(value).encode() if name == "timestamp" and value is not None else value, rules.HASHED_PROPERTY
        )


def field_term(field: AmqpField, release: Release) -> HashedTerm:
    """Return the term of a header's value."""
    if release.follows(rules.HEADER_IS_TUPLE):
        return HashedTerm(_with_type(field), rules.HEADER_IS_TUPLE)
    if field.type == "timestamp":
        return HashedTerm(field.value * 1000, rules.TIMESTAMP_IS_SEED)
    if field.type in INTEGER_RANGES:
        return HashedTerm(field.value, rules.INTEGER_IS_SEED)
    if field.type in ("array", "table"):
        return HashedTerm(_value(field), rules.LIST_IS_ITS_HEAD)
    return HashedTerm(
        _value(field), rules.VOID_IS_UNDEFINED if field.type == "void" else rules.HEADER_IS_BARE
    )


def _with_type(field: AmqpField) -> tuple[Term, ...]:
    return Atom(field.type), _value(field)


def _value(field: AmqpField) -> Any:
    """Return a field's value as the server's parser returns it, rabbit_binary_parser.erl, ``parse_table/1``."""
    if field.type == "array":
        return [_with_type(element) for element in field.value]
    if field.type == "table":
        return [(name, *_with_type(element)) for name, element in field.value]
    return field.value


def property_bytes(name: str, value: object, client: Client) -> bytes | None:
    """Return the bytes of message_id or correlation_id, or None if the client sends none.

    pika sends text and bytes, including empty ones. aio-pika sends ``str`` of any value, ``b"a"`` as the text ``b'a'``, and omits empty
    values and 0; aio-pika ``message.py``, ``Message.__init__`` and ``optional`` (9.0 to 10.2.1). See `refuse_random_id` for messages
    without an id.
    """
    if value is None or (client == "aio-pika" and not value):
        return None
    if client == "aio-pika":
        value = str(value)
    if not isinstance(value, (str, bytes)):
        raise InputError(f"the {name} is {value!r:.60}: pass str or bytes")
    return short_string(value, f"the {name}")


def refuse_random_id(name: str, value: bytes | None, client: Client) -> None:
    """Raise a NotDeterminedError for a message without message_id of aio-pika, which generates a random one.

    Mirrors aiormq 7.2.4, ``aiormq/channel.py``, ``Channel.basic_publish``.
    """
    if name == "message_id" and value is None and client == "aio-pika":
        raise NotDeterminedError(
            "aio-pika gives a message without message_id a random one, and the exchange hashes that: pass a message_id"
        )


def property_seconds(value: object, client: Client) -> int | None:
    """Return the seconds of the property timestamp, or None. pika accepts an int, a publisher also a datetime, aio-pika a float, too.

    aio-pika converts a number to a datetime, so it is rounded to microseconds and ends with the year 9999. Mirrors aio-pika ``message.py``,
    ``encode_timestamp_number``.
    """
    if value is None:
        return None
    if client == "aio-pika" and isinstance(value, timedelta):
        raise InputError(f"the timestamp {value!r:.60} depends on when it is sent: pass a datetime")
    if client == "aio-pika" and isinstance(value, (int, float)):
        try:
            value = datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise InputError(
                f"aio-pika cannot send the timestamp {shown(value)}: pass seconds of the years 1970 to 9999"
            ) from None
    if client != "pika" and isinstance(value, datetime):
        return int(field_for(value, client).value)
    if not is_whole(value) or int(value) not in INTEGER_RANGES["timestamp"]:
        raise InputError(f"the timestamp is {value!r:.60}: pass seconds since 1970 as an int")
    return int(value)


def _property(properties: object, name: str) -> Any:
    if isinstance(properties, Mapping):
        for property_ in properties:
            if property_ not in PROPERTY_FLAGS:
                raise InputError(
                    f"AMQP has no property {property_!r:.60}: pass one of {', '.join(HASH_PROPERTIES)}"
                )
        return properties.get(name)
    if properties is not None and not hasattr(properties, "message_id"):
        raise InputError(
            f"{properties!r:.60} are not properties: pass a mapping of names or a BasicProperties"
        )
    return getattr(properties, name, None)


def _headers(headers: Headers | None, properties: object, client: Client) -> HeaderTable:
    in_properties = _property(properties, "headers")
    if headers is not None and in_properties:
        raise InputError("headers are given twice, by headers= and in the properties: pass them once")
    return table_for(in_properties or {} if headers is None else headers, client)


def _with_routes(table: HeaderTable, cc: Iterable[str | bytes], bcc: Iterable[str | bytes]) -> HeaderTable:
    """Return the headers with CC and BCC added."""
    for name, routes in (("CC", cc), ("BCC", bcc)):
        if isinstance(routes, (str, bytes)) or not hasattr(routes, "__iter__"):
            raise InputError(f"{name.lower()} is {routes!r:.60}: pass a list of routing keys, even of one")
        keys = [short_string(route, f"a routing key of {name}") for route in routes]
        if not keys:
            continue
        if any(header == name.encode() for header, _ in table):
            raise InputError(f"{name} is given twice, by {name.lower()}= and as a header: pass it once")
        table = (*table, (name.encode(), AmqpField("array", [AmqpField("longstr", key) for key in keys])))
    return table


def _routes(table: HeaderTable, name: bytes) -> list[bytes]:
    field = next((field for header, field in table if header == name), None)
    if field is None:
        return []
    if field.type != "array":
        raise ChannelClosedError(
            f"the header {name.decode()} is a {field.type}: the broker takes an array alone, and closes the channel",
            reply_code=406,
        )
    return [route.value for route in field.value if route.type == "longstr"]


def _without_first(table: HeaderTable, name: bytes) -> HeaderTable:
    for position, (header, _) in enumerate(table):
        if header == name:
            return (*table[:position], *table[position + 1 :])
    return table


# -- AMQP 1.0

#: The `client` for any publisher of AMQP 1.0.
AMQP_1_0: Final = "amqp-1.0"


@dataclass(frozen=True, slots=True)
class Message10:
    """A message of AMQP 1.0 as the broker receives it, from 4.0 on. Absent properties are None.

    Attributes:
        routing_keys: the key of the address, then the keys of x-cc if they count.
        application_properties: names and values, in order.
        annotations: names and values of the message annotations, in order.
        creation_time: milliseconds since 1970.
    """

    routing_keys: tuple[bytes, ...]
    application_properties: tuple[tuple[bytes, Amqp10Value], ...]
    annotations: tuple[tuple[bytes, Amqp10Value], ...]
    message_id: Amqp10Value | None
    correlation_id: Amqp10Value | None
    creation_time: int | None

    @classmethod
    def of(cls, sent: SentMessage, release: Release) -> Message10:
        """Return the message that a publisher sends."""
        refuse_converted(release)
        _, headers, properties, cc, bcc, _ = sent
        key = bytes_of(sent.routing_key, "the routing key")  # may be longer than in AMQP 0-9-1
        if isinstance(cc, (str, bytes)) or not hasattr(cc, "__iter__"):
            raise InputError(f"cc is {cc!r:.60}: pass a list of routing keys, even of one")
        if bcc:
            raise InputError("AMQP 1.0 has no BCC: pass the routing keys as cc, which is sent as x-cc")
        more = [bytes_of(route, "a routing key of x-cc") for route in cc]
        parts = _properties(properties)
        return cls(
            (key, *more) if release.follows(rules.AMQP10_CC_COUNTS) else (key,),
            named_values({} if headers is None else headers),
            _annotations(parts.get("message_annotations")),
            id_for("message_id", parts.get("message_id")),
            id_for("correlation_id", parts.get("correlation_id")),
            _creation_time_of(parts.get("creation_time")),
        )

    def header_term(self, name: bytes) -> HashedTerm:
        """Return the term of a message annotation, otherwise of an application property.

        Of annotations with the same name the last counts, of properties the first. Boolean and null annotations are ignored; such
        properties are not.
        """
        for header, value in reversed(self.annotations):
            if header == name and value.is_simple and value.type not in ("boolean", "null"):
                return _value_term(value)
        for header, value in self.application_properties:
            if header == name:
                return _value_term(value)
        return HashedTerm(None, rules.MISSING_HEADER_IS_UNDEFINED)

    def property_term(self, name: str) -> HashedTerm:
        """Return the term of message_id, correlation_id, or timestamp, which is the creation-time."""
        if name == "timestamp":
            return HashedTerm(_seconds_term(self.creation_time), rules.HASHED_PROPERTY)
        return _id_term(self.message_id if name == "message_id" else self.correlation_id)


def refuse_converted(release: Release) -> None:
    """Raise a NotDeterminedError for a release that supports AMQP 1.0 only through a plugin."""
    if release.follows(rules.AMQP10_IS_CONVERTED):
        raise NotDeterminedError(
            f"RabbitMQ {release.version} has AMQP 1.0 by a plugin, which makes 0-9-1 messages of it in a way that is "
            "not modelled: pass a release from 4.0 on, or what the plugin makes of the message and client='pika'"
        )


def _value_term(value: Amqp10Value) -> HashedTerm:
    if not value.is_simple:
        return HashedTerm(None, rules.AMQP10_LEAVES_OUT)
    return HashedTerm(value.value, rules.AMQP10_VALUE_IS_BARE)


def hashed_term(kind: str, name: str, value: object) -> Term:
    """Return the term of a hashed value. `kind` is ``header`` or ``property``, `name` that of the property."""
    if kind == "header":
        return _value_term(value_for(value)).term
    if name == "timestamp":
        return _seconds_term(_creation_time_of(value))
    return _id_term(id_for(name, value)).term


def _id_term(value: Amqp10Value | None) -> HashedTerm:
    return (
        HashedTerm(None, rules.HASHED_PROPERTY)
        if value is None
        else HashedTerm(value.value, rules.AMQP10_VALUE_IS_BARE)
    )


def _seconds_term(milliseconds: int | None) -> bytes | None:
    """Return the term of a creation-time; Erlang's ``div`` truncates towards zero."""
    if milliseconds is None:
        return None
    seconds = abs(milliseconds) // 1000
    return str(seconds if milliseconds >= 0 else -seconds).encode()


def _creation_time_of(value: object) -> int | None:
    if isinstance(value, Amqp10Value):
        value = value.value if value.type in ("timestamp", "null") else value
    if value is None:
        return None
    if not is_whole(value) or int(value) not in INTEGER_RANGES_10["timestamp"]:
        raise InputError(f"the creation_time is {shown(value)}: pass milliseconds since 1970 as an int")
    return int(value)


def _annotations(value: object) -> tuple[tuple[bytes, Amqp10Value], ...]:
    annotations = named_values(cast("Headers", {} if value is None else value))
    for name, _ in annotations:
        if name == b"x-cc":
            raise InputError("x-cc is among the message_annotations: pass its routing keys as cc")
        if not name.startswith(b"x-"):
            raise InputError(
                f"the message annotation {name.decode(errors='replace')!r:.60} is reserved, and RabbitMQ ends the session: "
                "use names that begin with x-"
            )
    return annotations


def _properties(properties: object) -> Mapping[str, object]:
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InputError(f"{properties!r:.60} are not AMQP 1.0 properties: pass a mapping of names")
    for name in properties:
        if name == "timestamp":
            raise InputError("AMQP 1.0 has no timestamp: pass creation_time, in milliseconds")
        if name not in PROPERTIES_10 and name != "message_annotations":
            raise InputError(
                f"AMQP 1.0 has no property {name!r:.60}: pass message_id, correlation_id, creation_time or "
                "message_annotations"
            )
    return properties
