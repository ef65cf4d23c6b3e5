"""A message of a sample: all of it that a hash exchange may look at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.client_fields import table_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rabbit_chx.amqp.client_fields import HeaderTable
    from rabbit_chx.analysis import Hashing

__all__ = ["SampledMessage"]


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """A message of a sample.

    Attributes:
        key: what names the message to people: its routing key, or the text of what is hashed.
        routing_key: the routing key.
        headers: the header table, with the types of the wire.
        properties: message_id, correlation_id and timestamp, where the message has them.
    """

    key: str
    routing_key: str | bytes = ""
    headers: HeaderTable = ()
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def with_value(cls, key: str, hashing: Hashing, value: Any) -> SampledMessage:  # noqa: ANN401
        """Return the message that has a value where an exchange looks for it.

        Args:
            key: what names the message to people.
            hashing: what the exchange hashes.
            value: the routing key, or the value of the header or the property.

        Raises:
            InputError: the client cannot send the value.
        """
        message = hashing.message(value)
        return cls(
            key,
            message.get("routing_key", ""),
            table_for(message.get("headers", {}), hashing.client),
            message.get("properties", {}),
        )

    def with_array(self, header: bytes) -> SampledMessage:
        """Return the message with the value of a header in an array of one element.

        Args:
            header: the name of the header.
        """
        headers = tuple(
            (name, AmqpField("array", [value]) if name == header else value) for name, value in self.headers
        )
        return replace(self, headers=headers)
