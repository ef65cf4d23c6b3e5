"""Measure `rabbit-chx check FILE` as cron runs it: in a new process, on a ring of 1,000 queues.

Beside it is what no check can do without: one `rabbitmqctl eval`, and an interpreter that loads NumPy. Each round takes turns.
The figure is the median of the rounds. The limit is 3 s; above it the exit code is 1.

    python bench/check.py [--queues 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rabbit_chx import Broker, Topology
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import RunningBroker, find_broker, temporary_vhost
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember, plan

LIMIT_S = 3.0
COMMAND = "import sys; from rabbit_chx.cli import main; sys.exit(main(sys.argv[1:]))"


def wanted(count: int) -> Topology:
    """Return a hash exchange with as many queues as asked for."""
    queues = tuple(QueueDefinition(f"orders.{number}") for number in range(1, count + 1))
    ring = tuple(RingMember(queue.name) for queue in queues)
    return Topology((ExchangeDefinition("orders", "x-consistent-hash", ring=ring),), queues)


def seconds(command: Sequence[str]) -> float:
    """Return how long a program runs that has to succeed."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    took = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(
            f"{shlex.join(command[:3])} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return took


def ways(broker: RunningBroker, file: Path) -> dict[str, list[str]]:
    """Return the programs that are measured."""
    live = ["--url", broker.url, "--management-url", str(broker.management_url)]
    via = broker.ring_via or ()
    check = [
        sys.executable,
        "-c",
        COMMAND,
        "check",
        str(file),
        *live,
        "--ring-via",
        shlex.join(via),
    ]
    return {
        "check FILE": check,
        "check FILE --output prometheus": [*check, "--output", "prometheus"],
        "rabbitmqctl eval, alone": [*via, "rabbitmqctl", "-q", "eval", "ok."],
        "an interpreter with NumPy, alone": [sys.executable, "-c", "import numpy"],
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=1000, help="queues of the ring (default: 1000)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: 5)")
    options = parser.parse_args()
    topology = wanted(options.queues)
    with find_broker() as found, temporary_vhost(found) as broker, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "topology.toml"
        file.write_text(topology.to_toml())
        with Broker(broker.url, broker.management_url, broker.ring_via) as live:
            live.apply(plan(topology, live.topology()))
        commands = ways(broker, file)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                times[name].append(seconds(command))
        print(f"RabbitMQ {broker.version}, a ring of {options.queues:,} queues")
    rows = [
        (name, f"{statistics.median(taken):.2f}", f"{min(taken):.2f} to {max(taken):.2f}")
        for name, taken in times.items()
    ]
    columns = [TableColumn("command", numeric=False), TableColumn("s"), TableColumn("min to max")]
    print(render_table(columns, rows))
    sys.exit(int(statistics.median(times["check FILE"]) > LIMIT_S))


if __name__ == "__main__":
    main()
