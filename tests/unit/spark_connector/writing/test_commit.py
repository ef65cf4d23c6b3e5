"""The end of a write: its report, the notes on all of its tasks together, and a ring that has changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from spark_messages import DONE, SCHEMA, options_of

from rabbit_chx.errors import InputError, MismatchError, PublishError, RowError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable, SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.streams import rows
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import WatchedRing
from spark_connector.reports import FinishedTask, RowSample, StreamCounts
from spark_connector.writing import stream_layout
from spark_connector.writing.commit import abort_write, collect_notes, commit_write
from spark_connector.writing.preflight import WritePlan, add_to_sample, plan_write

RING = HashRing.from_buckets(["q1", "q2"])
GROWN = HashRing.from_buckets(["q1", "q2", "q3"])


def planned(ring: WatchedRing | None = None, **options: str) -> WritePlan:
    given = {"url": "amqp://ann:c4nary@here", "exchange": "x", "preflight": "false", **options}
    if ring is not None and ring.ring is not None:
        given["ring"] = ring.ring.to_json()
    return plan_write(given, SCHEMA, ring=ring)


def readings(*rings: KeyMap) -> WatchedRing:
    """A ring that is read so, one time after the other."""
    left = iter(rings)
    return WatchedRing(lambda: next(left))


@pytest.mark.parametrize(
    ("expected", "others"), [(None, "the other tasks"), (2, "1 other task"), (3, "2 other tasks")]
)
def test_a_failed_write_reports_the_remaining_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expected: int | None, others: str
) -> None:
    path = tmp_path / "report.json"
    plan = planned(reportPath=str(path))
    with caplog.at_level(logging.WARNING):
        report = abort_write(plan, [DONE], expected, cause=RowError("row 7: too long"))
    assert (report.failed, report.confirmed) == (True, 5)
    assert report.notes == ("the write failed: row 7: too long",)
    assert json.loads(path.read_text())["unfinished"] == (None if expected is None else expected - 1)
    assert (
        f"the write failed; at least 5 rows of 1 finished task are in the queues and stay there; rows of {others} may be in the "
        "queues as well\n" in caplog.text
    )
    assert vars(caplog.records[-1])["exchange"] == plan.options.target


def test_a_committed_write_saves_its_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    plan = planned(reportPath=str(path))
    report = commit_write(plan, [DONE])
    assert path.read_text() == report.to_json()
    assert (report.failed, report.rows, report.write_id, report.queue) == (False, 5, plan.write_id, None)
    assert commit_write(planned(exchange="", queue="q"), [DONE]).queue == "q"


def test_a_write_into_streams_without_rows_has_zero_counts() -> None:
    plan = WritePlan.parse({"url": "amqp://h", "superStream": "s"}, SCHEMA)
    for report in (commit_write(plan, []), abort_write(plan, [])):
        assert report.streams == StreamCounts()
    assert commit_write(planned(), []).streams is None


def test_a_stream_without_a_task_must_not_have_rows_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs no task for a frame without rows."""
    closed: list[bool] = []
    connection = SimpleNamespace(
        publisher_sequence=lambda _name, _stream: (1 << rows.ROW_BITS) + 3, close=lambda: closed.append(True)
    )
    monkeypatch.setattr(stream_layout, "open_any", lambda _settings: connection)
    once = {"superStream": "s", "delivery": "exactly-once", "appId": "load", "version": "1"}
    plan = WritePlan.parse({"url": "amqp://h", **once}, SCHEMA)
    layout = stream_layout.StreamLayout.of(SuperStream(["s0", "s1"]), SCHEMA)
    with pytest.raises(
        MismatchError, match=r"stream 's1' has 3 rows of version 1 .*, and this run gives 0"
    ) as caught:
        commit_write(replace(plan, layout=layout), [replace(DONE, streams=StreamCounts())])
    assert closed == [True]
    assert vars(caught.value)["report"].confirmed == 5
    assert '"confirmed": 5' in caught.value.__notes__[0], "Spark shows only texts"


# -- notes


def notes(*tasks: FinishedTask, **options: str) -> tuple[str, ...]:
    return collect_notes(tasks, options_of(**options))


def ran(*numbers: int) -> list[FinishedTask]:
    return [FinishedTask(at, 0, task_id=number) for at, number in enumerate(numbers)]


def test_an_ordinary_write_needs_no_note() -> None:
    """But those of its tasks, each once."""
    assert notes(FinishedTask(0, 0, notes=("a",)), FinishedTask(1, 0, notes=("a", "b"))) == ("a", "b")
    assert notes(*ran(8, 7, 9), ring=RING.to_json(), ordering="per-key") == ()
    assert notes(FinishedTask(0, 0)) == ()
    assert notes(ordering="per-key") == ()


def test_skipped_rows_are_noted_each_kind_with_its_reason() -> None:
    lost, bad = RowSample(0, None, "312 NO_ROUTE", "abc"), RowSample(1, 7, "column 'key' is null")
    returned = FinishedTask(
        0,
        0,
        rows=9,
        publish_report=PublishReport(rows=9, confirmed=4, returned=3, unknown=2),
        samples=(lost,),
    )
    skipped = FinishedTask(1, 0, rows=9, skipped=1, samples=(bad,))
    said_of_bad = (
        "badRows is skip, and 1 of 18 rows were not published; row 7 of partition 1: column 'key' is null"
    )
    said_of_lost = "onUnroutable is skip, and 5 of 18 rows were routed to no queue; partition 0: 312 NO_ROUTE"
    both = {"badRows": "skip", "onUnroutable": "skip"}
    assert notes(returned, skipped, **both) == (said_of_bad, said_of_lost)
    assert notes(replace(returned, samples=()), skipped, **both)[1] == said_of_lost.split(";", maxsplit=1)[0]
    assert notes(returned, skipped, badRows="skip") == (said_of_bad,)
    # Ten returned rows have taken all places of samples, before the row that closes the channel.
    both_in_one = replace(returned, rows=10, skipped=1)
    assert notes(both_in_one, **both)[0] == "badRows is skip, and 1 of 10 rows were not published"
    stale = FinishedTask(1, 0, rows=9, skipped=9, notes=("nothing is written",))
    once = {
        "superStream": "s",
        "delivery": "exactly-once",
        "appId": "load",
        "onStaleVersion": "skip",
        "badRows": "skip",
    }
    options = WriteOptions.parse({"url": "amqp://h", "version": "1", **once})
    assert collect_notes([stale], options) == ("nothing is written",)


def test_tasks_and_stages_that_ran_again_are_noted() -> None:
    (note,) = notes(FinishedTask(0, 1))
    assert note.startswith("Spark ran 1 of 1 tasks more than once")
    (note,) = notes(FinishedTask(0, 0, task_id=4), FinishedTask(1, 2, task_id=7))  # 5 and 6 failed
    assert note.startswith("Spark ran 1 of 2 tasks more than once")
    # The numbers between are those of the stage before it, whose files were gone.
    (note,) = notes(*ran(4, 5, 9))
    assert "Spark ran 3 other tasks between those of this write" in note
    assert "rows may be in the queues twice, though every attempt is 0" in note


def test_a_broker_that_may_have_restarted_is_noted() -> None:
    reports = PublishReport(reconnects=2, republished=5), PublishReport(reconnects=1)
    tasks = [FinishedTask(at, 0, publish_report=report) for at, report in enumerate(reports)]
    for given in ({}, {"ring": RING.to_json()}):
        (note,) = notes(*tasks, **given)
        assert note.startswith("connections were lost and opened again (3): if a broker with Mnesia")
        assert ("rows by predicted queue are then wrong" in note) == bool(given)
    ring, copies = notes(*tasks, ordering="per-key")
    assert "the ring may have another order now" in ring
    assert "copies from the old connection may arrive after newer messages of their key" in copies


def test_keys_in_more_than_one_partition_are_noted() -> None:
    def of_keys(*partitions: Iterable[bytes]) -> tuple[str, ...]:
        tasks = []
        for partition, keys in enumerate(partitions):
            sample = add_to_sample(b"", pa.array(keys, pa.binary()))
            tasks.append(FinishedTask(partition, 0, keys=sample))
        return notes(*tasks, ordering="per-key")

    assert of_keys([b"a"], [b"b", b"c"]) == ()
    (note,) = of_keys([b"a", b"c"], [b"b", b"c"])
    assert note.startswith("ordering is per-key, and 1 of its 3 keys are in more than one partition")
    (note,) = of_keys(*[[b"%d" % n for n in range(2_000)]] * 2)
    assert "1,000 of 1,000 keys looked at are in more than one partition" in note


# -- a ring that is read again


@pytest.mark.parametrize("reconnects", [0, 2])
def test_a_ring_is_read_again_after_a_write(reconnects: int) -> None:
    ring = readings(RING, GROWN)
    task = replace(DONE, publish_report=PublishReport(rows=5, confirmed=5, reconnects=reconnects))
    found = commit_write(planned(ring), [task], ring=ring).notes
    (note,) = found
    assert note.startswith("connections were lost and opened again (2): ") == bool(reconnects)
    assert "the ring has changed" in note
    ring = readings(RING, RING)
    unchanged = commit_write(planned(ring), [task], ring=ring).notes
    assert ["the ring is the same as before" in note for note in unchanged] == [True] * bool(reconnects)


def test_slots_are_read_again_where_all_connections_lived() -> None:
    slots = [ExchangeRef("s0"), ExchangeRef("s1")]
    ring = HashRing.from_buckets(slots)
    before, after = (SlotTable(ring, {slots[0]: "q1", slots[1]: queue}) for queue in ("q1", "q2"))
    for now, expected in (after, ["the slots or the ring have changed"]), (before, []):
        watched = readings(before, now)
        report = commit_write(planned(watched), [DONE], ring=watched)
        assert [note[:34] for note in report.notes] == expected


# -- a write that the client routes


@pytest.mark.parametrize(
    ("ring", "says"),
    [
        (WatchedRing(None), "nothing reads the ring before and after the write: pass ringVia"),
        (WatchedRing(RING), "nothing reads the ring before and after the write: pass ringVia"),
        (readings(HashRing.from_bindings([("q1", 1)])), "this one is replayed"),
        (readings(HashRing.from_buckets([ExchangeRef("audit")])), "belongs to exchange audit, not"),
    ],
    ids=["no ring", "not read again", "replayed", "of an exchange"],
)
def test_a_ring_by_which_the_client_cannot_route_is_refused(ring: WatchedRing, says: str) -> None:
    with pytest.raises(InputError, match=says):
        planned(ring, routing="client")


def test_a_ring_that_has_changed_fails_the_write_and_both_are_in_the_report(tmp_path: Path) -> None:
    done = replace(DONE, predicted={"q1": 3, "q2": 2})
    ring = readings(RING, RING)
    report = commit_write(planned(ring, routing="client"), [done], ring=ring)
    assert (report.failed, report.changed_ring) == (False, None)

    path, ring = tmp_path / "report.json", readings(RING, GROWN)
    words = r"of the keys of q1 belong to q3 now, and 3 messages went to q1"
    with pytest.raises(PublishError, match=words) as caught:
        commit_write(planned(ring, routing="client", reportPath=str(path)), [done], ring=ring)
    assert caught.value.report.confirmed == 5
    assert '"confirmed": 5' in caught.value.__notes__[0]
    shown = json.loads(path.read_text())
    assert shown["failed"]
    assert shown["notes"] == [f"the write failed: {caught.value}"]
    assert [HashRing.from_json(json.dumps(ring)) for ring in shown["changed_ring"]] == [RING, GROWN]
