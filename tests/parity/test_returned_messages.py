"""Where the messages go that a consumer holds when it ends, under a single active consumer: as docs/publish/consuming.md states it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

import aio_pika
import pika
import pytest
from group_stage import eventually

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

QUEUE = "held"
HELD, BEHIND = list(range(10)), list(range(10, 20))
BOUND_S = 20.0
QUIET_S = 0.3


class Consumer:
    """One of the two, by aio-pika. It notes what it gets, and acks nothing."""

    def __init__(self, url: str, prefetch: int, priority: int = 0) -> None:
        self._url = url
        self._prefetch = prefetch
        self._priority = priority
        self.connection: Any = None
        self.channel: Any = None
        self.queue: Any = None
        self.tag = ""
        self.last: Any = None
        self.got: list[int] = []

    async def __aenter__(self) -> Self:
        self.connection = await aio_pika.connect(self._url)
        self.channel = await self.connection.channel()
        await self.channel.set_qos(self._prefetch)
        self.queue = await self.channel.get_queue(QUEUE)
        self.tag = await self.queue.consume(self._take, arguments={"x-priority": self._priority})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    async def _take(self, message: Any) -> None:
        self.last = message
        self.got.append(int(message.body))

    async def has(self, count: int) -> list[int]:
        """Wait until it has got so many, and return all."""
        await eventually(lambda: len(self.got) >= count, f"it has {count} messages", BOUND_S)
        return self.got


async def cancel(consumer: Consumer) -> None:
    await consumer.queue.cancel(consumer.tag)


async def cancel_and_close(consumer: Consumer) -> None:
    await consumer.queue.cancel(consumer.tag)
    await consumer.channel.close()


async def cancel_and_requeue(consumer: Consumer) -> None:
    await consumer.queue.cancel(consumer.tag)
    await consumer.last.nack(multiple=True, requeue=True)


async def close_channel(consumer: Consumer) -> None:
    await consumer.channel.close()


async def close_connection(consumer: Consumer) -> None:
    await consumer.connection.close()


async def fail_channel(consumer: Consumer) -> None:
    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
        await consumer.channel.get_queue("there is no such queue")


@pytest.fixture
def more(request: pytest.FixtureRequest) -> dict[str, int]:
    """Further arguments of the queue."""
    return getattr(request, "param", {})


@pytest.fixture
def url(rabbit: Rabbit, more: dict[str, int]) -> Iterator[str]:
    """A vhost with a queue of twenty messages."""
    with temporary_vhost(rabbit.broker) as inside:
        with pika.BlockingConnection(pika_parameters(inside.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True, **more}
            channel.queue_declare(QUEUE, durable=True, arguments=arguments)
            for number in (*HELD, *BEHIND):
                channel.basic_publish("", QUEUE, str(number).encode())
        yield inside.url


def given_to_the_next(url: str, end: Callable[[Consumer], Awaitable[None]], priority: int) -> list[int]:
    """Return the first ten that the consumer that waits gets when the one that holds ten has ended."""

    async def story() -> list[int]:
        async with Consumer(url, 10) as holder:
            assert await holder.has(10) == HELD
            async with Consumer(url, 10, priority) as waiting:
                await asyncio.sleep(QUIET_S)
                assert waiting.got == []
                await end(holder)
                return await waiting.has(10)

    return asyncio.run(story())


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("end", [cancel, cancel_and_close, cancel_and_requeue])
def test_a_consumer_that_is_cancelled_returns_them_late(
    url: str, end: Callable[[Consumer], Awaitable[None]], priority: int
) -> None:
    assert given_to_the_next(url, end, priority) == BEHIND


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("end", [close_channel, close_connection, fail_channel])
def test_any_other_end_returns_them_to_their_place(
    url: str, end: Callable[[Consumer], Awaitable[None]], priority: int
) -> None:
    assert given_to_the_next(url, end, priority) == HELD


async def time_out(_: Consumer) -> None:
    """The broker ends it."""


def needs_timeouts_of_queues(rabbit: Rabbit) -> None:
    if rabbit.release.numbers < (4, 3, 0):
        pytest.skip("before 4.3 a consumer timeout closes the channel, and its check takes up to a minute")


@pytest.mark.parametrize("more", [{"x-consumer-timeout": 5000}], indirect=True)
def test_a_consumer_timeout_returns_messages_that_were_delivered_together_to_their_place(
    rabbit: Rabbit, url: str
) -> None:
    needs_timeouts_of_queues(rabbit)
    assert given_to_the_next(url, time_out, 0) == HELD


@pytest.mark.parametrize("more", [{"x-consumer-timeout": 5000}], indirect=True)
def test_after_a_consumer_timeout_waiting_messages_overtake_those_that_were_delivered_later(
    rabbit: Rabbit, url: str
) -> None:
    """The first five are acked after a second, and the broker delivers five others, whose timeout begins then.

    The last ack makes a broker look again that overlooked the second timeout: if 4.3.6 notices the first in the millisecond in which it
    expires, it sets no timer until the next operation on the queue (rabbit_fifo.erl, the clause ``eval`` of ``handle_aux``). That happened
    in 9 of 12 runs on one broker, and in 0 of 240 on another.
    """
    needs_timeouts_of_queues(rabbit)
    held, later, overtaking = list(range(5, 10)), list(range(10, 15)), list(range(15, 20))

    async def story() -> list[int]:
        async with Consumer(url, 10) as holder, Consumer(url, 15) as waiting:
            await holder.has(10)
            await asyncio.sleep(1)
            underlay = await holder.channel.get_underlay_channel()
            await underlay.basic_ack(5, multiple=True)
            await holder.has(15)
            await waiting.has(10)
            await asyncio.sleep(2)
            await waiting.last.ack()
            return list(await waiting.has(15))

    assert asyncio.run(story()) == [*held, *overtaking, *later]


@pytest.mark.parametrize("closed", ["channel", "connection"])
def test_pika_cancels_its_consumers_before_it_closes(url: str, closed: str) -> None:
    async def story() -> list[int]:
        got: list[int] = []
        connection = pika.BlockingConnection(pika_parameters(url))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume(QUEUE, lambda *message: got.append(int(message[3])))
        deadline = time.monotonic() + BOUND_S
        while len(got) < len(HELD) and time.monotonic() < deadline:
            connection.process_data_events(1)
        async with Consumer(url, 10) as waiting:
            {"channel": channel.close, "connection": connection.close}[closed]()
            given = await waiting.has(10)
        if connection.is_open:
            connection.close()
        return given

    assert asyncio.run(story()) == BEHIND


def test_a_requeue_keeps_the_consumer_that_is_active(rabbit: Rabbit, url: str) -> None:
    """It gets the ten again. 3.10 puts them at the end of a queue without a delivery limit."""

    async def story() -> list[int]:
        async with Consumer(url, 10) as holder, Consumer(url, 10) as waiting:
            await holder.has(10)
            await holder.last.nack(multiple=True, requeue=True)
            await holder.has(20)
            assert waiting.got == []
            return holder.got[10:]

    assert asyncio.run(story()) == (BEHIND if rabbit.release.numbers[:2] == (3, 10) else HELD)


@pytest.mark.parametrize("more", [{"x-delivery-limit": -1}], indirect=True)
def test_a_negative_delivery_limit_loses_what_is_returned_before_4_0(rabbit: Rabbit, url: str) -> None:
    left = [*HELD, *BEHIND] if rabbit.release.numbers >= (4, 0, 0) else BEHIND

    async def story() -> list[int]:
        async with Consumer(url, 10) as holder:
            await holder.has(10)
            async with Consumer(url, 100) as waiting:
                await fail_channel(holder)
                await waiting.has(len(left))
                await asyncio.sleep(1)
                return waiting.got

    assert asyncio.run(story()) == left
