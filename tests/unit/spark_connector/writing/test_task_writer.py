"""A task, and what it asks of the publisher. The publisher is scripted: its answers alone matter here."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import InputError, PublishError, RowError
from rabbit_chx.publishing import Limits, PublishReport, Retries, Returned
from rabbit_chx.routing import HashRing
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.reports import RowSample, TaskReport, hash_key
from spark_connector.writing import task_writer
from spark_connector.writing.commit import collect_notes
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task
from spark_connector.writing.write_plan import WritePlan

Columns: TypeAlias = dict[str, list[str | None]]
RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


class Scripted:
    """A publisher that returns every message with the key ``nowhere``, and confirms the others."""

    given: dict[str, Any]
    sent: list[bytes]
    ids: list[str]

    def __init__(self, addresses: Any, exchange: str, **given: Any) -> None:
        type(self).given = {"addresses": addresses, "exchange": exchange, **given}
        type(self).sent = []
        self.keys: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        pass

    @property
    def report(self) -> PublishReport:
        """Of the messages so far."""
        lost = [key for key in self.keys if key == b"nowhere"]
        return PublishReport(
            rows=len(self.keys),
            confirmed=len(self.keys) - len(lost),
            returned=len(lost),
            republished=1,
            reconnects=2,
            bytes_sent=3,
            seconds=4.0,
            blocked_seconds=0.5,
            samples=tuple(Returned(key.decode(), 312, "NO_ROUTE") for key in lost[:1]),
        )

    def send(self, keys: Any, bodies: Any, *, properties: Any, exchanges: Any) -> None:
        """Keep them."""
        del exchanges
        type(self).ids = list((properties or {}).get("message_id", ()))
        self.keys += keys.to_pylist()
        self.sent.extend(bodies.to_pylist())

    def flush(self) -> PublishReport:
        """The last answer."""
        return self.report


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "Publisher", Scripted)


def write(*batches: Columns, **options: Any) -> TaskReport:
    streaming = options.pop("streaming", False)
    parsed = WriteOptions.parse({"url": "amqp://h", "exchange": "x", **options})
    schema = StructType()
    for name in batches[0]:
        schema = schema.add(name, StringType())
    made = [pa.RecordBatch.from_pydict({n: pa.array(v, pa.string()) for n, v in b.items()}) for b in batches]
    plan = WritePlan(MessageColumns.of(schema, parsed), parsed, streaming)
    return TaskWriter(plan, Task.current("w", 7)).publish_partition(made)


def test_the_report_has_every_count_at_its_place() -> None:
    report = write(
        {"key": ["a", "nowhere", None], "value": ["1", "2", "3"]}, badRows="skip", onUnroutable="skip"
    )
    assert (report.rows, report.skipped, report.published) == (3, 1, 2)
    assert (report.confirmed, report.returned, report.nacked) == (1, 1, 0)
    assert (report.republished, report.reconnects, report.bytes_sent) == (1, 2, 3)
    assert (report.seconds, report.blocked_seconds) == (4.0, 0.5)
    assert (report.write_id, report.batch_id) == ("w", None)
    assert write({"key": ["a"], "value": ["1"]}, streaming=True).batch_id == 7
    assert report.samples[1] == RowSample(0, None, "312 NO_ROUTE", hash_key(b"nowhere"))
    assert "nowhere" not in repr(report)


CLOSED = Returned("bad", 406, "the broker answered 406 PRECONDITION_FAILED")


@pytest.mark.parametrize(
    ("samples", "counts", "options", "skips"),
    [
        ((CLOSED,), {"nacked": 1, "confirmed": 4}, {"badRows": "skip"}, True),
        ((CLOSED,), {"nacked": 1, "confirmed": 4}, {}, False),
        ((CLOSED,), {"nacked": 1, "confirmed": 3, "unknown": 1}, {"badRows": "skip"}, False),
        (
            (CLOSED, Returned("k", 312, "NO_ROUTE")),
            {"nacked": 1, "confirmed": 3, "returned": 1},
            {"badRows": "skip"},
            False,
        ),
        ((CLOSED, Returned("k", 0, "nack")), {"nacked": 2, "confirmed": 3}, {"badRows": "skip"}, False),
        ((Returned("k", 0, "nack"),), {"nacked": 1, "confirmed": 4}, {"badRows": "skip"}, False),
    ],
)
def test_rows_that_close_the_channel_are_bad_rows(
    monkeypatch: pytest.MonkeyPatch,
    samples: tuple[Returned, ...],
    counts: dict[str, int],
    options: dict[str, str],
    *,
    skips: bool,
) -> None:
    error = PublishError("row 3", PublishReport(rows=5, samples=samples, **counts))

    def fail(_: Scripted) -> PublishReport:
        raise error

    monkeypatch.setattr(Scripted, "flush", fail)
    rows: Columns = {"key": ["k"] * 5, "value": ["v"] * 5}
    if not skips:
        with pytest.raises(PublishError, match="row 3"):
            write(rows, **options)
        return
    of_null: Columns = {"key": [None], "value": ["v"]}  # is skipped before it is sent
    report = write(of_null, rows, **options)
    assert (report.rows, report.skipped, report.published) == (6, 2, 4)
    assert (report.confirmed, report.nacked) == (4, 0)
    sample = report.samples[-1]
    assert (sample.reason, sample.key_hash) == (f"406 {CLOSED.text}", hash_key(b"bad"))
    (note,) = collect_notes([report], WriteOptions.parse({"url": "amqp://h", "exchange": "x", **options}))
    assert note.startswith("badRows is skip, and 2 of 6 rows were not published; ")


def test_the_rest_of_the_partition_is_published_after_an_unroutable_row_that_is_skipped() -> None:
    lost: Columns = {"key": ["nowhere"], "value": ["1"]}
    more: Columns = {"key": ["a"], "value": ["2"]}
    report = write(lost, more, more, onUnroutable="skip")
    assert Scripted.sent == [b"1", b"2", b"2"]
    assert (report.published, report.confirmed) == (3, 2)
    write(lost, more, more)  # the real one raises in its flush
    assert Scripted.sent == [b"1"]


LIMITS = Limits()
RETRIES = Retries(retry_first_connection=True, nack_retries=3)


@pytest.mark.parametrize(
    ("option", "text", "argument", "value", "default"),
    [
        ("persistent", "false", "persistent", False, True),
        ("mandatory", "false", "mandatory", False, True),
        ("maxInFlight", "7", "limits", replace(LIMITS, max_in_flight=7), LIMITS),
        ("maxInFlightBytes", "1k", "limits", replace(LIMITS, max_in_flight_bytes=1_024), LIMITS),
        ("headersConst", '{"a": 1}', "properties", {"headers": {"a": 1}}, None),
        ("onUnroutable", "skip", "on_unroutable", "report", "raise"),
        ("confirmTimeout", "5s", "limits", replace(LIMITS, confirm_timeout_s=5.0), LIMITS),
        ("blockedTimeout", "6s", "limits", replace(LIMITS, blocked_timeout_s=6.0), LIMITS),
        ("reconnectBackoff", "2s", "retries", replace(RETRIES, backoff_s=2.0), RETRIES),
        ("nackRetries", "9", "retries", replace(RETRIES, nack_retries=9), RETRIES),
        ("connectionName", "{write}.{batch}", "connection_name", "w.7", "spark:-:0.0.0"),
        ("exchange", "y", "exchange", "y", "x"),
    ],
)
def test_options_reach_the_publisher(
    option: str, text: str, argument: str, value: object, default: object
) -> None:
    write({"key": ["a"], "value": ["1"]})
    assert Scripted.given[argument] == default
    write({"key": ["a"], "value": ["1"]}, **{option: text})
    assert Scripted.given[argument] == value


def test_a_write_of_the_same_name_makes_the_same_ids() -> None:
    rows: Columns = {"key": ["a", "a"], "value": ["1", "1"]}

    def ids(task: Task, **options: str) -> list[str]:
        parsed = WriteOptions.parse({"url": "amqp://h", "exchange": "x", "messageId": "auto", **options})
        schema = StructType().add("key", StringType()).add("value", StringType())
        batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in rows.items()})
        TaskWriter(WritePlan(MessageColumns.of(schema, parsed), parsed), task).publish_partition([batch])
        return Scripted.ids

    first, again = Task(write_id="first"), Task(write_id="again")
    assert len(set(ids(first))) == 2
    assert not set(ids(first)) & set(ids(again))
    assert ids(first, writeName="monday") == ids(again, writeName="monday")
    assert not set(ids(first, writeName="monday")) & set(ids(first, writeName="tuesday"))


def test_a_ring_counts_the_rows_of_its_exchange_only() -> None:
    rows: Columns = {"key": ["a", "b"], "value": ["1", "2"]}
    ring = RING.to_json()
    assert sum(write(rows, rows, ring=ring).predicted.values()) == 4
    elsewhere = {**rows, "exchange": ["other", None]}
    assert write(elsewhere, ring=ring, allowExchangeColumn="true").predicted == {}


def as_task(monkeypatch: pytest.MonkeyPatch, task: Task) -> None:
    monkeypatch.setattr(Task, "current", classmethod(lambda *_: task))


def test_a_second_attempt_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows: Columns = {"key": ["a"], "value": ["1"]}
    as_task(monkeypatch, Task(partition=3, attempt=0))
    write(rows)
    assert not caplog.records
    as_task(monkeypatch, Task(partition=3, attempt=1, number=9))
    assert write(rows).task_id == 9
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("exchange 'x', partition 3: attempt 1 publishes all rows again")
    assert vars(record)["exchange"] == "x"


def test_the_task_refuses_copies_of_itself_before_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: Columns = {"key": ["a"], "value": ["1"]}
    Scripted.given = {}
    for speculation, more in ((True, {"onSpeculation": "fail"}), (None, {"ordering": "per-key"})):
        as_task(monkeypatch, Task(speculation=speculation))
        with pytest.raises(InputError, match=r"^partition 0: .*spark\.speculation"):
            write(rows, **more)
    assert not Scripted.given
    as_task(monkeypatch, Task(speculation=True))
    assert "copies of a task" in write(rows).notes[0]
    as_task(monkeypatch, Task(speculation=False))
    assert write(rows, ordering="per-key").keys
    assert not write(rows).keys


def test_a_refusal_names_the_queue_by_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_publisher: Scripted) -> PublishReport:
        refused = PublishReport(rows=1, nacked=1, samples=(Returned("k", 0, "refused (basic.nack)"),))
        raise PublishError("a queue is full", refused)

    monkeypatch.setattr(Scripted, "flush", refuse)
    rows: Columns = {"key": ["k"], "value": ["v"]}
    queue = RING.destination_for("k")
    with pytest.raises(
        PublishError, match=rf"^partition 0 \(queue '{queue}' by the ring\): a queue is full\n"
    ):
        write(rows, ring=RING.to_json())
    with pytest.raises(PublishError, match=r"^partition 0: a queue is full\n"):
        write(rows)


def test_a_partition_that_an_earlier_task_had_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    rows: Columns = {"key": ["a"], "value": ["1"]}
    bad: Columns = {"key": [None], "value": ["1"]}
    as_task(monkeypatch, Task(partition=3, number=4, speculation=False))
    with pytest.raises(RowError):
        write(bad)
    as_task(monkeypatch, Task(partition=3, number=9, speculation=False))
    (note,) = write(rows).notes
    assert note.startswith("Spark ran a stage of this write again")
    as_task(monkeypatch, Task(partition=3, attempt=1, number=10, speculation=False))
    assert write(rows).notes == ()  # that one is counted
