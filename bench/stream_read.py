"""Compare `StreamReader` with rstream, the official client for Python: rows per second of one process, and its CPU.

Both read the same rows of 100 bytes from one stream of one broker, in turns. Each run has a process of its own. Ours gives columns
with key, value, offset and time. rstream calls a function for each row, with the message; or, without its decoder, with the bytes
of the message, in which neither key nor value has been looked for. A run counts only if it has read all rows.

Then `StreamReader` reads the stream again and again in one process: its memory stays what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from rabbit_chx import Publisher, StreamReader
from rabbit_chx.rendering import TableColumn, render_table
from rabbit_chx.streams.connection import StreamConnection, stream_settings
from rabbit_chx.testing import find_broker, temporary_vhost

STREAM = "bench"
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


def ours(url: str, rows: int) -> Reading:
    """Read with `StreamReader`."""

    def read(end: int) -> int:
        with StreamReader(url, STREAM, end=end) as reader:
            return sum(batch.num_rows for batch in reader)

    read(WARM)
    cpu, started = _cpu(), time.perf_counter()
    found = read(rows)
    return Reading(found, time.perf_counter() - started, _cpu() - cpu)


def rstreams(url: str, rows: int, *, decoded: bool) -> Reading:
    """Read with rstream."""
    import rstream

    parts = urlsplit(url)

    async def read(end: int) -> int:
        found, done = 0, asyncio.Event()

        async def take(_message: Any, _context: Any) -> None:  # noqa: ANN401
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
                STREAM, take, offset_specification=offset, initial_credit=10, decoder=decoder
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
    """Make the stream and write the rows."""
    connection = StreamConnection(stream_settings(stream_url))
    connection.create_stream(STREAM)
    connection.close()
    with Publisher(amqp_url, "", max_in_flight=20_000) as publisher:
        for begin in range(0, rows, BATCH):
            bodies = [f"{number:0100}" for number in range(begin, min(begin + BATCH, rows))]
            publisher.send([STREAM] * len(bodies), bodies)
        publisher.flush()


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round, for a look")
    arguments = parser.parse_args()
    rows, rounds = (arguments.rows // 10, 1) if arguments.quick else (arguments.rows, 3)
    ways: dict[str, tuple[Callable[[str, int], Reading], int]] = {
        OURS: (ours, rows),
        "rstream, messages": (partial(rstreams, decoded=True), rows // 10),
        "rstream, bytes of messages": (partial(rstreams, decoded=False), rows // 10),
    }
    readings: dict[str, list[Reading]] = {name: [] for name in ways}
    fresh = multiprocessing.get_context("spawn")
    with find_broker() as found, temporary_vhost(found) as broker:
        fill(broker.url, broker.stream_url, rows)
        for _ in range(rounds):
            for name, (way, count) in ways.items():
                with ProcessPoolExecutor(1, fresh) as process:
                    reading = process.submit(way, broker.stream_url, count).result()
                if reading.rows < count:
                    raise SystemExit(f"{name} read {reading.rows} rows instead of {count}")
                readings[name].append(reading)
        peaks = {}
        for times in (1, 5, 25):
            with ProcessPoolExecutor(1, fresh) as process:
                peaks[times * rows] = process.submit(peak_mib, broker.stream_url, rows, times).result()
        print(f"{broker.origin}; rows of 100 bytes, {rounds} rounds")
    rates = {
        name: statistics.median(one.rows / one.seconds for one in of_way) for name, of_way in readings.items()
    }
    cores = {
        name: statistics.median(one.rows / one.cpu_seconds for one in of_way)
        for name, of_way in readings.items()
    }
    print(
        render_table(
            (
                TableColumn("way", numeric=False),
                TableColumn("rows/s"),
                TableColumn("rows/CPU s"),
                TableColumn("ours is times as fast"),
                TableColumn("by CPU"),
            ),
            [
                (
                    name,
                    round(rates[name]),
                    round(cores[name]),
                    f"{rates[OURS] / rates[name]:.1f}",
                    f"{cores[OURS] / cores[name]:.1f}",
                )
                for name in ways
            ],
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
