"""Measure the planning of slots: the assignment, and the plan with its exact shares.

The limit is the same as that of `plan.py`: one exact count of all 2^21 seeds, `SlotTable.share_moved` of the table before and after.

At the end the changes are applied to a broker, and the time until the last check is measured.

    python bench/slot_plan.py [--slots 1024] [--queues 200] [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

from rabbit_chx import Broker, HashRing, Release, SlotTable, Topology
from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.routing import jump
from rabbit_chx.testing import docker_broker
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, plan
from rabbit_chx.topology.slots import SlotNames

RELEASE = Release("4.3.6")
EXCHANGE = "events"


def topology(slots: int, weights: dict[str, int]) -> Topology:
    """Return a topology of queues that share slots."""
    members = tuple(RingMember(queue, str(weight)) for queue, weight in weights.items())
    exchange = ExchangeDefinition(EXCHANGE, "x-consistent-hash", slots=slots, members=members)
    return Topology((exchange,), tuple(map(QueueDefinition, weights)))


def live_with(slots: int, weights: dict[str, int]) -> LiveTopology:
    """Return the same as it is read from a broker: plain objects, and the ring."""
    ring = HashRing.from_buckets(SlotNames(EXCHANGE, slots).refs, RELEASE)
    return expand(topology(slots, weights), LiveTopology()).with_rings({EXCHANGE: ring})


def changes(queues: int) -> dict[str, dict[str, int]]:
    """Return the weights that are wanted, by what changes."""
    now = {f"events.{number}": 1 for number in range(queues)}
    first, *_ = now
    return {
        "nothing changes": now,
        "one more queue": now | {"events.new": 1},
        "a queue goes": {queue: 1 for queue in now if queue != first},
        "a tenth more": now | {f"events.new.{number}": 1 for number in range(queues // 10)},
        "half of them go": dict(list(now.items())[::2]),
        "one gets weight 3": now | {first: 3},
    }


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of CPU of a piece of work, without tables of seeds from before."""
    jump.opened.clear()
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Measure all changes in turns, and print a Markdown table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--slots", type=int, default=1024)
    options.add_argument("--queues", type=int, default=200)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--series", nargs="*", default=["4.3"], help="the brokers to apply it to")
    options.add_argument("--quick", action="store_true", help="one round")
    arguments = options.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    kinds = changes(arguments.queues)
    now = kinds["nothing changes"]
    live = live_with(arguments.slots, now)
    table = SlotTable(live.rings[EXCHANGE], {}).reassigned(now)
    times: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in kinds}
    moves = {name: count_moves(table, table.reassigned(weights)) for name, weights in kinds.items()}
    for _ in range(rounds):
        for name, weights in kinds.items():
            after, wanted = table.reassigned(weights), topology(arguments.slots, weights)
            made_plan = plan(wanted, live)
            times[name].append(
                (
                    seconds(partial(table.reassigned, weights)),
                    seconds(partial(table.share_moved, after)),
                    seconds(partial(plan, wanted, live)),
                    seconds(made_plan.to_json),
                )
            )
    print(
        f"{arguments.slots:,} slots, {arguments.queues:,} queues, medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}\n"
    )
    print(
        "| change | slots that change hands | `reassigned`, ms | `plan`, s | of one exact count | `to_json`, s |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, measurements in times.items():
        assigned, limit, planned, written = (
            statistics.median(column) for column in zip(*measurements, strict=True)
        )
        print(
            f"| {name} | {moves[name]:,} | {assigned * 1e3:.1f} | {planned:.2f} | {planned / limit:.1f} | {written:.2f} |"
        )
    print_applications(arguments.slots, kinds, arguments.series)


def count_moves(before: SlotTable, after: SlotTable) -> int:
    """Return how many slots have another queue."""
    return sum(before.owners.get(slot) != after.owners.get(slot) for slot in before.slots)


def print_applications(slots: int, kinds: dict[str, dict[str, int]], series: list[str]) -> None:
    """Apply each change to a broker, and take it back."""
    now = topology(slots, kinds["nothing changes"])
    for release in series:
        with (
            docker_broker(release) as broker,
            Broker(broker.url, broker.management_url, broker.ring_via) as live,
        ):
            print(
                f"\n| RabbitMQ {broker.version} | slots that change hands | read, s | `plan`, s | `apply`, s |"
            )
            print("| --- | ---: | ---: | ---: | ---: |")
            print_application(live, "all of it, into an empty vhost", now)
            for name, weights in kinds.items():
                if name != "nothing changes":
                    print_application(live, name, topology(slots, weights))
                    print_application(live, "and back", now)


def print_application(live: Broker, name: str, wanted: Topology) -> None:
    """Apply a topology, and print how long it takes."""
    started = time.perf_counter()
    live_now = live.topology()
    read = time.perf_counter()
    made_plan = plan(wanted, live_now)
    planned = time.perf_counter()
    live.apply(made_plan, allow_moved=1.0, allow_delete=True)
    applied = time.perf_counter()
    moved = len(made_plan.rings[EXCHANGE].handed_over)
    print(f"| {name} | {moved:,} | {read - started:.1f} | {planned - read:.1f} | {applied - planned:.1f} |")


if __name__ == "__main__":
    main()
