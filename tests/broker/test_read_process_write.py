"""The example that reads a stream and writes another one, killed at thirty points."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from fire_streams import make_stream

from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.extended, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "read_process_write.py"
ROWS = 60_000
KILLS = 30
#: The example in small batches; it prints a line before it publishes, and before it stores the offset of a batch.
PROGRAM = f"""
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
example.run(sys.argv[1:], "s", "t", batch_rows=300)
"""


@contextmanager
def started(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()  # if it has not ended


def expected(bodies: list[str]) -> list[str]:
    return [str(int(cents) + int(cents) * 2 // 100) for cents in bodies if int(cents) >= 10_000]


def results(url: str, rows: int) -> list[str]:
    """The results, when there are as many rows, or a minute has passed."""
    found: list[str] = []
    with StreamReader(url, "t", end="never") as reader:
        timer = threading.Timer(60, reader.stop)
        timer.start()
        for batch in reader:
            found += batch["value"].cast(pa.string()).to_pylist()  # type: ignore[arg-type]
            if len(found) >= rows:
                threading.Timer(1, reader.stop).start()  # are there more?
        timer.cancel()
    return found


def write(url: str, bodies: list[str], first: int) -> None:
    """Write rows in chunks of a hundred at most, since a batch has whole chunks."""
    with StreamPublisher(url, stream="s", name="source") as publisher:
        for row in range(0, len(bodies), 100):
            part = bodies[row : row + 100]
            ids = range(first + row, first + row + len(part))
            assert publisher.publish_many(["k"] * len(part), part, ids=ids).complete


@pytest.mark.slow
def test_killed_at_thirty_points_it_loses_and_repeats_nothing(vhost: RunningBroker) -> None:
    url = vhost.stream_url
    for stream in ("s", "t"):
        make_stream(vhost, stream)
    # Amounts in cents; one of three is large.
    bodies = [str(cents if cents % 3 else 10_000 + cents) for cents in range(9_000)] * (ROWS // 9_000 + 1)
    del bodies[ROWS:]
    chance = random.Random(33)  # noqa: S311
    killed = 0
    for first in range(0, ROWS, ROWS // KILLS):  # seven batches or more, with two lines each
        write(url, bodies[first : first + ROWS // KILLS], first + 1)
        with started(url) as program:
            assert program.stdout is not None
            for _ in range(chance.randrange(1, 12)):
                assert program.stdout.readline(), "it ended by itself"
            time.sleep(chance.random() * 0.01)
            program.kill()
            killed += program.wait() == -signal.SIGKILL
    assert killed == KILLS
    with started(url) as program:
        assert results(url, len(expected(bodies))) == expected(bodies)
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0
