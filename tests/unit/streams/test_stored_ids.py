"""Rows that are read back are compared with those that were given: what is lost, doubled, changed or cannot be verified."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from stream_logs import RowLog
from stream_node import Session
from stream_publishers import URL, Broker, publisher

from rabbit_chx.streams import stored_ids
from rabbit_chx.streams.nodes import settings_of
from rabbit_chx.streams.stored_ids import Stored, compare_stored, row_hashes, rows_of

FIRST, ROWS = 101, 40
KEYS = [f"k{row // 3:03}" for row in range(ROWS)]
BODIES = [f"body {row}" for row in range(ROWS)]
IDS = range(FIRST, FIRST + ROWS)


@pytest.fixture
def stream(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> RowLog:
    """A stream that is read back in small pieces."""
    monkeypatch.setattr(stored_ids, "_FIRST_PIECE", 8)
    return broker.rows["s"]


def store(keys: Sequence[str] = KEYS, bodies: Sequence[str] = BODIES, ids: Sequence[int] = IDS) -> None:
    with publisher(name="load") as made:
        made.publish_many(keys, bodies, ids=ids)


def read_back() -> Stored:
    hashes = row_hashes(pa.array(KEYS), pa.array(BODIES))
    return compare_stored("s", "load", {"url": settings_of(URL)}, range(FIRST, FIRST + len(KEYS)), hashes)


def changed(values: Sequence[str], row: int) -> list[str]:
    return [f"{value}!" if at == row else value for at, value in enumerate(values)]


def copy(stream: RowLog, start: int, stop: int) -> None:
    """Store rows again, with their message ids, as a replay by AMQP does."""
    stream.log += [(None, row_id, message) for _, row_id, message in filter(None, stream.log[start:stop])]
    stream.committed = len(stream.log)


@pytest.mark.parametrize(
    ("keys", "bodies", "places", "what"),
    [
        (KEYS, changed(BODIES, 7), [7], "another body"),
        (changed(KEYS, 7), BODIES, [7], "another key"),
        (changed(KEYS, 7), changed(BODIES, 7), [7], "another key and body"),
        (KEYS, [f"{body}!" for body in BODIES], range(ROWS), "another body"),
        (
            KEYS,
            [*BODIES[:3], BODIES[5], BODIES[3], BODIES[4], *BODIES[6:]],
            [3, 4, 5],
            "another body, since the same rows are stored in another order",
        ),
    ],
)
@pytest.mark.usefixtures("stream")
def test_the_first_changed_rows_are_named(
    keys: list[str], bodies: list[str], places: Sequence[int], what: str
) -> None:
    store(keys, bodies)
    differences = tuple(f"row {row} (id {FIRST + row}) has {what}" for row in places[:5])
    assert read_back() == Stored(ROWS - len(places), 0, 0, len(places), 0, differences)


def test_rows_that_others_copied_are_counted(stream: RowLog) -> None:
    assert read_back()[:3] == (0, ROWS, 0)
    store()
    copy(stream, 2, 3)
    stream.copy([FIRST + 2, FIRST + 3], body="another")  # doubled, and not changed
    places = f"row 2 (id {FIRST + 2}) is there 3 times", f"row 3 (id {FIRST + 3}) is there 2 times"
    assert read_back() == Stored(ROWS - 2, 0, 2, 0, 0, places)
    copy(stream, 0, ROWS)  # the end has each of them
    assert read_back()[:3] == (0, 0, ROWS)
    for _ in range(255):  # more copies than a byte counts
        copy(stream, 0, 1)
    assert read_back()[:3] == (0, 0, ROWS)


def test_a_copy_of_an_earlier_row_does_not_hide_what_is_before_it(stream: RowLog) -> None:
    store(["k"] * 30, ["v"] * 30, range(1, 31))
    store()
    assert read_back() == Stored(ROWS, 0, 0, 0, 0, ())
    copy(stream, 0, 1)
    assert read_back() == Stored(ROWS, 0, 0, 0, 0, ())


def test_repaired_rows_are_stored(broker: Broker, stream: RowLog) -> None:
    """They have the reference load~1, and their ids."""

    def crash(session: Session) -> None:
        if len(broker.writers) < 2 and len(stream.log) > 10:
            stream.crash(5, flaw=True)
            session.lose()

    broker.fault = crash
    store()
    assert {reference for reference, *_ in filter(None, stream.log)} == {"load", "load~1"}
    assert read_back() == Stored(ROWS, 0, 0, 0, 0, ())


def test_what_retention_has_removed_cannot_be_verified(stream: RowLog) -> None:
    store()
    del stream.log[20]
    stream.committed -= 1
    stream.begins_at = 12
    assert read_back() == Stored(ROWS - 13, 1, 0, 0, 12, (f"row 20 (id {FIRST + 20}) is not there",))
    copy(stream, 13, 14)
    found = read_back()
    assert (found.lost, found.unverified, found.doubled) == (1, 12, 1)
    stream.remove_all()
    assert read_back() == Stored(0, 0, 0, 0, ROWS, ())


def test_rows_of_other_names_do_not_count() -> None:
    others = ["loadx1:1", "load.1", "load.1:", "load.1:2x", "a load.1:3", "load.1:4:4", "load.1:-5", None]
    batch = pa.record_batch({"message_id": pa.array([*others, f"load.1:{2**63 - 1}", "load.1:6"])})
    ours, ids = rows_of(batch, "load.1")
    assert ids.tolist() == [2**63 - 1, 6]
    assert ours["message_id"].to_pylist() == [f"load.1:{2**63 - 1}", "load.1:6"]
