"""What counts towards the delivery limit of a quorum queue, and that a message that ends its members does not take others along."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from group_stage import QUICK

from rabbit_chx import ConsumerGroup, HandlerError
from rabbit_chx.broker import pika_parameters
from rabbit_chx.consuming import GroupMessage
from rabbit_chx.routing import Release
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

LIMIT = 3
POISON, MESSAGES = 40, 100
_FIT = {"x-queue-type": "quorum", "x-single-active-consumer": True}


def nack(channel: Any, tag: int) -> None:
    channel.basic_nack(tag, requeue=True)


def reject(channel: Any, tag: int) -> None:
    channel.basic_reject(tag, requeue=True)


def close_channel(channel: Any, _tag: int) -> None:
    channel.close()


def lose_connection(channel: Any, _tag: int) -> None:
    channel.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def _count_after(url: str, give_back: Callable[[Any, int], None], times: int) -> int | None:
    """Return the ``x-delivery-count`` of a message that was returned so often; None where it is gone."""
    with contextlib.ExitStack() as stack:
        for returns in range(times + 1):
            connection = pika.BlockingConnection(pika_parameters(url))
            stack.callback(_close, connection)
            channel = connection.channel()
            if not returns:
                limited = {"x-queue-type": "quorum", "x-delivery-limit": LIMIT}
                channel.queue_declare("c", durable=True, arguments=limited)
                channel.confirm_delivery()
                channel.basic_publish("", "c", b"1")
            end = time.monotonic() + 5
            method, properties, _ = channel.basic_get("c")
            while method is None and time.monotonic() < end:
                time.sleep(0.05)
                method, properties, _ = channel.basic_get("c")
            if method is None or properties is None or method.delivery_tag is None:
                return None
            if returns == times:
                return int((properties.headers or {}).get("x-delivery-count", 0))
            give_back(channel, method.delivery_tag)
    raise AssertionError


def _close(connection: pika.BlockingConnection) -> None:
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.mark.parametrize("give_back", [nack, reject, close_channel, lose_connection])
def test_what_counts_towards_the_limit(vhost: RunningBroker, give_back: Callable[[Any, int], None]) -> None:
    """From 4.3 on `basic.nack` does not count; all other returns do, on each release."""
    is_counted = give_back is not nack or Release(vhost.version).numbers < (4, 3, 0)
    assert _count_after(vhost.url, give_back, LIMIT) == (LIMIT if is_counted else 0)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        connection.channel().queue_delete("c")
    assert _count_after(vhost.url, give_back, LIMIT + 1) == (None if is_counted else 0)


@pytest.mark.parametrize("dead_lettered", [False, True])
@pytest.mark.parametrize("ending", ["raises", "dies"])
def test_a_poison_message_leaves_its_queue_alone(
    vhost: RunningBroker,
    ending: str,
    dead_lettered: bool,  # noqa: FBT001
) -> None:
    """All others are handled, in their order. The poison message is dropped, or dead-lettered."""
    arguments: dict[str, Any] = {**_FIT, "x-delivery-limit": LIMIT}
    if dead_lettered:
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.confirm_delivery()
        for number in range(MESSAGES):
            channel.basic_publish("", "q", str(number).encode())
        handled = asyncio.run(_handled(vhost.url, ending))
        assert handled == [number for number in range(MESSAGES) if number != POISON]
        dead = channel.queue_declare("dead", passive=True).method.message_count
        assert dead == (1 if dead_lettered else 0)


async def _handled(url: str, ending: str) -> list[int]:
    """Return what the members handled: one after another, since the poison message ends each of them."""
    handled: list[int] = []
    poisoned = 0

    async def run(name: str) -> None:
        nonlocal poisoned
        async with ConsumerGroup(
            url, ["q"], member=name, retries=0, pace=QUICK, reconnect_timeout_s=0
        ) as group:

            async def handle(message: GroupMessage) -> None:
                nonlocal poisoned
                number = int(message.body)
                if number == POISON:
                    poisoned += 1
                    if ending == "dies":  # the socket ends as that of a process that is killed
                        _break_line(group)
                        await asyncio.Event().wait()
                    raise ValueError("poison")
                handled.append(number)
                if number == MESSAGES - 1:
                    group.stop()

            await group.run(handle)

    for attempt in range(LIMIT + 3):
        with contextlib.suppress(HandlerError) if ending == "raises" else contextlib.suppress(Exception):
            async with asyncio.timeout(40):
                await run(f"m{attempt}")
        if MESSAGES - 1 in handled:
            break
    assert poisoned == LIMIT + 1
    return handled


def _break_line(group: ConsumerGroup) -> None:
    assert group._session is not None
    coroutine: Any = group._session.connection._connection.transport.connection._writer_task.get_coro()
    while getattr(coroutine, "cr_frame", None) is not None:
        if writer := coroutine.cr_frame.f_locals.get("writer"):
            writer.transport.abort()
            return
        coroutine = coroutine.cr_await
    raise AssertionError("no socket")
