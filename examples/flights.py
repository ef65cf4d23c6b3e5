"""The main job: 336,776 real flights from Spark through an x-consistent-hash exchange into queues.

The job predicts the queue of every flight before it publishes anything. It writes the flights with confirms,
consumes them again, and compares each one with its prediction. Run it with `make demo`,
or `python examples/flights.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
from flights_data import flights_csv
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

import spark_connector
from rabbit_chx import Broker, HashRing
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.rendering.progress import CountProgress
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost

EXCHANGE = "flights"
#: The queues in bind order, with their weights: ten buckets in all.
QUEUES = {f"{EXCHANGE}.{name}": weight for name, weight in (("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 4))}

CSV_COLUMNS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT, hour INT, minute INT, time_hour STRING"
)


# -- the data


def start_spark() -> SparkSession:
    """Return a Spark on two cores of this machine that logs only errors."""
    log4j = Path(__file__).with_name("conf") / "log4j2.properties"
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("rabbit_chx demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        .getOrCreate()
    )
    spark_connector.register(spark)
    return spark


def read_flights(spark: SparkSession, csv: Path, limit: int | None = None) -> DataFrame:
    """Return flights as messages: `id`, `key`, `value` (the whole row as JSON), `has_aircraft`.

    The key of a flight is its tail number, so all flights of an aircraft are in one queue, in order. 2,512
    flights have no tail number (`NA`), because they were cancelled before an aircraft was assigned. One key
    for all of them would be a hot key. So their key is the flight number instead, such as ``flight UA1545``.

    """
    flights = spark.read.csv(str(csv), schema=CSV_COLUMNS, header=True, nullValue="NA")
    if limit is not None:
        flights = flights.limit(limit)
    date = F.format_string("%d-%02d-%02d", "year", "month", "day")
    number = F.format_string("%s%d", "carrier", "flight")
    identity = F.concat_ws(" ", date, number, "origin", "sched_dep_time")
    return flights.withColumn("id", identity).select(
        "id",
        F.coalesce("tailnum", F.concat_ws(" ", F.lit("flight"), number)).alias("key"),
        F.to_json(F.struct("*")).alias("value"),
        F.col("tailnum").isNotNull().alias("has_aircraft"),
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted queue of each flight, made before anything is published.

    Attributes:
        place: queue and routing key of each flight, by its id.
        rows: the number of flights per queue.
        without_aircraft: the number of flights without a tail number.
    """

    place: Mapping[str, tuple[str, str]]
    rows: Mapping[str, int]
    without_aircraft: int


def predict(flights: DataFrame, ring: HashRing) -> Prediction:
    """Return the queue of every flight, as the mirror predicts it."""
    table = flights.select("id", "key", "has_aircraft").toArrow()
    ids, keys = ([str(value) for value in table[name].to_pylist()] for name in ("id", "key"))
    names = [str(destination) for destination in ring.destinations]
    queues = [names[i] for i in ring.indices(table["key"])]
    place = dict(zip(ids, zip(queues, keys, strict=True), strict=True))
    if len(place) != len(ids):
        raise ValueError(f"{len(ids) - len(place)} flights have the id of another")
    without_aircraft = table["has_aircraft"].to_pylist().count(False)
    return Prediction(place, Counter(queues), without_aircraft)


# -- the broker


def connect(url: str) -> pika.BlockingConnection:
    """Return a pika connection with the settings that we read from the URL."""
    return pika.BlockingConnection(pika_parameters(url))


def count_ready(channel: BlockingChannel, queues: Iterable[str] = QUEUES) -> int:
    """Return the number of messages that wait in the queues."""
    return sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in queues)


# -- the job


def write(flights: DataFrame, url: str, ring: HashRing) -> dict[str, Any]:
    """Write the flights with confirms, and return the connector's report."""
    with tempfile.TemporaryDirectory() as folder:
        report_path = Path(folder, "report.json")
        (
            flights.select("key", "value")
            .write.format("rabbitmq")
            .options(url=url, exchange=EXCHANGE, ring=ring.to_json(), reportPath=str(report_path))
            .mode("append")
            .save()
        )
        report: dict[str, Any] = json.loads(report_path.read_text())
    return report


@dataclass(slots=True)
class Findings:
    """What was really in the queues, compared with the prediction.

    Attributes:
        rows: messages found, per queue.
        mismatches: messages that were not predicted, or have another queue or key than predicted.
        repeated: messages found a second time, because delivery is at least once.
        missing: predicted flights that were not found.
        example: the first mismatch, in words.
    """

    rows: Counter[str] = field(default_factory=Counter)
    mismatches: int = 0
    repeated: int = 0
    missing: int = 0
    example: str = ""

    @property
    def good(self) -> bool:
        """Whether every flight was found where it was predicted."""
        return not (self.mismatches or self.missing)


def check(channel: BlockingChannel, prediction: Prediction) -> Findings:
    """Consume every message of every queue and compare it with the prediction, one by one."""
    findings = Findings()
    seen: set[str] = set()
    for queue in QUEUES:
        left = count_ready(channel, (queue,))
        if not left:
            continue
        for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=30):
            if method is None or body is None:
                break  # no message for 30 s: the others count as missing
            flight = json.loads(body)["id"]
            found = (queue, method.routing_key)
            expected = prediction.place.get(flight)
            findings.rows[queue] += 1
            if found != expected:
                findings.mismatches += 1
                findings.example = findings.example or f"{flight}: predicted {expected}, found {found}"
            if flight in seen:
                findings.repeated += 1
            seen.add(flight)
            left -= 1
            if not left:
                break
        channel.cancel()
    findings.missing = len(prediction.place.keys() - seen)
    return findings


def show(prediction: Prediction, report: Mapping[str, Any], findings: Findings) -> str:
    """Return the result as a table."""
    confirmed = report["predicted"]
    rows = [
        (queue, weight, prediction.rows.get(queue, 0), confirmed.get(queue, 0), findings.rows[queue])
        for queue, weight in QUEUES.items()
    ]
    total = ("", *map(sum, list(zip(*rows, strict=True))[1:]))
    columns = (
        TableColumn("queue", numeric=False),
        *(TableColumn(heading) for heading in ("weight", "predicted", "confirmed*", "really there")),
    )
    lines = [
        render_table(columns, rows, total),
        "",
        "* by predicted queue: the broker confirms a message, but never says where it went",
        f"mismatches {findings.mismatches}, missing {findings.missing}, repeated {findings.repeated}",
    ]
    if findings.example:
        lines.append(f"first mismatch: {findings.example}")
    return "\n".join(lines)


def run(broker: RunningBroker, spark: SparkSession, csv: Path, limit: int | None = None) -> bool:
    """Run the job in the vhost of the broker's URL. Return whether each flight was where it was predicted."""
    if broker.ring_via is None:
        raise SystemExit("the ring cannot be read: set RABBIT_CHX_TEST_RING_VIA, such as 'docker exec NAME'")
    with Broker(broker.url, ring_source=broker.ring_via) as live:
        live.declare(EXCHANGE, QUEUES.items())
        ring = live.ring(EXCHANGE)
    print(
        f"ring     {ring.provenance} from RabbitMQ {broker.version}: {len(ring.buckets)} buckets, {len(QUEUES)} queues"
    )

    flights = read_flights(spark, csv, limit).cache()
    prediction = predict(flights, ring)
    total = len(prediction.place)
    print(
        f"flights  {total:,}, each under its aircraft's tail number; {prediction.without_aircraft:,} were cancelled"
    )
    print("         before they had an aircraft, and go under their flight number")

    with connect(broker.url) as watching:
        watched = watching.channel()
        started = time.monotonic()
        with CountProgress("writing", total, lambda: count_ready(watched)):
            report = write(flights, broker.url, ring)
        seconds = time.monotonic() - started
        rows = report["confirmed"]
        print(f"written  {rows:,} rows confirmed in {seconds:.1f} s, {rows / seconds:,.0f} rows/s")
        with (
            connect(broker.url) as connection,
            CountProgress("consuming and comparing", total, lambda: total - count_ready(watched)),
        ):
            findings = check(connection.channel(), prediction)
    print(f"\n{show(prediction, report, findings)}")
    return findings.good and rows == total


def main() -> int:
    """Run the demo. Return 0 if every flight was found where it was predicted, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, help="the number of flights to take (default: all)")
    arguments = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it warns about every refusal
    try:
        return _run_on_found_broker(arguments.limit)
    except RabbitChxError as cause:
        print(cause, file=sys.stderr)
        return 1


def _run_on_found_broker(limit: int | None) -> int:
    csv = flights_csv()
    with find_broker() as broker, temporary_vhost(broker) as place:
        spark = start_spark()
        try:
            return 0 if run(place, spark, csv, limit) else 1
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
