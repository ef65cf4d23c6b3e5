"""A sample of what is hashed, and where an exchange routes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rabbit_chx.amqp.client_fields import Client, field_for
from rabbit_chx.amqp.fields import FIELD_TYPES, AmqpField, FieldType
from rabbit_chx.amqp.names import short_string
from rabbit_chx.analysis.modulo_map import ModuloMap
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.routing import ConsistentHashExchange, HashedOn, KeyMap, Place
from rabbit_chx.routing.received_message import property_bytes, property_seconds

#: A sample of one of these alone has equal values where they are equal in Python.
_PLAIN = (str, bytes, bool, int)


class SampleBatch(NamedTuple):
    """A part of a sample.

    Attributes:
        values: what is hashed: routing keys, or values of the header or the property.
        messages: how many messages have each; None for one.
        names: what each value is called in a result; None for the value itself.
    """

    values: Sequence[Any]
    messages: Sequence[int] | None = None
    names: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A message for which the broker would close the channel, instead of routing it.

    Attributes:
        reason: what the broker would do, and why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Hashing:
    """What an exchange hashes: the routing key, or a header, or a property.

    Attributes:
        hash_header: the exchange's argument ``hash-header``, which is the header's name; None without one.
        hash_property: the exchange's argument ``hash-property``; None without one.
        client: the client whose encoding bare header values take, ``pika`` or ``aio-pika``.
        field_type: the wire type of bare header values; None for that which the client gives each.

    Raises:
        InputError: the broker would refuse to declare such an exchange.
    """

    hash_header: str | None = None
    hash_property: str | None = None
    client: Client = "pika"
    field_type: FieldType | None = None

    def __post_init__(self) -> None:
        HashedOn.from_arguments(self.arguments)
        if self.field_type is None:
            return
        if self.field_type not in FIELD_TYPES:
            raise InputError(
                f"{self.field_type!r:.60} is no AMQP field type: give one of {', '.join(FIELD_TYPES)}"
            )
        if self.hash_header is None:
            raise InputError(f"{self.field_type} is the type of a header's values: give hash_header too")

    @property
    def arguments(self) -> dict[str, str]:
        """The exchange's arguments."""
        arguments = {"hash-header": self.hash_header, "hash-property": self.hash_property}
        return {name: value for name, value in arguments.items() if value is not None}

    def message(self, value: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the message that has this value where the exchange looks, as arguments of its `route`.

        Args:
            value: the routing key, or the value of the header or the property.
        """
        if self.hash_header is not None:
            return {"headers": {self.hash_header: self._header(value)}, "client": self.client}
        if self.hash_property is not None:
            return {"properties": {self.hash_property: value}, "client": self.client}
        return {"routing_key": value}

    def route_all(self, values: Sequence[Any], ring: KeyMap | ModuloMap) -> list[Place | Refused]:
        """Return where each value goes, by the rules of the ring's release; None where nothing takes it.

        Args:
            values: routing keys, or values of the header or the property.
            ring: the ring of the exchange, or its slots; or an exchange without a ring.

        Raises:
            InputError: the client cannot send a value where the exchange looks for it.
        """
        if isinstance(ring, ModuloMap):
            return list(ring.route_all(list(map(self.message, values))))
        exchange = ConsistentHashExchange("sample", ring, self.arguments)
        if not exchange.ring.destinations:
            return [_routed(exchange, self.message(value)) for value in values]
        places: tuple[Place, ...] = (*exchange.destinations, None)  # the index of a hole, -1, is the last
        try:
            indices = exchange.indices(values, field_type=self.field_type, client=self.client)
        except ChannelClosedError:
            return [_routed(exchange, self.message(value)) for value in values]
        return [places[index] for index in indices.tolist()]

    def identities(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return something hashable for each value, equal where values are the same in a message.

        Python takes 1, 1.0 and True for equal; on the wire they differ, and text and its bytes may not.

        Args:
            values: routing keys, or values of the header or the property.

        Raises:
            InputError: the client cannot send a value.
        """
        kinds = set(map(type, values))
        if len(kinds) == 1 and kinds.pop() in _PLAIN:
            return values
        return list(map(self._sent, values))

    def _sent(self, value: Any) -> Any:  # noqa: ANN401
        if self.hash_header is not None:
            return field_for(self._header(value), self.client)
        if self.hash_property is None:
            return short_string(value, "the routing key")
        if self.hash_property == "timestamp":
            return property_seconds(value, self.client)
        return property_bytes(self.hash_property, value, self.client)

    def _header(self, value: Any) -> Any:  # noqa: ANN401
        bare = self.field_type is None or isinstance(value, AmqpField)
        return value if bare else AmqpField(self.field_type, value)  # type: ignore[arg-type]


def _routed(exchange: ConsistentHashExchange, message: dict[str, Any]) -> Place | Refused:
    try:
        return exchange.route(**message)
    except ChannelClosedError as error:
        return Refused(str(error))
