"""Compare the fast lane, where the client routes, with the exchange: confirmed rows per second of `Publisher` and of Spark.

Both ways write the same rows into the same four queues of one broker, in turns. A run counts only if every row is in the
queue that the ring names. In Spark the time includes both readings of the ring, before the write and after it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame
from spark_write import EXCHANGE, PARTITIONS, QUEUES, bench_exchange, measured, prepared, spark_on

from rabbit_chx import Publisher
from rabbit_chx.broker import Broker
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker

if TYPE_CHECKING:
    Routing = Literal["exchange", "client"]

MESSAGES = 300_000
ROWS = 1_000_000
EXCHANGE_ROUTES, CLIENT_ROUTES = "the exchange routes", "the client routes"


def published(place: RunningBroker, routing: Routing, keys: list[str], ring: HashRing) -> None:
    """Publish one message for each key with `Publisher`."""
    bodies = [b"x" * 100] * len(keys)
    chosen = ring if routing == "client" else None
    with Publisher(place.url, EXCHANGE, routing=routing, ring=chosen) as publisher:
        publisher.publish_many(keys, bodies)


def written(place: RunningBroker, routing: Routing, rows: DataFrame) -> None:
    """Write through the connector; with the client's routing, the driver reads the ring twice."""
    options = {"url": place.url, "exchange": EXCHANGE, "routing": routing}
    if routing == "client":
        options["ringVia"] = " ".join(place.ring_via or ("env",))
    rows.write.format("rabbitmq").options(**options).mode("append").save()


def check_places(channel: BlockingChannel, expected: dict[str, int]) -> None:
    """Exit unless each queue has as many messages as the ring gives it."""
    there = {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in QUEUES}
    if there != expected:
        raise SystemExit(f"the queues have {there} messages, but by the ring they should have {expected}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    quick = parser.parse_args().quick
    scale, rounds = (10, 1) if quick else (1, 5)
    messages, rows = MESSAGES // scale, ROWS // scale
    keys = [f"order-{i:08}" for i in range(rows)]
    with bench_exchange() as (place, channel):
        with Broker(place.url, ring_source=place.ring_via) as broker:
            ring = broker.ring(EXCHANGE)
        spark = spark_on(PARTITIONS)
        frame, warm_up = prepared(spark, rows), prepared(spark, 1_000)
        written(place, "client", warm_up)  # starts the Python workers
        few = keys[:messages]
        ways: dict[tuple[str, str], tuple[Callable[[], None], list[str]]] = {
            ("Publisher", EXCHANGE_ROUTES): (lambda: published(place, "exchange", few, ring), few),
            ("Publisher", CLIENT_ROUTES): (lambda: published(place, "client", few, ring), few),
            ('format("rabbitmq")', EXCHANGE_ROUTES): (lambda: written(place, "exchange", frame), keys),
            ('format("rabbitmq")', CLIENT_ROUTES): (lambda: written(place, "client", frame), keys),
        }
        rates: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, (run, sent) in ways.items():
                rates[way].append(measured(run, channel, len(sent)))
                check_places(channel, {str(place): count for place, count in ring.counts(sent).items()})
        spark.stop()
        print(f"\n{place.origin}; 100-byte bodies, {len(QUEUES)} queues, {PARTITIONS} tasks, {rounds} rounds")
    median = {way: statistics.median(values) for way, values in rates.items()}
    table = [
        (
            *way,
            len(ways[way][1]),
            round(median[way]),
            round(min(values)),
            round(max(values)),
            f"{median[way] / median[way[0], EXCHANGE_ROUTES]:.2f}",
        )
        for way, values in rates.items()
    ]
    headings = ("rows", "rows/s (median)", "min", "max", "times the exchange")
    columns = (
        TableColumn("writer", numeric=False),
        TableColumn("routing", numeric=False),
        *(TableColumn(heading) for heading in headings),
    )
    print(render_table(columns, table))


if __name__ == "__main__":
    main()
