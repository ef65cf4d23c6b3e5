"""The connection over which a member of a group publishes: into the journal, and replies to whoever moves a slot.

While an alarm of memory or disk lasts, the broker reads nothing more from a connection that publishes (rabbit_reader.erl,
``control_throttle``, 3.8 to 4.3): neither messages nor acks. So a member consumes over one connection and publishes over
another one. What it publishes waits for the end of the alarm, and its handlers and acks go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiormq import spec

from rabbit_chx.amqp.replies import may_pass
from rabbit_chx.connection.aio_pika_opening import aio_pika_opened
from rabbit_chx.consuming.broker_answers import HEARTBEAT_S, REPLY_S, answered, closed
from rabbit_chx.consuming.waits import came
from rabbit_chx.errors import ConnectionLostError, RabbitChxError

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["GroupWriter"]

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0
_LOOK_S = 0.01


class GroupWriter:
    """A connection that only publishes. It is opened when it is needed, and opened anew when it is lost.

    Args:
        settings: the settings of the connection.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._where = settings.masked_url
        self._connection: Any = None
        self._channel: Any = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def publish(self, queue: str, body: bytes, headers: Mapping[str, Any] | None = None) -> None:
        """Publish to a queue, over one connection after another until the broker has confirmed it. It may be there twice then.

        Whoever waits decides for how long: an alarm may last for hours.

        Args:
            queue: the queue.
            body: the body.
            headers: the headers.

        Raises:
            RabbitChxError: the broker refuses it, and another attempt would not help.
        """
        properties = spec.Basic.Properties(headers=dict(headers or {}), delivery_mode=2)
        while True:
            channel = None
            try:
                channel = await self._opened()
                await self._confirmed(channel, queue, body, properties)
            except RabbitChxError as error:
                self._drop(channel)
                if not may_pass(error):
                    raise
                _log.info("%s; publishing to %s again in %g s", error, queue, _PAUSE_S)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def is_blocked(self) -> bool:
        """Return whether the broker has said that it blocks publishers."""
        if self._channel is None or self._channel.is_closed:
            return False
        try:
            async with asyncio.timeout(_LOOK_S):  # it ends at once where nothing is blocked
                await self._channel.connection.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """Close the connection."""
        self._drop(self._channel)
        await asyncio.gather(*self._closing)

    async def _opened(self) -> Any:  # noqa: ANN401
        async with self._opening:
            if self._channel is None:
                self._connection = await aio_pika_opened(self._settings, default_heartbeat_s=HEARTBEAT_S)
                async with answered(self._where):
                    self._channel = await self._connection.transport.connection.channel(
                        publisher_confirms=True
                    )
            return self._channel

    async def _confirmed(self, channel: Any, queue: str, body: bytes, properties: Any) -> None:  # noqa: ANN401
        """Publish, and wait for the confirm: as long as the broker blocks publishers, and `REPLY_S` beside.

        Raises:
            ConnectionLostError: the connection is lost, or the confirm does not come.
            RabbitChxError: the broker refuses it.
        """
        publishing = asyncio.ensure_future(
            channel.basic_publish(body, routing_key=queue, properties=properties)
        )
        if not await came(publishing, REPLY_S, self.is_blocked):
            raise ConnectionLostError(
                f"{self._where}: no confirm from {queue!r} within {REPLY_S:g} s", queue=queue
            )
        async with answered(self._where, queue):
            await publishing

    def _drop(self, channel: Any) -> None:  # noqa: ANN401
        """Give up the connection of a channel, unless there is another one already."""
        if channel is not self._channel:
            return
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            task = asyncio.get_running_loop().create_task(closed(connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
