"""Compare `SharedPublisher` with other ways to publish one message per request: rate and latency.

Each worker (a thread or a task) publishes a message of 100 bytes, waits for its confirm, and publishes the next one. The ways take turns on
one broker. A run counts only if every message is in the queue. After each comparison of tasks comes the limit: bytes that are encoded before.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pika
from publish import RawSocket, ready_made

from rabbit_chx import SharedPublisher
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import find_broker, temporary_vhost

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from tcp_proxy import Proxy

WORKERS = 64
BODY = b"x" * 100
QUEUE = "q"
RTT_S = 0.020
PACED_PER_S = 200
_PERSISTENT = pika.BasicProperties(delivery_mode=2)


@dataclass(frozen=True)
class Run:
    """One run: its time and the latency of each message, in seconds."""

    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Messages per second."""
        return len(self.latencies) / self.seconds

    def quantile_ms(self, share: float) -> float:
        """A quantile of the latencies, in milliseconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


Publish = Callable[[], object]


def by_threads(publishers: list[Publish], messages: int) -> Run:
    """Let each publisher publish in a thread of its own."""
    each = messages // len(publishers)
    latencies: list[list[float]] = [[] for _ in publishers]
    barrier = threading.Barrier(len(publishers) + 1)

    def work(publish: Publish, mine: list[float]) -> None:
        barrier.wait()
        for _ in range(each):
            begin = time.perf_counter()
            publish()
            mine.append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(publishers, latencies, strict=True)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return Run(time.perf_counter() - begin, [one for mine in latencies for one in mine])


async def by_tasks(publish: Callable[[], Awaitable[object]], workers: int, messages: int) -> Run:
    """Let tasks publish, each its next message after the confirm."""
    latencies: list[float] = []

    async def work() -> None:
        for _ in range(messages // workers):
            begin = time.perf_counter()
            await publish()
            latencies.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(workers)))
    return Run(time.perf_counter() - begin, latencies)


async def paced(publish: Callable[[], Awaitable[object]], messages: int) -> Run:
    """Publish at a constant rate; a latency counts from the time at which the message is due."""
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    first = loop.time() + 0.1

    async def one(due: float) -> None:
        await asyncio.sleep(due - loop.time())
        await publish()
        latencies.append(loop.time() - due)

    await asyncio.gather(*(one(first + i / PACED_PER_S) for i in range(messages)))
    return Run(loop.time() - first, latencies)


def pika_channel(stack: ExitStack, url: str) -> Any:
    """Open a channel with confirms on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    stack.callback(connection.close)
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def publish_with(channel: Any) -> None:
    """Publish a message with pika, and wait for its confirm."""
    channel.basic_publish("", QUEUE, BODY, _PERSISTENT, mandatory=True)


def shared_threads(url: str, workers: int, messages: int) -> Run:
    """SharedPublisher, threads."""
    with SharedPublisher(url, "") as publisher:
        publisher.submit(QUEUE, BODY).result()
        return by_threads([lambda: publisher.submit(QUEUE, BODY).result()] * workers, messages)


def pika_lock(url: str, workers: int, messages: int) -> Run:
    """One BlockingConnection behind a lock."""
    lock = threading.Lock()
    with ExitStack() as stack:
        channel = pika_channel(stack, url)
        publish_with(channel)

        def publish() -> None:
            with lock:
                publish_with(channel)

        return by_threads([publish] * workers, messages)


def pika_each(url: str, workers: int, messages: int) -> Run:
    """A BlockingConnection for each thread."""
    with ExitStack() as stack:
        channels = [pika_channel(stack, url) for _ in range(workers)]
        publish_with(channels[0])
        return by_threads([partial(publish_with, channel) for channel in channels], messages)


def shared_tasks(url: str, workers: int, messages: int, *, pace: bool = False) -> Run:
    """SharedPublisher, tasks."""

    async def run() -> Run:
        async with SharedPublisher(url, "") as publisher:
            await publisher.publish(QUEUE, BODY)

            async def publish() -> None:
                await publisher.publish(QUEUE, BODY)

            return await (paced(publish, messages) if pace else by_tasks(publish, workers, messages))

    return asyncio.run(run())


def aio_tasks(url: str, workers: int, messages: int, *, pace: bool = False) -> Run:
    """aio-pika, tasks on one channel."""

    async def run() -> Run:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel(publisher_confirms=True)

            async def publish() -> None:
                message = aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(message, QUEUE, mandatory=True)

            await publish()
            return await (paced(publish, messages) if pace else by_tasks(publish, workers, messages))

    return asyncio.run(run())


def ready_made_rate(url: str, unanswered: int, messages: int) -> float:
    """Send bytes that are encoded before, each message after the confirm of another one: the limit of any client, in messages per second."""
    ((wire, _),) = ready_made("", [QUEUE], BODY)
    connection = RawSocket(url)
    try:
        begin = time.perf_counter()
        connection.follow(wire, messages, unanswered)
        return messages / (time.perf_counter() - begin)
    finally:
        connection.close()


def round_trips(url: str, count: int = 200) -> Run:
    """Passive declarations, one after the other: what a round trip takes."""
    with ExitStack() as stack:
        channel = pika_channel(stack, url)
        return by_threads([lambda: channel.queue_declare(QUEUE, passive=True)], count)


Way = Callable[[], Run]


def compared(title: str, ways: dict[str, Way], runs: int, counted: Callable[[Run], None]) -> None:
    """Run the ways in turns, and print a table of medians."""
    results: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            run = way()
            counted(run)
            results[name].append(run)
    medians = {
        name: (
            statistics.median(run.rate for run in done),
            statistics.median(run.quantile_ms(0.5) for run in done),
            statistics.median(run.quantile_ms(0.99) for run in done),
        )
        for name, done in results.items()
    }
    first = next(iter(medians.values()))
    rows = [
        (
            name,
            f"{rate:,.0f}",
            f"{p50:.2f}",
            f"{p99:.2f}",
            f"{first[0] / rate:.2f}",
            f"{first[1] / p50:.2f}",
            f"{first[2] / p99:.2f}",
        )
        for name, (rate, p50, p99) in medians.items()
    ]
    headings = (title, "messages/s", "p50, ms", "p99, ms", "rate: first / this", "p50", "p99")
    print(render_table([TableColumn(heading) for heading in headings], rows), flush=True)


def main() -> None:
    """Measure all ways on one broker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one run with few messages")
    quick = parser.parse_args().quick
    messages, lonely, paced_messages, runs = (5_120, 300, 600, 1) if quick else (32_000, 2_000, 4_000, 5)
    with find_broker() as broker:
        for kind in ("classic", "quorum"):
            with temporary_vhost(broker) as vhost, ExitStack() as stack:
                url = vhost.url
                with ExitStack() as own:
                    channel = pika_channel(own, url)
                    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": kind})

                def counted(run: Run, url: str = url) -> None:
                    with ExitStack() as own:
                        queue = pika_channel(own, url)
                        count = queue.queue_purge(QUEUE).method.message_count
                    if count != len(run.latencies) + 1:
                        raise SystemExit(f"{count} messages in the queue, {len(run.latencies) + 1} published")

                threads: dict[str, Way] = {
                    f"SharedPublisher, {WORKERS} threads": partial(shared_threads, url, WORKERS, messages),
                    "pika, one connection, a lock": partial(pika_lock, url, WORKERS, messages // 4),
                    f"pika, {WORKERS} connections": partial(pika_each, url, WORKERS, messages),
                }
                compared(f"{kind} queue, threads", threads, runs, counted)
                for workers, count in ((1, lonely), (WORKERS, messages), (8 * WORKERS, messages)):
                    tasks: dict[str, Way] = {
                        "SharedPublisher": partial(shared_tasks, url, workers, count),
                        "aio-pika": partial(aio_tasks, url, workers, count),
                    }
                    compared(f"{kind} queue, tasks: {workers}", tasks, runs, counted)
                    limit = statistics.median(ready_made_rate(url, workers, count) for _ in range(runs))
                    print(f"ready-made bytes, {workers} unanswered: {limit:,.0f} messages/s")
                    with ExitStack() as own:
                        pika_channel(own, url).queue_purge(QUEUE)
                alone: dict[str, Way] = {
                    "SharedPublisher, one thread": partial(shared_threads, url, 1, lonely),
                    "pika, one thread": partial(pika_lock, url, 1, lonely),
                }
                compared(f"{kind} queue, one thread", alone, runs, counted)
                proxy = Proxy(url)
                stack.callback(proxy.close)
                proxy.to_broker.delay_s = proxy.to_client.delay_s = RTT_S / 2
                parts = urlsplit(url)
                far = url.replace(f"{parts.hostname}:{parts.port or 5672}", f"127.0.0.1:{proxy.port}")
                distant: dict[str, Way] = {
                    "SharedPublisher": partial(shared_tasks, far, 0, paced_messages, pace=True),
                    "aio-pika": partial(aio_tasks, far, 0, paced_messages, pace=True),
                }
                trips = round_trips(far)
                print(
                    f"a round trip through the proxy: {trips.quantile_ms(0.5):.1f} ms, at p99 {trips.quantile_ms(0.99):.1f} ms"
                )
                compared(f"{kind} queue, {PACED_PER_S}/s, delayed by 20 ms", distant, runs, counted)


if __name__ == "__main__":
    main()
