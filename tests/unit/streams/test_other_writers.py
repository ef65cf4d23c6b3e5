"""Several writers of one name: what is confirmed is stored, or the call raises. `simulation/` has random interleavings of whole writers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from scheduled_threads import Threads
from stream_node import Session
from stream_publishers import PARTITIONS, Broker, once, publish, publish_rows, publisher

from rabbit_chx import StreamPublisher, errors
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams import writer
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.publisher import StreamReport
from rabbit_chx.streams.writer import OtherWriters

NOT_STORED = (
    r"another writer uses the name 'load', and (\d+) confirmed rows? up to id \d+ (is|are) not stored"
)


def land(broker: Broker, row_id: int, body: str = "another's") -> None:
    """Let another writer's row arrive."""
    stream = broker.rows["s"]
    stream.copy([row_id], body=body)
    _, _, message = stream.log.pop() or ("", 0, b"")
    stream.take("load", row_id, [message])


def lands(broker: Broker, row_id: int, after: int = 8) -> Any:
    """Return the fault of a row of another writer, which is confirmed, too."""
    return once(lambda _session: land(broker, row_id), after)


def queries(broker: Broker) -> list[int]:
    """Return the requests of publishers for what a stream knows of them, and forget all."""
    seen = [key for key in broker.seen if key in (Key.QUERY_OFFSET, Key.QUERY_PUBLISHER_SEQUENCE)]
    broker.seen.clear()
    return seen


def test_a_call_asks_once_and_sends_both_requests_together(broker: Broker) -> None:
    with publisher(name="load") as made:
        publish(made, rows=20)
        queries(broker)
        publish(made, first=21, rows=20)
        assert queries(broker) == [Key.QUERY_PUBLISHER_SEQUENCE, Key.QUERY_OFFSET]
    with publisher() as made:
        broker.seen.clear()
        made.publish_many(["k"], ["b"])
    assert queries(broker) == []
    assert Key.STORE_OFFSET not in broker.seen


def test_one_that_closes_leaves_nothing_to_compare(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    for first in (1, 21):
        with publisher(name="load") as made:
            publish(made, first=first, rows=20)
            reads = broker.seen.count(Key.SUBSCRIBE)
            publish(made, first=first + 100, rows=20)
            assert broker.seen.count(Key.SUBSCRIBE) == reads
        if first == 1:
            broker.rows["s"].claims.clear()
    assert "another writer" not in caplog.text


def test_the_overlap_of_a_rollout_is_an_error_of_the_old_one(broker: Broker) -> None:
    with publisher(name="load") as old, publisher(name="load") as new:
        assert publish(old, rows=20).confirmed == 20
        assert publish(new, first=100, rows=20).confirmed == 20
        with pytest.raises(errors.PublishError, match=NOT_STORED) as raised:
            publish(old, first=21, rows=20)
        assert "20 confirmed rows up to id 40" in str(raised.value)
        assert raised.value.report.confirmed == 0
        assert publish(new, first=120, rows=20).confirmed == 20
    assert broker.rows["s"].ids == [*range(1, 21), *range(100, 140)]


def test_confirmed_rows_of_a_partition_that_is_not_compared_yet_are_unknown(broker: Broker) -> None:
    """The error of one partition ends the call, while the broker confirms and drops rows of another one."""
    broker.add_partitions()
    (few, *_), many = ([f"k{n}" for n in range(99) if PARTITIONS.partition_for(f"k{n}") == x] for x in "ba")

    def publish_all(made: StreamPublisher, first: int) -> StreamReport:
        ids = range(first, first + 1 + len(many))
        return made.publish_many([few, *many], ["b"] * len(ids), ids=ids)

    with publisher(name="load", super_stream="x") as old, publisher(name="load", super_stream="x") as new:
        for made, first in ((old, 1), (new, 1_000)):
            assert publish_all(made, first).confirmed == 1 + len(many)
        with pytest.raises(
            errors.PublishError, match="and 1 confirmed row up to id 100 is not stored"
        ) as raised:
            publish_all(old, 100)
    assert raised.value.report.confirmed == 0
    assert 0 < raised.value.report.unknown <= len(many)
    assert [len(broker.rows[name].ids) for name in "ba"] == [2, 2 * len(many)]


def test_one_that_has_stored_all_of_its_rows_is_not_refused(broker: Broker) -> None:
    """The old one had ended when the new one began."""
    with publisher(name="load") as old, publisher(name="load") as new:
        publish(old, rows=20)
        publish(new, first=21, rows=20)
        publish(old, first=41, rows=20)
        publish(new, first=61, rows=20)
    assert broker.rows["s"].ids == list(range(1, 81))


def test_the_number_of_rows_is_that_of_those_that_are_missing(broker: Broker) -> None:
    """The other one is overtaken again, so that the last id is ours."""
    with publisher(name="load") as other, publisher(name="load") as made:
        publish(other, rows=1)
        broker.fault = lands(broker, 20)
        with pytest.raises(errors.PublishError, match=NOT_STORED) as raised:
            publish(made, first=10, rows=30)
    stored = broker.rows["s"].batch(0, 100)["value"].to_pylist()
    ours = sum(value != b"another's" for value in stored) - 1
    assert 0 < ours < 30
    assert raised.value.report.confirmed == ours
    assert f"and {30 - ours} confirmed rows" in str(raised.value)


def test_one_that_was_killed_counts_as_alive_for_a_while(broker: Broker) -> None:
    """It may be in the middle of a call: the one that opens after it would not notice its last rows."""
    killed = publisher(name="load")
    publish(killed, rows=1)
    with publisher(name="load") as made:
        broker.fault = lands(broker, 20)
        with pytest.raises(errors.PublishError, match=NOT_STORED):
            publish(made, first=10, rows=30)
    broker.fault = lambda _session: None
    with publisher(name="load") as made:
        publish(made, first=40, rows=10)
        broker.clock.now += 20
        publish(made, first=50, rows=10)
        reads = broker.seen.count(Key.SUBSCRIBE)
        publish(made, first=60, rows=10)
        assert broker.seen.count(Key.SUBSCRIBE) == reads
    killed.close()


def test_rows_of_one_that_was_killed_may_arrive_until_the_end_of_a_call(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection was slow: the rows have higher ids than the ones before, and lower ones than the last of the call."""
    monkeypatch.setattr(publisher_module, "_BATCH_ROWS", 10)
    killed = publisher(name="load")
    publish(killed, rows=1)

    def later(session: Session) -> None:
        if len(session.sent) >= 20:
            broker.clock.now += 20
            broker.fault = lands(broker, 45)

    with publisher(name="load") as made:
        broker.fault = later
        with pytest.raises(errors.PublishError, match=NOT_STORED):
            publish(made, first=10, rows=60)
    killed.close()


def test_one_that_was_idle_announces_itself_before_it_sends(broker: Broker) -> None:
    with publisher(name="load") as idle, publisher(name="load") as made:
        publish(idle, rows=1)
        publish(made, first=2, rows=1)
        broker.clock.now += 20
        publish(made, first=3, rows=1)

        def amid(_session: Session) -> None:
            broker.fault = lands(broker, 120)
            with pytest.raises(errors.PublishError, match=NOT_STORED):
                publish(made, first=110, rows=30)

        broker.fault = once(amid, 1)
        with pytest.raises(errors.PublishError, match=NOT_STORED):
            publish(idle, first=20, rows=40)


def test_a_client_that_only_has_the_name_is_noticed_by_its_ids(broker: Broker) -> None:
    with publisher(name="load") as made:
        publish(made, rows=10)
        broker.fault = lands(broker, 1_000)
        with pytest.raises(errors.PublishError, match=NOT_STORED):
            publish(made, first=11, rows=30)


@pytest.mark.parametrize("sub_entry_rows", [None, 5])
def test_attempts_with_the_same_rows_store_each_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, sub_entry_rows: int | None
) -> None:
    monkeypatch.setattr(publisher_module, "ENTRY_BYTES", 500)
    how: Any = {"name": "load", "sub_entry_rows": sub_entry_rows}
    with publisher(**how) as first, publisher(**how) as second:
        for start in range(1, 101, 20):
            assert publish(first, first=start, rows=20).confirmed == 20
            assert publish(second, first=start, rows=20).confirmed == 20
    assert broker.rows["s"].ids == list(range(1, 101))


def test_rows_of_an_attempt_that_is_ahead_are_found_after_a_lost_connection(broker: Broker) -> None:
    with publisher(name="load") as behind, publisher(name="load") as ahead:
        publish(behind, rows=1)
        publish(ahead, first=2, rows=40)
        broker.rows["s"].copy([1], name="of another client")
        broker.clock.now += 70  # the end of the stream is noted once a minute
        broker.fault = once(Session.lose, len(broker.writers[0].sent) + 20)
        assert publish(behind, first=2, rows=40).confirmed == 40
    assert broker.rows["s"].originals == list(range(1, 42))


def test_rows_are_compared_after_a_lost_connection_too(broker: Broker) -> None:
    with publisher(name="load") as old, publisher(name="load") as new:
        publish(old, rows=20)
        publish(new, first=100, rows=20)
        broker.writers[0].lose()
        with pytest.raises(errors.PublishError, match=NOT_STORED):
            publish(old, first=21, rows=20)


def test_a_name_without_an_offset_on_the_broker_is_compared(broker: Broker) -> None:
    """A stream without a leader drops what is stored in it, and nobody is told."""
    with publisher(name="load") as made:
        publish(made, rows=20)
        broker.offsets.clear()
        assert publish(made, first=21, rows=20).confirmed == 20
        assert broker.seen.count(Key.SUBSCRIBE) > 0
    assert publish_rows(rows=20).known == 20


class Offsets:
    """Stands for a connection, whose requests are served in an order that a seed chooses: no broker does that at will."""

    deadline = 0.0

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._stored: dict[str, int] = {}

    def query_offset(self, reader: str, _stream: str) -> int | None:
        self._threads.sleep(0.001)
        return self._stored.get(reader)

    def store_offset(self, reader: str, _stream: str, offset: int) -> None:
        self._threads.sleep(0.001)
        self._stored[reader] = offset

    def sequence_and_offset(self, _reference: str, reader: str, stream: str) -> tuple[int, int | None]:
        return 0, self.query_offset(reader, stream)


@pytest.mark.parametrize("writers", [2, 3])
def test_writers_that_open_at_once_notice_each_other(writers: int) -> None:
    """Whichever is the first to report rows, in any order of their requests, while one before them closes."""
    for seed in range(300):
        threads = Threads(seed)
        with threads.playing(writer):
            connection: Any = Offsets(threads)
            before = OtherWriters("s", "load")
            before.look_if_due(connection)
            assert not before.may_have_sent(connection, 0, 0)
            threads.start(partial(before.close, connection))
            made = [OtherWriters("s", "load") for _ in range(writers)]
            for each in made:
                threads.start(partial(each.look_if_due, connection))
            threads.join()
            assert threads.chance.choice(made).may_have_sent(connection, 0, 0), f"seed {seed}"
