"""Compare `Publisher` with other ways to publish on one connection: messages per second and client CPU.

All ways publish the same persistent, mandatory messages with distinct keys. They publish in turns to the same
x-consistent-hash exchange with four classic queues on one broker. Each run has a process of its own, so that
no way uses the heap of another one. A run counts only if every message is in the queues.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from publish_ways import Cost, Work, build_peer, compiled_peer, ours, raw, tutorial, windowed_pika

from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering import TableColumn, render_table
from rabbit_chx.testing import find_broker, temporary_vhost

EXCHANGE = "bench"
QUEUES = ("q1", "q2", "q3", "q4")
CHX: Any = "x-consistent-hash"  # pika's stubs know only the exchange types of the specification
OURS = "rabbit_chx.Publisher"


def measured(way: Callable[[Work], Cost], work: Work, channel: BlockingChannel) -> Cost:
    """Return the cost of one run into empty queues."""
    for queue in QUEUES:
        channel.queue_purge(queue)
    time.sleep(1)  # the broker is still busy with the run before
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        cost = process.submit(way, work).result()
    arrived = sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)
    if arrived != work.messages:
        raise SystemExit(f"{arrived} messages are in the queues instead of {work.messages}")
    return cost


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds, for a look")
    parser.add_argument("--body-bytes", type=int, default=100)
    arguments = parser.parse_args()
    scale, rounds = (10, 1) if arguments.quick else (1, 5)
    in_c = build_peer()
    ways: dict[str, tuple[Callable[[Work], Cost], int]] = {
        "ready-made bytes (the limit)": (raw, 200_000),
        OURS: (ours, 200_000),
        **({"rabbitmq-c, windowed": (partial(compiled_peer, in_c), 200_000)} if in_c else {}),
        "pika SelectConnection, windowed": (windowed_pika, 50_000),
        "pika BlockingConnection, one by one": (tutorial, 10_000),
    }
    with find_broker() as broker, temporary_vhost(broker) as place:
        with pika.BlockingConnection(pika_parameters(f"{place.url}?heartbeat=0")) as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, CHX, durable=True)
            for queue in QUEUES:
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, EXCHANGE, "1")
            costs: dict[str, list[Cost]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, (way, messages) in ways.items():
                    work = Work(place.url, EXCHANGE, messages // scale, arguments.body_bytes)
                    costs[name].append(measured(way, work, channel))
        print(f"\n{place.origin}; {arguments.body_bytes}-byte bodies, {len(QUEUES)} queues, {rounds} rounds")
    rates = {name: statistics.median(cost.rate for cost in of_way) for name, of_way in costs.items()}
    cpu = {name: statistics.median(cost.cpu_per_100k for cost in of_way) for name, of_way in costs.items()}
    print(
        render_table(
            (
                TableColumn("way", numeric=False),
                TableColumn("messages/s"),
                TableColumn("min"),
                TableColumn("max"),
                TableColumn("ours is times as fast"),
                TableColumn("client CPU s/100k"),
                TableColumn("ours takes of it"),
            ),
            [
                (
                    name,
                    round(rates[name]),
                    round(min(cost.rate for cost in costs[name])),
                    round(max(cost.rate for cost in costs[name])),
                    f"{rates[OURS] / rates[name]:.2f}",
                    f"{cpu[name]:.3f}",
                    f"{cpu[OURS] / cpu[name]:.3f}",
                )
                for name in ways
            ],
        )
    )


if __name__ == "__main__":
    main()
