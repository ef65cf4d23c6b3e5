"""What the two programs of the plugin's README share: their arguments, a broker, and the comparison as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rabbit_chx import HashRing, Topology
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.routing import Destination
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost

FILE = Path(__file__).with_suffix(".toml")
TOPOLOGY = Topology.from_file(FILE)
WAYS = [exchange.name for exchange in TOPOLOGY.exchanges]


def compared(ring: HashRing, predicted: Mapping[Destination | None, int], counted: Mapping[str, int]) -> bool:
    """Print the predicted and the actual counts, and return True if they are equal.

    Args:
        ring: the ring, which has the exact share of each queue.
        predicted: messages per queue, by the mirror.
        counted: messages per queue, by the broker.
    """
    weights = [(str(queue), ring.buckets.count(queue), share) for queue, share in ring.shares().items()]
    total = sum(counted.values())
    rows = [
        (queue, weight, f"{share:.4%}", f"{share * total:,.1f}", predicted.get(queue, 0), counted[queue])
        for queue, weight, share in weights
    ]
    columns = [
        TableColumn("queue", numeric=False),
        *map(TableColumn, ("weight", "exact share", "share x messages", "predicted", "counted")),
    ]
    totals = ("", len(ring.buckets), "", "", sum(predicted.values()), total)
    print(render_table(columns, rows, totals))
    equal = all(predicted.get(queue, 0) == counted[queue] for queue in counted)
    print("predicted and counted are equal" if equal else "PREDICTED AND COUNTED DIFFER")
    return equal


def main(run: Callable[[RunningBroker, str, int], bool], about: str) -> int:
    """Run an example as a program, in a new vhost. Return 0 if all counts were predicted, else 1.

    Args:
        run: the example. It gets a broker, the name of an exchange, and the number of messages.
        about: a text whose first line describes the example.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("way", nargs="?", choices=WAYS, default=WAYS[0], help="what is hashed (by-key)")
    parser.add_argument("--messages", type=int, default=100_000, help="how many are published (100000)")
    arguments = parser.parse_args()
    try:
        with find_broker() as broker, temporary_vhost(broker) as vhost:
            return 0 if run(vhost, arguments.way, arguments.messages) else 1
    except RabbitChxError as cause:
        print(cause, file=sys.stderr)
        return 1
