"""Filter values that a publisher writes, and filters of a reader, with a scripted node: what is sent, read and returned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stream_bytes import chunk_bytes, entry, notes
from stream_logs import ChunkLog
from stream_node import Clock, Session, StreamNode, in_memory
from stream_publishers import Broker, publisher

from rabbit_chx.errors import InputError, MissingRowsError, RabbitChxError
from rabbit_chx.streams import StreamReader
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.reader import RangeReader
from rabbit_chx.streams.rows import encode_rows

WITH_FILTERS = (Key.PUBLISH, Key.STREAM_STATS)
COLOURS = ["red", "green", "blue", "grey", "red", "black", "green", "white"]


def row(value: str | None, body: str, key: str = "k", exchange: str = "orders") -> bytes:
    """A stored row with a filter value, or without."""
    filter_values = None if value is None else [value]
    encoded = encode_rows([key], [body], exchange=exchange, filter_values=filter_values, is_sub_entry=True)
    return bytes(encoded.message(0, 1))


def chunk(offset: int, *values: str | None) -> bytes:
    return chunk_bytes([row(value, f"{offset + at}") for at, value in enumerate(values)], offset=offset)


class Filtering(StreamNode):
    """A node of 4.3 whose stream has chunks of three rows with one filter value, and chunks of the broker's own between them."""

    heartbeat_s = 0
    clock: Clock

    def __init__(self, host: str = "broker") -> None:
        super().__init__(host)
        self.version, self.commands = "4.3.6", WITH_FILTERS
        self.log = self.streams["s"] = ChunkLog()
        offset = 0
        for colour in COLOURS:
            self.log.chunks.append(chunk(offset, *[colour] * 3))
            self.log.chunks.append(chunk_bytes([entry(notes("consumer", kind=1))], offset=offset + 3, kind=1))
            offset += 4


@contextmanager
def node() -> Iterator[Filtering]:
    made = Filtering()
    with in_memory(made) as made.clock:
        yield made


def reader(**how: Any) -> StreamReader:
    kind: Any = RangeReader if "landmarks" in how else StreamReader
    reading: StreamReader = kind("rabbitmq-stream://broker", "s", **{"timeout_s": 20.0, **how})
    return reading


def values(batches: Any) -> list[int]:
    return [int(value) for batch in batches for value in batch["value"].to_pylist()]


def offsets_of(colour: str) -> list[int]:
    return [4 * at + row for at, each in enumerate(COLOURS) if each == colour for row in range(3)]


# -- reading


@pytest.mark.parametrize("batch_rows", [1, 1_000])
@pytest.mark.parametrize("colour", [*COLOURS, "violet"])
def test_only_matching_chunks_are_read_and_the_reading_ends(colour: str, batch_rows: int) -> None:
    """Also if the last chunks do not match, so that the end never arrives."""
    with node() as broker, reader(filters=[colour], batch_rows=batch_rows) as reading:
        began = broker.clock.now
        assert values(reading) == offsets_of(colour)
        assert reading.rows_read == reading.rows_returned == len(offsets_of(colour))
        assert (reading.next_offset, reading.missing) == (reading.end_offset, 0)
        assert broker.clock.now - began < 2.0, "it waits for a chunk that never arrives"


def test_rows_of_a_chunk_that_do_not_match_are_omitted() -> None:
    with node() as broker:
        broker.log.chunks = [
            chunk(0, "red", "green", None, ""),
            chunk(4, None, None),
            chunk(6, "green", "red"),
        ]
        with reader(filters=["red"]) as reading:
            assert values(reading) == [0, 2, 7]  # a row without the annotation may be of another client
            assert (reading.rows_read, reading.rows_returned) == (6, 3)
        with reader(filters=["red"], match_unfiltered=True, include=["exchange"]) as reading:
            batches = list(reading)
            assert values(batches) == [0, 2, 3, 4, 5, 7]
            assert batches[0].schema.names == ["offset", "timestamp", "key", "value", "exchange"]
        with reader(filters=[b"green", "red"], include=["filter_value"]) as reading:
            assert [value for batch in reading for value in batch["filter_value"].to_pylist()] == [
                b"red", b"green", None, b"green", b"red",
            ]  # fmt: skip


@pytest.mark.parametrize("end", [9, 12, 18, 29])
@pytest.mark.parametrize("start", ["first", 2, 6])
def test_an_end_and_a_start_in_the_middle(start: Any, end: int) -> None:
    for colour in ("red", "green"):
        with node(), reader(filters=[colour], start=start, end=end) as reading:
            first = 0 if start == "first" else start
            assert values(reading) == [offset for offset in offsets_of(colour) if first <= offset < end]
            assert reading.next_offset == end


def test_a_matching_chunk_right_behind_the_range_is_not_awaited() -> None:
    """A reader without an end does not look for it."""
    with node() as broker:
        broker.at_once = 0  # the first subscription is late: it has delivered the first chunk only
        with reader(filters=["red"], end=16) as reading:  # the next red chunk begins at 16
            assert values(reading) == [0, 1, 2]
    with node() as broker, reader(filters=["red", "x" * 32_767], end="never", max_wait_s=0.0) as reading:
        assert values([next(reading)])[0] == 0
        assert max(offset for _, offset in broker.starts) < 40


def test_a_matching_chunk_that_is_late_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives while the reader asks for the second time whether a further chunk in the range matches."""
    deliver = Session.deliver
    with node() as broker, reader(filters=["grey", "black"], end=20) as reading:  # they begin at 12 and 20
        broker.starts.clear()

        def late(session: Session, number: int, *most: int) -> bytes:
            numbers = sorted({0, number}) if len(broker.starts) > 3 else {number} - {0}
            return b"".join(deliver(session, each, *most) for each in numbers)

        monkeypatch.setattr(Session, "deliver", late)
        assert values(reading) == [12, 13, 14]


def test_rows_that_retention_removes_meanwhile_are_missing() -> None:
    for filters, remaining in ((["green"], [24, 25, 26]), (["violet"], [])):
        with node() as broker, reader(filters=filters, batch_rows=1, on_missing="count") as reading:
            broker.log.remove(8)
            assert values(reading) == remaining
            assert reading.missing == 16
        with node() as broker, reader(filters=filters) as reading:
            broker.log.remove(8)
            with pytest.raises(MissingRowsError, match="does not have the offsets 0 to 15 any more"):
                list(reading)


@pytest.mark.parametrize(
    ("start", "stop", "other"), [(-2, -1, ["other", "white", "white"]), (-6, None, None)]
)
def test_a_log_that_was_rewritten_or_cut_is_an_error(start: int, stop: int | None, other: Any) -> None:
    """Also if no chunk at all matches: the last one of the range is compared. A task reads the range of its driver."""
    with node() as broker:
        with reader() as first:
            in_range = {"start": 0, "end": first.end_offset, "landmarks": [first.end_fingerprint]}
        for colour in ("red", "violet", "white"):
            broker.seen.clear()
            with reader(filters=[colour], **in_range) as task:
                assert values(task) == offsets_of(colour)
            assert broker.seen.count(Key.SUBSCRIBE) <= 3
        with reader(filters=["violet"]) as reading, reader(filters=["violet"], **in_range) as task:
            broker.log.chunks[start:stop] = [chunk(28, *other)] if other else []
            for each, words in ((reading, "has been rewritten"), (task, None)):
                with pytest.raises(MissingRowsError, match=words):
                    list(each)


def test_a_silent_node_is_an_error_in_time() -> None:
    with node() as broker, reader(filters=["white"], timeout_s=20.0) as reading:
        broker.delivered, began = lambda _: b"", broker.clock.now
        with pytest.raises(RabbitChxError):
            list(reading)
        assert broker.clock.now - began < 60.0


@pytest.mark.parametrize("known", [{}, {"start": 0, "end": 8, "landmarks": ()}], ids=["opened", "task"])
def test_a_broker_without_filters_is_refused_before_reading(known: dict[str, Any]) -> None:
    with node() as broker:
        broker.version, broker.commands = "3.12.14", (Key.STREAM_STATS,)
        with pytest.raises(InputError, match=r"RabbitMQ 3\.12\.14 does not filter streams: upgrade to 3\.13"):
            list(reader(filters=["red"], **known))
        assert Key.SUBSCRIBE not in broker.seen


# -- publishing


@pytest.fixture
def broker(broker: Broker) -> Broker:
    broker.commands = WITH_FILTERS
    return broker


def stored(broker: Broker) -> list[tuple[str, str | None]]:
    """Return the key and the filter value of each row."""
    rows: Any = broker.rows["s"].batch(0, 1_000)
    keys, filter_values = (rows[name].cast(pa.string()).to_pylist() for name in ("key", "filter_value"))
    return list(zip(keys, filter_values, strict=True))


KEYS = ["a-1", "b-2", "a-3"]


@pytest.mark.parametrize("columns", [list, np.array, pa.array])
@pytest.mark.parametrize("name", [None, "load"])
def test_rows_have_the_filter_values_of_a_column(broker: Broker, columns: Any, name: str | None) -> None:
    ids = None if name is None else [1, 2, 3]
    with publisher(name=name) as made:
        report = made.publish_many(
            columns(KEYS), columns(["x"] * 3), ids=ids, filter_values=columns(["a", "", "é"])
        )
        again = made.publish_many(columns(KEYS), columns(["y"] * 3), ids=ids and [4, 5, 6])
    assert report.complete
    assert again.complete
    expected = [("a-1", "a"), ("b-2", ""), ("a-3", "é"), *((key, None) for key in KEYS)]
    assert stored(broker) == expected


def test_the_filter_value_is_the_key_or_a_function_of_it(broker: Broker) -> None:
    calls: list[bytes] = []

    def first(key: bytes) -> str:
        calls.append(key)
        return key.decode()[0]

    keys = KEYS * 2
    with publisher(filter_value="key") as made:
        made.publish_many(keys, keys)
    with publisher(filter_value=first) as made:
        made.publish_many(pa.chunked_array([keys, keys[:1]]), [*keys, "x"])
    expected = [(key, key) for key in keys] + [(key, key[0]) for key in [*keys, "a-1"]]
    assert stored(broker) == expected
    assert calls == [key.encode() for key in KEYS]


def test_the_longest_filter_value_is_written(broker: Broker) -> None:
    broker.frame_max = 1 << 20
    with publisher() as made:
        assert made.publish_many(["k"], ["x"], filter_values=["v" * 32_767]).complete


def test_a_broker_without_filters_is_refused_before_writing(broker: Broker) -> None:
    broker.version, broker.commands = "3.10.8", ()
    with pytest.raises(InputError, match=r"RabbitMQ 3\.10\.8 does not filter streams: upgrade to 3\.13"):
        publisher(filter_value="key")
    with publisher() as made, pytest.raises(InputError, match="does not filter streams"):
        made.publish_many(KEYS, KEYS, filter_values=KEYS)
    assert not broker.rows["s"].log


def test_rows_that_do_not_match_may_be_removed_unread() -> None:
    made = Filtering()
    log = made.streams["s"] = ChunkLog([chunk(0, "red", "red"), chunk(2, "green", "green")])
    with in_memory(made) as clock, reader(end="never", filters=["red"], timeout_s=10) as reading:
        assert values([next(reading)]) == [0, 1]
        arrives_at = clock.now + 20

        def arrive(_: Session) -> None:
            if clock.now > arrives_at and log.end == 2:
                log.chunks.append(chunk(4, "red"))
                log.remove(2)

        made.on_read = arrive
        assert values([next(reading)]) == [4]
        log.chunks += [chunk(5, "green"), chunk(6, "red")]
        log.remove(2)
        with pytest.raises(MissingRowsError):
            next(reading)
