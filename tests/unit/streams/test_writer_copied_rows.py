"""StreamPublisher beside a scripted broker: rows of ours that another client has copied into the stream."""

from __future__ import annotations

from typing import Any

import pytest
from stream_publishers import READER, ROWS, Broker, flaw, once, publish, publish_rows, publisher

from rabbit_chx.errors import MismatchError, PublishError
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams import stored_ids
from rabbit_chx.streams.frames import Key

OTHER = pytest.mark.parametrize(
    "other", [{}, {"key": "x"}, {"body": "x"}], ids=["identical", "another key", "another body"]
)


@pytest.mark.parametrize("copied", [range(30, 31), range(10, 51), range(1, 101)], ids=["one", "some", "all"])
@OTHER
@pytest.mark.parametrize("begins_at", [0, 20, 90, 99])
def test_copies_at_the_end_do_not_cause_rows_to_be_stored_again(
    broker: Broker, copied: range, begins_at: int, other: dict[str, str]
) -> None:
    """Also if retention has removed the begin of the stream."""
    stream = broker.rows["s"]
    publish_rows(rows=100)
    stream.copy(copied, **other)
    stream.begins_at = begins_at
    for rows in (100, ROWS):
        report = publish_rows(rows=rows)
        assert (report.known, report.repaired, report.confirmed) == (100, 0, rows)
    assert stream.originals == list(range(1, ROWS + 1))


def test_an_original_that_differs_is_an_error_whatever_its_copies_are(broker: Broker) -> None:
    stream = broker.rows["s"]
    with publisher(name="load") as made:
        publish(made, rows=49)
        made.publish_many(["k50"], ["what an earlier run gave"], ids=[50])
    stream.copy(range(1, 51))
    stream.copy([50], body="x")
    with publisher(name="load") as made:
        for _ in range(2):
            with pytest.raises(PublishError, match="with another body than the row given now") as raised:
                publish(made, rows=60)
            assert isinstance(raised.value.__cause__, MismatchError)
    assert stream.originals == list(range(1, 51))


def test_a_copy_that_differs_from_a_removed_original_is_an_error(broker: Broker) -> None:
    stream = broker.rows["s"]
    publish_rows(rows=50)
    stream.copy([50], body="x")
    stream.begins_at = 50
    with pytest.raises(PublishError, match="may be a copy by another client"):
        publish_rows(rows=50)
    assert stream.originals == list(range(1, 51))


def test_what_retention_has_made_undecidable_is_refused(broker: Broker) -> None:
    stream = broker.rows["s"]
    publish_rows(rows=50)
    stream.copy(range(10, 21))
    stream.begins_at = 50
    with pytest.raises(
        PublishError, match=r"ids 21 to 50 of .*highest id is 20: .*under another name"
    ) as raised:
        publish_rows(rows=60)
    assert (raised.value.report.confirmed, raised.value.report.repaired) == (0, 0)
    assert publish_rows(rows=20).known == 20  # the copies prove that these were stored
    with publisher(name="load") as made:
        assert publish(made, first=51, rows=10).confirmed == 10  # if they were removed
    assert stream.originals == list(range(1, 61))


def looks_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the ranges of offsets that are read from now on."""
    looks = []

    def look(**how: Any) -> Any:
        reader = READER(**how)
        looks.append((reader.start_offset, reader.end_offset))
        return reader

    monkeypatch.setattr(stored_ids, "StreamReader", look)
    return looks


@pytest.mark.usefixtures("broker")
def test_without_copies_the_last_chunk_alone_is_read_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_rows()
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", 20)
    looks = looks_at(monkeypatch)
    publish_rows()
    assert looks == [(ROWS - 1, ROWS)]


def test_a_publisher_that_finds_a_loss_reads_back_to_where_it_began(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_rows(rows=1_000, name="other")
    broker.rows["s"].begins_at = 500  # what is removed need not be read
    looks = looks_at(monkeypatch)
    broker.fault = once(flaw, 60)
    report = publish_rows()
    assert report.repaired > 0
    assert min(begin for begin, _ in looks) == 999  # the last chunk that was there before
    assert broker.rows["s"].originals[1_000:] == list(range(1, ROWS + 1))


def test_the_end_is_noted_at_once_after_a_reconnect(broker: Broker) -> None:
    """The next lookup of a lost row need not read back to the last note, which may be a minute old."""
    noted = []
    with publisher(name="load") as made:
        for first in (1, 101, 201, 301):
            if first == 201:
                broker.writers[-1].lose()
            publish(made, first=first, rows=100)
            noted.append(broker.seen.count(Key.STREAM_STATS))
    assert noted == [1, 1, 2, 2]


def test_the_end_is_noted_now_and_then(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a publisher that writes for days need not read all of it, which retention may have removed."""
    monkeypatch.setattr(stored_ids, "_NOTE_INTERVAL_S", 0.0)
    stream = broker.rows["s"]
    with publisher(name="load") as made:
        for first in (1, 101, 201):
            publish(made, first=first, rows=100)
        stream.begins_at = 150
        looks = looks_at(monkeypatch)
        broker.fault = once(flaw, 360)
        report = publish(made, first=301, rows=100)
    assert report.repaired > 0
    assert min(begin for begin, _ in looks) >= 299
    assert stream.originals == list(range(1, 401))
