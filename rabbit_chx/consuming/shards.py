"""Consumers of the shards of the plugin rabbitmq_sharding: of each shard by its name, or of the exchange's own name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, Unpack

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.consuming.message import ShardMessage, message_of
from rabbit_chx.consuming.waits import first_of, wait_to_reconnect
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    MismatchError,
    MissingExtraError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.limits import Outage
from rabbit_chx.routing.sharding import ShardName
from rabbit_chx.topology import ShardedExchange

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import ConsumingConnection, LineChannel

_log = logging.getLogger(__name__)
_MOST_PREFETCHED = 65_535
_MOST_SHARDS = 10_000

HandleShardMessage: TypeAlias = "Callable[[ShardMessage], Awaitable[object]]"


class ReadSharding(Protocol):
    """What reads a sharded exchange: `AsyncBroker.sharding`."""

    async def __call__(self, exchange: str, /, *, counts: bool) -> ShardedExchange:
        """Return the exchange with its shards."""


class ShardPace(TypedDict, total=False):
    """What each consumer of shards may be given by keyword; `ShardConsumer` says what it is."""

    prefetch: int
    look_every_s: float
    reconnect_timeout_s: float


class _Consumers:
    """Consumers of several queues over one connection. Arguments as in `ShardConsumer`.

    They look again and again what is to be consumed, and connect again when they must.
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        *,
        prefetch: int = 100,
        look_every_s: float = 10.0,
        reconnect_timeout_s: float = 120.0,
    ) -> None:
        check_whole("prefetch", prefetch, 1, _MOST_PREFETCHED)
        check_seconds("look_every_s", look_every_s, zero=False)
        self._settings = ConnectionSettings.from_uri(url)
        self._exchange = exchange
        self._prefetch = prefetch
        self._look_every_s = look_every_s
        self._retries = Retries(reconnect_timeout_s=reconnect_timeout_s)
        self._stop = asyncio.Event()
        self._lines: dict[str, tuple[_ShardLine, asyncio.Task[None]]] = {}
        self._refused: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.masked_url!r}, {self._exchange!r})"

    async def run(self, handle: HandleShardMessage) -> None:
        """Consume until `stop` is called. When the connection is lost it connects again.

        The messages of a shard are handled one after another, those of several shards at once. A message is acknowledged
        once `handle` has returned. So delivery is at least once: what was in hand when the connection was lost comes again.

        Args:
            handle: a coroutine function that handles a `ShardMessage`. What it raises ends `run`, and is raised there. That
                message is not acknowledged, and comes again.

        Raises:
            RabbitChxError: the broker refuses what is asked, or it does not come back within `reconnect_timeout_s`.
            MissingExtraError: aio-pika is not installed.
        """
        outage: Outage | None = None
        connected = False
        while not self._stop.is_set():
            try:
                connection = await self._connected()
            except RabbitChxError as error:
                if not connected:
                    raise
                lost: RabbitChxError | None = error
            else:
                connected, outage = True, None
                lost = await self._consume(connection, handle)
            if lost is not None:
                outage = await wait_to_reconnect(self._retries, outage, lost, self._stop, repr(self))

    def stop(self) -> None:
        """Let `run` return once the messages in hand are handled. What was delivered beyond them goes back to its queue.

        Call it in the event loop that `run` runs in.
        """
        self._stop.set()

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that are consumed now, each as often as it has a consumer here."""
        return tuple(line.queue for line, task in self._lines.values() if not task.done())

    async def _look(self, connection: ConsumingConnection) -> Mapping[str, str]:
        """Return the queues to consume, each under a name of its consumer."""
        raise NotImplementedError

    async def _looked(self, connection: ConsumingConnection) -> None:
        """Do what there is to do once the consumers are there."""

    async def _connected(self) -> ConsumingConnection:
        try:
            from rabbit_chx.consuming.channels import ConsumingConnection
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"{type(self).__name__} needs {error.name}, which is not installed: pip install 'rabbit-chx[aio]'"
            ) from None
        return await ConsumingConnection.open(self._settings)

    async def _consume(
        self, connection: ConsumingConnection, handle: HandleShardMessage
    ) -> RabbitChxError | None:
        """Consume over a connection to its end; return why it ended, None where it was stopped.

        What a handler raises is raised.
        """
        lost: RabbitChxError | None = None
        wake = asyncio.Event()
        connection.when_closed(wake.set)
        try:
            while not self._stop.is_set() and not self._failures():
                await self._open_lines(connection, handle, wake)
                await first_of(self._stop, wake, timeout_s=self._look_every_s)
                if connection.is_closed:
                    lost = ConnectionLostError(f"{self._settings.masked_url}: the connection was lost")
                    break
        except RabbitChxError as error:
            lost = error
        except asyncio.CancelledError:
            for _, task in self._lines.values():
                task.cancel()
            raise
        finally:
            failures = await self._end_lines()
            await connection.close()
        if failures:
            raise failures[0]
        return None if self._stop.is_set() else lost

    async def _open_lines(
        self, connection: ConsumingConnection, handle: HandleShardMessage, wake: asyncio.Event
    ) -> None:
        """Consume what is to be consumed and is not yet; what ended is consumed again, if it is there."""

        def failed(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                wake.set()

        for name, queue in (await self._look(connection)).items():
            if name in self._lines and not self._lines[name][1].done():
                continue
            line = _ShardLine(queue)
            try:
                channel = await connection.consume(queue, self._prefetch, line.take, line.end)
            except (NotFoundError, BrokerTimeoutError) as error:  # its node is away, or has just gone
                if queue not in self._refused:
                    _log.warning("%s; it is tried again every %g s", error, self._look_every_s)
                self._refused.add(queue)
                continue
            channel.when_closed(line.end)
            self._refused.discard(queue)
            task = asyncio.create_task(line.handled(channel, handle))
            task.add_done_callback(failed)
            self._lines[name] = line, task
        await self._looked(connection)

    def _failures(self) -> list[BaseException]:
        """Return what handlers have raised."""
        done = [task for _, task in self._lines.values() if task.done() and not task.cancelled()]
        return [error for task in done if (error := task.exception()) is not None]

    async def _end_lines(self) -> list[BaseException]:
        """Wait until the messages in hand are handled, and return what handlers have raised."""
        for line, _ in self._lines.values():
            line.end_now()
        await asyncio.gather(*(task for _, task in self._lines.values()), return_exceptions=True)
        failures = self._failures()
        self._lines = {}
        return failures


class _ShardLine:
    """A consumer of one queue, and what it was delivered."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()  # as long as the prefetch count; None is the end
        self._is_ending = False

    async def take(self, delivered: Any) -> None:  # noqa: ANN401
        """Take a message of aiormq."""
        self._inbox.put_nowait(delivered)

    def end(self, _reason: object = None) -> None:
        """Let `handled` return once it has handled what was delivered before."""
        self._inbox.put_nowait(None)

    def end_now(self) -> None:
        """Let `handled` return once it has handled the message in hand. Those after it go back to the queue."""
        self._is_ending = True
        self.end()

    async def handled(self, channel: LineChannel, handle: HandleShardMessage) -> None:
        """Handle one message after another, and acknowledge each that was handled, until the consumer ends.

        What `handle` raises is raised, and the message is not acknowledged.
        """
        try:
            while (delivered := await self._inbox.get()) is not None:
                if self._is_ending or channel.is_closed:
                    return
                await handle(message_of(ShardMessage, delivered, self.queue))
                await channel.ack(delivered.delivery.delivery_tag)
        finally:
            await channel.close()


class ShardConsumer(_Consumers):
    """A consumer of all shards of an exchange, each by its own name, on all nodes of the cluster.

    It looks for shards again every few seconds. So it follows a policy that asks for more, and a node that joins, and it goes on
    with what a lowered policy leaves. A shard whose node is away is tried again.

    It has one connection: any node serves the consumers of any shard. Two such consumers share the messages of each shard, so
    a key keeps its order only where there is one.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.uri.parse_uri`.
        exchange: the name of the sharded exchange.
        sharding: what reads it: `AsyncBroker.sharding` of a broker with a management URL.
        prefetch: how many messages of each shard the broker may send ahead, 100 by default.
        look_every_s: seconds between two looks for shards, 10 by default.
        reconnect_timeout_s: seconds for which to try to connect again after a loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: a number is not what it has to be.

    Example::

        async with AsyncBroker(url, management_url) as broker:
            await ShardConsumer(url, "images", broker.sharding).run(handle)
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        sharding: ReadSharding,
        **pace: Unpack[ShardPace],
    ) -> None:
        super().__init__(url, exchange, **pace)
        self._sharding = sharding
        self._known: dict[str, str] | None = None

    async def _look(self, connection: ConsumingConnection) -> Mapping[str, str]:  # noqa: ARG002  # as the other consumer
        try:
            exchange = await self._sharding(self._exchange, counts=False)
        except RabbitChxError as error:
            if self._known is None:
                raise
            _log.warning(
                "%s; consuming what was known before, and looking again in %g s", error, self._look_every_s
            )
            return self._known
        names = {shard.name: shard.name for shard in exchange.reachable}
        if self._known is not None and (new := sorted(names.keys() - self._known.keys())):
            _log.info("consuming new shards: %s", ", ".join(new))
        self._known = names
        return names


class PseudoQueueConsumer(_Consumers):
    """Consumers of a sharded exchange by its own name, which stands for a shard of **the node that they are connected to**.

    The broker gives each consumer the shard of that node which has the fewest consumers, and it keeps it. So

    - shards of other nodes are not consumed here: connect to each node;
    - with fewer consumers than shards on the node, some shards are not consumed: `unconsumed` has their names, and a line in the
      log says so;
    - a shard that is made later gets none of the consumers that are there;
    - the broker does not tell which shard a message came from.

    `ShardConsumer` has none of these limits, and needs the management API for that. This one needs AMQP alone.

    Args:
        url: the AMQP URI of one node, see :func:`rabbit_chx.amqp.uri.parse_uri`.
        exchange: the name of the sharded exchange.
        consumers: how many consumers; None for one for each shard on the node, and one more whenever a shard has none.
        prefetch: how many messages the broker may send ahead to each, 100 by default.
        look_every_s: seconds between two looks for shards without a consumer, 10 by default.
        reconnect_timeout_s: seconds for which to try to connect again after a loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: a number is not what it has to be.
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        consumers: int | None = None,
        **pace: Unpack[ShardPace],
    ) -> None:
        super().__init__(url, exchange, **pace)
        if consumers is not None:
            check_whole("consumers", consumers, 1)
        self._asked = consumers
        #: The shards of the node that had no consumer at the last look, of anybody.
        self.unconsumed: tuple[str, ...] = ()

    async def _look(self, connection: ConsumingConnection) -> Mapping[str, str]:
        return dict.fromkeys(map(str, range(self._asked or await self._wanted(connection))), self._exchange)

    async def _wanted(self, connection: ConsumingConnection) -> int:
        """Return how many consumers it takes: the broker gives each further one a shard that has none."""
        consumers = await self._local_consumers(connection)
        idle = sum(not count for count in consumers.values())
        return len(self.queues) + idle if self.queues else len(consumers)

    async def _looked(self, connection: ConsumingConnection) -> None:
        consumers = await self._local_consumers(connection)
        idle = tuple(shard for shard, count in consumers.items() if not count)
        if idle and idle != self.unconsumed:
            _log.warning(
                "%s: %d of %d shards of exchange %r on this node have no consumer (%s): give more consumers, or use ShardConsumer",
                self._settings.masked_url,
                len(idle),
                len(consumers),
                self._exchange,
                ", ".join(idle),
            )
        self.unconsumed = idle

    async def _local_consumers(self, connection: ConsumingConnection) -> dict[str, int]:
        """Return the shards of the node with the number of their consumers."""
        first = await self._first_shard(connection)
        counts: dict[str, int] = {}
        for number in range(_MOST_SHARDS):
            try:
                shard = await connection.declared(str(ShardName(first.exchange, first.node, number)))
            except NotFoundError:
                break
            counts[str(shard.queue)] = int(shard.consumer_count or 0)
        return counts

    async def _first_shard(self, connection: ConsumingConnection) -> ShardName:
        """Return the first shard of the node: the broker answers with its name if asked for a queue of the exchange's name."""
        try:
            answer = await connection.declared(self._exchange)
        except NotFoundError:
            raise NotFoundError(
                f"{self._settings.masked_url}: exchange {self._exchange!r} has no shard on this node: check that a policy with "
                "shards-per-node applies to it, and that the plugin rabbitmq_sharding is enabled there",
                queue=self._exchange,
                reply_code=404,
            ) from None
        shard = ShardName.parsed(str(answer.queue))
        if shard is None or shard.exchange != self._exchange:
            raise MismatchError(
                f"{self._settings.masked_url}: {self._exchange!r} is a queue, and no sharded exchange: give the name of one",
                queue=self._exchange,
            )
        return shard
