"""A message as its client sends it, and the term that the broker hashes of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rabbit_chx.amqp.client_fields import Headers, Sender
from rabbit_chx.erlang import Term
from rabbit_chx.routing.release import Rule

#: CC and BCC of a message that has none.
NO_KEYS: tuple[str | bytes, ...] = ()


class SentMessage(NamedTuple):
    """What a caller says of a message, unchecked; the arguments of `route`.

    Attributes:
        routing_key: text or bytes.
        headers: a mapping or pairs of header names and values; for AMQP 1.0 the application properties.
        properties: a mapping of property names, or an object that has them.
        cc: the routing keys of the header CC; for AMQP 1.0 those of the annotation ``x-cc``.
        bcc: the routing keys of the header BCC.
        client: the client that sends the message.
    """

    routing_key: str | bytes = ""
    headers: Headers | None = None
    properties: object = None
    cc: Iterable[str | bytes] = NO_KEYS
    bcc: Iterable[str | bytes] = NO_KEYS
    client: Sender = "pika"


class HashedTerm(NamedTuple):
    """What is hashed.

    Attributes:
        term: the Erlang term; an integer is the seed itself; of a list the first element is hashed.
        rule: the rule that says so.
    """

    term: Term
    rule: Rule
