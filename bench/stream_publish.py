"""Compare `StreamPublisher` with `Publisher`, which goes over AMQP: confirmed rows per second into the same four streams, and into one.

All ways write the same rows of 100 bytes in one process, in turns, into queues and streams of one broker that are made for the run. Over
AMQP the hash exchange routes. `StreamPublisher` places by the same ring. A run counts only if every row is confirmed, and if each
stream has as many rows as the ring gives it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pika
import pyarrow as pa

from rabbit_chx import Broker, HashRing, Limits, Publisher, StreamPublisher, StreamReader
from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost

EXCHANGE, QUEUES, STREAM = "orders", "queues", "one"
CHX: Any = "x-consistent-hash"  # pika's stubs want an enumeration
STREAMS = tuple(f"orders-{n}" for n in range(4))
ROWS = 300_000
AMQP = "Publisher, 4 streams"


def declare(place: RunningBroker) -> HashRing:
    """Make the exchanges, the queues and the streams, and return the ring."""
    with pika.BlockingConnection(pika_parameters(place.url)) as connection:
        channel = connection.channel()
        for exchange in (EXCHANGE, QUEUES):
            channel.exchange_delete(exchange)
            channel.exchange_declare(exchange, CHX, durable=True)
        for number, stream in enumerate(STREAMS):
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(stream, EXCHANGE, "1")
            channel.queue_declare(f"q{number}", durable=True)
            channel.queue_bind(f"q{number}", QUEUES, "1")
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    with Broker(place.url, ring_source=place.ring_via) as broker:
        return broker.ring(EXCHANGE)


def clear(place: RunningBroker) -> None:
    """Make the streams and queues empty."""
    with closing(StreamConnection(stream_settings(place.stream_url))) as connection:
        for stream in (*STREAMS, STREAM):
            connection.delete_stream(stream)
    with pika.BlockingConnection(pika_parameters(place.url)) as connection:
        for number in range(len(STREAMS)):
            connection.channel().queue_purge(f"q{number}")


def count(place: RunningBroker, stream: str) -> int:
    """Return how many rows a stream has."""
    with StreamReader(place.stream_url, stream) as reader:
        return sum(batch.num_rows for batch in reader)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    rows, rounds = (30_000, 1) if parser.parse_args().quick else (ROWS, 5)
    keys, bodies, ids = [f"order-{i:08}" for i in range(rows)], [b"x" * 100] * rows, range(1, rows + 1)
    columns = pa.array(keys), pa.array(bodies)

    def over_amqp(exchange: str) -> Any:
        with Publisher(place.url, exchange, limits=Limits(max_in_flight=10_000)) as publisher:
            return publisher.publish_many(keys, bodies)

    def over_streams(*, arrow: bool = False, name: str | None = None, **where: Any) -> Any:
        with StreamPublisher(place.stream_url, name=name, **where) as publisher:
            given = columns if arrow else (keys, bodies)
            return publisher.publish_many(*given, ids=ids if name else None)

    with find_broker() as broker, temporary_vhost(broker) as place:
        ring = declare(place)
        four: dict[str, Any] = {"ring": ring, "exchange": EXCHANGE}
        one: dict[str, Any] = {"stream": STREAM}
        ways: dict[str, Callable[[], Any]] = {
            "Publisher, 4 classic queues": lambda: over_amqp(QUEUES),
            AMQP: lambda: over_amqp(EXCHANGE),
            "StreamPublisher, 4 streams": lambda: over_streams(**four),
            "StreamPublisher, 4 streams, each row once": lambda: over_streams(name="bench", **four),
            "StreamPublisher, 4 streams, Arrow columns": lambda: over_streams(arrow=True, **four),
            "StreamPublisher, 1 stream": lambda: over_streams(**one),
            "StreamPublisher, 1 stream, each row once": lambda: over_streams(name="bench", **one),
            "the same, sub-entries of 10": lambda: over_streams(name="bench", sub_entry_rows=10, **one),
            "the same, sub-entries of 100": lambda: over_streams(name="bench", sub_entry_rows=100, **one),
        }
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, publish in ways.items():
                clear(place)
                ring = declare(place)
                four["ring"] = ring
                started = time.perf_counter()
                report = publish()
                rates[way].append(rows / (time.perf_counter() - started))
                if report.confirmed != rows:
                    raise SystemExit(f"{way}: {report}")
                if "4 streams" in way:
                    found = {stream: count(place, stream) for stream in STREAMS}
                    if found != ring.counts(keys):
                        raise SystemExit(
                            f"{way}: the streams have {found} rows, but by the ring they should have {ring.counts(keys)}"
                        )
        print(f"\n{place.origin}; {rows:,} rows of 100 bytes, {rounds} rounds")
    base = statistics.median(rates[AMQP])
    table = [
        (
            way,
            round(statistics.median(some)),
            round(min(some)),
            round(max(some)),
            f"{statistics.median(some) / base:.1f}",
        )
        for way, some in rates.items()
    ]
    headings = ("rows/s (median)", "min", "max", "times AMQP into streams")
    print(render_table((TableColumn("way", numeric=False), *map(TableColumn, headings)), table))


if __name__ == "__main__":
    main()
