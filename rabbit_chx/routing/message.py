"""A message as its client sends it, by the client's protocol, and what of it is hashed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing.header_terms import HashedTerm, header_term, property_term
from rabbit_chx.routing.message_091 import Message
from rabbit_chx.routing.message_10 import AMQP_1_0, Amqp10Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rabbit_chx.amqp.client_fields import Headers, Sender
    from rabbit_chx.routing.release import Release

__all__ = ["hashed_header", "hashed_property", "message_of"]


def message_of(
    routing_key: str | bytes,
    headers: Headers | None,
    properties: object,
    *,
    cc: Iterable[str | bytes],
    bcc: Iterable[str | bytes],
    client: Sender,
    release: Release,
) -> Message | Amqp10Message:
    """The message, given as :meth:`ConsistentHashExchange.route` takes it.

    Raises:
        InputError: the client cannot send it, or something is given twice.
        NotDeterminedError: the release has AMQP 1.0 by a plugin alone.
        ChannelClosedError: CC or BCC is no array.
    """
    if client == AMQP_1_0:
        return Amqp10Message.of(routing_key, headers, properties, cc=cc, bcc=bcc, release=release)
    return Message.of(routing_key, headers, properties, cc=cc, bcc=bcc, client=client)


def hashed_header(message: Message | Amqp10Message, name: bytes, release: Release) -> HashedTerm:
    """The term of a header, or of an application property.

    Raises:
        ChannelClosedError: the header is missing, and that release crashes.
    """
    if isinstance(message, Amqp10Message):
        return message.header_term(name)
    return header_term(message.headers, name, release)


def hashed_property(message: Message | Amqp10Message, name: str) -> HashedTerm:
    """The term of what ``hash-property`` names.

    Raises:
        NotDeterminedError: the client makes up a message_id.
    """
    if isinstance(message, Amqp10Message):
        return message.property_term(name)
    return property_term(message, name)
