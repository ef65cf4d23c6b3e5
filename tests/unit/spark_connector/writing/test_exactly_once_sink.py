"""A task that publishes exactly once: what it sends, leaves out and refuses, and what it reads back. The broker is scripted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from spark_messages import SCHEMA
from stream_logs import RowLog
from stream_publishers import FRAME_MAX, Broker, running_broker

from rabbit_chx.errors import InputError, MismatchError, PublishError, RabbitChxError, RowError
from rabbit_chx.routing import SuperStream
from rabbit_chx.streams.rows import ROW_BITS
from spark_connector.reports import FinishedTask, StreamCounts
from spark_connector.writing import commit, stream_layout, stream_sink, task_writer
from spark_connector.writing.commit import commit_write
from spark_connector.writing.preflight import WritePlan
from spark_connector.writing.stream_layout import StreamLayout
from spark_connector.writing.stream_sink import ExactlyOnceSink, version_of
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task

PLACING = SuperStream(["s0", "s1"])
OF_S0, OF_S1 = (
    sorted(key for key in map(str, range(200)) if PLACING.partition_for(key) == stream)
    for stream in ("s0", "s1")
)
ROWS = 40
KEYS, VALUES = OF_S1[:ROWS], [f"value {row}" for row in range(ROWS)]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with running_broker() as broker:
        broker.rows |= {stream: RowLog() for stream in PLACING.partitions}
        monkeypatch.setattr(stream_sink, "_PIECE_ROWS", 10)
        yield broker


def plan_of(version: int = 1, **options: str) -> WritePlan:
    once = {"superStream": "s", "delivery": "exactly-once", "appId": "load", "version": str(version)}
    plan = WritePlan.parse({"url": "amqp://h", **once, **options}, SCHEMA)
    return replace(plan, layout=StreamLayout.of(PLACING, SCHEMA))


def run(
    version: int = 1,
    rows: int = ROWS,
    keys: Any = KEYS,
    values: Any = VALUES,
    partition: int = 1,
    **options: str,
) -> FinishedTask:
    """Write rows in batches of 5, as a task does."""
    table = pa.table([pa.array(column[:rows], pa.string()) for column in (keys, values)], ["key", "value"])
    batches = table.to_batches(max_chunksize=5)
    return TaskWriter(plan_of(version, **options), Task(partition=partition)).publish_partition(batches)


def ids(version: int = 1, rows: int = ROWS) -> list[int]:
    return [(version << ROW_BITS) + row for row in range(1, rows + 1)]


def counts(report: FinishedTask) -> StreamCounts:
    assert report.streams is not None
    return report.streams


@pytest.mark.parametrize("on_stale", ["skip", "fail"])
def test_a_version_that_is_half_written_is_completed(broker: Broker, on_stale: str) -> None:
    def die(_connection: object) -> None:
        if len(broker.rows["s1"].log) > 20:
            raise KeyboardInterrupt

    broker.fault = die
    with pytest.raises(KeyboardInterrupt):
        run(onStaleVersion=on_stale)
    stored = len(broker.rows["s1"].log)
    assert 20 < stored < ROWS
    broker.fault = lambda _connection: None
    report = run(onStaleVersion=on_stale)
    assert (report.skipped, report.publish_report.confirmed, report.notes) == (0, ROWS, ())
    assert counts(report).known == stored
    assert broker.rows["s1"].ids == ids()


def test_an_older_version_is_skipped_or_refused_and_a_later_one_is_stored(broker: Broker) -> None:
    run(2)
    report = run(1, onStaleVersion="skip")
    assert (report.rows, report.skipped, report.publish_report.confirmed) == (ROWS, ROWS, 0)
    assert report.notes == (
        "stream 's1' has rows of version 2 already: this run writes nothing of version 1, and what an earlier run of it has stored stays",
    )
    with pytest.raises(InputError, match=r"'s1' has rows of version 2 .* version 1"):
        run(1)
    assert broker.rows["s1"].ids == ids(2)
    assert counts(run(3, onStaleVersion="skip")).known == 0
    assert broker.rows["s1"].ids == ids(2) + ids(3)


def test_a_stream_that_has_forgotten_its_rows_is_an_error(broker: Broker) -> None:
    def forget(_connection: object) -> None:
        if len(broker.rows["s1"].log) == ROWS:
            broker.rows["s1"].claims.clear()

    broker.fault = forget
    with pytest.raises(MismatchError, match=r"confirmed 40 rows of version 1"):
        run(1)


def test_rows_of_another_stream_or_not_in_order_are_refused_before_they_are_sent(broker: Broker) -> None:
    words = (
        "the key of row 15 belongs to 's0', and all rows of partition 1 must be those of stream 's1', by the 2 streams .* now "
        r"\(s0, s1\): place the rows .*; if they are, the list of streams has changed since: make a deleted partition again.*; 10 rows"
    )
    with pytest.raises(InputError, match=words):
        run(keys=[*KEYS[:15], OF_S0[0], *KEYS[16:]])
    assert broker.rows["s1"].ids == ids(rows=10)
    words = "row 20 is not in the order .*: place the rows with spark_connector.place_for_streams.*; 20 rows"
    with pytest.raises(InputError, match=words):
        run(keys=[*KEYS[:20], KEYS[18], *KEYS[21:]])
    assert broker.rows["s1"].ids == ids(rows=20)


def test_a_partition_without_a_stream_may_have_no_rows(broker: Broker) -> None:
    with pytest.raises(
        InputError,
        match=r"partition 2 has rows, .* \(s0, s1\) take .* from 0 to 1: .*a deleted partition.*\. Other partitions may be stored: "
        "write the placed rows with another version",
    ):
        run(partition=2)
    assert run(partition=2, rows=0).publish_report.confirmed == 0
    assert not any(stream.log for stream in broker.rows.values())


def test_a_row_that_no_frame_carries_is_bad(broker: Broker) -> None:
    """The check before a row is sent has the bound of the publisher."""
    plan = plan_of(badRows="skip")
    assert plan.layout is not None
    plan = replace(plan, layout=replace(plan.layout, frame_max=FRAME_MAX))
    most = ExactlyOnceSink(plan, Task(partition=1), print).most_row_bytes - len(KEYS[1])
    keys, values = KEYS[:3], ["a", "b" * most, "c"]
    for length, skipped in (most, 0), (most + 1, 1):
        values[1] = "b" * length
        batch = pa.RecordBatch.from_pydict({"key": keys, "value": values})
        plan = replace(plan, options=replace(plan.options, version=1 + skipped))
        report = TaskWriter(plan, Task(partition=1)).publish_partition([batch])
        assert (report.skipped, report.publish_report.confirmed) == (skipped, 3 - skipped)
    assert "stream.frame_max" in report.samples[0].reason
    plan = replace(plan, options=replace(plan.options, skip_bad_rows=False, version=3))
    before = len(broker.rows["s1"].log)
    with pytest.raises(
        RowError, match=r"row 1: key, value .* at most .* fit into a frame .* stream\.frame_max"
    ):
        TaskWriter(plan, Task(partition=1)).publish_partition([batch])
    assert len(broker.rows["s1"].log) == before


def test_a_version_has_fewer_rows_than_ids(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next id would be that of row 0 of the next version."""
    for module in (stream_sink, stream_layout):
        monkeypatch.setattr(module, "ROW_BITS", 5)
    run(rows=31)
    with pytest.raises(InputError, match=r"'s1' gets 2\^5 rows or more: write them in several versions"):
        run(2, rows=32)
    assert broker.rows["s1"].ids == [*range(33, 64), *range(65, 95)]


# -- what a run finds that is repeated with other rows

OTHER_VALUE: dict[str, Any] = {"values": [*VALUES[:7], "another", *VALUES[8:]]}
OTHER_KEY: dict[str, Any] = {"keys": [*KEYS[:7], KEYS[6], *KEYS[8:]]}
DIFFERENCE = f"stream 's1': row 7 (id {ids()[7]}) has another"


@pytest.mark.parametrize(
    ("level", "stored", "other", "differences"),
    [
        ("tail", ROWS, OTHER_VALUE, ()),
        ("full", ROWS, OTHER_VALUE, (f"{DIFFERENCE} body",)),
        ("full", 20, OTHER_VALUE, (f"{DIFFERENCE} body",)),
        ("full", ROWS, OTHER_KEY, (f"{DIFFERENCE} key",)),
    ],
)
@pytest.mark.usefixtures("broker")
def test_a_changed_row_is_found_if_all_rows_are_compared(
    level: str, stored: int, other: dict[str, Any], differences: tuple[str, ...]
) -> None:
    run(rows=stored)
    found = counts(run(**other, verify=level))
    assert (found.known, found.differences) == (stored, differences)
    compared = ROWS - 1 if differences else 0
    assert (found.verified, found.lost, found.doubled, found.changed) == (compared, 0, 0, len(differences))


def test_lost_and_doubled_rows_and_those_that_retention_removed_are_found(broker: Broker) -> None:
    run()
    stream = broker.rows["s1"]
    stream.begins_at = 10
    report = run(verify="full")
    assert (counts(report).verified, counts(report).lost, counts(report).unverified) == (30, 0, 10)
    assert any("10 of 40 rows could not be verified" in note for note in report.notes)
    stream.begins_at = 0
    stream.log.insert(5, stream.log[3])
    del stream.log[20]
    found = counts(run(verify="full"))
    assert (found.verified, found.lost, found.doubled, found.changed) == (ROWS - 2, 1, 1, 0)


def test_the_tail_is_the_last_row(broker: Broker) -> None:
    run()
    with pytest.raises(PublishError, match="the rows differ from the earlier run"):
        run(values=[*VALUES[:-1], "value z"])
    assert broker.rows["s1"].ids == ids()
    batch = pa.RecordBatch.from_pydict({"key": KEYS, "value": [*VALUES[:-1], "value z"]})
    with pytest.raises(
        PublishError, match=r"differ from the earlier run.* of this micro-batch, set another appId"
    ):
        TaskWriter(replace(plan_of(), streaming=True), Task(partition=1)).publish_partition([batch])


def test_a_write_with_a_changed_row_fails(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    monkeypatch.setattr(commit, "check_absent", lambda *_: None)
    run()
    words = (
        r"39 are stored once, 0 are lost and 0 are there more than once, 1 have another key or body\. "
        r"stream 's1': row 7 \(id \d+\) has another body\. Changed rows: the streams keep the rows of an earlier run"
    )
    with pytest.raises(PublishError, match=words):
        commit_write(plan_of(verify="full"), [run(**OTHER_VALUE, verify="full")])
    run(2, verify="full")
    report = commit_write(plan_of(2), [run(2, verify="full")])
    assert report.streams is not None
    assert (report.failed, report.streams.verified) == (False, ROWS)
    assert broker.rows["s1"].ids == ids() + ids(2)


def test_the_first_micro_batch_has_the_version_1() -> None:
    """Another number would make a query that goes on with the next release drop or repeat a batch."""
    plan = plan_of()
    plan = replace(plan, options=replace(plan.options, version=None))
    assert version_of(plan.options, Task(write_id="query", batch_id=0)) == 1
    assert version_of(plan.options, Task(batch_id=6)) == 7
    with pytest.raises(InputError, match="does not report the number of the micro-batch"):
        version_of(plan.options, Task(write_id="query"))


# -- sub-entries


@pytest.fixture
def whole_frames(broker: Broker) -> Broker:
    """A broker whose frames have any sub-entry."""
    broker.frame_max = 1 << 20
    return broker


@pytest.mark.parametrize("piece_rows", [1, 10, 16, 1_000])
def test_sub_entries_are_those_of_the_rows_whatever_the_batches_are(
    whole_frames: Broker, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    monkeypatch.setattr(stream_sink, "_PIECE_ROWS", piece_rows)
    for version in 1, 2:
        run(version, subEntryRows="7", compression="zstd")
        sent = [row_id for _, row_id in whole_frames.writers[-1].sent]
        assert sent == [(version << ROW_BITS) + row for row in (7, 14, 21, 28, 35, 40)]
    assert whole_frames.rows["s1"].ids == ids() + ids(2)


def test_a_version_in_sub_entries_that_is_half_written_is_completed(whole_frames: Broker) -> None:
    def die(_connection: object) -> None:
        if len(whole_frames.rows["s1"].log) > 20:
            raise KeyboardInterrupt

    whole_frames.fault = die
    with pytest.raises(KeyboardInterrupt):
        run(subEntryRows="7", verify="full")
    stored = len(whole_frames.rows["s1"].log)
    whole_frames.fault = lambda _connection: None
    report = run(subEntryRows="7", verify="full")
    assert counts(report).known == stored
    assert counts(report).verified == ROWS
    assert whole_frames.rows["s1"].ids == ids()


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({"subEntryRows": "7"}, {"subEntryRows": "14"}, "subEntryRows 7 and compression none, and .* now 14"),
        ({"subEntryRows": "7"}, {}, "subEntryRows 7 and compression none, and subEntryRows is now not set"),
        ({}, {"subEntryRows": "7"}, "single rows, and subEntryRows is now 7"),
        (
            {"subEntryRows": "7"},
            {"subEntryRows": "7", "compression": "gzip"},
            "compression none, and .* now 7 and compression gzip",
        ),
        (
            {"subEntryRows": "7", "compression": "lz4"},
            {"subEntryRows": "7", "compression": "zstd"},
            "compression lz4, and .* compression zstd",
        ),
    ],
)
def test_a_version_is_written_in_the_same_sub_entries_or_refused_before_a_row_is_sent(
    whole_frames: Broker, before: dict[str, Any], now: dict[str, Any], words: str
) -> None:
    """Also into a stream that has no rows of the version yet."""
    run(**before)
    writers = len(whole_frames.writers)
    for partition, keys in (1, KEYS), (0, OF_S0[:ROWS]):
        with pytest.raises(InputError, match=words):
            run(partition=partition, keys=keys, **now)
    assert len(whole_frames.writers) == writers
    assert not whole_frames.rows["s0"].log
    run(**before)
    run(2, **now)
    run(2, **now)
    assert whole_frames.rows["s1"].ids == ids() + ids(2)


@pytest.mark.parametrize("stored", [7, 9, 10, 31, 35])
def test_a_version_goes_on_behind_a_sub_entry_that_ends_where_an_input_was_cut(
    whole_frames: Broker, stored: int
) -> None:
    """As a release did that stored it. In pieces of 10 rows."""
    run(rows=stored, subEntryRows="7", verify="full")
    report = run(subEntryRows="7", verify="full")
    assert (counts(report).known, counts(report).verified) == (stored, ROWS)
    assert whole_frames.rows["s1"].ids == ids()
    assert counts(run(subEntryRows="7", verify="full")).known == ROWS


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("entries", ["", "7"])
def test_a_cut_input_stores_only_what_does_not_depend_on_its_end(
    whole_frames: Broker, monkeypatch: pytest.MonkeyPatch, entries: str, *, streaming: bool
) -> None:
    """Single rows are those of the same prefix. A micro-batch is sorted here, so nothing of it is stored."""
    monkeypatch.setattr(task_writer, "find_input", lambda: io.BufferedReader(io.BytesIO()))
    plan = replace(plan_of(subEntryRows=entries), streaming=streaming)
    batches = pa.table({"key": KEYS, "value": VALUES}).to_batches(max_chunksize=5)
    with pytest.raises(RabbitChxError, match="partition 1: the input of this task was cut after 25 rows"):
        TaskWriter(plan, Task(partition=1)).publish_partition(batches[:5])
    stored = len(whole_frames.rows["s1"].log)
    assert stored == (
        0 if streaming else 14 if entries else 10
    )  # pieces of 10 rows, of which the last is held


@pytest.mark.parametrize(("ours", "theirs"), [("7", "14"), ("14", "7")])
def test_of_two_jobs_that_write_a_version_at_the_same_time_one_is_refused(
    whole_frames: Broker, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str
) -> None:
    """The other one begins after this one has looked at the streams."""
    check = stream_layout.check_form

    def check_and_wait(*arguments: Any, **named: Any) -> int:
        form = check(*arguments, **named)
        monkeypatch.setattr(stream_sink, "check_form", check)
        run(subEntryRows=theirs)
        return form

    monkeypatch.setattr(stream_sink, "check_form", check_and_wait)
    with pytest.raises(InputError, match=r"another job writes this version of .* in other sub-entries"):
        run(subEntryRows=ours)
    assert whole_frames.rows["s1"].ids == ids()


@pytest.mark.usefixtures("whole_frames")
def test_of_two_jobs_that_begin_a_version_in_the_same_moment_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have found nothing, and the other one stores last how it writes."""

    def store_both(connection: Any, stream: str, name: str, form: int) -> None:
        stream_layout.store_form(connection, stream, name, form)
        connection.store_offset(name + stream_layout._FORM_NAME, stream, form + 7)

    monkeypatch.setattr(stream_sink, "store_form", store_both)
    with pytest.raises(MismatchError, match=r"version 1 of .* subEntryRows 14 .*subEntryRows is now 7"):
        run(subEntryRows="7")


def test_what_is_advised_instead_of_sub_entries_is_possible(broker: Broker) -> None:
    """How a version is written is stored right before its first rows."""
    broker.frame_max = 1 << 16
    with pytest.raises(InputError, match="or leave sub_entry_rows out"):
        run(subEntryRows="7")
    assert run().publish_report.confirmed == ROWS
