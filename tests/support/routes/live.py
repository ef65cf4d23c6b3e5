"""A scenario on a real broker: its steps are done, its messages published, and every one of them consumed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Self

import aio_pika
import pika
from bounded import until
from exchange_types import FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import SavedRing, aio_pika_arguments, pika_parameters
from rabbit_chx.broker.ring_source import eval_expression, ring_by
from rabbit_chx.publishing import Publisher
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.testing.running_broker import in_vhost
from routes import amqp10
from routes.raw import typed_properties
from routes.scenario import CHX, Keys, Message, Scenario, Step

GONE_TIMEOUT_S = 20.0
SETTLING_S = 0.2
QUIET_TIMEOUT_S = 30.0
PUMP_S: Any = 0.05  # pika's stubs know whole seconds only
NOT_FOUND = 404


class Stage:
    """One scenario on one broker, in a vhost of its own. Use it in a ``with`` block.

    A destination exchange is a fanout with one queue behind it, by which its messages are found.

    Attributes:
        scenario: what it carries out.
        gone: temporary queues that were not there any more at the last `reconnect`.
    """

    def __init__(self, broker: RunningBroker, scenario: Scenario, queue_type: str = "classic") -> None:
        self._broker = broker
        self.scenario = scenario
        self._durable = {"x-queue-type": queue_type}
        self._connections: dict[str, pika.BlockingConnection] = {}
        self._arrived: list[tuple[Destination, int]] = []
        self._consumed = self._standing()
        self.gone: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._inside = stack.enter_context(temporary_vhost(self._broker))
            stack.callback(self.disconnect)
            self._channel = self._connected("main").channel()
            kind: Any = self.scenario.type
            self._channel.exchange_declare(
                self.scenario.name, kind, durable=True, arguments=dict(self.scenario.arguments)
            )
            for destination in self.scenario.destinations:
                self._declare(destination)
            for step in self.scenario.steps:
                self._do(step)
            self._end = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    @property
    def vhost(self) -> str:
        """The vhost's name."""
        return ConnectionSettings.from_uri(self._inside.url).vhost

    def disconnect(self) -> None:
        """Close all connections, also those that the broker has broken."""
        for connection in self._connections.values():
            with suppress(pika.exceptions.AMQPError):
                connection.close()
        self._connections.clear()

    def reconnect(self) -> None:
        """Connect again after the broker was away, and forget the temporary queues that are gone."""
        self.disconnect()
        self._channel = self._connected("main").channel()
        self.gone = {queue for queue in self.scenario.temporary if not self._exists(queue)}
        self._consumed = [place for place in self.scenario.destinations if place not in self.gone]

    def move(self, node: RunningBroker) -> None:
        """Go on over another node of the cluster."""
        self._inside = in_vhost(node, self.vhost)
        self.reconnect()

    def _exists(self, queue: str) -> bool:
        try:
            with self._connected("main").channel() as channel:
                channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as refusal:
            return refusal.reply_code != NOT_FOUND  # an exclusive queue of another connection is locked
        return True

    def exorcise(self, queue: str) -> None:
        """Take a ghost's buckets away: declare a queue of its name, bind it, unbind it, delete it."""
        self._channel.queue_declare(queue, durable=True)
        self._channel.queue_bind(queue, self.scenario.name, "1")
        self._channel.queue_unbind(queue, self.scenario.name, "1")
        self._channel.queue_delete(queue)

    def route(self) -> list[Destination | None]:
        """Publish every message and find it again; None for one that came back as unroutable.

        Raises:
            AssertionError: a message is missing, or was found twice.
        """
        messages = self.scenario.messages
        if isinstance(messages, Keys):
            returned = self._publish_keys(messages)
        else:
            returned = self._publish_by_pika(messages) + asyncio.run(self._publish_by_aio_pika(messages))
            over_10 = [(n, message) for n, message in enumerate(messages) if message.client == "amqp-1.0"]
            returned += amqp10.publish(self._inside.url, self.scenario.name, over_10) if over_10 else 0
        return self._collect(self.scenario.message_count, returned)

    # -- what stands

    def _connected(self, name: str) -> pika.BlockingConnection:
        if name not in self._connections:
            parameters = pika_parameters(self._inside.url)
            parameters.heartbeat = 0  # scenarios wait for their turn, and nobody reads meanwhile
            self._connections[name] = pika.BlockingConnection(parameters)
        return self._connections[name]

    def _owner(self, queue: str) -> BlockingChannel:
        """A channel that may do with the queue what it likes."""
        temporary = self.scenario.temporary.get(queue)
        return self._channel if temporary is None else self._connected(temporary.connection).channel()

    def _declare(self, destination: Destination) -> None:
        if isinstance(destination, ExchangeRef):
            self._channel.exchange_declare(destination.name, FANOUT, durable=True)
            self._channel.queue_declare(_queue_of(destination), durable=True)
            self._channel.queue_bind(_queue_of(destination), destination.name)
            return
        temporary = self.scenario.temporary.get(destination)
        if temporary is None:
            self._channel.queue_declare(destination, durable=True, arguments=self._durable)
            return
        owner = self._owner(destination)
        owner.queue_declare(
            destination,
            durable=temporary.kind == "auto-delete",
            exclusive=temporary.kind == "exclusive",
            auto_delete=temporary.kind == "auto-delete",
        )
        self._consume(owner, destination)

    def _do(self, step: Step) -> None:
        exchange, destination = self.scenario.name, step.destination
        if destination is None:
            self._leave(step.key)
        elif isinstance(destination, ExchangeRef):
            _carry_out(self._channel, "exchange", destination.name, exchange, step)
        else:
            _carry_out(self._owner(destination), "queue", destination, exchange, step)

    def _leave(self, name: str) -> None:
        """Close a connection, and wait until the broker has removed what went with it."""
        self._connections.pop(name).close()
        gone = [queue for queue, how in self.scenario.temporary.items() if how.connection == name]
        until(lambda: not any(map(self._exists, gone)), f"queues are gone: {gone}", GONE_TIMEOUT_S)
        time.sleep(SETTLING_S)  # since 3.12 the ring is changed after the queue has gone

    # -- messages

    def _publish_keys(self, messages: Keys) -> int:
        keys = messages.listed()
        with Publisher(
            self._inside.url, self.scenario.name, persistent=False, on_unroutable="report"
        ) as publisher:
            report = publisher.publish_many(keys, map(str, range(len(keys))))
        assert report.confirmed + report.returned == len(keys)
        return report.returned

    def _publish_by_pika(self, messages: Sequence[Message]) -> int:
        returned = 0
        channel = self._connected("main").channel()
        channel.confirm_delivery()
        for number, message in enumerate(messages):
            if message.client != "pika":
                continue
            properties = typed_properties(message.headers) or pika.BasicProperties(
                headers=message.headers, **message.properties
            )
            try:
                channel.basic_publish(
                    self.scenario.name, message.key, str(number).encode(), properties, mandatory=True
                )
            except UnroutableError:
                returned += 1
        channel.close()
        return returned

    async def _publish_by_aio_pika(self, messages: Sequence[Message]) -> int:
        returned = 0
        arguments = aio_pika_arguments(self._inside.url)
        async with await aio_pika.connect(**arguments) as connection:
            channel = await connection.channel(on_return_raises=True)
            exchange = await channel.get_exchange(self.scenario.name, ensure=False)
            for number, message in enumerate(messages):
                if message.client != "aio-pika":
                    continue
                sent = aio_pika.Message(str(number).encode(), headers=message.headers, **message.properties)
                try:
                    await exchange.publish(sent, message.key, mandatory=True)
                except aio_pika.exceptions.DeliveryError:
                    returned += 1
        return returned

    def _consume(self, channel: BlockingChannel, queue: str, destination: Destination | None = None) -> str:
        return channel.basic_consume(queue, partial(self._note, destination or queue), auto_ack=True)

    def _note(
        self, destination: Destination, _channel: Any, _method: Any, _properties: Any, body: bytes
    ) -> None:
        self._arrived.append((destination, int(body)))

    def _collect(self, published: int, returned: int) -> list[Destination | None]:
        messages = self.scenario.messages
        if not isinstance(messages, Keys) and any(message.client == "amqp-1.0" for message in messages):
            self._arrived += amqp10.consume(self._inside.url, self._waiting())
        else:
            self._consume_all(published - returned)
        found: list[Destination | None] = [None] * published
        for destination, number in self._arrived:
            assert found[number] is None, f"message {number} is in {found[number]} and in {destination}"
            found[number] = destination
        self._arrived.clear()
        assert found.count(None) == returned
        return found

    def _waiting(self) -> dict[str, int]:
        """How many messages are in each queue."""
        channel = self._connected("main").channel()
        queues = map(_queue_of, self._consumed)
        return {
            queue: channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in queues
        }

    def _consume_all(self, expected: int) -> None:
        channel = self._connected("main").channel()
        for destination in self._consumed:
            self._consume(channel, _queue_of(destination), destination)
        quiet_since, seen = time.monotonic(), 0
        while len(self._arrived) < expected:
            for connection in self._connections.values():
                connection.process_data_events(PUMP_S)
            if len(self._arrived) > seen:
                quiet_since, seen = time.monotonic(), len(self._arrived)
            elif time.monotonic() > quiet_since + QUIET_TIMEOUT_S:
                raise AssertionError(f"{seen} of {expected} messages arrived, and no more come")
        self._connections["main"].process_data_events(0)  # one too many would be here
        channel.close()

    def _standing(self) -> list[Destination]:
        """The destinations whose messages the main connection consumes."""
        standing = dict.fromkeys(self.scenario.destinations, True)
        for step in self.scenario.steps:
            if step.destination is not None:
                standing[step.destination] = step.verb != "delete" or isinstance(
                    step.destination, ExchangeRef
                )
        return [d for d, stands in standing.items() if stands and d not in self.scenario.temporary]


def _carry_out(channel: BlockingChannel, kind: str, name: str, source: str, step: Step) -> None:
    """Bind, unbind or delete a queue or an exchange."""
    binding = () if step.verb == "delete" else (source, step.key)
    getattr(channel, f"{kind}_{step.verb}")(name, *binding)


def _queue_of(destination: Destination) -> str:
    return f"behind {destination.name}" if isinstance(destination, ExchangeRef) else destination


def read_rings(broker: RunningBroker, stages: Iterable[Stage], release: Release) -> dict[str, HashRing]:
    """The true rings of many stages by one command, which takes a second or two whatever it asks for."""
    asked = [stage for stage in stages if stage.scenario.type == CHX]
    expressions = [eval_expression(stage.vhost, stage.scenario.name).removesuffix(".") for stage in asked]
    # Each expression has a variable of its own name, so each is a fun.
    answer = broker.run(
        "rabbitmqctl",
        "-q",
        "eval",
        f"[{', '.join(f'(fun() -> {expression} end)()' for expression in expressions)}].",
    )
    terms = re.findall(r"\{ring,[0-9,]*\[[^\]]*\]\}", "".join(answer.split()))
    assert len(terms) == len(asked), answer
    return {
        stage.scenario.name: ring_by(SavedRing(term), stage.vhost, stage.scenario.name, release)
        for stage, term in zip(asked, terms, strict=True)
    }
