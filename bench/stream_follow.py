"""Compare `StreamReader(end="never")` with other clients that follow a stream: delay from publish to handler, and CPU of the client.

A process publishes rows of 100 bytes at a constant rate with `StreamPublisher`. Each body begins with the time of its publishing. In turns
one client in a separate process follows the stream: `StreamReader`, rstream, and rabbitmq-stream-js-client if npm can install it. A delay
is the time at which the handler has the row, minus that time. A client that is slower than the publisher falls behind: its delays grow
with the seconds, and it handles fewer rows than are published.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
from peer_clients import IN_JS, MissingClient, js_client

from rabbit_chx import StreamPublisher, StreamReader
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.streams import ReadLimits
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import find_broker, temporary_vhost

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM, OURS = "rows", "rabbit_chx.StreamReader"
BODY_BYTES = 100
#: The seconds between two calls of the publisher.
TICK_S = 0.01
#: The seconds that a client follows before it is measured, so that all modules are loaded.
WARM_S = 5.0
_HERE = Path(__file__).resolve().parent
_FRESH = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Followed:
    """What a client has handled in its time.

    Attributes:
        rows: how many rows.
        cpu_s: CPU seconds of the client, user and system.
        p50_ms: the median of the delays from publish to handler, in milliseconds.
        p99_ms: their 99th percentile.
    """

    rows: int
    cpu_s: float
    p50_ms: float
    p99_ms: float


def _followed(delays_ns: Any, cpu_s: float) -> Followed:  # lists and arrays
    p50, p99 = np.percentile(delays_ns, [50, 99]) / 1e6 if len(delays_ns) else (np.nan, np.nan)
    return Followed(len(delays_ns), cpu_s, float(p50), float(p99))


def publish(url: str, rate: int, end: Event) -> None:
    """Publish rows at this rate until the event is set."""
    rows, rest = int(rate * TICK_S), bytes(BODY_BYTES - 8)
    with StreamPublisher(url, stream=STREAM) as publisher:
        due = time.perf_counter()
        while not end.is_set():
            publisher.publish_many([b""] * rows, [time.time_ns().to_bytes(8) + rest] * rows)
            due = max(
                due + TICK_S, time.perf_counter() - 1
            )  # a pause of more than a second is not made up for
            time.sleep(max(0.0, due - time.perf_counter()))


def ours(url: str, seconds: float, max_wait_s: float) -> Followed:
    """Follow with `StreamReader`."""
    delays = []
    with StreamReader(
        url, STREAM, start="next", end="never", limits=ReadLimits(max_wait_s=max_wait_s)
    ) as reader:
        warm_until, cpu = time.monotonic() + WARM_S, 0.0
        for batch in reader:
            if time.monotonic() < warm_until:
                cpu = time.process_time()
                continue
            values: Any = batch["value"]
            bodies = np.frombuffer(values.buffers()[2], np.uint8)[values.offset * BODY_BYTES :]
            stamps = bodies[: len(values) * BODY_BYTES].reshape(-1, BODY_BYTES)[:, :8]
            delays.append(time.time_ns() - np.ascontiguousarray(stamps).view(">i8")[:, 0])
            if time.monotonic() > warm_until + seconds:
                break
        return _followed(np.concatenate(delays), time.process_time() - cpu)


def rstreams(url: str, seconds: float) -> Followed:
    """Follow with rstream."""
    import rstream

    parts, delays = urlsplit(url), list[int]()

    async def take(message: Any, _context: Any) -> None:
        delays.append(time.time_ns() - int.from_bytes(message.body[:8]))

    async def follow() -> float:
        consumer = rstream.Consumer(
            parts.hostname or "",
            parts.port or 5552,
            vhost=unquote(parts.path[1:]),
            username=parts.username or "",
            password=parts.password or "",
            load_balancer_mode=True,  # keeps it from following the name that the broker gives itself
        )
        async with consumer:
            offset = rstream.ConsumerOffsetSpecification(rstream.OffsetType.NEXT, None)
            await consumer.subscribe(
                STREAM, take, offset_specification=offset, initial_credit=10, decoder=rstream.amqp_decoder
            )
            await asyncio.sleep(WARM_S)
            delays.clear()
            cpu = time.process_time()
            await asyncio.sleep(seconds)
            return time.process_time() - cpu

    return _followed(delays, asyncio.run(follow()))


def in_js(url: str, seconds: float) -> Followed:
    """Follow with rabbitmq-stream-js-client."""
    parts = urlsplit(url)
    address = [parts.hostname, parts.port, parts.username, parts.password, unquote(parts.path[1:])]
    done = subprocess.run(
        [IN_JS[0], _HERE / "stream_follow.js", *map(str, address), STREAM, str(seconds)],
        env={**os.environ, "NODE_PATH": str(_HERE.parent / ".cache" / "peers" / "node_modules")},
        capture_output=True, text=True, check=True, timeout=seconds + 60,
    )  # fmt: skip
    return Followed(**json.loads(done.stdout))


@contextmanager
def published(url: str, rate: int) -> Iterator[None]:
    """Publish meanwhile, into an empty stream."""
    with closing(StreamConnection(stream_settings(url))) as connection:
        with suppress(Exception):
            connection.delete_stream(STREAM)
        connection.create_stream(STREAM)
    end = _FRESH.Event()
    process = _FRESH.Process(target=publish, args=(url, rate, end))
    process.start()
    time.sleep(2)  # until it publishes
    try:
        yield
    finally:
        end.set()
        process.join(30)
        if process.is_alive():
            process.kill()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=200_000, help="rows published in a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each client follows")
    parser.add_argument("--max-wait", type=float, default=0.1, help="StreamReader's max_wait_s, in seconds")
    parser.add_argument("--quick", action="store_true", help="5 seconds, one round, for a look")
    arguments = parser.parse_args()
    seconds, rounds = (5.0, 1) if arguments.quick else (arguments.seconds, 3)
    ways: dict[str, Callable[[str, float], Followed]] = {
        OURS: partial(ours, max_wait_s=arguments.max_wait),
        "rstream": rstreams,
    }
    try:
        ways[f"rabbitmq-stream-js-client {js_client()}"] = in_js
    except (MissingClient, OSError, subprocess.SubprocessError) as cause:
        print(f"without rabbitmq-stream-js-client: {cause}")
    results: dict[str, list[Followed]] = defaultdict(list)
    with find_broker() as found, temporary_vhost(found) as broker:
        for _ in range(rounds):
            for name, way in ways.items():
                with published(broker.stream_url, arguments.rate), ProcessPoolExecutor(1, _FRESH) as process:
                    results[name].append(process.submit(way, broker.stream_url, seconds).result())
        print(f"{broker.origin}; rows of {BODY_BYTES} bytes, {arguments.rate:,} rows/s, {rounds} rounds")

    def median(name: str, of: Callable[[Followed], float]) -> float:
        return statistics.median(map(of, results[name]))

    lines = []
    for name in ways:
        cpu = median(name, lambda one: one.cpu_s / max(one.rows, 1) * 1e6)
        delays = (median(name, lambda one: one.p50_ms), median(name, lambda one: one.p99_ms))
        ratio = cpu / median(OURS, lambda one: one.cpu_s / max(one.rows, 1) * 1e6)
        handled = round(median(name, lambda one: one.rows / seconds))
        lines.append((name, handled, *(f"{delay:,.0f}" for delay in delays), f"{cpu:.2f}", f"{ratio:.1f}"))
    columns = ["handled rows/s", "p50 ms", "p99 ms", "CPU s per 1,000,000 rows", "times ours"]
    print(render_table((TableColumn("client", numeric=False), *map(TableColumn, columns)), lines))


if __name__ == "__main__":
    main()
