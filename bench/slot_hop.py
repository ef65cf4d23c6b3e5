"""Measure the cost of the extra hop of a slot: messages per second, and CPU of the broker, through slots and without them.

Three exchanges lead to the same four classic queues: one with a bucket for each queue, one with 64 buckets, and one with 64
slots. The second one shows which part of the difference is due to the larger ring. One connection publishes with `Publisher`, with
a window of 1,000 confirms. The exchanges take turns, and each run has a separate process. A run counts only if every
message is in the queues.

    python bench/slot_hop.py [--series 4.3 4.0] [--slots 64] [--messages 100000] [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pika
from pika.adapters.blocking_connection import BlockingChannel
from publish import Work, ours

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, docker_broker
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, plan

QUEUES = ("q1", "q2", "q3", "q4")
CHX = "x-consistent-hash"


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        rate: messages a second, from the first publish to the last confirm.
        broker_cpu: CPU of the broker, in microseconds for each message.
    """

    rate: float
    broker_cpu: float


def exchanges(slots: int) -> dict[str, ExchangeDefinition]:
    """Return the exchanges by what they are."""
    weight = str(slots // len(QUEUES))
    return {
        "a bucket for each queue": ExchangeDefinition("plain", CHX, ring=tuple(map(RingMember, QUEUES))),
        f"{slots} buckets": ExchangeDefinition(
            "weighted", CHX, ring=tuple(RingMember(queue, weight) for queue in QUEUES)
        ),
        f"{slots} slots": ExchangeDefinition(
            "slotted", CHX, slots=slots, members=tuple(map(RingMember, QUEUES))
        ),
    }


def cpu_s(broker: RunningBroker) -> float:
    """Return the CPU seconds that the broker has taken so far."""
    return int(broker.run("rabbitmqctl", "eval", "element(1, erlang:statistics(runtime)).")) / 1000


def measured(broker: RunningBroker, exchange: str, messages: int, channel: BlockingChannel) -> Run:
    """Return one run into empty queues."""
    for queue in QUEUES:
        channel.queue_purge(queue)
    time.sleep(1)  # the broker is still busy with the run before
    before = cpu_s(broker)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        cost = process.submit(ours, Work(broker.url, exchange, messages, 100)).result()
    after = cpu_s(broker)
    arrived = sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)
    if arrived != messages:
        raise SystemExit(f"{arrived} messages are in the queues instead of {messages}")
    return Run(cost.rate, (after - before) / messages * 1e6)


def compare(series: str, slots: int, messages: int, rounds: int) -> None:
    """Measure the exchanges on a broker of one series in turns, and print a table."""
    kinds = exchanges(slots)
    with docker_broker(series) as broker:
        with Broker(broker.url, broker.management_url, broker.ring_via) as live:
            wanted = Topology(tuple(kinds.values()), tuple(map(QueueDefinition, QUEUES)))
            live.apply(plan(wanted, live.topology()))
        runs: dict[str, list[Run]] = {name: [] for name in kinds}
        with pika.BlockingConnection(pika_parameters(f"{broker.url}?heartbeat=0")) as connection:
            channel = connection.channel()
            measured(broker, "plain", messages // 4, channel)  # what is slow only once
            for _ in range(rounds):
                for name, kind in kinds.items():
                    runs[name].append(measured(broker, kind.name, messages, channel))
        version = broker.version
    plain = next(iter(kinds))
    rates = {
        name: statistics.median(run.rate for run in measured_runs) for name, measured_runs in runs.items()
    }
    cpu = {
        name: statistics.median(run.broker_cpu for run in measured_runs)
        for name, measured_runs in runs.items()
    }
    columns = (
        "messages/s",
        "min",
        "max",
        "of the plain exchange",
        "broker CPU, us a message",
        "of the plain one's",
    )
    print(
        f"\nRabbitMQ {version}, {messages:,} messages, medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}"
    )
    print(
        render_table(
            [TableColumn("exchange", numeric=False), *map(TableColumn, columns)],
            [
                (
                    name,
                    round(rates[name]),
                    round(min(run.rate for run in measured_runs)),
                    round(max(run.rate for run in measured_runs)),
                    f"{rates[name] / rates[plain]:.2f}",
                    f"{cpu[name]:.1f}",
                    f"{cpu[name] / cpu[plain]:.2f}",
                )
                for name, measured_runs in runs.items()
            ],
        )
    )


def main() -> None:
    """Measure on each series."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--series", nargs="+", default=["4.3", "4.0"])
    options.add_argument("--slots", type=int, default=64)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="fewer messages and rounds, for a look")
    arguments = options.parse_args()
    messages, rounds = (20_000, 1) if arguments.quick else (arguments.messages, arguments.rounds)
    for series in arguments.series:
        compare(series, arguments.slots, messages, rounds)


if __name__ == "__main__":
    main()
