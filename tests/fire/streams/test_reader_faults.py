"""What happens to a stream while it is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from delivery_checker import Verdict
from fire_streams import StreamRun, make_stream, numbers_in

from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

ROWS = 600_000


def test_retention_overtakes_a_reader(vhost: RunningBroker, record: Callable[..., Verdict]) -> None:
    make_stream(vhost, max_length_bytes="90000000", stream_max_segment_size_bytes="2000000")
    run, later = StreamRun(), StreamRun()
    with StreamPublisher(vhost.stream_url, stream="s") as publisher:
        run.give(publisher, ROWS)
        with StreamReader(vhost.stream_url, "s", batch_rows=1, on_missing="count") as reader:
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
