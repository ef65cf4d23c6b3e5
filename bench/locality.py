"""What it gives to connect a task to the node of its queue's leader, in a cluster of three nodes.

Nine queues have their leaders on three nodes, three on each. `place` puts the rows of each queue into a task of its own. Then
the tasks connect in two ways, which take turns: each to the node that leads its queue, and by the list of URLs, where task
*n* begins at node *n* modulo 3, so that one in three meets its leader by chance. A third way never meets it. A run counts only
if every row is in the queues. The CPU is that of the three containers together, and of each row.

    python bench/locality.py [--type quorum classic] [--rows 180000] [--rounds 7] [--cores 3] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pika
from pyspark.sql import DataFrame
from spark_write import spark_on

from rabbit_chx import Broker
from rabbit_chx.broker import pika_parameters, queue_addresses
from rabbit_chx.rendering import TableColumn, render_table
from rabbit_chx.testing import RunningBroker
from spark_connector import place, publish

if TYPE_CHECKING:
    from cluster import RunningCluster

EXCHANGE = "bench"
QUEUES = tuple(f"q{number}" for number in range(9))


@dataclass(frozen=True, slots=True)
class Run:
    """One run: rows a second, and CPU of the three nodes in microseconds for each row."""

    rate: float
    cpu_us: float


def leader_of(number: int) -> int:
    """Return the node that leads a queue: each node meets each of the three beginnings of the list of URLs once."""
    return (number + number // 3) % 3


def declare(cluster: RunningCluster, kind: str) -> None:
    """Declare each queue at the node that is to lead it, which is the default, and bind it."""
    for number, queue in enumerate(QUEUES):
        with pika.BlockingConnection(pika_parameters(cluster.urls[leader_of(number)])) as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, "x-consistent-hash", durable=True)  # type: ignore[arg-type]
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
            channel.queue_bind(queue, EXCHANGE, "1")


def cpu_s(node: RunningBroker) -> float:
    """Return the CPU seconds that a node has taken so far."""
    return int(node.run("rabbitmqctl", "eval", "element(1, erlang:statistics(runtime)).")) / 1000


def all_cpu_s(cluster: RunningCluster) -> float:
    """Return the CPU seconds of all nodes so far."""
    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        return sum(pool.map(cpu_s, cluster.nodes))


def elsewhere(cluster: RunningCluster, addresses_of: Mapping[str, str]) -> dict[str, str]:
    """Return the address of the node after that of the leader, by queue."""
    addresses = [url.rpartition("@")[2].partition("/")[0] for url in cluster.urls]
    return {queue: addresses[(addresses.index(address) + 1) % 3] for queue, address in addresses_of.items()}


def measured(cluster: RunningCluster, placed: DataFrame, options: Mapping[str, str], rows: int) -> Run:
    """Return one run into empty queues."""
    with pika.BlockingConnection(pika_parameters(f"{cluster.urls[0]}?heartbeat=0")) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_purge(queue)
        time.sleep(2)  # the nodes are still busy with the run before
        before = all_cpu_s(cluster)
        began = time.perf_counter()
        publish(placed, options)
        seconds = time.perf_counter() - began
        after = all_cpu_s(cluster)
        arrived = -1
        for _ in range(300):  # the count of a quorum queue follows a little later
            arrived = sum(
                channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES
            )
            if arrived == rows:
                return Run(rows / seconds, (after - before) / rows * 1e6)
            time.sleep(0.1)
    raise SystemExit(f"{arrived} messages are in the queues instead of {rows}")


def compare(kind: str, rows: int, rounds: int, cores: int) -> None:
    """Measure the ways in turns on one cluster, and print a table."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/support"))
    from cluster import docker_cluster

    with docker_cluster() as cluster:
        declare(cluster, kind)
        near = queue_addresses(cluster.urls, str(cluster.nodes[0].management_url))
        with Broker(cluster.urls[0], ring_source=cluster.nodes[0].ring_via) as broker:
            ring = broker.ring(EXCHANGE)
        spark = spark_on(cores)
        frame = spark.range(0, rows, 1, cores).selectExpr(
            "concat('order-', lpad(id, 8, '0')) AS key", "encode(repeat('x', 100), 'utf-8') AS value"
        )
        placed = place(frame, ring).cache()
        placed.count()
        common = {"url": ",".join(cluster.urls), "exchange": EXCHANGE, "ring": ring.to_json()}
        ways = {
            "the leader's node": {**common, "localityMap": json.dumps(near)},
            "by the list of URLs": common,
            "another node": {**common, "localityMap": json.dumps(elsewhere(cluster, near))},
        }
        runs: dict[str, list[Run]] = {name: [] for name in ways}
        for options in ways.values():
            measured(cluster, placed, options, rows)  # what is slow only once
        for number in range(rounds):
            for name in sorted(ways, reverse=bool(number % 2)):
                runs[name].append(measured(cluster, placed, ways[name], rows))
        if queue_addresses(cluster.urls, str(cluster.nodes[0].management_url)) != near:
            raise SystemExit("a leader has moved")
        version = cluster.version
        spark.stop()
    first = runs["by the list of URLs"]
    print(
        f"\nRabbitMQ {version}, 3 nodes, {len(QUEUES)} {kind} queues, {rows:,} rows of 100 bytes, {cores} tasks at a time, medians of"
        f" {rounds} rounds, load {os.getloadavg()[0]:.1f}"
    )
    columns = (
        "rows/s",
        "min",
        "max",
        "of the list's, by round",
        "CPU of the nodes, us a row",
        "of the list's",
    )
    table = []
    for name, measured_runs in runs.items():
        rates = [run.rate for run in measured_runs]
        table.append(
            (
                name,
                round(statistics.median(rates)),
                round(min(rates)),
                round(max(rates)),
                f"{statistics.median(run.rate / base.rate for run, base in zip(measured_runs, first, strict=True)):.2f}",
                f"{statistics.median(run.cpu_us for run in measured_runs):.1f}",
                f"{statistics.median(run.cpu_us / base.cpu_us for run, base in zip(measured_runs, first, strict=True)):.2f}",
            )
        )
    print(render_table([TableColumn("connected to", numeric=False), *map(TableColumn, columns)], table))


def main() -> None:
    """Measure on each type of queue."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--type", nargs="+", default=["quorum", "classic"])
    options.add_argument("--rows", type=int, default=180_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--cores", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="fewer rows and rounds, for a look")
    arguments = options.parse_args()
    rows, rounds = (45_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    for kind in arguments.type:
        compare(kind, rows, rounds, arguments.cores)


if __name__ == "__main__":
    main()
