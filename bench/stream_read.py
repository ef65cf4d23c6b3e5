"""Compare `StreamReader` with rstream, the official client for Python: rows per second of one process, and its CPU.

Both read the same rows of 100 bytes from a stream of one broker, in turns: one that `StreamPublisher` has written, and one that an AMQP
client has written, whose chunks are smaller. Each run has a separate process. Ours returns columns with key, value, offset and time.
rstream calls a function for each row, with the message; or, without its decoder, with the bytes of the message, in which neither key nor
value has been looked for. A run counts only if it has read all rows.

Then `StreamReader` reads the first stream again and again in one process: its memory stays what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from rabbit_chx import Limits, Publisher, StreamPublisher, StreamReader
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import find_broker, temporary_vhost

STREAM, OVER_AMQP = "by StreamPublisher", "over AMQP"
OURS = "rabbit_chx.StreamReader"
BATCH = 100_000
#: What is read before it is measured, so that all modules are loaded.
WARM = 1_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reading took, from the connection to the last row.

    Attributes:
        rows: how many rows it read.
        seconds: seconds on the clock.
        cpu_seconds: CPU seconds of the client, user and system.
    """

    rows: int
    seconds: float
    cpu_seconds: float


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def ours(url: str, rows: int, stream: str = STREAM) -> Reading:
    """Read with `StreamReader`."""

    def read(end: int) -> int:
        with StreamReader(url, stream, end=end) as reader:
            return sum(batch.num_rows for batch in reader)

    read(WARM)
    cpu, started = _cpu(), time.perf_counter()
    found = read(rows)
    return Reading(found, time.perf_counter() - started, _cpu() - cpu)


def rstreams(url: str, rows: int, stream: str = STREAM, *, decoded: bool) -> Reading:
    """Read with rstream."""
    import rstream

    parts = urlsplit(url)

    async def read(end: int) -> int:
        found, done = 0, asyncio.Event()

        async def take(_message: Any, _context: Any) -> None:
            nonlocal found
            found += 1
            if found == end:
                done.set()

        consumer = rstream.Consumer(
            parts.hostname or "",
            parts.port or 5552,
            vhost=unquote(parts.path[1:]),
            username=parts.username or "",
            password=parts.password or "",
            load_balancer_mode=True,  # keeps it from following the name that the broker gives itself
        )
        async with consumer:
            offset = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None)
            decoder = rstream.amqp_decoder if decoded else None
            await consumer.subscribe(
                stream, take, offset_specification=offset, initial_credit=10, decoder=decoder
            )
            await done.wait()
        return found

    asyncio.run(read(WARM))
    cpu, started = _cpu(), time.perf_counter()
    found = asyncio.run(read(rows))
    return Reading(found, time.perf_counter() - started, _cpu() - cpu)


def peak_mib(url: str, rows: int, times: int) -> float:
    """Read so many times, and return the peak of the memory in MiB."""
    for _ in range(times):
        ours(url, rows)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fill(amqp_url: str, stream_url: str, rows: int) -> None:
    """Make the streams and write the rows, a tenth as many over AMQP."""
    with closing(StreamConnection(stream_settings(stream_url))) as connection:
        for stream in (STREAM, OVER_AMQP):
            connection.create_stream(stream)
    with (
        StreamPublisher(stream_url, stream=STREAM) as publisher,
        Publisher(amqp_url, "", limits=Limits(max_in_flight=20_000)) as over_amqp,
    ):
        for begin in range(0, rows, BATCH):
            bodies = [f"{number:0100}" for number in range(begin, min(begin + BATCH, rows))]
            publisher.publish_many([STREAM] * len(bodies), bodies)
            some = bodies[: len(bodies) // 10]
            over_amqp.send([OVER_AMQP] * len(some), some)
        over_amqp.flush()


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round, for a look")
    arguments = parser.parse_args()
    rows, rounds = (arguments.rows // 10, 1) if arguments.quick else (arguments.rows, 3)
    ways: dict[str, tuple[Callable[[str, int, str], Reading], int]] = {
        OURS: (ours, rows),
        "rstream, messages": (partial(rstreams, decoded=True), rows // 10),
        "rstream, bytes of messages": (partial(rstreams, decoded=False), rows // 10),
    }
    readings: dict[tuple[str, str], list[Reading]] = defaultdict(list)
    fresh = multiprocessing.get_context("spawn")
    with find_broker() as found, temporary_vhost(found) as broker:
        fill(broker.url, broker.stream_url, rows)
        for _ in range(rounds):
            for stream in (STREAM, OVER_AMQP):
                for name, (way, most) in ways.items():
                    count = most if stream == STREAM else rows // 10
                    with ProcessPoolExecutor(1, fresh) as process:
                        reading = process.submit(way, broker.stream_url, count, stream).result()
                    if reading.rows < count:
                        raise SystemExit(f"{name} read {reading.rows} rows instead of {count}")
                    readings[stream, name].append(reading)
        peaks = {}
        for times in (1, 5, 25):
            with ProcessPoolExecutor(1, fresh) as process:
                peaks[times * rows] = process.submit(peak_mib, broker.stream_url, rows, times).result()
        print(f"{broker.origin}; rows of 100 bytes, {rounds} rounds")

    def medians(stream: str, name: str) -> tuple[float, float]:
        of_way = readings[stream, name]
        return (
            statistics.median(one.rows / one.seconds for one in of_way),
            statistics.median(one.rows / one.cpu_seconds for one in of_way),
        )

    lines = []
    for stream in (STREAM, OVER_AMQP):
        our_rate, our_core = medians(stream, OURS)
        for name in ways:
            rate, core = medians(stream, name)
            ratios = (f"{our_rate / rate:.1f}", f"{our_core / core:.1f}")
            lines.append((stream, name, round(rate), round(core), *ratios))
    print(
        render_table(
            (
                TableColumn("written", numeric=False),
                TableColumn("way", numeric=False),
                TableColumn("rows/s"),
                TableColumn("rows/CPU s"),
                TableColumn("ours is times as fast"),
                TableColumn("by CPU"),
            ),
            lines,
        )
    )
    print(
        render_table(
            (TableColumn("rows"), TableColumn("peak MiB")),
            [(rows, f"{peak:.0f}") for rows, peak in peaks.items()],
        )
    )


if __name__ == "__main__":
    main()
