"""A published message, as the firehose tracer describes it. No I/O.

Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_trace.erl``, ``msg_to_table/1`` and ``tap_in/6``, v3.8.0 to
v4.3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.header_table import headers_in
from rabbit_chx.analysis.traffic import Observation
from rabbit_chx.errors import ChannelClosedError, RingSourceError
from rabbit_chx.routing import HASH_PROPERTIES, ConsistentHashExchange, HashRing, Release

if TYPE_CHECKING:
    from rabbit_chx.amqp.client_fields import HeaderTable

__all__ = ["Observer", "TracedMessage"]


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A message as the broker routed it.

    Attributes:
        exchange: the exchange that the message was published to.
        routing_key: the routing key.
        headers: the header table, with the types of the wire, without BCC.
        properties: message_id, correlation_id and timestamp, where the message has them.
        queues: the queues that the broker routed the message to.
    """

    exchange: str
    routing_key: bytes
    headers: HeaderTable
    properties: Mapping[str, Any]
    queues: frozenset[str]

    @classmethod
    def from_trace(cls, raw: bytes) -> TracedMessage:
        """Return the message that a message of ``amq.rabbitmq.trace`` describes.

        Args:
            raw: the properties of the message of ``amq.rabbitmq.trace``, as bytes.

        Raises:
            RingSourceError: the properties are not those that the tracer writes.
        """
        trace = dict(headers_in(raw))
        try:
            inside = dict(trace[b"properties"].value)
            headers = inside.get(b"headers")
            return cls(
                trace[b"exchange_name"].value.decode(),
                trace[b"routing_keys"].value[0].value,
                () if headers is None else headers.value,
                {name: inside[name.encode()].value for name in HASH_PROPERTIES if name.encode() in inside},
                frozenset(queue.value.decode() for queue in trace[b"routed_queues"].value),
            )
        except (KeyError, IndexError, AttributeError, TypeError, ValueError) as cause:
            raise RingSourceError(
                f"a traced message lacks what it should say ({cause!r:.80}): is amq.rabbitmq.trace written by others?"
            ) from None


class Observer:
    """Turns traced messages into observations: it computes the seed of each by the rules of a release.

    Args:
        release: the broker's release.
        arguments: the exchange's arguments.
    """

    def __init__(self, release: Release, arguments: Mapping[str, Any]) -> None:
        # With a single bucket nothing is hashed, so there are two.
        self._exchange = ConsistentHashExchange(
            "traced", HashRing.from_buckets(("a", "b"), release), arguments
        )

    def observe(self, message: TracedMessage) -> Observation:
        """Return the message's key, seed and queues."""
        try:
            seed = self._exchange.explain(message.routing_key, message.headers, message.properties).seed
        except ChannelClosedError:
            seed = None
        return Observation(message.routing_key.decode(errors="backslashreplace"), seed, message.queues)
