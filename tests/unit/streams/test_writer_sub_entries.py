"""Each row once in sub-entries, beside a scripted broker: where they end, whatever happens to connections, attempts and the broker."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import stream_publishers as scripted
from stream_node import Session
from stream_publishers import Broker, once, publish, publish_rows, publisher

from rabbit_chx import errors
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams.publisher import ENTRY_BYTES
from rabbit_chx.streams.rows import entry_cuts

ROWS = 60
SIZE = 8


@pytest.fixture(autouse=True)
def small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "ENTRY_BYTES", scripted.FRAME_MAX)


def expect_each_once(broker: Broker, rows: int = ROWS) -> None:
    assert broker.rows["s"].ids == list(range(1, rows + 1))


def sent_ids(broker: Broker) -> list[int]:
    return [row_id for session in broker.writers for _, row_id in session.sent]


# -- where they end


def test_the_id_of_a_sub_entry_is_that_of_its_last_row(broker: Broker) -> None:
    with publisher(name="load", sub_entry_rows=SIZE) as made:
        publish(made, first=1, rows=20)
        publish(made, first=21, rows=20)
    assert sent_ids(broker) == [8, 16, 20, 24, 32, 40]
    expect_each_once(broker, 40)
    message_ids = broker.rows["s"].batch(0, 40)["message_id"].to_pylist()
    assert message_ids == [f"load:{number}" for number in range(1, 41)]


@pytest.mark.parametrize("batch_rows", [1, 5, 8, 13])
def test_sub_entries_do_not_depend_on_batches(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", batch_rows)
    publish_rows(ROWS, sub_entry_rows=SIZE)
    assert sent_ids(broker) == [*range(SIZE, ROWS, SIZE), ROWS]
    expect_each_once(broker)


def test_each_version_begins_with_a_whole_sub_entry(broker: Broker) -> None:
    with publisher(name="load", sub_entry_rows=7) as made:
        for version in 1, 2:
            publish(made, first=(version << 32) + 1, rows=20)
    assert sent_ids(broker) == [(version << 32) + row for version in (1, 2) for row in (7, 14, 20)]


@pytest.mark.parametrize("seed", range(20))
def test_rows_from_the_begin_of_any_sub_entry_on_are_cut_as_all_rows(seed: int) -> None:
    chance = np.random.default_rng(seed)
    ids = np.cumsum(chance.integers(1, 4, 300)) + (int(chance.integers(0, 3)) << 32)
    sizes = chance.integers(1, 100, 300)
    most_rows, most_bytes = int(chance.choice([1, 7, 50])), int(chance.choice([90, 400, 1 << 20]))
    cuts = entry_cuts(ids, sizes, most_rows, most_bytes)
    for place, cut in enumerate(cuts[:-1]):
        assert [cut + each for each in entry_cuts(ids[cut:], sizes[cut:], most_rows, most_bytes)] == cuts[
            place:
        ]
    for first, end in pairwise(cuts):
        assert end == first + 1 or sizes[first:end].sum() <= most_bytes
        assert (ids[first] - 1) // most_rows == (ids[end - 1] - 1) // most_rows or ids[first] > 1 << 32


# -- faults


def cut_lines(
    patch: pytest.MonkeyPatch, broker: Broker, after: int, fault: Callable[[Session], object]
) -> None:
    """Cut the first connection with a publisher behind so many bytes that it gets of rows."""
    accept, left = broker.accept, [after]

    def accept_and_cut(owner: str = "") -> Session:
        session = accept(owner)
        receive = session.receive

        def receive_some(data: bytes | memoryview) -> int:
            if not session.is_publisher or not left:
                return receive(data)
            if len(data) < left[0]:
                left[0] -= len(data)
                return receive(data)
            receive(bytes(data[: left.pop()]))
            fault(session)
            return len(data)

        patch.setattr(session, "receive", receive_some)
        return session

    patch.setattr(broker, "accept", accept_and_cut)


def keep(session: Session) -> None:
    """Cut the connection; the broker stores what has arrived."""
    session.lose()


@pytest.mark.parametrize("fault", [keep, scripted.lose, scripted.flaw])
def test_a_connection_that_is_cut_at_any_byte_of_a_sub_entry(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Session], object]
) -> None:
    """A sub-entry is stored as a whole or not at all, and its rows once."""
    stored, connections, after = set[int](), 2, 0
    while connections > 1:  # until the first connection gets all bytes
        after += 1
        with scripted.running_broker() as broker, monkeypatch.context() as patch:
            patch.setattr(publisher_module, "ENTRY_BYTES", scripted.FRAME_MAX)
            cut_lines(patch, broker, after, fault)
            report = publish_rows(10, sub_entry_rows=4)
            assert report.confirmed == 10
            expect_each_once(broker, 10)
            connections = len(broker.writers)
            stored.add(len(broker.writers[0].sent))
    assert after > 500
    assert stored == {0, 2, 3}  # two sub-entries are sent at once


def test_two_attempts_at_once_with_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins, and ends or dies, while the first one has sent any number of sub-entries."""
    for after in range(1, ROWS // SIZE + 1):
        for killed in None, scripted.lose, scripted.flaw:
            with scripted.running_broker() as broker, monkeypatch.context() as patch:
                patch.setattr(publisher_module, "ENTRY_BYTES", scripted.FRAME_MAX)

                def other(_session: Session, broker: Broker = broker, killed: Any = killed) -> None:
                    broker.fault = once(killed, 2) if killed else lambda _session: None
                    assert publish_rows(ROWS, sub_entry_rows=SIZE).confirmed == ROWS

                broker.fault = once(other, after)
                assert publish_rows(ROWS, sub_entry_rows=SIZE).confirmed == ROWS
                expect_each_once(broker)


@pytest.mark.parametrize("stored", range(SIZE, ROWS, SIZE))
def test_a_later_attempt_resumes_behind_the_stored_sub_entries(broker: Broker, stored: int) -> None:
    publish_rows(stored, sub_entry_rows=SIZE)
    report = publish_rows(ROWS, sub_entry_rows=SIZE)
    assert (report.confirmed, report.known) == (ROWS, stored)
    expect_each_once(broker)


def test_rows_that_the_broker_lost_with_a_sub_entry_are_repaired(broker: Broker) -> None:
    broker.fault = once(scripted.flaw, 1)
    report = publish_rows(ROWS, sub_entry_rows=SIZE)
    assert report.repaired > 0
    assert report.repaired % SIZE == 0
    expect_each_once(broker)


def test_a_copy_of_a_row_inside_a_sub_entry_proves_the_sub_entry(broker: Broker) -> None:
    publish_rows(40, sub_entry_rows=SIZE)
    broker.rows["s"].copy([36])
    report = publish_rows(ROWS, sub_entry_rows=SIZE)
    assert report.known == 40
    assert broker.rows["s"].originals == list(range(1, ROWS + 1))


def test_a_failed_call_may_be_repeated_up_to_the_end_of_a_sub_entry(broker: Broker) -> None:
    broker.fault = once(scripted.lose, 3)
    with publisher(name="load", sub_entry_rows=SIZE, reconnect_timeout_s=0) as made:
        with pytest.raises(errors.PublishError, match="publish again from id 1 on"):
            publish(made, rows=ROWS)
        with pytest.raises(
            errors.InputError, match=r"end at id 20, inside a sub-entry .*: pass those up to id 24"
        ):
            publish(made, rows=20)
        publish(made, rows=24)
        publish(made, first=25, rows=ROWS - 24)
    expect_each_once(broker)


# -- what is refused


def expect_refused(broker: Broker, rows: int = ROWS, **how: Any) -> None:
    """The rows are refused before one of them is sent."""
    before = len(broker.writers)
    with pytest.raises(
        errors.PublishError, match=r"inside the sub-entry of ids \d+ to \d+: .* sub_entry_rows"
    ):
        publish_rows(rows, **how)
    assert not any(session.sent for session in broker.writers[before:])


@pytest.mark.parametrize(("rows", "size"), [(20, SIZE), (24, 7), (21, None)])
def test_rows_that_were_published_in_other_sub_entries_are_refused(
    broker: Broker, rows: int, size: int | None
) -> None:
    publish_rows(rows, sub_entry_rows=size)
    expect_refused(broker, sub_entry_rows=SIZE if rows != 24 else 10)
    expect_each_once(broker, rows)


def test_a_sub_entry_of_an_earlier_run_that_ends_in_a_later_batch_or_call_is_found(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_rows(20, sub_entry_rows=SIZE)
    with publisher(name="load", sub_entry_rows=SIZE) as made:
        assert publish(made, rows=16).known == 16
        with pytest.raises(errors.PublishError, match=r"has id 20 .* inside the sub-entry of ids 17 to 24"):
            publish(made, first=17, rows=ROWS - 16)
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", SIZE)
    with pytest.raises(errors.PublishError, match=r"has id 20 .* inside the sub-entry of ids 17 to 24"):
        publish_rows(ROWS, sub_entry_rows=SIZE)
    expect_each_once(broker, 20)


def test_a_call_that_failed_is_not_repeated_with_further_rows_in_its_last_sub_entry(broker: Broker) -> None:
    def die(session: Session) -> None:
        if len(session.sent) >= 3:
            session.commit(len(session.stream.log))
            broker.fault = lambda _session: None
            raise KeyboardInterrupt

    broker.fault = die
    with publisher(name="load", sub_entry_rows=SIZE) as made:
        with pytest.raises(KeyboardInterrupt):
            publish(made, rows=20)
        expect_each_once(broker, 20)
        assert publish(made, rows=16).complete
        with pytest.raises(errors.PublishError, match=r"has id 20 .* inside the sub-entry of ids 17 to 24"):
            publish(made, first=17, rows=ROWS - 16)
    expect_each_once(broker, 20)


def test_rows_that_the_broker_lost_are_not_looked_for_in_other_sub_entries(broker: Broker) -> None:
    """The highest stored id is inside one of them, and does not prove that the rest of it is stored."""

    def lose(session: Session) -> None:
        if len(session.sent) >= 4:
            session.commit(3 * SIZE)
            session.stream.crash(0, flaw=True)
            broker.fault = lambda _session: None
            raise KeyboardInterrupt

    broker.fault = lose
    with pytest.raises(KeyboardInterrupt):
        publish_rows(ROWS, sub_entry_rows=SIZE, window=4 * SIZE)
    stored = len(broker.rows["s"].ids)
    assert stored == 3 * SIZE
    assert broker.rows["s"].claims["load"] == 4 * SIZE
    with pytest.raises(
        errors.PublishError, match=rf"has id {stored} .* inside the sub-entry of ids 1 to \d+"
    ):
        publish_rows(ROWS, sub_entry_rows=4 * SIZE)
    assert publish_rows(ROWS, sub_entry_rows=SIZE).repaired == SIZE
    expect_each_once(broker)


def test_a_row_that_is_larger_than_a_sub_entry_has_one_of_its_own_and_one_larger_than_a_frame_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "ENTRY_BYTES", 1_000)
    bodies = ["a", "b" * 2_000, "c"]
    with publisher(name="load", sub_entry_rows=SIZE) as made:
        assert made.publish_many(["k"] * 3, bodies, ids=[1, 2, 3]).complete
        with pytest.raises(
            errors.RowError, match=r"row 1 has 4001 bytes .* fit into a frame of this broker, which has 4096"
        ):
            made.publish_many(["k"] * 2, ["d", "e" * 4_000], ids=[4, 5])
        with pytest.raises(errors.InputError, match="row 2 has id 5, and the row before it 5: ids rise"):
            made.publish_many(["k"] * 3, bodies, ids=[4, 5, 5])
    assert sent_ids(broker) == [1, 2, 3]


@pytest.fixture
def without_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pyarrow without codecs, as some distributions build it."""
    monkeypatch.setattr(pa, "Codec", Mock(is_available=lambda _name: False))


@pytest.mark.usefixtures("broker", "without_codecs")
def test_a_codec_that_is_not_installed_is_refused_at_once() -> None:
    with pytest.raises(
        errors.InputError, match="compression is 'zstd', and this pyarrow was built without it"
    ):
        publisher(name="load", sub_entry_rows=SIZE, compression="zstd")


def test_a_frame_of_the_broker_has_any_sub_entry(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit does not follow that of a connection: sub-entries would end elsewhere."""
    monkeypatch.setattr(publisher_module, "ENTRY_BYTES", ENTRY_BYTES)
    broker.frame_max = ENTRY_BYTES
    with publisher(name="load", sub_entry_rows=1_000) as made:
        report = made.publish_many(["k"] * 1_000, ["b" * 1_000] * 1_000, ids=range(1, 1_001))
    assert report.complete
    assert len(sent_ids(broker)) == 5
