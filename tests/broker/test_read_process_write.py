"""The example that reads a stream and writes another one: killed at thirty points, and with a broker or the leaders killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from cluster import RunningCluster
from fire_streams import COORDINATOR_S, addresses_of, make_stream
from three_nodes import ThreeNodes

from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import in_vhost, temporary_vhost

pytestmark = [pytest.mark.broker, pytest.mark.extended, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "read_process_write.py"
ROWS = 60_000
KILLS = 30
#: The example in small batches; it prints a line before it publishes, and before it stores the offset of a batch.
PROGRAM = f"""
import json
import sys
sys.path.insert(0, {str(EXAMPLE.parent)!r})
import read_process_write as example
def announced(kind, name):
    function = getattr(kind, name)
    def call(*arguments, **named):
        print(name, flush=True)
        return function(*arguments, **named)
    setattr(kind, name, call)
announced(example.StreamPublisher, "publish_many")
announced(example.StreamReader, "store_offset")
addresses, *urls = sys.argv[1:]
example.run(urls, "s", "t", batch_rows=300, addresses=json.loads(addresses))
"""


@dataclass(frozen=True)
class Nodes:
    """Where the streams are."""

    urls: list[str]
    addresses: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def started(nodes: Nodes) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(nodes.addresses), *nodes.urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()  # if it has not ended


def payments() -> list[str]:
    """Amounts in cents; one of three is large."""
    return [str(number if number % 3 else 10_000 + number) for number in range(9_000)] * (ROWS // 9_000 + 1)


def expected(bodies: list[str]) -> list[str]:
    return [str(int(cents) + int(cents) * 2 // 100) for cents in bodies if int(cents) >= 10_000]


def results(nodes: Nodes, rows: int) -> list[str]:
    """The results, when there are as many rows, or a minute has passed."""
    found: list[str] = []
    with StreamReader(nodes.urls, "t", end="never", addresses=nodes.addresses) as reader:
        timer = threading.Timer(60, reader.stop)
        timer.start()
        for batch in reader:
            found += batch["value"].cast(pa.string()).to_pylist()  # type: ignore[arg-type]
            if len(found) >= rows:
                threading.Timer(1, reader.stop).start()  # are there more?
        timer.cancel()
    return found


def write(nodes: Nodes, bodies: list[str], first: int) -> None:
    """Write rows in chunks of a hundred at most, since a batch has whole chunks."""
    with StreamPublisher(nodes.urls, stream="s", name="source") as publisher:
        for row in range(0, len(bodies), 100):
            part = bodies[row : row + 100]
            ids = range(first + row, first + row + len(part))
            assert publisher.publish_many(["k"] * len(part), part, ids=ids).complete


def with_streams(broker: RunningBroker) -> Nodes:
    for stream in ("s", "t"):
        make_stream(broker, stream)
    return Nodes([broker.stream_url])


@pytest.mark.slow
def test_killed_at_thirty_points_it_loses_and_repeats_nothing(vhost: RunningBroker) -> None:
    nodes = with_streams(vhost)
    bodies = payments()[:ROWS]
    chance = random.Random(33)  # noqa: S311
    killed = 0
    for first in range(0, ROWS, ROWS // KILLS):  # seven batches or more, with two lines each
        write(nodes, bodies[first : first + ROWS // KILLS], first + 1)
        with started(nodes) as program:
            assert program.stdout is not None
            for _ in range(chance.randrange(1, 12)):
                assert program.stdout.readline(), "it ended by itself"
            time.sleep(chance.random() * 0.01)
            program.kill()
            killed += program.wait() == -signal.SIGKILL
    assert killed == KILLS
    with started(nodes) as program:
        assert results(nodes, len(expected(bodies))) == expected(bodies)
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0


def check_results_over_faults(nodes: Nodes, faults: list[Callable[[], None]]) -> None:
    """Publish a part of the rows before each fault; the results are there once, and the program ends in order."""
    bodies = payments()[: 5_000 * len(faults)]
    with (
        started(nodes) as program,
        StreamPublisher(nodes.urls, stream="s", name="source", addresses=nodes.addresses) as publisher,
    ):
        for number, fault in enumerate(faults):
            ids = range(number * 5_000 + 1, (number + 1) * 5_000 + 1)
            publisher.publish_many(["k"] * 5_000, bodies[ids[0] - 1 : ids[-1]], ids=ids)
            assert program.stdout is not None
            assert program.stdout.readline(), "it ended by itself"
            fault()
        assert results(nodes, len(expected(bodies))) == expected(bodies)
        program.terminate()
        assert program.wait(60) == 0


@pytest.mark.slow
@pytest.mark.restarts
def test_a_broker_that_is_killed_loses_and_repeats_nothing(vhost: RunningBroker) -> None:
    def kill() -> None:
        vhost.kill()
        vhost.start()

    check_results_over_faults(with_streams(vhost), [kill] * 4)


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.restarts
def test_leaders_that_are_lost_lose_and_repeat_nothing(chx_cluster: RunningCluster) -> None:
    chx_cluster.wait_until_together()
    with temporary_vhost(chx_cluster.nodes[0]) as home:
        for stream in ("s", "t"):
            make_stream(home, stream, initial_cluster_size="3")
        time.sleep(COORDINATOR_S)
        vhost = home.url.rpartition("/")[2]
        urls = [in_vhost(node, vhost).stream_url for node in chx_cluster.nodes]
        nodes = Nodes(urls, addresses_of(chx_cluster))
        leaders = [ThreeNodes(chx_cluster, vhost, stream) for stream in ("s", "t", "s", "t")]
        check_results_over_faults(nodes, [leader.lose_leader for leader in leaders])
