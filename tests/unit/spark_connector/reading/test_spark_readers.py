"""The rows that a task of a reading gives, where the reader is scripted; ranges of offsets: nothing is left out or comes twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from rabbit_chx.errors import MissingRowsError, NotFoundError
from rabbit_chx.streams import Fingerprint
from rabbit_chx.streams.rows import schema_of
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading import spark_readers
from spark_connector.reading.micro_batches import bound_bytes, bound_rows
from spark_connector.reading.spark_readers import BatchReader, Range, columns, rows_of, split

RANGE = Range("a", 3, 5, Fingerprint(0, 1, 2), (Fingerprint(4, 1, 3),))


class Scripted:
    """Stands for RangeReader: two rows, or an error."""

    asked: dict[str, Any]
    missing = rows_read = rows_returned = next_offset = 0
    error: Exception | None = None

    def __init__(self, _addresses: object, stream: str, **asked: Any) -> None:
        type(self).asked = {"stream": stream, **asked}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self.error is not None:
            raise self.error
        schema = schema_of(self.asked["include"])
        values: dict[str, Any] = {
            "offset": [3, 4],
            "key": [b"k", None],
            "value": [b"v", b"w"],
            "message_id": ["m", None],
        }
        texts: list[Any] = [pa.array(values.get(field.name, [None] * 2)).cast(field.type) for field in schema]
        yield pa.record_batch(texts, schema=schema)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    monkeypatch.setattr(Scripted, "error", None)
    monkeypatch.setattr(spark_readers, "RangeReader", Scripted)
    return Scripted


def options_of(**options: str) -> ReadOptions:
    return ReadOptions.parse({"url": "rabbitmq-stream://h", "stream": "a", **options})


def test_the_columns_are_those_of_the_options_in_their_order(scripted: type[Scripted]) -> None:
    options = options_of(include="message_id", filterValues="eu", filterMatchUnfiltered="true")
    (batch,) = rows_of(RANGE, options)
    names = [column.split("`")[1] for column in columns(("message_id",)).split(", ")]
    assert batch.schema.names == names == ["key", "value", "stream", "offset", "timestamp", "message_id"]
    assert batch.select(["stream", "offset", "key", "message_id"]).to_pylist() == [
        {"stream": "a", "offset": 3, "key": b"k", "message_id": "m"},
        {"stream": "a", "offset": 4, "key": None, "message_id": None},
    ]
    expected = {"stream": "a", "start": 3, "end": 5, "filters": ("eu",), "match_unfiltered": True}
    expected |= {"on_missing": "raise", "expect": RANGE.before, "landmarks": RANGE.landmarks}
    assert scripted.asked | expected == scripted.asked


@pytest.mark.usefixtures("scripted")
def test_missing_rows_and_a_deleted_stream_are_an_error_or_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = MissingRowsError("offset 3 is gone, or pass on_missing='count'", queue="a", offsets=range(3, 5))
    deleted = NotFoundError("there is no stream 'a'", queue="a")
    for error, words in ((gone, r"offset 3 is gone\."), (deleted, "there is no stream 'a'.*")):
        monkeypatch.setattr(Scripted, "error", error)
        with pytest.raises(MissingRowsError, match=f"{words} With failOnDataLoss=false the reading"):
            list(rows_of(RANGE, options_of()))
        with pytest.raises(MissingRowsError, match=words):
            list(BatchReader(options_of()).read(InputPartition(("a", 3, 5, None, []))))
        caplog.clear()
        assert list(rows_of(replace(RANGE, before=None), options_of(failOnDataLoss="false"))) == []
        assert "the 2 offsets 3 to 4 are passed over (failOnDataLoss is false)" in caplog.text


@pytest.mark.usefixtures("scripted")
def test_a_range_over_a_new_log_is_read_from_its_first_row(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that fails has noted the end of its micro-batch, and the next one repeats it."""

    def rows(self: Scripted) -> Iterator[pa.RecordBatch]:
        if self.asked["expect"] is not None:
            raise MissingRowsError("the log was rewritten")
        return Scripted.__iter__(self)

    monkeypatch.setattr(spark_readers, "RangeReader", type("Rewritten", (Scripted,), {"__iter__": rows}))
    (batch,) = rows_of(RANGE, options_of(failOnDataLoss="false"))
    assert batch.num_rows == 2
    assert "the new log is read from offset 0 to 4" in caplog.text


def test_missing_rows_are_counted(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Scripted, "missing", 1)
    with caplog.at_level(logging.WARNING):
        assert sum(batch.num_rows for batch in rows_of(RANGE, options_of(failOnDataLoss="false"))) == 2
    assert "stream 'a' does not have 1 of the offsets 3 to 4" in caplog.text
    expected: dict[str, object] = {
        "on_missing": "count",
        "expect": RANGE.before,
        "landmarks": RANGE.landmarks,
    }
    assert scripted.asked | expected == scripted.asked


def test_rows_that_are_missing_before_the_stream_is_deleted_are_counted_too(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def rows(self: Scripted) -> Iterator[pa.RecordBatch]:
        self.missing = 2  # of the offsets 1 to 4
        yield from scripted.__iter__(self)
        raise NotFoundError("there is no stream 'a'", queue="a")

    deleted = type("Deleted", (scripted,), {"__iter__": rows, "next_offset": 5})
    monkeypatch.setattr(spark_readers, "RangeReader", deleted)
    (batch,) = rows_of(replace(RANGE, start=1, end=9), options_of(failOnDataLoss="false"))
    assert batch.num_rows == 2
    assert "the 4 offsets 5 to 8 are passed over" in caplog.text
    assert "stream 'a' does not have 2 of the offsets 1 to 4" in caplog.text


# -- ranges

BEFORE = Fingerprint(7, 1, 2)
COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**12), min_size=1)


def test_a_range_is_split_by_its_share() -> None:
    ranges = [Range("a", 10, 100, BEFORE), Range("b", 5, 5), Range("c", 0, 10)]
    assert split(ranges, None) == [ranges[0], ranges[2]]
    assert split(ranges, 2) == [ranges[0], ranges[2]]
    rest = [Range("a", 32, 55), Range("a", 55, 77), Range("a", 77, 100), Range("c", 0, 10)]
    assert split(ranges, 4) == [Range("a", 10, 32, BEFORE), *rest]
    assert split([Range("a", 3, 5)], 10) == [Range("a", 3, 4), Range("a", 4, 5)]
    assert split([], 10) == []


@given(COUNTS, st.integers(1, 200))
def test_splits_are_whole(counts: dict[str, int], least: int) -> None:
    ranges = [Range(stream, 3, 3 + count) for stream, count in counts.items()]
    parts = split(ranges, least)
    assert len(parts) >= min(least, sum(counts.values()))
    for stream, count in counts.items():
        at = 3
        for part in parts:
            if part.stream == stream:
                assert part.start == at < part.end
                at = part.end
        assert at == 3 + count


@given(COUNTS, st.integers(1, 10**12))
def test_a_bound_is_reached_and_not_passed(counts: dict[str, int], most: int) -> None:
    found = bound_rows(counts, most)
    assert sum(found.values()) == min(most, sum(counts.values()))
    assert all(0 <= found[stream] <= count for stream, count in counts.items())


def test_a_bound_is_shared_by_what_streams_have() -> None:
    assert bound_rows({"a": 900, "b": 100, "c": 0}, 100) == {"a": 90, "b": 10, "c": 0}
    assert bound_rows({"a": 5, "b": 5}, 1) == {"a": 1, "b": 0}
    assert bound_rows({"a": 5}, 9) == {"a": 5}
    assert bound_rows({"a": 7, "b": 4}, 5) == {"a": 3, "b": 2}  # b has lost 9/11 by rounding, and a 2/11
    for most, found in (10**6, 1_000), (5_000, 500), (1, 1):
        assert bound_bytes({"a": 1_000, "b": 0}, {"a": 10.0, "b": 0.0}, most) == {"a": found, "b": 0}
