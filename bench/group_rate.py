"""Messages per second that one process handles in order: a `ConsumerGroup`, compared with a plain aio-pika consumer for each queue.

Both consume the same number of quorum queues with a single active consumer, with the same prefetch, and acknowledge each message
after its handler. Each round fills the queues, then measures from the first message to the last ack.

    python bench/group_rate.py
    python bench/group_rate.py --quick
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import aio_pika
import pika
from pika.exchange_type import ExchangeType

from rabbit_chx import ConsumerGroup, Publisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.consuming.settings import GroupMember
from rabbit_chx.testing import find_broker

_EXCHANGE = "rate"
_BOUND_S = 300.0


class Progress:
    """How many messages were handled, and how long it took, on the clock and in CPU of this process."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.count = 0
        self.done = asyncio.Event()
        self.began = self.cpu = 0.0

    def note(self) -> None:
        """LogWarning a message."""
        if not self.count:
            self.began, self.cpu = time.perf_counter(), time.process_time()
        self.count += 1
        if self.count == self.expected:
            self.done.set()

    def figures(self) -> tuple[float, float]:
        """Return messages per second, and microseconds of CPU for each."""
        seconds, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        return self.count / seconds, cpu / self.count * 1e6


async def by_group(url: str, queues: list[str], expected: int) -> tuple[float, float]:
    """Handle all messages with a group of one member."""
    progress = Progress(expected)

    async def handle(_: object) -> None:
        progress.note()

    async with ConsumerGroup(url, queues, member="bench") as group:
        running = asyncio.create_task(group.run(handle))
        async with asyncio.timeout(_BOUND_S):
            await progress.done.wait()
        figures = progress.figures()
        group.stop()
        await running
    return figures


async def by_plain_consumers(url: str, queues: list[str], expected: int) -> tuple[float, float]:
    """Handle all messages with a plain consumer for each queue."""
    progress = Progress(expected)

    async def consume(connection: aio_pika.abc.AbstractConnection, name: str) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=GroupMember.prefetch)
        queue = await channel.get_queue(name)
        async with queue.iterator() as messages:
            async for message in messages:
                progress.note()
                await message.ack()

    connection = await aio_pika.connect(url)
    async with connection:
        tasks = [asyncio.create_task(consume(connection, name)) for name in queues]
        async with asyncio.timeout(_BOUND_S):
            await progress.done.wait()
        figures = progress.figures()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return figures


_WAYS: dict[str, Callable[[str, list[str], int], Awaitable[tuple[float, float]]]] = {
    "ConsumerGroup, one member": by_group,
    "aio-pika, a consumer for each queue": by_plain_consumers,
}


def fill(url: str, queues: list[str], messages: int) -> None:
    """Delete the queues, declare them again and fill them."""
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(_EXCHANGE, ExchangeType("direct"))
        for queue in queues:
            channel.queue_delete(queue)
            fit = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": -1}
            channel.queue_declare(queue, durable=True, arguments=fit)
            channel.queue_bind(queue, _EXCHANGE, queue)
    keys = [queues[number % len(queues)] for number in range(messages)]
    with Publisher(url, _EXCHANGE) as publisher:
        publisher.publish_many(keys, [b"x" * 100] * messages)


def main() -> int:
    """Measure, and print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, default=16)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of fewer messages, for a first look")
    arguments = parser.parse_args()
    rounds, messages = (1, 8_000) if arguments.quick else (arguments.rounds, arguments.messages)
    queues = [f"rate.{number}" for number in range(arguments.queues)]
    runs: dict[str, list[tuple[float, float]]] = {way: [] for way in _WAYS}
    with find_broker() as broker:
        for _ in range(rounds):
            for way, run in _WAYS.items():
                fill(broker.url, queues, messages)
                runs[way].append(asyncio.run(run(broker.url, queues, messages)))  # type: ignore[arg-type]
    rates = {way: statistics.median(rate for rate, _ in figures) for way, figures in runs.items()}
    costs = {way: statistics.median(cpu for _, cpu in figures) for way, figures in runs.items()}
    plain = list(_WAYS)[1]
    print(f"{messages:,} messages in {len(queues)} queues, medians of {rounds}")
    for way in _WAYS:
        low, high = min(runs[way])[0], max(runs[way])[0]
        print(
            f"{way}: {rates[way]:,.0f} messages/s ({low:,.0f} to {high:,.0f}), {rates[way] / rates[plain]:.2f} times the rate, "
            f"{costs[way]:.0f} us of CPU for each, {costs[way] / costs[plain]:.2f} times"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
