"""The rows that a task of a reading gives. The reader is scripted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa
import pytest

from rabbit_chx.errors import MissingRowsError
from rabbit_chx.streams import Fingerprint
from rabbit_chx.streams.rows import schema_of
from spark_connector.options.read_options import ReadOptions
from spark_connector.reading import spark_readers
from spark_connector.reading.spark_readers import Range, columns, rows_of

RANGE = Range("a", 3, 5, Fingerprint(0, 1, 2), (Fingerprint(4, 1, 3),))


class Scripted:
    """Stands for RangeReader: two rows, or an error."""

    asked: dict[str, Any]
    missing = rows_read = rows_returned = 0
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
        names = schema_of(self.asked["include"])
        values: dict[str, Any] = {
            "offset": [3, 4],
            "key": [b"k", None],
            "value": [b"v", b"w"],
            "message_id": ["m", None],
        }
        columns: list[Any] = [
            pa.array(values.get(field.name, [None, None])).cast(field.type) for field in names
        ]
        yield pa.record_batch(columns, schema=names)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    monkeypatch.setattr(Scripted, "error", None)
    monkeypatch.setattr(spark_readers, "RangeReader", Scripted)
    return Scripted


def options_of(**options: str) -> ReadOptions:
    return ReadOptions.parse({"url": "rabbitmq-stream://h", "stream": "a", **options})


def test_the_columns_are_those_of_the_options_in_their_order(scripted: type[Scripted]) -> None:
    (batch,) = rows_of(
        RANGE, options_of(include="message_id", filterValues="eu", filterMatchUnfiltered="true")
    )
    names = [column.split("`")[1] for column in columns(("message_id",)).split(", ")]
    assert batch.schema.names == names == ["key", "value", "stream", "offset", "timestamp", "message_id"]
    assert batch.select(["stream", "offset", "key", "message_id"]).to_pylist() == [
        {"stream": "a", "offset": 3, "key": b"k", "message_id": "m"},
        {"stream": "a", "offset": 4, "key": None, "message_id": None},
    ]
    asked = scripted.asked
    assert (asked["stream"], asked["start"], asked["end"]) == ("a", 3, 5)
    assert (asked["filters"], asked["match_unfiltered"]) == (("eu",), True)
    assert (asked["on_missing"], asked["expect"], asked["landmarks"]) == (
        "raise",
        RANGE.before,
        RANGE.landmarks,
    )


@pytest.mark.usefixtures("scripted")
def test_missing_rows_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    error = MissingRowsError("offset 3 is gone, or pass on_missing='count'", queue="a", offsets=range(3, 5))
    monkeypatch.setattr(Scripted, "error", error)
    with pytest.raises(MissingRowsError, match=r"offset 3 is gone\. With failOnDataLoss=false the reading"):
        list(rows_of(RANGE, options_of()))


def test_missing_rows_are_counted(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Scripted, "missing", 1)
    with caplog.at_level(logging.WARNING):
        assert sum(batch.num_rows for batch in rows_of(RANGE, options_of(failOnDataLoss="false"))) == 2
    assert "stream 'a' does not have 1 of the offsets 3 to 4" in caplog.text
    asked = scripted.asked
    assert (asked["on_missing"], asked["expect"], asked["landmarks"]) == ("count", None, ())
