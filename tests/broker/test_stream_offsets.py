"""The broker keeps the position of a reader under its name: a later reader starts after it, and repeats only what was not stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from bounded import until
from streamed import Streamed, numbers_in

from rabbit_chx.errors import InputError, MissingRowsError
from rabbit_chx.streams import ReadLimits, StreamReader, offsets
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


def named(stream: Streamed, **arguments: Any) -> StreamReader:
    return StreamReader(
        stream.broker.stream_url, "s", name="billing", limits=ReadLimits(batch_rows=100), **arguments
    )


def stored(stream: Streamed) -> int | None:
    with stream.connection(None) as connection:
        return connection.query_offset("billing", "s")


def stored_in_time(stream: Streamed, least: int = 0) -> int | None:
    """What is stored, once it is at least this: the broker does not reply to the command."""
    until(lambda: (found := stored(stream)) is not None and found >= least, f"{least} is stored")
    return stored(stream)


def test_the_next_reader_starts_after_the_stored_offset(
    stream: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "_DUE_S", 600.0)
    monkeypatch.setattr(offsets, "_FIRST_DUE_S", 600.0)
    stream.publish_singly([str(number) for number in range(300)])
    found = []
    with named(stream, start=50) as reader:
        for batch in reader:
            found += numbers_in(batch)
            reader.store_offset(batch)
            assert stored_in_time(stream) == found[0] + 99, "the first batch, and then few rows"
            if len(found) >= 150:
                break
    last = reader.next_offset - 1
    assert stored_in_time(stream, last) == last
    with named(stream, start=50) as reader:
        assert reader.start_offset == last + 1
        for batch in reader:
            found += numbers_in(batch)
            reader.store_offset(batch)
    assert found == list(range(50, 300))
    assert stored_in_time(stream, 299) == 299
    with named(stream, start="first") as reader:
        assert list(reader) == []
    with pytest.raises(InputError, match="has no name, or is closed"):
        reader.store_offset(batch)


def test_a_position_that_retention_has_removed(vhost: RunningBroker) -> None:
    """The broker removes it with its row: a start that may skip rows is an error, or they are counted."""
    small = Streamed(vhost, "s", {"max-length-bytes": "40000", "stream-max-segment-size-bytes": "10000"})
    began = datetime.now(UTC) - timedelta(hours=1)
    small.publish_singly(["x" * 1_000] * 20)
    with named(small) as reader:
        reader.store_offset(next(reader))
    assert stored(small) is not None

    def is_gone() -> bool:
        small.publish_singly(["x" * 1_000] * 50)
        return stored(small) is None

    until(is_gone, "the broker removes the position")
    start: Any
    for start in ("first", "last", "next", began):
        with pytest.raises(MissingRowsError, match=r"no position under the name 'billing'.* the name is new"):
            named(small, start=start)
    for start in ("first", "next"):
        with named(small, start=start, on_missing="count") as reader:
            assert reader.missing == reader.start_offset > 20
    begin = named(small, start="first", on_missing="count").start_offset
    with named(small, start=begin) as reader:
        assert next(reader)["offset"][0].as_py() == begin
    with named(small, start=datetime.now(UTC), end="never") as reader:
        assert reader.missing == 0
    with (
        pytest.raises(MissingRowsError, match="does not have the offsets 1 to"),
        named(small, start=1) as reader,
    ):
        next(reader)


def test_a_position_that_cannot_be_stored(stream: Streamed) -> None:
    stream.publish(["0"])
    with StreamReader(stream.broker.stream_url, "s") as reader:
        batch = next(reader)
        with pytest.raises(InputError, match="pass name="):
            reader.store_offset(batch)
    with pytest.raises(InputError, match="the broker keeps the position, or the application does"):
        named(stream, start=1, expect=reader.fingerprint)
    with named(stream) as reader:
        reader.store_offset(next(reader).slice(0, 0))  # as after a filter that leaves no row
        with pytest.raises(InputError, match="has no column offset, but value: pass one with it"):
            reader.store_offset(pa.record_batch({"value": ["0"]}))
    assert stored(stream) is None
