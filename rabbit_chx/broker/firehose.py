"""The firehose tracer: real traffic of an exchange, message by message, and its ring inferred from that.

While it is on, the broker makes a message to ``amq.rabbitmq.trace`` of each that is published in the vhost and of each
that is delivered there, bodies included. It is switched per vhost, on the node whose management API is asked, so in a
cluster only what is published over that node is seen.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.analysis.traffic import InferredRing, Observation, infer_ring
from rabbit_chx.broker.live_exchange import read_exchange, read_reach
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.ring_output import Buckets
from rabbit_chx.broker.traced_message import Observer, TracedMessage
from rabbit_chx.errors import BrokerRefusedError, EmptyRingError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rabbit_chx.broker.live_exchange import LiveExchange

__all__ = ["TracedRing", "infer_live_ring", "trace_exchange", "tracing"]

_TRACE_EXCHANGE = "amq.rabbitmq.trace"
_MOST_WAITING = 20_000
_LOOK_EVERY_S = 0.2
_OFF_TRIES = 3
_OFF_PAUSE_S = 1.0


@contextmanager
def tracing(management: Management, vhost: str) -> Iterator[bool]:
    """Have the tracer on for a block; off again whatever ends it, unless it was on before. Gives whether it was.

    Raises:
        AccessRefusedError: the user may not switch it: that takes the tag administrator.
        BrokerRefusedError: it is not off at the end, or the vhost's metadata changed.
        UnreachableError: nobody answers there.
    """
    found = management.request("GET", "vhosts", vhost)
    if found.get("tracing"):
        yield True
        return
    # A PUT without them resets the description and the tags (from 3.10.8 on) and the default queue type (4.3.6).
    metadata: dict[str, Any] = found.get("metadata") or {}
    try:
        management.request("PUT", "vhosts", vhost, body={**metadata, "tracing": True})
        yield False
    finally:
        _switch_off(management, vhost, metadata)


def _switch_off(management: Management, vhost: str, metadata: dict[str, Any]) -> None:
    for left in (_OFF_TRIES - n for n in range(1, _OFF_TRIES + 1)):
        try:
            management.request("PUT", "vhosts", vhost, body={**metadata, "tracing": False})
            found = management.request("GET", "vhosts", vhost)
            if not found.get("tracing"):
                break
            problem = "the broker still has it on"
        except UnreachableError as error:
            problem = str(error)
        if not left:
            raise BrokerRefusedError(
                f"tracing of vhost {vhost!r} may still be on ({problem}): run rabbitmqctl trace_off --vhost {vhost!r}"
            )
        time.sleep(_OFF_PAUSE_S)
    if (found.get("metadata") or {}) != metadata:
        raise BrokerRefusedError(
            f"tracing of vhost {vhost!r} is off again, but its metadata was {metadata!r} and is now "
            f"{found.get('metadata')!r}: restore it with rabbitmqctl update_vhost_metadata"
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
    """Trace what is published to an exchange, for a time or a number of messages, whichever ends first.

    Only messages that name this exchange are seen, not those that come to it over another one. Our queue is
    exclusive and holds at most 20,000 messages: what we do not take in time is dropped, oldest first.

    Args:
        settings: AMQP; the user needs to read ``amq.rabbitmq.trace`` and to declare a queue.
        management: its user needs the tag administrator.
        exchange: which.
        seconds: the longest time.
        messages: the most messages.
        seen: called now and then with the number of messages so far.
    """
    observer = Observer(exchange.release, exchange.arguments)
    found: list[Observation] = []

    def receive(_channel: object, _method: object, properties: Any, _body: bytes) -> None:  # noqa: ANN401
        message = TracedMessage.from_trace(properties.raw)
        if message.exchange == exchange.name and len(found) < messages:
            found.append(observer.observe(message))

    connection = PikaConnection(settings)
    try:
        with connection.channel(raw_headers=True) as channel:
            limits = {"x-max-length": _MOST_WAITING, "x-queue-type": "classic"}
            queue = str(channel.queue_declare("", exclusive=True, arguments=limits).method.queue)
            channel.queue_bind(queue, _TRACE_EXCHANGE, _binding_key(exchange.name))
            channel.basic_consume(queue, receive, auto_ack=True)
            with tracing(management, exchange.vhost):
                deadline = time.monotonic() + seconds
                while len(found) < messages and (left := deadline - time.monotonic()) > 0:
                    connection.process(min(left, _LOOK_EVERY_S))
                    seen(len(found))
    finally:
        connection.close()
    return found


def _binding_key(exchange: str) -> str:
    key = f"publish.{exchange}"
    return key if len(key.encode()) <= MAX_SHORTSTR else "publish.#"


class TracedRing:
    """Infers the ring from real traffic; it needs AMQP and the management API, and enough traffic.

    Args:
        url: the AMQP URI.
        management_url: ``http[s]://user:password@host:port``; the user needs the tag administrator.
        seconds: how long to trace at most.
        messages: how many messages to take at most.

    Raises:
        InputError: a URL cannot be read.
    """

    def __init__(self, url: str, management_url: str, *, seconds: float = 60, messages: int = 10_000) -> None:
        self._settings = ConnectionSettings.from_uri(url)
        self._management = Management(management_url)
        self._seconds = seconds
        self._messages = messages

    def read(self, vhost: str, exchange: str) -> Buckets:
        """The ring, if the traffic proves each bucket; see :meth:`RingSource.read`."""
        live = read_exchange(self._management, vhost, exchange)
        settings = replace(self._settings, vhost=vhost)
        observations = trace_exchange(
            settings, self._management, live, seconds=self._seconds, messages=self._messages
        )
        return Buckets(infer_live_ring(self._management, live, observations).ring(live.release).buckets)


def infer_live_ring(
    management: Management, exchange: LiveExchange, observations: list[Observation]
) -> InferredRing:
    """What observations say of an exchange's ring; its bucket count comes from its bindings.

    Raises:
        EmptyRingError: nothing is bound.
    """
    expected = exchange.assumed_ring.bucket_count
    if not expected:
        raise EmptyRingError(f"nothing is bound to exchange {exchange.name!r}: its ring is empty")
    return infer_ring(observations, expected, read_reach(management, exchange))
