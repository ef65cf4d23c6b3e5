"""Measure `Broker.apply`: 1,000 new queues, compared with bare pipelined declarations on the same broker.

The limit is pika without an answer to each declaration: 1,000 `queue.declare` with no-wait, then one that waits. Beside it is
what most scripts do, one declaration after the other. Each round takes turns. A figure is the median of the rounds.

A second part applies a ring of 1,000 new queues with 10,000 buckets, with and without its record on the broker.

    python bench/apply.py [--queues 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pika

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, plan

ARGUMENTS = {"x-queue-type": "classic"}


def names(count: int) -> list[str]:
    """Return the names of the queues."""
    return [f"orders.{number}" for number in range(1, count + 1)]


def one_by_one(broker: RunningBroker, count: int) -> float:
    """Return the seconds of declarations that are waited for one by one."""
    with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
        channel = connection.channel()
        started = time.perf_counter()
        for name in names(count):
            channel.queue_declare(name, durable=True, arguments=ARGUMENTS)
        return time.perf_counter() - started


def pipelined(broker: RunningBroker, count: int) -> float:
    """Return the seconds of declarations of which only the last is waited for."""
    with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
        channel: Any = connection.channel()
        *first, last = names(count)
        started = time.perf_counter()
        for name in first:
            channel._impl.queue_declare(name, durable=True, arguments=ARGUMENTS)  # noqa: SLF001
        channel.queue_declare(last, durable=True, arguments=ARGUMENTS)
        return time.perf_counter() - started


def wanted(count: int, weight: int | None) -> Topology:
    """Return the topology: queues, and a ring of them if there is a weight."""
    queues = tuple(map(QueueDefinition, names(count)))
    if weight is None:
        return Topology(queues=queues)
    ring = tuple(RingMember(queue.name, str(weight)) for queue in queues)
    return Topology((ExchangeDefinition("orders", "x-consistent-hash", ring=ring),), queues)


def applied(broker: RunningBroker, count: int, weight: int | None = None, *, records: bool = True) -> float:
    """Return the seconds of `Broker.apply`, all checks included."""
    with Broker(broker.url, broker.management_url, broker.ring_via) as live:
        plan_ = plan(wanted(count, weight), live.topology())
        started = time.perf_counter()
        live.apply(plan_, records=records)
        return time.perf_counter() - started


def measured(broker: RunningBroker, way: Callable[[RunningBroker, int], float], count: int) -> float:
    """Return the seconds of a way in a fresh vhost."""
    with temporary_vhost(broker) as fresh:
        return way(fresh, count)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queues", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    ways = {
        "bare pipelined declarations": pipelined,
        "one declaration after the other": one_by_one,
        "Broker.apply": applied,
    }
    with find_broker() as broker:
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                seconds[name].append(measured(broker, way, arguments.queues))
        limit = statistics.median(seconds["bare pipelined declarations"])
        print(
            f"{arguments.queues:,} new queues, RabbitMQ {broker.version}, medians of {arguments.rounds} rounds"
        )
        for name, times in seconds.items():
            median = statistics.median(times)
            print(
                f"  {name:32} {median:6.2f} s   {arguments.queues / median:7,.0f} queues/s   {limit / median:5.2f} of the limit"
            )
        rings: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(min(arguments.rounds, 3)):
            for records, times in rings.items():
                way = partial(applied, weight=10, records=records)
                times.append(measured(broker, way, arguments.queues))
        without, kept = (statistics.median(times) for times in rings.values())
        print(f"  a ring of them, weight 10 each   {without:6.2f} s, ring read afterwards, without a record")
        print(f"  the same with its record         {kept:6.2f} s, {kept / without:.2f} times as long")


if __name__ == "__main__":
    main()
