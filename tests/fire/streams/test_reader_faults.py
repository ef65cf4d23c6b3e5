"""What happens to a stream while it is read."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
import pytest
from delivery_checker import Verdict
from fire_streams import StreamRun, make_stream, numbers_in
from stream_bytes import entry
from stream_node import ListeningNode

from rabbit_chx.streams import ReadLimits, StreamPublisher, StreamReader
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Confirms, Key
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

ROWS = 600_000


def test_rows_that_retention_removed_are_reported(
    vhost: RunningBroker, record: Callable[..., Verdict]
) -> None:
    make_stream(vhost, max_length_bytes="90000000", stream_max_segment_size_bytes="2000000")
    run, later = StreamRun(), StreamRun()
    with StreamPublisher(vhost.stream_url, stream="s") as publisher:
        run.give(publisher, ROWS)
        with StreamReader(
            vhost.stream_url, "s", limits=ReadLimits(batch_rows=1), on_missing="count"
        ) as reader:
            read = numbers_in(next(reader))
            later.give(publisher, 2 * ROWS)  # more than the stream keeps
            read += [number for batch in reader for number in numbers_in(batch)]
    missing = sorted(set(range(1, ROWS + 1)) - set(read))
    assert len(missing) == reader.missing > 0
    assert len(read) < ROWS // 4, "more than some megabytes were read ahead"
    record(
        run.history(read, elsewhere=missing),
        path="StreamReader",
        fault="retention removes rows that a reader has still to read",
        promise="The reader counts them, or raises MissingRowsError. The rows that are there come once, in order.",
        outcome=f"{reader.missing:,} rows counted as missing",
    )


def test_a_silent_node_is_left_for_the_other(vhost: RunningBroker) -> None:
    make_stream(vhost)
    run = StreamRun()
    with StreamPublisher(vhost.stream_url, stream="s") as publisher:
        run.give(publisher, 1_000)
    with ListeningNode() as silent:
        silent.silent = {Key.METADATA}
        started = time.monotonic()
        with StreamReader([silent.settings, vhost.stream_url], "s") as reader:
            read = [number for batch in reader for number in numbers_in(batch)]
        assert Key.METADATA in silent.seen
    assert read == list(range(1, 1_001))
    assert time.monotonic() - started < 30, "half of the timeout"


_READ = """
import re, sys
from pathlib import Path
from rabbit_chx import StreamReader
rows = 0
with StreamReader(sys.argv[1], "s") as reader:
    for batch in reader:
        rows += batch.num_rows
print(rows, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")
def test_much_compressed_data_takes_a_bounded_memory(vhost: RunningBroker) -> None:
    """40 sub-entries of 10,000 rows of 1 kB: 20 kB each in the stream, 10 MB each unpacked."""
    make_stream(vhost)
    rows, entries = 10_000, 40
    inside = b"".join(entry(b"\0Su\xb0" + struct.pack(">I", 1_000) + b"%01000d" % row) for row in range(rows))
    packed = pa.Codec("zstd").compress(inside, asbytes=True)
    one = struct.pack(">BHII", 0x80 | 4 << 4, rows, len(inside), len(packed)) + packed
    body = b"".join(row_id.to_bytes(8) + one for row_id in range(1, entries + 1))
    content = struct.pack(">HHBI", Key.PUBLISH, 1, 0, entries) + body
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.declare_publisher(0, "s", None)
        assert 4 + len(content) < connection.frame_max
        connection.send(struct.pack(">I", len(content)) + content)
        confirmed, until = 0, time.monotonic() + 30
        while confirmed < entries and time.monotonic() < until:
            confirmed += sum(len(event.ids) for event in connection.events(1) if isinstance(event, Confirms))
    done = subprocess.run(
        [sys.executable, "-c", _READ, vhost.stream_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    read, peak_mb = map(int, done.stdout.split())
    assert read == rows * entries
    assert peak_mb < 200
