"""What happens to a stream while it is read."""

from __future__ import annotations

import struct
import sys
import time
from contextlib import closing

import pyarrow as pa
import pytest
from delivery_checker import Judge
from fire_streams import StreamRun, make_stream, numbers_in
from scripts import run_python
from stream_bytes import entry, sub_entry

from rabbit_chx.streams import ReadLimits, StreamPublisher, StreamReader
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Confirms, Key
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

ROWS = 600_000


def test_rows_that_retention_removed_are_reported(vhost: RunningBroker, record: Judge) -> None:
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
    inside = [b"\0Su\xb0" + struct.pack(">I", 1_000) + b"%01000d" % row for row in range(rows)]
    one = sub_entry(inside, 4, pa.Codec("zstd").compress(b"".join(map(entry, inside)), asbytes=True))
    body = b"".join(row_id.to_bytes(8) + one for row_id in range(1, entries + 1))
    content = struct.pack(">HHBI", Key.PUBLISH, 1, 0, entries) + body
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.declare_publisher(0, "s", None)
        assert 4 + len(content) < connection.frame_max
        connection.send(struct.pack(">I", len(content)) + content)
        confirmed, until = 0, time.monotonic() + 30
        while confirmed < entries and time.monotonic() < until:
            confirmed += sum(len(event.ids) for event in connection.events(1) if isinstance(event, Confirms))
    read, peak_mb = map(int, run_python("-c", _READ, vhost.stream_url).stdout.split())
    assert read == rows * entries
    assert peak_mb < 200
