"""Measure how the CPU time and the memory of plans grow with their size.

Each row is a kind of plan in several sizes. The exponent is the slope of log(CPU seconds) over log(size): 1 is linear growth.
Each measurement runs in a process of its own, as a command does, and includes the loading of NumPy. A second one in the same process would
find tables of seeds. CPU time grows if other programs use the caches of the machine: quote a figure only of an idle one.

The live part needs Docker: `check` and `check FILE` on a real broker with many exchanges.

    python bench/growth.py [--kinds queues,rings,slots,modulus,definitions,live] [--quick] [--exchanges 1000]
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rabbit_chx import Broker, HashRing, Release, Topology
from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import docker_broker
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, plan
from rabbit_chx.topology.slots import SlotNames

RELEASE = Release("4.3.6")
HASH = "x-consistent-hash"
SLOT_QUEUES = 20
COMMAND = "import sys; from rabbit_chx.cli import main; sys.exit(main(sys.argv[1:]))"


def rings(exchanges: int, queues: int) -> LiveTopology:
    """Return a live topology of so many rings of so many queues each."""
    members = {
        f"orders.{number}": [f"orders.{number}.{queue}" for queue in range(queues)]
        for number in range(exchanges)
    }
    return Topology(
        tuple(
            ExchangeDefinition(name, HASH, ring=tuple(map(RingMember, names)))
            for name, names in members.items()
        ),
        tuple(QueueDefinition(queue) for names in members.values() for queue in names),
    ).with_rings({name: HashRing.from_buckets(names, RELEASE) for name, names in members.items()})


def with_one_queue_more(live: LiveTopology) -> Topology:
    """Return a topology whose first ring has one queue more."""
    first, *others = live.exchanges
    grown = replace(first, ring=(*(first.ring or ()), RingMember("new")))
    return Topology((grown, *others), (*live.queues, QueueDefinition("new")))


def one_ring(queues: int) -> tuple[Topology, LiveTopology]:
    """Return the wanted and the live side: one ring gets one queue more."""
    live = rings(1, queues)
    return with_one_queue_more(live), live


def many_rings(exchanges: int) -> tuple[Topology, LiveTopology]:
    """Return the wanted and the live side: one of many rings of ten queues gets one queue more."""
    live = rings(exchanges, 10)
    return with_one_queue_more(live), live


def slots(count: int, more: int = 1) -> tuple[Topology, LiveTopology]:
    """Return the wanted and the live side: so many slots are shared by `more` queues more."""

    def shared(queues: int) -> Topology:
        names = [f"events.{number}" for number in range(queues)]
        exchange = ExchangeDefinition("events", HASH, slots=count, members=tuple(map(RingMember, names)))
        return Topology((exchange,), tuple(map(QueueDefinition, names)))

    ring = HashRing.from_buckets(SlotNames("events", count).refs, RELEASE)
    live = expand(shared(SLOT_QUEUES), LiveTopology()).with_rings({"events": ring})
    return shared(SLOT_QUEUES + more), live


def unchanged_slots(count: int) -> tuple[Topology, LiveTopology]:
    """Return the wanted and the live side of so many slots, of which none changes."""
    return slots(count, more=0)


def modulus(queues: int) -> tuple[Topology, LiveTopology]:
    """Return the wanted and the live side: an x-modulus-hash exchange gets one queue more."""

    def bound(count: int) -> Topology:
        names = tuple(f"bills.{number}" for number in range(count))
        exchange = ExchangeDefinition("bills", "x-modulus-hash", queues=names)
        return Topology((exchange,), tuple(map(QueueDefinition, names)))

    return bound(queues + 1), LiveTopology.of_file(bound(queues), RELEASE)


def definitions(queues: int) -> tuple[Topology, LiveTopology]:
    """Return the wanted side of a definitions file with one queue more, and the live side: queues with a binding each."""

    def text(count: int) -> str:
        names = [f"orders.{number}" for number in range(count)]
        named = [{"name": name, "vhost": "/", "durable": True, "arguments": {}} for name in names]
        bound = [
            {"source": "orders", "destination": name, "destination_type": "queue", "routing_key": name}
            for name in names
        ]
        exchange = {"name": "orders", "type": "topic", "durable": True}
        document = {
            "queues": [{**queue, "auto_delete": False} for queue in named],
            "exchanges": [
                {**exchange, "vhost": "/", "auto_delete": False, "internal": False, "arguments": {}}
            ],
            "bindings": [{**binding, "vhost": "/", "arguments": {}} for binding in bound],
        }
        return json.dumps(document)

    live = LiveTopology.of_file(Topology.from_definitions(text(queues)))
    return Topology.from_definitions(text(queues + 1)), live


KINDS: dict[str, tuple[Callable[[int], tuple[Topology, LiveTopology]], Sequence[int]]] = {
    "queues": (one_ring, (1000, 2000, 4000)),
    "rings": (many_rings, (500, 1000, 2000)),
    "slots": (slots, (1000, 2000, 4000)),
    "unchanged slots": (unchanged_slots, (1000, 2000, 4000)),
    "modulus": (modulus, (1000, 2000, 4000)),
    "definitions": (definitions, (1000, 2000, 4000)),
}


def measured(kind: str, size: int) -> None:
    """Print the CPU seconds of the plan, of its JSON and of its text, and the largest memory of this process in MB."""
    make, _ = KINDS[kind]
    if kind == "definitions":  # reading the file is what grows
        started = time.process_time()
        wanted, live = make(size)
    else:
        wanted, live = make(size)
        started = time.process_time()
    made = plan(wanted, live)
    planned = time.process_time()
    made.to_json(), str(made)
    written = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([planned - started, written - planned, memory]))


def in_a_process(kind: str, size: int) -> tuple[float, float, float]:
    """Return what `measured` prints in a process of its own."""
    command = [sys.executable, __file__, "--one", kind, "--size", str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True)
    planned, written, memory = json.loads(done.stdout)
    return planned, written, memory


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the line of least squares through the logarithms."""
    x, y = ([math.log(value) for value in values] for values in (sizes, seconds))
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def grow(kinds: Sequence[str], part: int) -> None:
    """Measure the kinds, and print a table."""
    rows = []
    for kind in kinds:
        sizes = [size // part for size in KINDS[kind][1]]
        figures = [in_a_process(kind, size) for size in sizes]
        total = [planned + written for planned, written, _ in figures]
        shown = f"{exponent(sizes, total):.2f}"
        for size, (planned, written, memory) in zip(sizes, figures, strict=True):
            rows.append((kind, f"{size:,}", f"{planned:.2f}", f"{written:.2f}", f"{memory:,.0f}", shown))
            shown = ""
    columns = [TableColumn("plan of", numeric=False), *map(TableColumn, ("size", "plan, CPU s"))]
    print(render_table([*columns, *map(TableColumn, ("to_json and text, CPU s", "MB", "exponent"))], rows))


def check_live(most: int) -> None:
    """Measure the checks of a broker with many exchanges of two queues, and print a table."""
    sizes, rows = (most // 4, most // 2, most), []
    with docker_broker() as broker, tempfile.TemporaryDirectory() as folder:
        live = ["--url", broker.url, "--management-url", str(broker.management_url)]
        live += ["--ring-via", shlex.join(broker.ring_via or ())]
        file = Path(folder) / "topology.toml"
        times: dict[str, list[float]] = {"check": [], "check FILE": []}
        for size in sizes:
            wanted = rings(size, 2)
            file.write_text(wanted.to_toml())
            with Broker(broker.url, broker.management_url, broker.ring_via) as connected:
                connected.apply(plan(wanted.as_wanted(), connected.topology(), propose=False))
            for name, arguments in (
                ("check", ["check"]),
                ("check FILE", ["check", str(file)]),
            ):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                started = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-c", COMMAND, *arguments, *live],
                    capture_output=True,
                    text=True,
                    timeout=1800,
                    check=False,
                )
                took = time.perf_counter() - started
                if done.returncode:
                    raise SystemExit(f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}")
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                times[name].append(cpu)
                rows.append([name, f"{size:,}", f"{cpu:.2f}", f"{took:.1f}", ""])
    for row in rows[-2:]:
        row[-1] = f"{exponent(sizes, times[row[0]]):.2f}"
    columns = [
        TableColumn("command", numeric=False),
        *map(TableColumn, ("exchanges", "CPU s", "s", "exponent")),
    ]
    print(render_table(columns, rows))


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--kinds", default=",".join([*KINDS, "live"]), help="the kinds to measure (default: all)"
    )
    parser.add_argument(
        "--exchanges", type=int, default=1000, help="exchanges of the live part (default: 1000)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of each size, for a look")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measured(options.one, options.size)
        return
    kinds = options.kinds.split(",")
    part = 10 if options.quick else 1
    if planned := [kind for kind in kinds if kind != "live"]:
        grow(planned, part)
    if "live" in kinds:
        check_live(options.exchanges // part)


if __name__ == "__main__":
    main()
