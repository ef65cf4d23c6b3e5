"""Consumers of several queues, one message of a queue at a time, acknowledged once it is handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.consuming.message import ShardMessage, message_of
from rabbit_chx.consuming.waits import first_of, wait_to_reconnect
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    MissingExtraError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.limits import Outage

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import ConsumingConnection, LineChannel

_log = logging.getLogger(__name__)
_MOST_PREFETCHED = 65_535

HandleMessage: TypeAlias = "Callable[[ShardMessage], Awaitable[object]]"


class QueueConsumers:
    """Consumers of several queues over one connection. Arguments as in `ShardConsumer`.

    They look for the queues to consume again and again, and connect again when they must. A subclass says which queues those are.
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
        self._lines: dict[str, tuple[_QueueLine, asyncio.Task[None]]] = {}
        self._refused: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.masked_url!r}, {self._exchange!r})"

    async def run(self, handle: HandleMessage) -> None:
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
        """Do what is due once the consumers are there."""

    async def _connected(self) -> ConsumingConnection:
        try:
            from rabbit_chx.consuming.channels import ConsumingConnection
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"{type(self).__name__} needs {error.name}, which is not installed: pip install 'rabbit-chx[aio]'"
            ) from None
        return await ConsumingConnection.open(self._settings)

    async def _consume(self, connection: ConsumingConnection, handle: HandleMessage) -> RabbitChxError | None:
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
        self, connection: ConsumingConnection, handle: HandleMessage, wake: asyncio.Event
    ) -> None:
        """Consume what is to be consumed and is not yet; what ended is consumed again, if it is there."""

        def failed(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                wake.set()

        for name, queue in (await self._look(connection)).items():
            if name in self._lines and not self._lines[name][1].done():
                continue
            line = _QueueLine(queue)
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


class _QueueLine:
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

    async def handled(self, channel: LineChannel, handle: HandleMessage) -> None:
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
