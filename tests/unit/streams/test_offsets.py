"""The offset that a reader stores under its name: seldom, and at the end for certain. The clock is the test's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from stream_logs import ChunkLog, chunks_of
from stream_node import Session, StreamNode, in_memory

from rabbit_chx.errors import InputError
from rabbit_chx.streams import StreamReader, offsets
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.offsets import log_start_without_position

NAME = ("load", "s")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A node with the stream `s`, and its clock."""
    node: Any = StreamNode()
    node.version, node.commands, node.heartbeat_s = "4.3.6", list(Key), 0
    node.streams["s"] = ChunkLog(chunks_of(3))
    with in_memory(node) as node.clock:
        monkeypatch.setattr(offsets, "time", node.clock)
        yield node


def reading(**how: Any) -> StreamReader:
    return StreamReader("rabbitmq-stream://broker", "s", name="load", **how)


def writes(node: StreamNode) -> int:
    """Return the number of writes of the offset."""
    return node.seen.count(Key.STORE_OFFSET)


def test_an_idle_follower_writes_its_offset_once_within_seconds(node: Any) -> None:
    """Each write is a chunk in the stream, which all of its readers receive."""
    with reading(end="never", max_wait_s=0.0, timeout_s=60) as reader:
        rows = 0
        while rows < 30:
            batch = next(reader)
            rows += batch.num_rows
            reader.store_offset(batch)
        until, seen = node.clock.now + 100, list[int]()

        def look(_: Session) -> None:
            if node.clock.now > until - 92:
                seen.append(node.offsets.get(NAME, -1))
            if node.clock.now > until:
                reader.stop()

        node.on_read = look
        assert list(reader) == []
        assert set(seen) == {29}
        assert writes(node) == 1


def test_an_offset_is_written_after_ten_thousand_further_rows(node: Any) -> None:
    node.streams["s"] = ChunkLog(chunks_of(25, rows=1_000))
    with reading(batch_rows=1_000) as reader:
        for batch in reader:
            reader.store_offset(batch)
        assert 2 <= writes(node) <= 3
    assert node.offsets[NAME] == 24_999


def test_a_reader_starts_after_the_stored_offset_or_where_it_is_told_to(node: Any) -> None:
    """A start that is an offset needs no rows before it. A batch without rows stores nothing."""
    node.offsets[NAME] = 9
    with reading() as reader:
        assert reader.start_offset == 10
        reader.store_offset(next(reader).slice(0, 0))
    node.offsets.clear()
    node.streams["s"].remove(2)
    with reading(start=25) as reader:
        assert (reader.start_offset, reader.missing) == (25, 0)
    assert writes(node) == 0


def test_the_end_does_not_believe_an_older_offset_and_a_second_close_stores_none(node: Any) -> None:
    with reading() as reader:
        (batch,) = reader
        reader.store_offset(batch)
        node.offsets[NAME] = 5
    assert node.offsets.pop(NAME) == 29
    reader.close()
    assert NAME not in node.offsets


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


def test_a_forked_process_reads_nothing_and_closes_no_reader(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading() as reader:
        first = next(reader).num_rows
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            with pytest.raises(InputError, match="'s' was opened by process "):
                next(reader)
            reader.close()
        assert first + sum(batch.num_rows for batch in reader) == 30
        assert writes(node) == 0
