"""Consumers of exchanges of the plugin rabbitmq_sharding: of each shard by its name, or by the name of the exchange."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.connection.failures import raise_if_cancelled
from rabbit_chx.consuming.message import ShardMessage, convert_message
from rabbit_chx.consuming.settings import wait_for_any, wait_to_reconnect, waiting
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    HandlerError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.options import Outage
from rabbit_chx.topology.plugin_objects import ShardedExchange, ShardName
from rabbit_chx.version import missing_extra

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import ConsumerChannel, ConsumingConnection

_log = logging.getLogger(__name__)
_MAX_PREFETCH = 65_535
_MAX_SHARDS = 10_000

HandleMessage: TypeAlias = "Callable[[ShardMessage], Awaitable[object]]"


class ConsumerOptions(TypedDict, total=False):
    """Keyword arguments of both consumers, which document them."""

    prefetch: int
    look_every_s: float
    reconnect_timeout_s: float


class _ConsumerBase(ABC):
    """The consumption of several queues over one connection. The queues are looked up again at intervals."""

    def __init__(
        self,
        url: str,
        exchange: str,
        *,
        prefetch: int = 100,
        look_every_s: float = 10.0,
        reconnect_timeout_s: float = 120.0,
    ) -> None:
        check_whole("prefetch", prefetch, 1, _MAX_PREFETCH)
        check_seconds("look_every_s", look_every_s, zero=False)
        self._settings = ConnectionSettings.from_uri(url)
        self._exchange = exchange
        self._prefetch = prefetch
        self._look_every_s = look_every_s
        self._retries = Retries(reconnect_timeout_s=reconnect_timeout_s)
        self._stop = asyncio.Event()
        self._consumers: dict[str, tuple[_Consumer, asyncio.Task[None]]] = {}
        self._unavailable: set[str] = set()  # queues about which a warning was logged

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.masked_url!r}, {self._exchange!r})"

    async def run(self, handle: HandleMessage) -> None:
        """Consume until `stop` is called. After a connection loss, reconnect.

        The messages of one shard are handled one after another, those of several shards concurrently. A message is acknowledged once
        `handle` has returned. Delivery is at least once: unacknowledged messages of a lost connection are redelivered.

        Args:
            handle: a coroutine function that handles a `ShardMessage`. An error that it raises ends `run` and is raised there; the message
                is not acknowledged, and is redelivered.

        Raises:
            RabbitChxError: the broker refuses an operation, or reconnecting fails for `reconnect_timeout_s`.
            HandlerError: `handle` ended in a CancelledError of its own.
            MissingExtraError: aio-pika is not installed.
        """
        outage: Outage | None = None
        has_connected = False
        while not self._stop.is_set():
            try:
                connection = await self._connect()
            except RabbitChxError as error:
                if not has_connected:
                    raise
                lost: RabbitChxError | None = error
            else:
                has_connected = True
                outage = None
                lost = await self._consume(connection, handle)
            if lost is not None:
                outage = await wait_to_reconnect(self._retries, outage, lost, self._stop, name=repr(self))

    def stop(self) -> None:
        """Let `run` return once the messages in progress are handled; others are requeued. Call it in the event loop of `run`."""
        self._stop.set()

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that are consumed now, each once per consumer."""
        return tuple(consumer.queue for consumer, task in self._consumers.values() if not task.done())

    @abstractmethod
    async def _find_queues(self, connection: ConsumingConnection) -> Mapping[str, str]:
        """Return the queue of each consumer that should run, by a name for the consumer."""

    async def _connect(self) -> ConsumingConnection:
        try:
            from rabbit_chx.consuming.channels import ConsumingConnection
        except ModuleNotFoundError as error:
            raise missing_extra(type(self).__name__, error.name, "aio") from None
        with waiting(repr(self), "a connection: look whether the broker is up"):
            return await ConsumingConnection.open(self._settings)

    async def _consume(self, connection: ConsumingConnection, handle: HandleMessage) -> RabbitChxError | None:
        """Consume until the connection is lost, and return the error; return None after `stop`. Raise errors of `handle`."""
        lost: RabbitChxError | None = None
        wake = asyncio.Event()
        connection.when_closed(wake.set)
        try:
            while not self._stop.is_set() and not self._handler_errors():
                await self._start_consumers(connection, handle, wake)
                await wait_for_any(self._stop, wake, timeout_s=self._look_every_s)
                if connection.is_closed:
                    lost = ConnectionLostError(f"{self._settings.masked_url}: the connection was lost")
                    break
        except RabbitChxError as error:
            lost = error
        except asyncio.CancelledError:
            for _, task in self._consumers.values():
                task.cancel()
            raise
        finally:
            for consumer, _ in self._consumers.values():
                consumer.end_now()
            with waiting(repr(self), "its handlers to end: look what they wait for"):
                await asyncio.gather(*(task for _, task in self._consumers.values()), return_exceptions=True)
            errors = self._handler_errors()
            self._consumers = {}
            await connection.close()

        if errors:
            raise errors[0]
        return None if self._stop.is_set() else lost

    async def _start_consumers(
        self, connection: ConsumingConnection, handle: HandleMessage, wake: asyncio.Event
    ) -> None:
        """Look the queues up, and start the consumers that are missing. The error of a handler sets `wake`."""

        def on_done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                wake.set()

        for name, queue in (await self._find_queues(connection)).items():
            if name in self._consumers and not self._consumers[name][1].done():
                continue
            consumer = _Consumer(queue)
            try:
                channel = await connection.consume(queue, self._prefetch, consumer.take, consumer.end)
            except (NotFoundError, BrokerTimeoutError) as error:  # its node is down
                if queue not in self._unavailable:
                    _log.warning("%s; it is tried again every %g s", error, self._look_every_s)
                self._unavailable.add(queue)
                continue
            channel.when_closed(consumer.end)
            self._unavailable.discard(queue)
            task = asyncio.create_task(consumer.run(channel, handle))
            task.add_done_callback(on_done)
            self._consumers[name] = consumer, task

    def _handler_errors(self) -> list[BaseException]:
        done = [task for _, task in self._consumers.values() if task.done() and not task.cancelled()]
        return [error for task in done if (error := task.exception()) is not None]


class _Consumer:
    """The messages of one consumer, handled one after another."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()  # bounded by the prefetch count; None marks the end
        self._is_ending = False

    async def take(self, delivered: Any) -> None:
        """Receive a message of aiormq."""
        self._inbox.put_nowait(delivered)

    def end(self, _reason: object = None) -> None:
        """Let `run` return once it has handled the messages delivered so far."""
        self._inbox.put_nowait(None)

    def end_now(self) -> None:
        """Let `run` return once it has handled the message in progress. The broker requeues the others."""
        self._is_ending = True
        self.end()

    async def run(self, channel: ConsumerChannel, handle: HandleMessage) -> None:
        """Handle and acknowledge one message after another until the consumer ends. Raise errors of `handle`."""
        try:
            while (delivered := await self._inbox.get()) is not None:
                if self._is_ending or channel.is_closed:
                    return
                await self._handle(handle, delivered)
                await channel.ack(delivered.delivery.delivery_tag)
        finally:
            await channel.close()

    async def _handle(self, handle: HandleMessage, delivered: Any) -> None:
        """Call the handler; its own CancelledError is an error as any other, while that of `run` cancels it."""
        try:
            await handle(convert_message(ShardMessage, delivered, self.queue))
        except asyncio.CancelledError as cause:
            if self._is_ending:
                raise_if_cancelled(cause)
            raise HandlerError(
                f"queue {self.queue!r}: the handler ended in a CancelledError, and `run` was not cancelled: catch that of each task that it "
                "awaits. The message is returned to its place",
                queue=self.queue,
            ) from cause


class ShardConsumer(_ConsumerBase):
    """A consumer of all shards of an exchange on all nodes. It consumes each shard by its own name.

    It looks up the shards at intervals. So it follows a policy that adds shards and nodes that join, and keeps consuming the remaining
    messages of shards that a changed policy has dropped. A shard whose node is down is tried again.

    It has one connection: any node serves consumers of any shard. Two such consumers share the messages of each shard, so the order of a
    key is only kept with one.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.settings.parse_uri`.
        exchange: the name of the sharded exchange.
        sharding: reads the exchange, in a thread: `Broker.sharding` of a broker with a management URL that nothing else uses meanwhile.
        prefetch: the number of messages of each shard that the broker may deliver ahead, 100 by default.
        look_every_s: seconds between two lookups of the shards, 10 by default.
        reconnect_timeout_s: the longest time in seconds to reconnect after a connection loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has an unsupported parameter.
        InputError: a number is out of range.

    Example::

        with Broker(url, management_url) as broker:
            await ShardConsumer(url, "images", broker.sharding).run(handle)
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        sharding: Callable[..., ShardedExchange],
        **options: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(url, exchange, **options)
        self._sharding = sharding
        self._queues: dict[str, str] | None = None

    async def _find_queues(self, connection: ConsumingConnection) -> Mapping[str, str]:  # noqa: ARG002  # the other class needs it
        try:
            exchange = await asyncio.to_thread(self._sharding, self._exchange, counts=False)
        except RabbitChxError as error:
            if self._queues is None:
                raise
            _log.warning(
                "%s; consuming what was known before, and looking again in %g s", error, self._look_every_s
            )
            return self._queues
        names = {shard.name: shard.name for shard in exchange.reachable}
        new = [] if self._queues is None else sorted(names.keys() - self._queues.keys())
        if new:
            _log.info("consuming new shards: %s", ", ".join(new))
        self._queues = names
        return names


class PseudoQueueConsumer(_ConsumerBase):
    """Consumers of a sharded exchange by its own name. The broker resolves it to a shard of **the node that they are connected to**.

    The broker assigns each consumer the shard of that node with the fewest consumers, permanently. So

    - shards of other nodes are not consumed: connect to each node;
    - with fewer consumers than shards on the node, some shards are not consumed: `unconsumed` has their names, and a warning is logged;
    - a shard that is created later has none of the present consumers;
    - the broker does not reveal the shard of a message.

    `ShardConsumer` has none of these limits, but needs the management API. This class only needs AMQP.

    Args:
        url: the AMQP URI of one node, see :func:`rabbit_chx.amqp.settings.parse_uri`.
        exchange: the name of the sharded exchange.
        consumers: the number of consumers; None for one per shard on the node, and one more whenever a shard has none.
        prefetch: the number of messages that the broker may deliver ahead to each, 100 by default.
        look_every_s: seconds between two checks for shards without a consumer, 10 by default.
        reconnect_timeout_s: the longest time in seconds to reconnect after a connection loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has an unsupported parameter.
        InputError: a number is out of range.
    """

    def __init__(
        self, url: str, exchange: str, consumers: int | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        super().__init__(url, exchange, **options)
        if consumers is not None:
            check_whole("consumers", consumers, 1)
        self._count = consumers
        #: The shards of the node that had no consumer at all at the last check.
        self.unconsumed: tuple[str, ...] = ()

    async def _find_queues(self, connection: ConsumingConnection) -> Mapping[str, str]:
        count = self._count or await self._count_required(connection)
        return dict.fromkeys(map(str, range(count)), self._exchange)

    async def _count_required(self, connection: ConsumingConnection) -> int:
        """Return the number of consumers that cover all shards: the broker assigns each further one a shard without a consumer."""
        counts = await self._consumer_counts(connection)
        idle = sum(not count for count in counts.values())
        return len(self.queues) + idle if self.queues else len(counts)

    async def _start_consumers(
        self, connection: ConsumingConnection, handle: HandleMessage, wake: asyncio.Event
    ) -> None:
        await super()._start_consumers(connection, handle, wake)
        counts = await self._consumer_counts(connection)
        idle = tuple(shard for shard, count in counts.items() if not count)
        if idle and idle != self.unconsumed:
            _log.warning(
                "%s: %d of %d shards of exchange %r on this node have no consumer (%s): start more consumers, or use ShardConsumer",
                self._settings.masked_url,
                len(idle),
                len(counts),
                self._exchange,
                ", ".join(idle),
            )
        self.unconsumed = idle

    async def _consumer_counts(self, connection: ConsumingConnection) -> dict[str, int]:
        first = await self._first_shard(connection)
        counts: dict[str, int] = {}
        for number in range(_MAX_SHARDS):
            try:
                name = str(ShardName(first.exchange, first.node, number))
                shard = await connection.declare_passively(name)
            except NotFoundError:
                break
            counts[str(shard.queue)] = int(shard.consumer_count or 0)
        return counts

    async def _first_shard(self, connection: ConsumingConnection) -> ShardName:
        """Return the first shard of the node: the broker responds with its name to a declaration of the exchange's name."""
        try:
            answer = await connection.declare_passively(self._exchange)
        except NotFoundError:
            raise NotFoundError(
                f"{self._settings.masked_url}: exchange {self._exchange!r} has no shard on this node: check that a policy with "
                "shards-per-node applies to it, and that the plugin rabbitmq_sharding is enabled there",
                queue=self._exchange,
                reply_code=404,
            ) from None
        shard = ShardName.parse(str(answer.queue))
        if shard is None or shard.exchange != self._exchange:
            raise MismatchError(
                f"{self._settings.masked_url}: {self._exchange!r} is a queue and not a sharded exchange: pass the name of one",
                queue=self._exchange,
            )
        return shard
