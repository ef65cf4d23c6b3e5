"""Measure confirmed rows per second from Spark into a hash exchange.

``ways`` compares the connector with the limit and with the tutorial way, on the same broker, in turns. The limit pushes
ready-made bytes in the same Spark stage. The tutorial way is what people write: `foreachPartition`, a pika BlockingConnection,
`confirm_delivery`, and row by row `basic_publish(..., mandatory=True)`. ``sizes`` compares the connector with the limit by
partitions and body size. ``ids`` measures the cost of ``messageId=auto``. ``memory`` measures the memory of the Python worker
that writes; it reads /proc, so it needs Linux.

    python bench/spark_write.py [--quick] [memory] [ways] [sizes] [ids]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path

import pika
import pyarrow as pa
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import DataFrame, Row, SparkSession

import spark_connector
from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost
from spark_connector.columns import MessageColumns
from spark_connector.writing.messages import MessageIds

EXCHANGE = "bench"
QUEUES = ("q1", "q2", "q3", "q4")
PARTITIONS = 2
WINDOW, WINDOW_BYTES = 1000, 8 << 20  # as in the connector
KIB = 1 << 10
MIB = 1 << 20
#: Rows by body size: at most a few hundred megabytes, and a few seconds.
ROWS_BY_SIZE = {10: 200_000, 100: 200_000, KIB: 100_000, 64 * KIB: 4_000, MIB: 256}
PARTITION_COUNTS = (1, 2, 4, 8)
BATCH = 10_000


def main() -> None:
    """Measure the parts that are named, or all."""
    parts = {"memory": measure_memory, "ways": measure_ways, "sizes": measure_sizes, "ids": measure_ids}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(parts)}")
    for part, measure in parts.items():  # `memory` is first, before other Python workers exist
        if not options.parts or part in options.parts:
            measure(quick=options.quick)


def measure_ways(*, quick: bool) -> None:
    """Print the rows per second of the connector, of the limit and of the tutorial way."""
    many, few, rounds = (50_000, 3_000, 1) if quick else (200_000, 15_000, 5)
    with bench_exchange() as (place, channel):
        spark = spark_on(PARTITIONS)
        large, small = prepared(spark, many), prepared(spark, few)
        push = raw_sink(place.url, EXCHANGE, 100)
        ours(small, place.url)  # start the Python workers
        ways: dict[str, tuple[Callable[[], None], int]] = {
            'format("rabbitmq")': (lambda: ours(large, place.url), many),
            "ready-made bytes in the same stage": (lambda: push(large, many), many),
            "foreachPartition + pika, confirmed one by one": (lambda: tutorial(small, place.url), few),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (write, count) in ways.items():
                rates[name].append(measured(write, channel, count))
        spark.stop()
        print(
            f"\n{place.origin}; {PARTITIONS} tasks, 100-byte bodies, {len(QUEUES)} classic queues, {rounds} rounds"
        )
    median = [statistics.median(values) for values in rates.values()]
    table = [
        (
            name,
            ways[name][1],
            *(round(rate) for rate in (middle, min(values), max(values))),
            f"{median[0] / middle:.2f}",
        )
        for (name, values), middle in zip(rates.items(), median, strict=True)
    ]
    headings = ("rows", "rows/s (median)", "min", "max", "ours is times as fast")
    columns = (TableColumn("way", numeric=False), *(TableColumn(heading) for heading in headings))
    print(render_table(columns, table))


def measure_sizes(*, quick: bool) -> None:
    """Print the rows per second of the connector and of the limit, by partitions and body size."""
    rounds = 1 if quick else 3
    shapes = [(ROWS_BY_SIZE[100], 100, partitions) for partitions in PARTITION_COUNTS]
    shapes += [(count, size, 2) for size, count in ROWS_BY_SIZE.items()]
    table = []
    with bench_exchange() as (place, channel):
        spark = spark_on(max(PARTITION_COUNTS))
        ours(prepared(spark, 10_000, max(PARTITION_COUNTS)), place.url)  # start the Python workers
        for count, body_bytes, partitions in shapes:
            shape = (max(64, count // 10) if quick else count, body_bytes, partitions)
            rate, limit = median_rates(spark, channel, place.url, shape, rounds)
            row = (partitions, body_bytes, shape[0], round(rate), f"{rate * body_bytes / MIB:.1f}")
            table.append((*row, round(limit), f"{rate / limit:.2f}"))
            print(*table[-1], flush=True)
        spark.stop()
        print(f"\n{place.origin}; local[{max(PARTITION_COUNTS)}], {rounds} rounds, medians")
    headings = ("partitions", "body bytes", "rows", "rows/s", "MiB/s", "limit rows/s", "of the limit")
    print(render_table(tuple(TableColumn(heading) for heading in headings), table))


def median_rates(
    spark: SparkSession, channel: BlockingChannel, url: str, shape: tuple[int, int, int], rounds: int
) -> tuple[float, float]:
    """Return the median rows/s of ours and of the limit; a shape is (rows, bytes of a body, partitions)."""
    count, body_bytes, partitions = shape
    rows = prepared(spark, count, partitions, body_bytes)
    push = raw_sink(url, EXCHANGE, body_bytes)
    of_ours, of_limit = [], []
    for _ in range(rounds):
        of_ours.append(measured(lambda: ours(rows, url), channel, count))
        of_limit.append(measured(lambda: push(rows, count), channel, count))
    rows.unpersist()
    return statistics.median(of_ours), statistics.median(of_limit)


def measure_ids(*, quick: bool) -> None:
    """Print the rows per second with and without ``messageId=auto``, and the CPU of the ids alone."""
    count, rounds = (50_000, 3) if quick else (200_000, 5)
    for rows in (BATCH, 1_000_000, 5_000_000 if not quick else 1_000_000):
        print(f"{rows:,} rows in a partition: {cpu_us(rows):.2f} us of CPU per row")
    rates: dict[str, list[float]] = {"none": [], "auto": []}
    with bench_exchange() as (place, channel):
        spark = spark_on(PARTITIONS)
        frame = prepared(spark, count)
        ours(frame, place.url, messageId="auto")  # start the Python workers
        for _ in range(rounds):
            for message_id, measured_rates in rates.items():
                write = partial(ours, frame, place.url, messageId=message_id)
                measured_rates.append(measured(write, channel, count))
        spark.stop()
        print(f"\n{place.origin}; {PARTITIONS} tasks, {count:,} rows of 100 bytes, {rounds} rounds")
    none = statistics.median(rates["none"])
    table = [
        (
            name,
            *(
                round(rate)
                for rate in (statistics.median(measured_rates), min(measured_rates), max(measured_rates))
            ),
            f"{none / statistics.median(measured_rates):.2f}",
        )
        for name, measured_rates in rates.items()
    ]
    headings = ("rows/s (median)", "min", "max", "times as long")
    print(render_table((TableColumn("messageId", numeric=False), *map(TableColumn, headings)), table))


def cpu_us(rows: int) -> float:
    """Return the microseconds of CPU per row of a partition with bodies of 100 random bytes."""
    ids = MessageIds("w" * 36, 0, 0)
    columns = MessageColumns(value=1, key=0, exchange=None, headers=None, properties={})
    keys = pa.array([f"order-{n:08}" for n in range(BATCH)])
    seconds = 0.0
    for _ in range(rows // BATCH):
        random = os.urandom(100 * BATCH)
        bodies = pa.array([random[at : at + 100] for at in range(0, len(random), 100)], pa.binary())
        batch = pa.RecordBatch.from_arrays([keys, bodies], names=["key", "value"])
        started = time.process_time()
        ids.of(batch, columns, ())
        seconds += time.process_time() - started
    return seconds / rows * 1e6


def measure_memory(*, quick: bool) -> None:
    """Print the peak memory of a Python worker that writes 500,000 rows, and of one that writes 5,000,000."""
    scale = 10 if quick else 1
    if not Path("/proc").is_dir():
        print("no /proc: the memory is not measured")
        return
    peaks = {rows: peak_of(rows) for rows in (500_000 // scale, 5_000_000 // scale)}
    few, many = peaks.values()
    print(
        render_table(
            (TableColumn("rows"), TableColumn("peak MiB of the worker")),
            [(rows, f"{peak / MIB:.1f}") for rows, peak in peaks.items()],
        )
    )
    print(f"difference: {(many - few) / MIB:+.1f} MiB")


def peak_of(rows: int) -> int:
    """Return the peak resident bytes of the one worker that writes `rows` rows, in a new Spark.

    The queues keep only the last messages, so that the memory of the broker does not grow.
    """
    with bench_exchange() as (place, channel):
        for queue in QUEUES:
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10_000})
            channel.queue_bind(queue, EXCHANGE, "1")
        spark = spark_on(1)
        frame = spark.range(0, rows, 1, 1).selectExpr(
            "concat('order-', lpad(id, 8, '0')) AS key", "encode(repeat('x', 100), 'utf-8') AS value"
        )
        watch = Watch()
        watch.start()
        frame.write.format("rabbitmq").options(url=place.url, exchange=EXCHANGE).mode("append").save()
        spark.stop()
        return watch.stop()


class Watch(threading.Thread):
    """Record the largest resident memory of a worker until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        """Read the memory four times a second."""
        while not self._over.wait(0.25):
            self.peak = max(self.peak, *workers().values(), 0)

    def stop(self) -> int:
        """Stop, and return the peak in bytes."""
        self._over.set()
        self.join()
        return self.peak


def workers() -> dict[int, int]:
    """Return the resident bytes of each Python worker that this Spark has started, by process id."""
    processes: dict[int, tuple[int, int, bytes]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # the process has ended
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            resident = int(fields.get("VmRSS", "0 kB").split()[0]) << 10
            processes[int(entry.name)] = (int(fields["PPid"]), resident, command)
    own = {os.getpid()}
    for pid in sorted(processes):  # children have higher ids than their parents
        if processes[pid][0] in own:
            own.add(pid)
    return {
        pid: processes[pid][1] for pid in own & processes.keys() if b"pyspark.daemon" in processes[pid][2]
    }


def ours(rows: DataFrame, url: str, **options: str) -> None:
    """Write through the connector."""
    rows.write.format("rabbitmq").options(url=url, exchange=EXCHANGE, **options).mode("append").save()


def raw_sink(url: str, exchange: str, body_bytes: int) -> Callable[[DataFrame, int], None]:
    """Return the limit: a function that writes one ready-made message of `body_bytes` bytes for each row of a DataFrame.

    The bytes are made before the clock starts. A task encodes, checks and keeps nothing. It pulls the rows from Spark as Arrow
    batches, as the connector does, and sends one confirmed message for each row, with the window of the connector.
    """
    from publish import ready_made

    window = max(1, min(WINDOW, WINDOW_BYTES // (body_bytes + 100)))
    chunk = max(1, min(500, window // 2))
    keys = [f"order-{i:08}" for i in range(chunk * max(1, min(20, WINDOW_BYTES // (chunk * body_bytes))))]
    body = b"x" * body_bytes
    chunks = ready_made(exchange, keys, body, chunk)
    folder = str(Path(__file__).parent)

    def push(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.path.append(folder)  # on this machine the executors see the same files
        from publish import RawSocket, ready_made

        def of_rows() -> Iterator[tuple[bytes, int]]:
            due = 0
            for batch in batches:
                due += batch.num_rows
                while due >= chunk:
                    yield next(turns)
                    due -= chunk
            yield from ready_made(exchange, keys[:due], body, chunk)

        turns = cycle(chunks)
        connection = RawSocket(url)
        sent = connection.push(of_rows(), window)
        connection.close()
        yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

    def write(rows: DataFrame, count: int) -> None:
        sent = sum(row.sent for row in rows.mapInArrow(push, "sent long").collect())
        if sent != count:
            raise SystemExit(f"the raw sink sent {sent} messages instead of {count}")

    return write


def tutorial(rows: DataFrame, url: str) -> None:
    """Write as the tutorials do."""

    def publish(partition: Iterable[Row]) -> None:
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            persistent = pika.BasicProperties(delivery_mode=2)
            for row in partition:
                channel.basic_publish(EXCHANGE, row.key, row.value, persistent, mandatory=True)

    rows.foreachPartition(publish)


def prepared(
    spark: SparkSession, count: int, partitions: int = PARTITIONS, body_bytes: int = 100
) -> DataFrame:
    """Return a cached frame of `count` rows with a key and a body."""
    rows = spark.range(0, count, 1, partitions).selectExpr(
        "concat('order-', lpad(id, 8, '0')) AS key", f"encode(repeat('x', {body_bytes}), 'utf-8') AS value"
    )
    rows.cache().count()
    return rows


def spark_on(cores: int) -> SparkSession:
    """Return a local Spark with `cores` cores that has our format and logs only errors."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark_connector.register(spark)
    return spark


@contextmanager
def bench_exchange() -> Iterator[tuple[RunningBroker, BlockingChannel]]:
    """Yield a broker with the hash exchange and its queues in a new vhost, and a channel to it."""
    with (
        find_broker() as broker,
        temporary_vhost(broker) as place,
        pika.BlockingConnection(pika_parameters(f"{place.url}?heartbeat=0")) as connection,
    ):
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "x-consistent-hash", durable=True)  # type: ignore[arg-type]
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, EXCHANGE, "1")
        yield place, channel


def measured(write: Callable[[], None], channel: BlockingChannel, count: int) -> float:
    """Return the rows per second of a write into empty queues. Exit if a row is missing from the queues."""
    for queue in QUEUES:
        channel.queue_purge(queue)
    time.sleep(1)  # the broker is still busy with the run before
    started = time.perf_counter()
    write()
    seconds = time.perf_counter() - started
    arrived = sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)
    if arrived != count:
        raise SystemExit(f"{arrived} messages are in the queues instead of {count}")
    return count / seconds


if __name__ == "__main__":
    main()
