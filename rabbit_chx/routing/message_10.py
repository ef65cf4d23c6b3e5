"""A message of an AMQP 1.0 publisher as the broker sees it before it routes, from 4.0 on.

Mirrors rabbitmq-server ``deps/rabbit/src/mc_amqp.erl``, ``routing_headers/2``, ``property/2`` and
``essential_properties/1``, ``deps/rabbit/src/rabbit_amqp_session.erl``, ``lookup_routing_key``, and
``rabbit_exchange_type_consistent_hash.erl``, ``value_to_hash/2``, v4.0.5 and v4.3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from rabbit_chx.amqp.amqp10_values import (
    INTEGER_RANGES_10,
    PROPERTIES_10,
    Amqp10Value,
    id_for,
    named_values,
    value_for,
)
from rabbit_chx.amqp.client_fields import Headers
from rabbit_chx.amqp.names import bytes_of
from rabbit_chx.checks import is_whole, shown
from rabbit_chx.erlang import Term
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing.message import HashedTerm, SentMessage
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import (
    AMQP10_CC_COUNTS,
    AMQP10_IS_CONVERTED,
    AMQP10_LEAVES_OUT,
    AMQP10_VALUE_IS_BARE,
    HASHED_PROPERTY,
    MISSING_HEADER_IS_UNDEFINED,
)

#: The `client` that means any publisher of AMQP 1.0.
AMQP_1_0: Final = "amqp-1.0"


@dataclass(frozen=True, slots=True)
class Message10:
    """What routing sees of a message.

    Attributes:
        routing_keys: the key of the address, then the keys of x-cc where they count.
        application_properties: names and values, in order.
        annotations: names and values of the message annotations, in order.
        message_id: None where the message has none.
        correlation_id: None where the message has none.
        creation_time: milliseconds since 1970; None where the message has none.
    """

    routing_keys: tuple[bytes, ...]
    application_properties: tuple[tuple[bytes, Amqp10Value], ...]
    annotations: tuple[tuple[bytes, Amqp10Value], ...]
    message_id: Amqp10Value | None
    correlation_id: Amqp10Value | None
    creation_time: int | None

    @classmethod
    def of(cls, sent: SentMessage, release: Release) -> Message10:
        """Return the message that a publisher sends.

        Args:
            sent: the message as the caller describes it.
            release: the release of the broker.

        Raises:
            InputError: no publisher can send it.
            NotDeterminedError: the release has AMQP 1.0 only through a plugin.
        """
        refuse_converted(release)
        _, headers, properties, cc, bcc, _ = sent
        key = bytes_of(sent.routing_key, "the routing key")  # may be longer than AMQP 0-9-1 has it
        if isinstance(cc, (str, bytes)) or not hasattr(cc, "__iter__"):
            raise InputError(f"cc is {cc!r:.60}: give a list of routing keys, even of one")
        if bcc:
            raise InputError("AMQP 1.0 has no BCC: give the routing keys as cc, which stands for x-cc")
        more = [bytes_of(route, "a routing key of x-cc") for route in cc]
        parts = _properties(properties)
        return cls(
            (key, *more) if release.follows(AMQP10_CC_COUNTS) else (key,),
            named_values({} if headers is None else headers),
            _annotations(parts.get("message_annotations")),
            id_for("message_id", parts.get("message_id")),
            id_for("correlation_id", parts.get("correlation_id")),
            _creation_time_of(parts.get("creation_time")),
        )

    def header_term(self, name: bytes) -> HashedTerm:
        """Return the term of a message annotation, else of an application property.

        Of two annotations with the same name the last counts, of two properties the first. Annotations that
        are a boolean or null are ignored; such properties are not.
        """
        for header, value in reversed(self.annotations):
            if header == name and value.is_simple and value.type not in ("boolean", "null"):
                return _value_term(value)
        for header, value in self.application_properties:
            if header == name:
                return _value_term(value)
        return HashedTerm(None, MISSING_HEADER_IS_UNDEFINED)

    def property_term(self, name: str) -> HashedTerm:
        """Return the term of message_id, correlation_id, or timestamp, which is the creation-time."""
        if name == "timestamp":
            return HashedTerm(_seconds_term(self.creation_time), HASHED_PROPERTY)
        return _id_term(self.message_id if name == "message_id" else self.correlation_id)


def refuse_converted(release: Release) -> None:
    """Refuse a release that has AMQP 1.0 only through a plugin.

    Args:
        release: the release of the broker.

    Raises:
        NotDeterminedError: the release has AMQP 1.0 only through a plugin.
    """
    if release.follows(AMQP10_IS_CONVERTED):
        raise NotDeterminedError(
            f"RabbitMQ {release.version} has AMQP 1.0 by a plugin, which makes 0-9-1 messages of it in a way that is "
            "not mirrored: give a release from 4.0 on, or what the plugin makes of the message and client='pika'"
        )


def _value_term(value: Amqp10Value) -> HashedTerm:
    """Return the term of an application property's value."""
    if not value.is_simple:
        return HashedTerm(None, AMQP10_LEAVES_OUT)
    return HashedTerm(value.value, AMQP10_VALUE_IS_BARE)


def hashed_term(kind: str, name: str, value: object) -> Term:
    """Return the term of what an exchange hashes, given alone.

    Args:
        kind: ``header`` or ``property``.
        name: the name of the property.
        value: the value of an application property, an id or a creation_time.

    Raises:
        InputError: no client can send the value.
    """
    if kind == "header":
        return _value_term(value_for(value)).term
    if name == "timestamp":
        return _seconds_term(_creation_time_of(value))
    return _id_term(id_for(name, value)).term


def _id_term(value: Amqp10Value | None) -> HashedTerm:
    """Return the term of a message_id or correlation_id."""
    return (
        HashedTerm(None, HASHED_PROPERTY) if value is None else HashedTerm(value.value, AMQP10_VALUE_IS_BARE)
    )


def _seconds_term(milliseconds: int | None) -> bytes | None:
    """Return the term of a creation-time; Erlang's ``div`` cuts towards zero."""
    if milliseconds is None:
        return None
    seconds = abs(milliseconds) // 1000
    return str(seconds if milliseconds >= 0 else -seconds).encode()


def _creation_time_of(value: object) -> int | None:
    """Return the milliseconds of a creation-time.

    Raises:
        InputError: the value is not an int of 64 bits.
    """
    if isinstance(value, Amqp10Value):
        value = value.value if value.type in ("timestamp", "null") else value
    if value is None:
        return None
    if not is_whole(value) or int(value) not in INTEGER_RANGES_10["timestamp"]:
        raise InputError(f"the creation_time is {shown(value)}: give milliseconds since 1970 as an int")
    return int(value)


def _annotations(value: object) -> tuple[tuple[bytes, Amqp10Value], ...]:
    annotations = named_values(cast("Headers", {} if value is None else value))
    for name, _ in annotations:
        if name == b"x-cc":
            raise InputError("x-cc is among the message_annotations: give its routing keys as cc")
        if not name.startswith(b"x-"):
            raise InputError(
                f"the message annotation {name.decode(errors='replace')!r:.60} is reserved, and RabbitMQ ends the session: "
                "give names that begin with x-"
            )
    return annotations


def _properties(properties: object) -> Mapping[str, object]:
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InputError(f"{properties!r:.60} are no properties of AMQP 1.0: give a mapping of names")
    for name in properties:
        if name == "timestamp":
            raise InputError("AMQP 1.0 has no timestamp: give creation_time, in milliseconds")
        if name not in PROPERTIES_10 and name != "message_annotations":
            raise InputError(
                f"AMQP 1.0 has no property {name!r:.60}: give message_id, correlation_id, creation_time or "
                "message_annotations"
            )
    return properties
