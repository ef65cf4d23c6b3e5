"""What is asked of the broker through aiormq: each wait is bounded, and what aiormq raises becomes one of our errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp.replies import error_for
from rabbit_chx.connection.aio_pika_opening import refusal_told_by, said_by
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError

__all__ = ["HEARTBEAT_S", "REPLY_S", "answered", "closed"]

#: How long the broker may take to answer, in seconds.
REPLY_S = 30.0
#: Seconds between heartbeats, unless the URL says otherwise.
HEARTBEAT_S = 10
_CLOSE_S = 5.0


@contextlib.asynccontextmanager
async def answered(where: str, queue: str | None = None) -> AsyncIterator[None]:
    """Bound the wait in a block, and raise our errors in place of those that aiormq raises in it.

    Args:
        where: the broker's address without password, for errors.
        queue: the queue that it is about.

    Raises:
        BrokerTimeoutError: there is no answer in time.
        ConnectionLostError: the connection is lost.
        RabbitChxError: the broker refuses it.
    """
    error: RabbitChxError
    try:
        async with asyncio.timeout(REPLY_S):
            yield
    except TimeoutError:
        error = BrokerTimeoutError(
            f"{where}: no answer within {REPLY_S:g} s: look at the broker's log and alarms", queue=queue
        )
    except (aiormq_errors.ChannelClosed, aiormq_errors.ConnectionClosed) as refusal:
        error = error_for(*refusal_told_by(refusal), where=where, queue=queue)
    except (aiormq_errors.AMQPError, OSError, RuntimeError) as cause:
        error = ConnectionLostError(f"{where}: the connection was lost ({said_by(cause)})", queue=queue)
    else:
        return
    raise error


async def closed(connection: Any) -> None:  # noqa: ANN401  # of aio-pika
    """Close a connection or a channel of aio-pika, if the broker answers within some seconds.

    Args:
        connection: the connection or the channel.
    """
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()
