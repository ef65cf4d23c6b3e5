"""Micro-batches beside scripted streams: where a query begins, where each batch ends, and logs that are not the same any more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from stream_bytes import chunk_of

from rabbit_chx.errors import InputError, MissingRowsError, NotFoundError, RabbitChxError
from rabbit_chx.streams import Fingerprint
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.log_lookup import LogEnd
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading import micro_batches
from spark_connector.reading.micro_batches import MicroBatches, Place, Sources, offset_of, places_in
from spark_connector.reading.spark_readers import BatchReader, MicroBatchReader

ROWS_OF_A_CHUNK = 10


class Logs:
    """Stands for LogEnds: streams of chunks of 10 rows.

    Attributes:
        chunks: the chunks of each stream.
    """

    def __init__(self, *_about: object) -> None:
        self.chunks: dict[str, list[Chunk]] = {}
        self.closed = False

    def grow(self, stream: str, *bodies: bytes) -> None:
        """Write a chunk for each body."""
        chunks = self.chunks.setdefault(stream, [])
        for body in bodies:
            chunks.append(chunk_of([body] * ROWS_OF_A_CHUNK, offset=chunks[-1].end if chunks else 0))

    def place(self, stream: str, chunk: int = -1) -> Place:
        """Return the place behind a chunk."""
        last = self.chunks[stream][chunk]
        return Place(last.end, last.fingerprint)

    def partitions(self, _super_stream: str) -> tuple[str, ...]:
        return tuple(self.chunks)

    def ends(self, streams: tuple[str, ...]) -> dict[str, LogEnd]:
        found = {}
        for stream in streams:
            if stream in self.chunks:
                chunks = self.chunks[stream]
                found[stream] = LogEnd(chunks[-1].end, chunks[-1].fingerprint) if chunks else LogEnd(0, None)
        return found

    def chunk_at(self, stream: str, offset: int) -> Chunk | None:
        return next((chunk for chunk in self.chunks[stream] if chunk.end > offset), None)

    def offset_of(self, stream: str, place: datetime | str, end: LogEnd) -> int:
        """Return the offset of the first chunk, or for any time of the second one."""
        chunks = self.chunks[stream]
        return min(end.offset, chunks[0 if place == "first" else 1].offset if chunks else 0)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    scripted = Logs()
    monkeypatch.setattr(micro_batches, "LogEnds", lambda *_: scripted)
    return scripted


def options_of(**options: str) -> ReadOptions:
    texts = {"url": "rabbitmq-stream://h", "superStream": "s", **options}
    return ReadOptions.parse(texts, streaming=True)


def batches_of(**options: str) -> MicroBatches:
    return MicroBatches(options_of(**options))


def nexts(places: Mapping[str, Place]) -> dict[str, int]:
    return {stream: place.next for stream, place in places.items()}


# -- where a batch begins and ends


def test_where_a_query_begins(logs: Logs) -> None:
    logs.grow("a", b"1", b"2")
    logs.grow("b")
    assert batches_of().begin() == {"a": logs.place("a"), "b": Place(0)}
    assert batches_of(startingOffsets="earliest").begin() == {"a": Place(0), "b": Place(0)}
    within = Place(15, logs.place("a").before)  # the last chunk that is read in part
    assert batches_of(startingOffsets='{"a": 15, "b": -1}').begin() == {"a": within, "b": Place(0)}
    assert batches_of(startingOffsets='{"a": 10, "b": -2}').begin()["a"] == logs.place("a", 0)


def test_a_place_behind_rows_that_are_gone_has_no_fingerprint(logs: Logs) -> None:
    """That of the next chunk is not one of what was read: with more rows it would look as if the log had been rewritten."""
    logs.grow("a", b"1", b"2", b"3")
    del logs.chunks["a"][0]
    assert batches_of(startingOffsets='{"a": 10}').begin() == {"a": Place(10, None)}


def test_starting_offsets_that_do_not_fit_are_refused(logs: Logs) -> None:
    logs.grow("a", b"1")
    logs.grow("b", b"1")
    for offsets, error, words in (
        ('{"a": 0, "b": 0, "c": 0}', InputError, "names stream 'c', which is not one of"),
        ('{"a": 0}', InputError, "does not name stream 'b'"),
        ('{"a": 11, "b": 0}', MissingRowsError, "is 11 for stream 'a', which ends at offset 10"),
    ):
        with pytest.raises(error, match=words):
            batches_of(startingOffsets=offsets).begin()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_stream_that_does_not_exist_is_an_error(logs: Logs, fail: str) -> None:
    """Whatever failOnDataLoss is, where a reading begins."""
    logs.grow("s", b"1")
    texts = {"url": "rabbitmq-stream://h", "stream": "s,nope", "failOnDataLoss": fail}
    options = ReadOptions.parse(texts)
    read = Sources(options)
    words = r"there is no stream 'nope' \(a queue of another type may have that name\): check the name and the vhost$"
    with pytest.raises(NotFoundError, match=words) as error:
        MicroBatches(options).begin()
    assert error.value.queue == "nope"
    with pytest.raises(NotFoundError, match=words):
        read.offsets_at("startingOffsets", "earliest", read.ends())


def test_a_batch_ends_where_the_streams_end_or_have_been_held(logs: Logs) -> None:
    logs.grow("a", b"1")
    logs.grow("b", b"1")
    batches, held = batches_of(), batches_of()
    begin = batches.begin()
    assert batches.after(begin, None, None) == begin
    held.hold()
    logs.grow("a", b"2")
    assert batches.after(begin, None, None) == {"a": logs.place("a"), "b": logs.place("b")}
    assert held.after(begin, None, None) == begin


def test_bounds_of_a_batch(logs: Logs) -> None:
    logs.grow("a", b"1", b"2", b"3")
    logs.grow("b", b"1")
    begin = {"a": Place(0), "b": Place(0)}
    batches = batches_of()
    assert nexts(batches.after(begin, 20, None)) == {"a": 15, "b": 5}
    assert batches.after({"a": Place(0), "b": logs.place("b")}, 20, None)["a"] == logs.place("a", 1)
    size = len(logs.chunks["a"][0].data)
    assert nexts(batches.after(begin, None, 2 * size)) == {"a": 15, "b": 5}
    assert nexts(batches.after(begin, 4, 2 * size)) == {"a": 3, "b": 1}
    assert sum(nexts(batches.after(begin, None, 1)).values()) == 1


def test_a_stream_that_is_new_begins_with_the_next_batch(logs: Logs) -> None:
    logs.grow("a", b"1")
    logs.grow("b", b"1", b"2")
    del logs.chunks["b"][0]
    assert nexts(batches_of().after({"a": Place(0)}, None, None)) == {"a": 10, "b": 10}


REWRITTEN = "offset 20, and its log was rewritten"


def rewrite(chunks: list[Chunk]) -> None:
    chunks[:] = [chunk_of([b"9"] * ROWS_OF_A_CHUNK, offset=offset) for offset in (0, ROWS_OF_A_CHUNK)]


def replace_the_last(chunks: list[Chunk]) -> None:
    """It begins where the known last one began, and has more rows: no other chunk shows that the log was cut."""
    chunks[-1] = chunk_of([b"9"] * (ROWS_OF_A_CHUNK + 5), offset=ROWS_OF_A_CHUNK)


@pytest.mark.parametrize(
    ("change", "words"),
    [(rewrite, REWRITTEN), (replace_the_last, REWRITTEN), (list.pop, "offset 20, and it ends at offset 10")],
)
def test_a_log_that_is_not_the_same_is_an_error(logs: Logs, change: Any, words: str) -> None:
    logs.grow("a", b"1", b"2")
    batches = batches_of()
    begin = batches.begin()
    change(logs.chunks["a"])
    with pytest.raises(MissingRowsError, match=f"stream 'a' was read up to {words}.*failOnDataLoss=false"):
        batches.after(begin, None, None)
    lenient = batches_of(failOnDataLoss="false")
    first = lenient.after(begin, None, None)
    assert first == {"a": Place(0)}
    assert lenient.after(first, None, None) == {"a": logs.place("a")}


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
def test_a_log_that_was_made_again_is_read_from_its_first_row(
    logs: Logs, caplog: pytest.LogCaptureFixture, chunks: int
) -> None:
    """With fewer rows than were read, as many, or more; the offset itself shows nothing."""
    logs.grow("a", b"1", b"2")
    batches = batches_of(failOnDataLoss="false")
    begin = batches.begin()
    logs.grow("a", b"3")
    assert batches.after(begin, 1, None) != begin
    logs.chunks.clear()
    logs.grow("a", *[b"9"] * chunks)
    first = batches.after(begin, None, None)
    assert first == {"a": Place(0)}
    assert batches.after(first, None, None) == {"a": logs.place("a")}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "stream 'a' was read up to offset 20" in line
    assert (
        f"10 rows behind that were seen and not read; the {10 * chunks} rows of the new log are read" in line
    )
    caplog.clear()
    batches_of(failOnDataLoss="false").after(begin, None, None)
    assert "how many rows behind that were not read is not known" in caplog.text, (
        "of a query that starts again"
    )


def test_rows_that_retention_removed_do_not_make_another_log(logs: Logs) -> None:
    logs.grow("a", b"1", b"2")
    batches = batches_of(failOnDataLoss="false")
    begin = batches.begin()
    logs.grow("a", b"3", b"4")
    del logs.chunks["a"][:3]
    assert batches.after(begin, None, None) == {"a": logs.place("a")}


def test_the_partitions_of_each_micro_batch_follow_the_last(logs: Logs) -> None:
    """The first micro-batch has no rows, and a stream that is new none before its next one."""
    limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")
    logs.grow("a", b"1", b"2")
    reader = MicroBatchReader(options_of(startingOffsets="earliest", maxOffsetsPerTrigger="12"))
    anchor = reader.initialOffset()
    assert anchor == {"anchor": "earliest"}
    limit = reader.getDefaultReadLimit()
    begin = reader.latestOffset(anchor, limit)
    assert begin == offset_of({"a": Place(0)})
    assert reader.partitions(anchor, begin) == []
    logs.grow("b", b"1")
    end = reader.latestOffset(begin, limit)
    assert nexts(places_in(end)) == {"a": 12, "b": 0}
    before = tuple(logs.chunks["a"][1].fingerprint)
    assert [partition.value for partition in reader.partitions(begin, end)] == [("a", 0, 12, None, [before])]
    last = reader.latestOffset(end, limits.ReadAllAvailable())
    assert [partition.value for partition in reader.partitions(end, last)] == [
        ("a", 12, 20, before, [before]), ("b", 0, 10, None, [tuple(logs.chunks["b"][0].fingerprint)]),
    ]  # fmt: skip
    assert reader.reportLatestOffset() == last
    reader.stop()
    assert logs.closed


def test_a_batch_has_the_offsets_of_its_options_and_the_ends_of_the_streams(logs: Logs) -> None:
    logs.grow("a", b"1", b"2")
    read = Sources(options_of())
    ends = read.ends()
    assert read.offsets_at("endingOffsets", "latest", ends) == {"a": 20}
    assert read.offsets_at("endingOffsets", {"a": -2}, ends) == {"a": 0}
    assert read.offsets_at("startingTime", datetime(2026, 1, 31, tzinfo=UTC), ends) == {"a": 10}
    last = tuple(logs.chunks["a"][1].fingerprint)
    parts = BatchReader(options_of(minPartitions="2")).partitions()
    assert [part.value for part in parts] == [("a", 0, 10, None, [last]), ("a", 10, 20, None, [last])]


def test_the_streams_of_an_exchange_are_kept_for_a_while(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.grow("a", b"1")
    streams_of = Mock(side_effect=[("a",), ()])
    monkeypatch.setattr(logs, "streams_of", streams_of, raising=False)
    read = Sources(ReadOptions.parse({"url": "rabbitmq-stream://h", "exchange": "x"}))
    assert list(read.ends()) == list(read.ends()) == ["a"]
    streams_of.assert_called_once_with("x")
    monkeypatch.setattr(micro_batches, "_BINDINGS_S", 0.0)
    with pytest.raises(InputError, match="no stream is bound to exchange 'x'"):
        read.ends()


def test_a_missing_stream_is_an_error_or_keeps_its_place(
    logs: Logs, caplog: pytest.LogCaptureFixture
) -> None:
    logs.grow("a", b"1")
    logs.grow("b", b"1")
    batches = batches_of(failOnDataLoss="false")
    begin = batches.begin()
    for times in (1, 2):  # each time that it goes is told, once
        chunks = logs.chunks.pop("b")
        for _ in range(3):
            assert batches.after(begin, None, None) == begin
        assert sum("stream 'b'" in record.getMessage() for record in caplog.records) == times
        logs.chunks["b"] = chunks
        assert batches.after(begin, None, None) == begin
    del logs.chunks["b"]
    with pytest.raises(MissingRowsError, match="stream 'b' was read up to offset 10, and it is deleted"):
        batches_of().after(begin, None, None)


def test_how_far_a_query_is_behind() -> None:
    """The offsets of a progress are texts of JSON in its JSON, and objects in other places; other sources have none of ours."""
    ends = {"streams": {"s": {"next": 90}, "t": {"next": 10}, "new": {"next": 0}}}
    latest = {"streams": {"s": {"next": 100}, "t": {"next": 30}}}
    ours = {"description": "x", "endOffset": json.dumps(ends), "latestOffset": latest}
    rates = {"endOffset": 7, "latestOffset": "9"}
    assert micro_batches.offsets_behind_latest({"sources": [rates, ours]}) == {
        "minOffsetsBehindLatest": 10,
        "maxOffsetsBehindLatest": 20,
        "avgOffsetsBehindLatest": 15.0,
        "byStream": {"s": 10, "t": 20},
    }
    none = {"endOffset": None, "latestOffset": None}
    assert micro_batches.offsets_behind_latest({"sources": [rates, none]}) == {}


# -- offsets of a query as text: the same places are the same text, which Spark compares


def test_places_are_a_text_and_back() -> None:
    places = {"b": Place(9, Fingerprint(7, 1, 2)), "a": Place(3)}
    text = '{"streams": {"a": {"next": 3}, "b": {"chunk": 7, "crc": 2, "epoch": 1, "next": 9}}}'
    assert json.dumps(offset_of(places)) == text
    assert places_in(json.loads(text)) == places
    assert not micro_batches.is_anchor(offset_of(places))


def test_a_query_without_a_batch_has_an_anchor() -> None:
    assert micro_batches.anchor("latest") == {"anchor": "latest"}
    assert micro_batches.anchor(datetime(2026, 1, 31, tzinfo=UTC)) == {"anchor": "2026-01-31T00:00:00+00:00"}
    assert json.dumps(micro_batches.anchor({"b": 1, "a": -2})) == '{"anchor": {"a": -2, "b": 1}}'
    assert micro_batches.is_anchor(micro_batches.anchor("latest"))


@pytest.mark.parametrize("offset", [{}, {"streams": 5}, {"streams": {"a": {}}}, {"orders": {"0": 5}}, 7])
def test_offsets_of_others_are_refused(offset: Any) -> None:
    assert not micro_batches.is_anchor(offset)
    with pytest.raises(RabbitChxError, match="which is none of format"):
        places_in(offset)
