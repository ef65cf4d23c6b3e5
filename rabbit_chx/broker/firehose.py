"""The firehose tracer: real traffic of an exchange, message by message, and its ring inferred from that.

While the tracer is on, the broker copies each message that is published or delivered in the vhost, body
included, to ``amq.rabbitmq.trace``. It is on for one vhost, on the node whose management API is asked. In a
cluster it shows only what is published over that node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.client_fields import HeaderTable
from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.amqp.header_table import headers_in
from rabbit_chx.analysis.traffic import InferredRing, Observation, infer_ring
from rabbit_chx.broker.live_exchange import read_exchange, read_reach
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.ring_output import Buckets
from rabbit_chx.errors import (
    BrokerRefusedError,
    ChannelClosedError,
    EmptyRingError,
    RabbitChxError,
    RingSourceError,
)
from rabbit_chx.routing import HASH_PROPERTIES, ConsistentHashExchange, HashRing, Release
from rabbit_chx.topology.reading import LiveExchange

_TRACE_EXCHANGE = "amq.rabbitmq.trace"
_MOST_WAITING = 20_000
_LOOK_EVERY_S = 0.2
_OFF_TRIES = 3
_OFF_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A message as the broker routed it and its firehose tracer describes it.

    Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_trace.erl``, ``msg_to_table/1`` and ``tap_in/6``, v3.8.0 to v4.3.6.

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


@contextmanager
def tracing(management: Management, vhost: str) -> Iterator[bool]:
    """Switch the tracer on for a block. It is off again whatever ends the block, unless it was on before.

    Args:
        management: the broker's HTTP API; its user needs the tag administrator.
        vhost: the vhost to trace.

    Yields:
        Whether the tracer was on before.

    Raises:
        AccessRefusedError: the user lacks the tag administrator.
        BrokerRefusedError: the tracer is still on at the end, or the vhost's metadata changed.
        UnreachableError: nothing answers at the address.
    """
    listed = management.request("GET", "vhosts", vhost)
    if listed.get("tracing"):
        yield True
        return
    # A PUT without them resets the description and the tags (from 3.10.8 on) and the default queue type (4.3.6).
    metadata: dict[str, Any] = listed.get("metadata") or {}
    try:
        management.request("PUT", "vhosts", vhost, body={**metadata, "tracing": True})
        yield False
    finally:
        try:
            _switch_off(management, vhost, metadata)
        except KeyboardInterrupt:  # the first signal comes while the tracer is switched off
            _switch_off(management, vhost, metadata)
            raise


def _switch_off(management: Management, vhost: str, metadata: dict[str, Any]) -> None:
    for left in (_OFF_TRIES - n for n in range(1, _OFF_TRIES + 1)):
        try:
            management.request("PUT", "vhosts", vhost, body={**metadata, "tracing": False})
            listed = management.request("GET", "vhosts", vhost)
            if not listed.get("tracing"):
                break
            problem = "the broker still has it on"
        except RabbitChxError as error:
            problem = str(error)
        if not left:
            raise BrokerRefusedError(
                f"tracing of vhost {vhost!r} may still be on ({problem}): run rabbitmqctl trace_off --vhost {vhost!r}"
            )
        time.sleep(_OFF_PAUSE_S)
    if (listed.get("metadata") or {}) != metadata:
        raise BrokerRefusedError(
            f"tracing of vhost {vhost!r} is off again, but its metadata was {metadata!r} and is now "
            f"{listed.get('metadata')!r}: restore it with rabbitmqctl update_vhost_metadata"
        )


def trace_exchange(
    settings: ConnectionSettings,
    management: Management,
    exchange: LiveExchange,
    *,
    seconds: float,
    messages: int,
    seen: Callable[[int], None] = lambda _: None,
) -> list[Observation]:
    """Trace what is published to an exchange, as `trace_messages` does, and compute the seed of each message.

    Args:
        settings: the AMQP connection; its user must read ``amq.rabbitmq.trace`` and declare a queue.
        management: the broker's HTTP API; its user needs the tag administrator.
        exchange: the exchange to trace.
        seconds: the longest time, in seconds.
        messages: the most messages.
        seen: called several times a second with the number of messages so far.

    Raises:
        RabbitChxError: as in `trace_messages`.
    """
    observer = Observer(exchange.release, exchange.arguments)
    traced = trace_messages(
        settings, management, exchange.vhost, exchange.name, seconds=seconds, messages=messages, seen=seen
    )
    return list(map(observer.observe, traced))


def trace_messages(
    settings: ConnectionSettings,
    management: Management,
    vhost: str,
    exchange: str,
    *,
    seconds: float,
    messages: int,
    seen: Callable[[int], None] = lambda _: None,
) -> list[TracedMessage]:
    """Trace what is published to an exchange, for a time in seconds or a number of messages, whichever ends
    first.

    The trace has only messages that name this exchange, not messages that come to it over another exchange.
    The queue of the trace is exclusive and holds at most 20,000 messages; the broker drops the oldest above
    that.

    Args:
        settings: the AMQP connection; its user must read ``amq.rabbitmq.trace`` and declare a queue.
        management: the broker's HTTP API; its user needs the tag administrator.
        vhost: the vhost.
        exchange: the name of the exchange to trace, of any type.
        seconds: the longest time, in seconds.
        messages: the most messages.
        seen: called several times a second with the number of messages so far.

    Raises:
        AccessRefusedError: a user lacks a permission or the tag administrator.
        BrokerRefusedError: the tracer is still on at the end, or the vhost's metadata changed.
        RingSourceError: a message on ``amq.rabbitmq.trace`` is not one of the tracer.
        UnreachableError: nothing answers at the address.
    """
    traced: list[TracedMessage] = []
    with closing(traced_batches(settings, management, vhost, exchange)) as batches:
        next(batches)
        deadline = time.monotonic() + seconds
        while len(traced) < messages and time.monotonic() < deadline:
            traced += next(batches)[: messages - len(traced)]
            seen(len(traced))
    return traced


def traced_batches(
    settings: ConnectionSettings, management: Management, vhost: str, exchange: str
) -> Generator[list[TracedMessage]]:
    """Trace what is published to an exchange, as `trace_messages` does, until the generator is closed.

    Args:
        settings: the AMQP connection, as in `trace_messages`.
        management: the broker's HTTP API, as there.
        vhost: the vhost.
        exchange: the name of the exchange to trace, of any type.

    Yields:
        Nothing once the tracer is on; then what came since, several times a second.

    Raises:
        RabbitChxError: as in `trace_messages`.
    """
    traced: list[TracedMessage] = []

    def receive(_channel: object, _method: object, properties: Any, _body: bytes) -> None:  # noqa: ANN401
        message = TracedMessage.from_trace(properties.raw)
        if message.exchange == exchange:
            traced.append(message)

    with (
        closing(PikaConnection(settings)) as connection,
        connection.channel(raw_headers=True) as channel,
    ):
        limits = {"x-max-length": _MOST_WAITING, "x-queue-type": "classic"}
        queue = str(channel.queue_declare("", exclusive=True, arguments=limits).method.queue)
        channel.queue_bind(queue, _TRACE_EXCHANGE, _binding_key(exchange))
        channel.basic_consume(queue, receive, auto_ack=True)
        with tracing(management, vhost):
            while True:
                batch, traced[:] = traced[:], []
                yield batch
                connection.process(_LOOK_EVERY_S)


def _binding_key(exchange: str) -> str:
    key = f"publish.{exchange}"
    return key if len(key.encode()) <= MAX_SHORTSTR else "publish.#"


class TracedRing:
    """A ring source that infers the ring from real traffic. It needs AMQP, the management API and enough
    traffic.

    Args:
        url: the AMQP URI.
        management_url: ``http[s]://user:password@host:port``; the user needs the tag administrator.
        seconds: the longest time to trace, in seconds.
        messages: the most messages to trace.

    Raises:
        InputError: a URL is malformed.
    """

    def __init__(self, url: str, management_url: str, *, seconds: float = 60, messages: int = 10_000) -> None:
        self._settings = ConnectionSettings.from_uri(url)
        self._management = Management(management_url)
        self._seconds = seconds
        self._messages = messages

    def read(self, vhost: str, exchange: str) -> Buckets:
        """Return the ring if the traffic proves each bucket.

        Args:
            vhost: the exchange's vhost.
            exchange: the exchange's name.

        Raises:
            NotFoundError: there is no x-consistent-hash exchange of that name.
            RingSourceError: the traffic does not prove each bucket.
        """
        live = read_exchange(self._management, vhost, exchange)
        settings = replace(self._settings, vhost=vhost)
        observations = trace_exchange(
            settings, self._management, live, seconds=self._seconds, messages=self._messages
        )
        return Buckets(infer_live_ring(self._management, live, observations).ring(live.release).buckets)


def infer_live_ring(
    management: Management, exchange: LiveExchange, observations: list[Observation]
) -> InferredRing:
    """Return what observations say of an exchange's ring; its bucket count comes from its bindings.

    Args:
        management: the broker's HTTP API.
        exchange: the exchange that was traced.
        observations: the traced messages of the exchange.

    Raises:
        EmptyRingError: nothing is bound to the exchange.
    """
    expected = exchange.assumed_ring.bucket_count
    if not expected:
        raise EmptyRingError(f"nothing is bound to exchange {exchange.name!r}: its ring is empty")
    return infer_ring(observations, expected, read_reach(management, exchange))
