"""What the consumers of shards share: they look what is to be consumed, again and again, and connect again when they must."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.errors import (
    BrokerTimeoutError,
    ConnectionLostError,
    MissingExtraError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.publishing import Retries
from rabbit_chx.publishing.outage import Outage

if TYPE_CHECKING:
    from rabbit_chx.consuming.shard_link import HandleShardMessage, ShardLine, ShardLink

__all__ = ["ShardConsumerBase", "ShardPace"]

_log = logging.getLogger(__name__)
_MOST_PREFETCHED = 65_535


class ShardPace(TypedDict, total=False):
    """What each consumer of shards may be given by keyword; `ShardConsumer` says what it is."""

    prefetch: int
    look_every_s: float
    reconnect_timeout_s: float


class ShardConsumerBase:
    """A consumer of several queues over one connection. Arguments as in `ShardConsumer`."""

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
        self._stopped = False
        self._wake = asyncio.Event()
        self._lines: dict[str, tuple[ShardLine, asyncio.Task[None]]] = {}
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
        while not self._stopped:
            try:
                link = await _opened(self._settings, type(self).__name__)
            except RabbitChxError as error:
                if not connected:
                    raise
                lost = error
            else:
                connected, outage = True, None
                ended = await self._served(link, handle)
                if ended is None:
                    return
                lost = ended
            outage = outage or Outage(self._retries, lost, time.monotonic())
            await self._wait(outage, lost)

    def stop(self) -> None:
        """Let `run` return once the messages in hand are handled. What was delivered beyond them goes back to its queue.

        Call it in the event loop that `run` runs in.
        """
        self._stopped = True
        self._wake.set()

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that are consumed now, each as often as it has a consumer here."""
        return tuple(line.queue for line, task in self._lines.values() if not task.done())

    async def _look(self, link: ShardLink) -> Mapping[str, str]:
        """Return the queues to consume, each under a name of its consumer."""
        raise NotImplementedError

    async def _looked(self, link: ShardLink) -> None:
        """Do what there is to do once the consumers are there."""

    async def _served(self, link: ShardLink, handle: HandleShardMessage) -> RabbitChxError | None:
        """Consume over a connection to its end; return why it ended, None where it was stopped.

        What a handler raises is raised.
        """
        ended: RabbitChxError | None = None
        self._wake.clear()
        link.when_closed(self._wake.set)
        try:
            while not self._stopped and not self._failures():
                await self._open_lines(link, handle)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_every_s):
                        await self._wake.wait()
                if link.is_closed:
                    ended = ConnectionLostError(f"{self._settings.masked_url}: the connection was lost")
                    break
        except RabbitChxError as error:
            ended = error
        except asyncio.CancelledError:
            for _, task in self._lines.values():
                task.cancel()
            raise
        finally:
            failures = await self._end_lines()
            await link.close()
        if failures:
            raise failures[0]
        return None if self._stopped else ended

    async def _open_lines(self, link: ShardLink, handle: HandleShardMessage) -> None:
        """Consume what is to be consumed and is not yet; what ended is consumed again, if it is there."""
        for name, queue in (await self._look(link)).items():
            if name in self._lines and not self._lines[name][1].done():
                continue
            try:
                line = await link.consume(queue, self._prefetch)
            except (NotFoundError, BrokerTimeoutError) as error:  # its node is away, or has just gone
                if queue not in self._refused:
                    _log.warning("%s; it is tried again every %g s", error, self._look_every_s)
                self._refused.add(queue)
                continue
            self._refused.discard(queue)
            task = asyncio.create_task(line.handled(handle))
            task.add_done_callback(self._line_ended)
            self._lines[name] = line, task
        await self._looked(link)

    def _line_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._wake.set()

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

    async def _wait(self, outage: Outage, error: RabbitChxError) -> None:
        """Wait before the next attempt to connect, or raise where there is none."""
        outage.last = error
        chance = random.random()  # noqa: S311  # no secret
        curable = isinstance(error, BrokerTimeoutError) or outage.may_be_cured(error)
        wait_s = outage.wait_s(time.monotonic(), chance) if curable else None
        if wait_s is None:
            raise outage.given_up(time.monotonic()) if outage.attempts else error
        _log.warning("%s; trying again in %.1f s", error, wait_s)
        outage.attempts += 1
        self._wake.clear()
        if not self._stopped:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()


async def _opened(settings: ConnectionSettings, who: str) -> ShardLink:
    try:
        from rabbit_chx.consuming.shard_link import ShardLink
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{who} needs {error.name}, which is not installed: pip install 'rabbit-chx[aio]'"
        ) from None
    return await ShardLink.open(settings)
