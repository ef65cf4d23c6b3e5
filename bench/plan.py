"""Measure `plan` for one ring of 1,000 queues: each kind of change, compared with one exact count of all 2^21 seeds.

The limit is `HashRing.share_moved` of the same two rings: the minimum cost of the share of keys that moves in total.
A plan also counts it at the worst moment between its steps. No table of seeds is kept from one measurement to the next, as a
process that makes one plan has none.

A plan without its proposals (``propose=False``) is measured against the limit. The whole plan and `Plan.to_json` are measured too.

    python bench/plan.py [--queues 1000] [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterable
from itertools import islice
from typing import TypeAlias

from rabbit_chx import HashRing, Release, Topology
from rabbit_chx.routing import jump
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, plan

Members: TypeAlias = list[tuple[str, int]]
RELEASE = Release("4.3.6")
EXCHANGE = "orders"


def named(prefix: str, count: int, weight: int = 1) -> Members:
    """Return members of one weight."""
    return [(f"{prefix}.{number}", weight) for number in range(count)]


def in_turns(first: Members, second: Members) -> Members:
    """Return the members of both, by turns."""
    return [member for pair in zip(first, second, strict=True) for member in pair]


def changes(count: int) -> dict[str, tuple[Members, Members]]:
    """Return each kind of change: the members that are there, and those that are wanted."""
    rng = random.Random(5)  # noqa: S311 - no secret
    queues, others, heavy = named("q", count), named("n", count), named("q", count, 10)
    mixed = [(name, rng.randrange(1, 10)) for name, _ in queues]
    twice = in_turns(queues, others)
    half = count // 2
    return {
        "nothing changes": (queues, queues),
        "one more, at the end": (queues, [*queues, ("new", 1)]),
        "one more, in front": (queues, [("new", 1), *queues]),
        "the last one goes": (queues, queues[:-1]),
        "the first one goes": (queues, queues[1:]),
        "one in the middle goes": (queues, [*queues[:half], *queues[half + 1 :]]),
        "the first half goes": (queues, queues[half:]),
        "every second one goes": (queues, queues[::2]),
        "every second one goes, weight 10": (heavy, heavy[::2]),
        "the first one goes, weight 10": (heavy, heavy[1:]),
        "twice as many, at the end": (queues, queues + others),
        "twice as many, in between": (queues, twice),
        "half of them, from in between": (twice, queues),
        "one in a hundred gets weight 2": (
            queues,
            [(name, 2 if number % 97 == 3 else 1) for number, (name, _) in enumerate(queues)],
        ),
        "all weights from 1 to 2": (queues, named("q", count, 2)),
        "all weights from 1 to 10": (queues, heavy),
        "all weights from 10 to 9": (heavy, named("q", count, 9)),
        "the first one becomes the last": (queues, queues[1:] + queues[:1]),
        "the other way round": (queues, queues[::-1]),
        "shuffled": (queues, rng.sample(queues, count)),
        "shuffled, weight 10": (heavy, rng.sample(heavy, count)),
        "shuffled, weights 1 to 9": (mixed, rng.sample(mixed, count)),
        "one in ten has another name": (
            queues,
            [others[number] if number % 10 == 0 else member for number, member in enumerate(queues)],
        ),
        "all have other names": (queues, others),
    }


def topology(members: Iterable[tuple[str, int]]) -> Topology:
    """Return a topology of queues and a ring of them."""
    ring = tuple(RingMember(name, str(weight)) for name, weight in members)
    queues = tuple(
        QueueDefinition(member.destination) for member in ring if isinstance(member.destination, str)
    )
    return Topology((ExchangeDefinition(EXCHANGE, "x-consistent-hash", ring=ring),), queues)


def ring_of(members: Members) -> HashRing:
    """Return the ring of members, as it is read from a broker."""
    return HashRing.from_buckets([name for name, weight in members for _ in range(weight)], RELEASE)


def measured(members_before: Members, members: Members) -> tuple[float, float, float, float, int]:
    """Return the seconds of the limit, of the plan without proposals, of the whole plan and of `to_json`, and the number of steps."""
    before, after = ring_of(members_before), ring_of(members)
    live, wanted = topology(members_before).with_rings({EXCHANGE: before}), topology(members)
    jump.opened.clear()
    started = time.process_time()
    before.share_moved(after)
    limit = time.process_time() - started
    jump.opened.clear()
    started = time.process_time()
    plan(wanted, live, propose=False)
    planned = time.process_time()
    jump.opened.clear()
    made_plan = plan(wanted, live)
    proposed = time.process_time()
    made_plan.to_json()
    written = time.process_time()
    steps = len(made_plan.rings[EXCHANGE].steps)
    return limit, planned - started, proposed - planned, written - proposed, steps


def main() -> None:
    """Measure all changes in turns, and print a Markdown table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queues", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--quick",
        action="store_true",
        help="one round of 200 queues and a quarter of the changes, for a look",
    )
    arguments = options.parse_args()
    rounds, queues = (1, 200) if arguments.quick else (arguments.rounds, arguments.queues)
    kinds = dict(islice(changes(queues).items(), None, None, 4 if arguments.quick else 1))
    figures: dict[str, list[tuple[float, float, float, float, int]]] = {name: [] for name in kinds}
    measured(*changes(20)["shuffled"])  # load everything that is loaded only once
    for _ in range(rounds):
        for name, change in kinds.items():
            figures[name].append(measured(*change))
    print(f"{queues:,} queues in one ring, medians of {rounds} rounds")
    print("| change | steps | plan, s | min to max | of the limit | with proposals, s | to_json, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, measurements in figures.items():
        *columns, (steps, *_) = zip(*measurements, strict=True)
        limit, planned, proposed, written = map(statistics.median, columns)
        plans = columns[1]
        span = f"{min(plans):.2f} to {max(plans):.2f}"
        print(
            f"| {name} | {steps:,} | {planned:.2f} | {span} | {planned / limit:.1f} | {proposed:.2f} | {written:.2f} |"
        )


if __name__ == "__main__":
    main()
