"""The offset that a reader stores under its name: seldom, and at the end for certain. The clock is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from stream_logs import ChunkLog, chunks_of
from stream_node import Clock, Session, StreamNode, in_memory

from rabbit_chx.streams import StreamReader, offsets
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.offsets import log_start_without_position

NAME = ("load", "s")


class Site:
    """A node with the stream `s`, and its readers."""

    def __init__(self, clock: Clock, node: StreamNode) -> None:
        self.clock, self.node = clock, node

    def reader(self, **how: Any) -> StreamReader:
        return StreamReader("rabbitmq-stream://broker", "s", name="load", **how)

    @property
    def writes(self) -> int:
        """The number of writes of the offset."""
        return self.node.seen.count(Key.STORE_OFFSET)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    node = StreamNode()
    node.version, node.commands, node.heartbeat_s = "4.3.6", list(Key), 0
    node.streams["s"] = ChunkLog(chunks_of(3))
    with in_memory(node) as clock:
        monkeypatch.setattr(offsets, "time", clock)
        yield Site(clock, node)


def test_an_idle_follower_writes_its_offset_once_within_seconds(site: Site) -> None:
    """Each write is a chunk in the stream, which all of its readers receive."""
    with site.reader(end="never", max_wait_s=0.0, timeout_s=60) as reader:
        rows = 0
        while rows < 30:
            batch = next(reader)
            rows += batch.num_rows
            reader.store_offset(batch)
        until, seen = site.clock.now + 100, list[int]()

        def look(_: Session) -> None:
            if site.clock.now > until - 92:
                seen.append(site.node.offsets.get(NAME, -1))
            if site.clock.now > until:
                reader.stop()

        site.node.on_read = look
        assert list(reader) == []
        assert set(seen) == {29}
        assert site.writes == 1


def test_an_offset_is_written_after_ten_thousand_further_rows(site: Site) -> None:
    site.node.streams["s"] = ChunkLog(chunks_of(25, rows=1_000))
    with site.reader(batch_rows=1_000) as reader:
        for batch in reader:
            reader.store_offset(batch)
        assert 2 <= site.writes <= 3
    assert site.node.offsets[NAME] == 24_999


def test_a_reader_starts_after_the_stored_offset_or_where_it_is_told_to(site: Site) -> None:
    """A start that is an offset needs no rows before it. A batch without rows stores nothing."""
    site.node.offsets[NAME] = 9
    with site.reader() as reader:
        assert reader.start_offset == 10
        reader.store_offset(next(reader).slice(0, 0))
    site.node.offsets.clear()
    site.node.streams["s"].remove(2)  # type: ignore[union-attr]
    with site.reader(start=25) as reader:
        assert (reader.start_offset, reader.missing) == (25, 0)
    assert site.writes == 0


def test_the_end_does_not_believe_an_older_offset(site: Site) -> None:
    with site.reader() as reader:
        (batch,) = reader
        reader.store_offset(batch)
        site.node.offsets[NAME] = 5
    assert site.node.offsets[NAME] == 29


@pytest.mark.parametrize(
    ("start", "log_start"),
    [
        ("first", 70),
        ("last", 70),
        (datetime.fromtimestamp(4.999, UTC), 70),
        (datetime.fromtimestamp(5.0, UTC), 70),  # of the rows of that millisecond some may be gone
        (datetime.fromtimestamp(5.001, UTC), 0),
        (60, 0),  # to read it is an error
    ],
)
def test_rows_may_be_missing_before_a_start_that_the_log_does_not_have(start: Any, log_start: int) -> None:
    """The first chunk is at offset 70, of the time 5 s."""
    finder: Any = SimpleNamespace(chunk_at=lambda *_, **__: SimpleNamespace(offset=70, timestamp_ms=5_000))
    assert log_start_without_position(finder, "s", start) == log_start
