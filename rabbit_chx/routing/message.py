"""A message as its client sends it, and the part of it that an ``x-consistent-hash`` exchange hashes.

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``validate/1`` and ``hash_args/1``, v3.7.8 to v4.3.6.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rabbit_chx.amqp.client_fields import Headers, Sender, field_for
from rabbit_chx.amqp.fields import AmqpField, pairs_of
from rabbit_chx.amqp.names import short_string
from rabbit_chx.erlang.terms import Term
from rabbit_chx.errors import InputError
from rabbit_chx.routing.release import Rule

#: The default of CC and BCC.
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
    client: Sender = "pika"


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
        named = _known(arguments)
        for argument, field in named.items():
            if field.type != "longstr":
                raise InputError(
                    f"the argument {argument} is a {field.type}, which the broker refuses: give text"
                )
        if len(named) > 1:
            raise InputError(
                "hash-header and hash-property are both given, which the broker refuses: give one"
            )
        if "hash-header" in named:
            return cls("header", named["hash-header"].value)
        if "hash-property" not in named:
            return cls("routing-key")
        hashed: bytes = named["hash-property"].value
        if hashed.decode(errors="replace") not in HASH_PROPERTIES:
            raise InputError(
                f"the broker cannot hash the property {hashed.decode(errors='replace')!r}: give one of "
                f"{', '.join(HASH_PROPERTIES)}"
            )
        return cls("property", hashed)

    def __str__(self) -> str:
        return (
            self.kind if self.kind == "routing-key" else f"{self.kind} {self.name.decode(errors='replace')!r}"
        )


def _known(arguments: Headers | None) -> dict[str, AmqpField]:
    """Return the arguments that select the hashed part."""
    named: dict[str, AmqpField] = {}
    for name, value in pairs_of({} if arguments is None else arguments):
        raw = short_string(name, "the name of an argument")
        argument = raw.decode(errors="replace")
        if argument not in HASH_ARGUMENTS:
            refuse_misspelt([argument])
            continue
        if argument in named:
            raise InputError(f"the argument {argument} is given twice: give it once")
        named[argument] = field_for(value)
    return named


def refuse_misspelt(names: Iterable[str]) -> None:
    """Raise an InputError for names of arguments that resemble ``hash-header`` or ``hash-property``."""
    for name in names:
        near = difflib.get_close_matches(name.lower(), HASH_ARGUMENTS, n=1, cutoff=_NEARNESS)
        if near and name != near[0]:
            raise InputError(
                f"the broker does not know the argument {name!r} and would hash the routing key: did you mean "
                f"{near[0]!r}? If the exchange has it nevertheless, leave it out here"
            )
