"""The Erlang term that a header or a property is hashed as, by release.

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``value_to_hash/2``, v3.7.8 to v4.3.6, and, from
v3.13.0 on, ``deps/rabbit/src/mc_amqpl.erl``, ``routing_headers/2`` and ``property/2``, which it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rabbit_chx.amqp.fields import INTEGER_RANGES, AmqpField
from rabbit_chx.erlang import Atom, Term
from rabbit_chx.errors import ChannelClosedError
from rabbit_chx.routing.message_091 import refuse_random_id
from rabbit_chx.routing.rules import (
    FIRST_HEADER_COUNTS,
    HASHED_PROPERTY,
    HEADER_IS_BARE,
    HEADER_IS_TUPLE,
    INTEGER_IS_SEED,
    LIST_IS_ITS_HEAD,
    MISSING_HEADER_CRASHES,
    MISSING_HEADER_IS_UNDEFINED,
    TIMESTAMP_IS_SEED,
    VOID_IS_UNDEFINED,
)

if TYPE_CHECKING:
    from rabbit_chx.amqp.client_fields import Table
    from rabbit_chx.routing.message_091 import Message
    from rabbit_chx.routing.release import Release, Rule

__all__ = ["HashedTerm", "field_term", "header_term", "property_term"]


class HashedTerm(NamedTuple):
    """What is hashed.

    Attributes:
        term: the Erlang term; an integer is a seed, a list stands for its first element.
        rule: the rule that says so.
    """

    term: Term
    rule: Rule


def header_term(headers: Table, name: bytes, release: Release) -> HashedTerm:
    """The term of a header of a message, which may lack it.

    Args:
        headers: the header table of the wire, in order.
        name: of the header.
        release: whose rules apply.

    Raises:
        ChannelClosedError: the header is missing, and that release crashes.
    """
    values = [field for given, field in headers if given == name]
    if values:
        return field_term(values[0 if release.follows(FIRST_HEADER_COUNTS) else -1], release)
    if release.follows(MISSING_HEADER_CRASHES):
        raise ChannelClosedError(
            f"the header {name.decode(errors='replace')!r} is missing: RabbitMQ {release.version} crashes on such a "
            "message and closes the connection; give it the header, or update to 3.13.7",
            reply_code=541,
        )
    return HashedTerm(None, MISSING_HEADER_IS_UNDEFINED)


def field_term(field: AmqpField, release: Release) -> HashedTerm:
    """The term of a header's value."""
    if release.follows(HEADER_IS_TUPLE):
        return HashedTerm(_typed(field), HEADER_IS_TUPLE)
    if field.type == "timestamp":
        return HashedTerm(field.value * 1000, TIMESTAMP_IS_SEED)
    if field.type in INTEGER_RANGES:
        return HashedTerm(field.value, INTEGER_IS_SEED)
    if field.type in ("array", "table"):
        return HashedTerm(_value(field), LIST_IS_ITS_HEAD)
    return HashedTerm(_value(field), VOID_IS_UNDEFINED if field.type == "void" else HEADER_IS_BARE)


def property_term(message: Message, name: str) -> HashedTerm:
    """The term of the property message_id, correlation_id or timestamp.

    Raises:
        NotDeterminedError: the client makes up a message_id.
    """
    value = getattr(message, name)
    refuse_random_id(name, value, message.client)
    return HashedTerm(
        str(value).encode() if name == "timestamp" and value is not None else value, HASHED_PROPERTY
    )


def _typed(field: AmqpField) -> tuple[Term, ...]:
    return Atom(field.type), _value(field)


def _value(field: AmqpField) -> Any:  # noqa: ANN401
    """A field's value as the server's parser makes it, rabbit_binary_parser.erl, ``parse_table/1``."""
    if field.type == "array":
        return [_typed(item) for item in field.value]
    if field.type == "table":
        return [(name, *_typed(item)) for name, item in field.value]
    return field.value
