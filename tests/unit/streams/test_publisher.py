"""StreamPublisher beside a broker that is scripted: faults at every place, and what is then in the stream."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import stream_publishers as scripted
from stream_node import Session
from stream_publishers import ROWS, Broker, once, publish, publish_rows, publisher

from rabbit_chx import errors
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.streams import StreamReader, stored_ids
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.writer import Window


def seeds(quick: int, every: int) -> list[Any]:
    """Seeds of which `make test` runs the first ones."""
    rest = (pytest.param(seed, marks=pytest.mark.extended) for seed in range(quick, every))
    return [*range(quick), *rest]


def test_rows_are_stored_with_key_body_exchange_and_id(broker: Broker) -> None:
    report = publish_rows(exchange="orders")
    stored = broker.rows["s"].batch(0, ROWS)
    assert stored["key"].to_pylist() == [b"k%d" % n for n in range(1, ROWS + 1)]
    assert stored["value"].to_pylist() == [b"body %d" % n for n in range(1, ROWS + 1)]
    assert stored["message_id"].to_pylist() == [f"load:{n}" for n in range(1, ROWS + 1)]
    assert set(stored["exchange"].to_pylist()) == {"orders"}
    assert (report.rows, report.confirmed, report.streams) == (ROWS, ROWS, {"s": ROWS})
    assert (report.known, report.resent, report.repaired, report.reconnects) == (0, 0, 0, 0)
    assert report.complete
    assert str(report) == "200 of 200 rows confirmed"
    assert "200 known from an earlier run" in str(publish_rows())


@pytest.mark.parametrize("fault", [scripted.refuse, scripted.change, scripted.lose])
def test_after_a_fault_all_is_sent_again_from_the_lowest_unconfirmed_row(
    broker: Broker, fault: Callable[[Session], object]
) -> None:
    broker.fault = once(fault, 60)
    report = publish_rows()
    before, after = broker.writers
    lowest = before.unconfirmed[0][1]
    assert [row_id for _, row_id in after.sent] == list(range(lowest, ROWS + 1))
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))
    assert report.resent == len(before.sent) - lowest + 1 > 0
    assert (report.confirmed, report.reconnects) == (ROWS, 1)
    assert "sent again after a reconnect" in str(report)


def test_confirms_before_the_loss_count(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The confirms of rows 49 to 56 arrive while the next rows are sent, which fails."""

    def hold_back_and_lose(connection: Session) -> None:
        def receive(_data: memoryview) -> int:
            """Take a part of the frame, and wait until the confirms are received; then the line is cut."""
            if not takes:
                connection.lose()
                raise errors.ConnectionLostError("the line is cut")
            if len(takes) == 3:
                connection.commit(len(connection.stream.log))
                connection.tell(*connection.confirms())
            return takes.pop()

        if len(connection.sent) == 56:
            takes = [0, 0, 10]
            connection.tell(scripted.NOTHING)
            monkeypatch.setattr(connection, "receive", receive)
            broker.fault = lambda _: None

    broker.fault = hold_back_and_lose
    report = publish_rows()
    before, after = broker.writers
    assert len(before.sent) == 56
    assert after.sent[0] == ("load", 57)
    assert report.resent == 8  # those that were being sent
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))


def test_rows_that_the_broker_claims_and_does_not_have_are_stored_by_another_reference(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.fault = once(scripted.flaw, 60)
    report = publish_rows()
    lost = [row_id for _, row_id, _ in broker.writers[0].unconfirmed]
    log = broker.rows["s"].log
    assert [row_id for reference, row_id, _ in filter(None, log) if reference == "load~1"] == lost
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))
    assert (report.repaired, report.confirmed, report.resent) == (len(lost), ROWS, len(lost))
    assert f"confirmed {len(lost)} rows from id {lost[0]} on that it has not stored" in caplog.text
    assert {vars(record)["queue"] for record in caplog.records} == {"s"}


@pytest.mark.parametrize("known", [0, 50])
def test_a_loss_in_mid_call_whose_proof_retention_has_removed(broker: Broker, known: int) -> None:
    """What the broker had before is believed, and what it claims to have got since then is not."""

    def flaw_and_retention(connection: Session) -> None:
        scripted.flaw(connection)
        connection.stream.remove_all()

    publish_rows(rows=known)
    broker.fault = once(flaw_and_retention, 100)
    report = publish_rows()
    assert report.repaired > 0
    assert (report.known, report.confirmed) == (known, ROWS)
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))


def test_a_stream_that_loses_each_repair_is_an_error(broker: Broker) -> None:
    broker.rows["s"].claims = {"load": 50, **{f"load~{n}": 50 for n in range(1, 20)}}
    with pytest.raises(errors.PublishError, match="under 10 references") as raised:
        publish_rows()
    assert raised.value.report.confirmed == 0


@pytest.mark.parametrize(
    "cuts", [(200,), (30, 200), (60, 200), (61, 200), (60, 150, 200), (150, 200), (40, 50, 70, 200)]
)
@pytest.mark.parametrize("piece_rows", [7, 20, 60, 1_000])
def test_a_hole_that_begins_behind_a_call_or_piece_is_closed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...], piece_rows: int
) -> None:
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", piece_rows)
    publish_rows(rows=60)
    broker.rows["s"].claims = {"load": 150}
    with publisher(name="load") as made:
        repaired = [
            publish(made, first=first + 1, rows=stop - first).repaired
            for first, stop in itertools.pairwise((0, *cuts))
        ]
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))
    assert sum(repaired) == 90


@pytest.mark.parametrize("looked_back", [16, 1_000])
def test_rows_that_retention_removed_are_not_stored_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, looked_back: int
) -> None:
    monkeypatch.setattr(stored_ids, "_FIRST_PIECE", looked_back)
    publish_rows(rows=50)
    broker.rows["s"].begins_at = 30
    with publisher(name="load") as made:
        with pytest.raises(errors.PublishError, match="removed the row with id 20, so it"):
            publish(made, rows=20)
        assert publish(made, rows=40).known == 40
    publish_rows(rows=50, name="other")
    broker.rows["s"].begins_at = 60
    with pytest.raises(errors.PublishError, match="row with id 50, so it"):
        publish_rows(rows=60)
    assert len(broker.rows["s"].log) == 100
    with publisher(name="load") as made:
        assert publish(made, first=51, rows=10).confirmed == 10
    assert broker.rows["s"].ids[100:] == list(range(51, 61))


@pytest.mark.parametrize("looked_back", [16, 1_000])
def test_a_claim_without_any_row_in_a_log_from_its_begin_on_is_false(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, looked_back: int
) -> None:
    monkeypatch.setattr(stored_ids, "_FIRST_PIECE", looked_back)
    publish_rows(rows=50, name="other")
    broker.rows["s"].claims["load"] = 30
    report = publish_rows(rows=60)
    assert (report.known, report.repaired) == (0, 30)
    assert broker.rows["s"].ids[50:] == list(range(1, 61))


@pytest.mark.parametrize(
    ("key", "body", "rows", "words"),
    [
        ("k", "b", 60, "with another key"),
        ("k30", "b", 60, "with another body"),
        ("k1", "another", 1, "id 1 of 'load' with another body"),
    ],
)
def test_other_rows_under_used_ids_are_an_error(
    broker: Broker, key: str, body: str, rows: int, words: str
) -> None:
    publish_rows(rows=30)
    with publisher(name="load") as made, pytest.raises(errors.PublishError, match=words) as raised:
        made.publish_many([key] * rows, [body] * rows, ids=range(1, rows + 1))
    assert isinstance(raised.value.__cause__, errors.MismatchError)
    assert f"b'{body}" not in str(raised.value)
    assert f"b'{key}" not in str(raised.value)
    assert len(broker.rows["s"].log) == 30


@pytest.mark.parametrize("pieces", [1, 3, 20])
@pytest.mark.parametrize("seed", seeds(4, 12))
def test_known_rows_are_those_of_the_earlier_run_or_there_is_an_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, seed: int, pieces: int
) -> None:
    """The second run gives any of the used ids, and higher ones, in several calls."""
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", 9)
    chance = random.Random(seed)  # noqa: S311
    publish_rows(rows=100)
    publish_rows(rows=chance.choice([0, 40, 130]), name="load:2")
    ids = sorted(chance.sample(range(1, 140), chance.randint(1, 100)))
    before = len(broker.rows["s"].log)
    calls = [list(call) for call in np.array_split(np.array(ids), pieces) if len(call)]
    with publisher(name="load") as made:
        for call in calls:
            keys, bodies = [f"k{n}" for n in call], [f"body {n}" for n in call]
            report = made.publish_many(keys, bodies, ids=call)
            assert report.known == sum(n <= 100 for n in call)
    assert broker.rows["s"].ids[before:] == [n for n in ids if n > 100]
    if ids[0] <= 100:
        calls = [[n for n in ids if n <= 100]]
    with publisher(name="load") as made, pytest.raises(errors.PublishError) as raised:
        made.publish_many([f"k{n}" for n in calls[0]], ["another"] * len(calls[0]), ids=calls[0])
    assert isinstance(raised.value.__cause__, errors.MismatchError)
    assert b"another" not in broker.rows["s"].batch(0, len(broker.rows["s"].log))["value"].to_pylist()


def test_a_known_id_that_the_stream_does_not_have_is_an_error(broker: Broker) -> None:
    with publisher(name="load") as made:
        made.publish_many(["k"] * 50, ["b"] * 50, ids=range(2, 101, 2))
    words = "has the id 100 of 'load' and not the id 77"
    with publisher(name="load") as made, pytest.raises(errors.PublishError, match=words):
        made.publish_many(["k"] * 39, ["b"] * 39, ids=range(1, 78, 2))
    assert len(broker.rows["s"].log) == 50


@pytest.mark.usefixtures("broker")
def test_the_known_rows_of_many_calls_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_rows()
    readers: list[StreamReader] = []

    def reader(**how: Any) -> StreamReader:
        readers.append(scripted.READER(**how))
        return readers[-1]

    monkeypatch.setattr(stored_ids, "StreamReader", reader)
    with publisher(name="load") as made:
        for first in range(1, ROWS, 10):
            publish(made, first=first, rows=10)
    assert ROWS <= sum(each.rows_returned for each in readers) < 6 * ROWS


@pytest.mark.parametrize("after", [60, ROWS])
def test_a_stream_that_is_made_again_in_a_call_or_behind_it_is_an_error(broker: Broker, after: int) -> None:
    def make_again(connection: Session) -> None:
        stream = connection.stream
        stream.log, stream.claims, stream.committed = [], {}, 0
        connection.lose()

    broker.fault, confirmed = once(make_again, after) if after < ROWS else broker.fault, 0
    with publisher(name="load") as made:
        if after == ROWS:
            confirmed = publish(made).confirmed
            make_again(broker.writers[-1])
        for _ in range(2):
            with pytest.raises(errors.PublishError) as raised:
                publish(made, first=1 + ROWS * (after == ROWS))
            assert isinstance(raised.value.__cause__, errors.MismatchError)
            confirmed = confirmed or int(str(raised.value).partition("has confirmed id ")[2].split(",")[0])
            assert f"has confirmed id {confirmed}, and its last id of 'load' is 0" in str(raised.value)
            assert "publish again from" not in str(raised.value)
    assert 0 < confirmed <= after
    assert not broker.rows["s"].log
    assert publish_rows().confirmed == ROWS
    assert broker.rows["s"].ids == list(range(1, ROWS + 1))


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_an_attempt_that_dies_anywhere_is_finished_by_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  # it scripts faults
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", chance.choice([25, 60, 1_000]))
    stream = broker.rows["s"]
    ids = list(range(1, 151))

    def die(connection: Session) -> None:
        connection.commit(chance.randint(stream.committed, len(stream.log)))
        connection.tell(*connection.confirms())
        if chance.random() < 0.1:
            stream.crash(chance.randint(0, len(stream.log)), flaw=chance.random() < 0.7)
            connection.lose()
            raise KeyboardInterrupt

    broker.fault = die
    for _ in range(2_000):
        try:
            with publisher(name="load") as made:
                made.publish_many(list(map(str, ids)), list(map(str, ids)), ids=ids)
            break
        except KeyboardInterrupt:
            continue
    else:
        pytest.fail("no attempt came to its end")
    assert stream.ids == ids


SLOTS = SlotTable(
    HashRing.from_buckets([ExchangeRef("x.0"), ExchangeRef("x.1"), ExchangeRef("x.2")]),
    {ExchangeRef("x.0"): "a", ExchangeRef("x.1"): "b", ExchangeRef("x.2"): "a"},
)


@pytest.mark.parametrize(
    ("how", "stream_of"),
    [
        ({"ring": scripted.RING, "exchange": "x"}, scripted.RING.destination_for),
        ({"ring": SLOTS, "exchange": "x"}, SLOTS.destination_for),
        ({"super_stream": "x"}, scripted.PARTITIONS.partition_for),
    ],
)
@pytest.mark.parametrize("make", [list, pa.array, np.array])
@pytest.mark.parametrize("fault", [lambda _: None, scripted.flaw])
def test_rows_go_where_their_keys_belong_also_if_a_stream_has_a_fault(
    broker: Broker, *, how: dict[str, Any], stream_of: Any, make: Any, fault: Any
) -> None:
    broker.add_partitions()
    broker.commands = (*broker.commands, Key.PUBLISH)
    broker.fault = once(fault, 50)
    keys = [f"key {n}" for n in range(500)]
    with publisher(name="load", filter_value="key", **how) as made:
        report = made.publish_many(make(keys), make(keys), ids=np.arange(1, 501))
    for name in made.streams:
        wanted = [n for n, key in enumerate(keys, 1) if stream_of(key) == name]
        assert broker.rows[name].ids == wanted
        assert report.streams[name] == len(wanted) > 0
        rows = broker.rows[name].batch(0, 500)
        assert rows["filter_value"] == rows["key"]
        assert set(rows["exchange"].to_pylist()) == {"x"}
    assert (report.confirmed, report.reconnects) == (500, fault is scripted.flaw)


def test_the_window_bounds_what_is_unconfirmed() -> None:
    window = Window(np.arange(10, 110, 10), 4)
    assert window.room == 4
    window.next = 4
    assert window.room == 0
    assert window.confirm(np.array([20, 30], np.uint64)).tolist() == [1, 2]
    assert (window.lowest, window.room) == (0, 2)
    assert window.confirm(np.array([10, 30, 35, 90], np.uint64)).tolist() == [0]  # 90 is not sent
    assert (window.lowest, window.room) == (3, 3)
    window.next = 6
    assert window.rewind() == 3
    assert (window.next, window.room) == (3, 4)
    assert not window.done
    assert Window(np.empty(0, np.int64), 4).done
