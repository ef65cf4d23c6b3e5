"""A task, and what it asks of the publisher. The publisher is scripted: its answers alone matter here."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest
from spark_messages import options_of, schema_of

from rabbit_chx.errors import InputError, PublishError, RabbitChxError, RowError
from rabbit_chx.publishing import Limits, PublishReport, Retries, Returned
from rabbit_chx.routing import HashRing
from spark_connector.reports import FinishedTask, RowSample, hash_key
from spark_connector.writing import task_writer
from spark_connector.writing.commit import collect_notes
from spark_connector.writing.preflight import WritePlan
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task

Columns: TypeAlias = dict[str, list[str | None]]
ROW: Columns = {"key": ["a"], "value": ["1"]}
OTHER: Columns = {"key": ["b"], "value": ["2"]}
LOST: Columns = {"key": ["nowhere"], "value": ["3"]}
NULL: Columns = {"key": [None], "value": ["4"]}
RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


class Scripted:
    """A publisher that returns every message with the key ``nowhere``, and confirms the others."""

    given: dict[str, Any]
    sent: list[bytes]
    ids: list[str]

    def __init__(self, addresses: Any, exchange: str, **given: Any) -> None:
        type(self).given = {"addresses": addresses, "exchange": exchange, **given}
        type(self).sent, type(self).ids = [], []
        self.keys: list[bytes] = []

    @property
    def report(self) -> PublishReport:
        """Of the messages so far."""
        lost = [key for key in self.keys if key == b"nowhere"]
        samples = tuple(Returned(key.decode(), 312, "NO_ROUTE") for key in lost[:1])
        counts: Any = {"rows": len(self.keys), "confirmed": len(self.keys) - len(lost), "returned": len(lost)}
        sent: Any = {"republished": 1, "reconnects": 2, "bytes_sent": 3}
        return PublishReport(**counts, **sent, seconds=4.0, blocked_seconds=0.5, samples=samples)

    def send(self, keys: Any, bodies: Any, *, properties: Any, exchanges: Any) -> None:
        """Keep them."""
        del exchanges
        self.ids.extend((properties or {}).get("message_id", ()))
        self.keys += keys.to_pylist()
        self.sent.extend(bodies.to_pylist())

    def flush(self) -> PublishReport:
        """The last answer."""
        if self.report.returned and self.given["on_unroutable"] == "raise":
            raise PublishError("unroutable", self.report)
        return self.report

    def close(self) -> None:
        """It has no connection."""


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "Publisher", Scripted)


def write(
    *batches: Columns, task: Task | None = None, streaming: bool = False, **options: Any
) -> FinishedTask:
    schema = schema_of(", ".join(f"{name} string" for name in batches[0]))
    text = pa.schema(dict.fromkeys(batches[0], pa.string()))
    made = [pa.RecordBatch.from_pydict(batch, text) for batch in batches]
    plan = WritePlan.parse({"url": "amqp://h", "exchange": "x", **options}, schema, streaming=streaming)
    return TaskWriter(plan, task or Task.current("w", 7)).publish_partition(made)


def test_the_report_has_every_count_at_its_place() -> None:
    report = write(ROW, LOST, NULL, badRows="skip", onUnroutable="skip")
    assert (report.rows, report.skipped, report.published) == (3, 1, 2)
    counts = report.publish_report
    assert (counts.confirmed, counts.returned, counts.nacked) == (1, 1, 0)
    assert (counts.republished, counts.reconnects, counts.bytes_sent) == (1, 2, 3)
    assert (counts.seconds, counts.blocked_seconds) == (4.0, 0.5)
    assert (report.write_id, report.batch_id) == ("w", None)
    assert write(ROW, streaming=True).batch_id == 7
    assert report.samples[1] == RowSample(0, None, "312 NO_ROUTE", hash_key(b"nowhere"))
    assert "nowhere" not in repr(report)


def test_an_error_has_the_counts_of_the_rows_before_it() -> None:
    with pytest.raises(RowError) as caught:
        write(ROW, OTHER, NULL)
    (line,) = caught.value.__notes__
    assert '"rows": 2, "confirmed": 2' in line


def fail_with(monkeypatch: pytest.MonkeyPatch, words: str, **report: Any) -> None:
    """Let the publisher fail at its end."""
    monkeypatch.setattr(Scripted, "flush", Mock(side_effect=PublishError(words, PublishReport(**report))))


CLOSED = Returned("bad", 406, "the broker answered 406 PRECONDITION_FAILED")
UNROUTABLE, NACKED = Returned("k", 312, "NO_ROUTE"), Returned("k", 0, "nack")


ONE_OF_FIVE = {"nacked": 1, "confirmed": 4}
FIVE: Columns = {"key": ["k"] * 5, "value": ["v"] * 5}


@pytest.mark.parametrize(
    ("reaction", "samples", "counts"),
    [
        ("fail", [CLOSED], ONE_OF_FIVE),
        ("skip", [CLOSED], {"nacked": 1, "confirmed": 3, "unknown": 1}),
        ("skip", [CLOSED, UNROUTABLE], {"nacked": 1, "confirmed": 3, "returned": 1}),
        ("skip", [CLOSED, NACKED], {"nacked": 2, "confirmed": 3}),
        ("skip", [NACKED], ONE_OF_FIVE),
    ],
)
def test_a_row_is_not_skipped_if_there_is_another_failure(
    monkeypatch: pytest.MonkeyPatch, reaction: str, samples: list[Returned], counts: dict[str, int]
) -> None:
    fail_with(monkeypatch, "row 3", rows=5, samples=tuple(samples), **counts)
    with pytest.raises(PublishError, match="row 3"):
        write(FIVE, badRows=reaction)


def test_a_row_that_closes_the_channel_is_a_bad_row(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, "row 3", rows=5, samples=(CLOSED,), **ONE_OF_FIVE)
    report = write(NULL, FIVE, badRows="skip")  # that of null is skipped before it is sent
    assert (report.rows, report.skipped, report.published) == (6, 2, 4)
    assert (report.publish_report.confirmed, report.publish_report.nacked) == (4, 0)
    sample = report.samples[-1]
    assert (sample.reason, sample.key_hash) == (f"406 {CLOSED.text}", hash_key(b"bad"))
    (note,) = collect_notes([report], options_of(badRows="skip"))
    assert note.startswith("badRows is skip, and 2 of 6 rows were not published; ")


@pytest.mark.parametrize(
    ("key", "routing", "refused", "predicted"),
    [
        ("k", "exchange", 1, 4),
        (str(RING.destination_for("k")), "client", 1, 4),
        ("\\xff\\x00", "exchange", 1, 0),  # the sample of bytes that are not UTF-8 does not have the key
        ("k", "exchange", 2, 0),  # an exchange that refuses every message: only the first key is known
    ],
)
def test_a_row_that_closes_the_channel_is_not_predicted(
    monkeypatch: pytest.MonkeyPatch, key: str, routing: str, refused: int, predicted: int
) -> None:
    closed = replace(CLOSED, key=key)
    fail_with(monkeypatch, "row 3", rows=5, samples=(closed,), nacked=refused, confirmed=5 - refused)
    report = write(FIVE, badRows="skip", ring=RING.to_json(), routing=routing)
    assert report.published == 5 - refused
    assert sum(report.predicted.values()) == predicted


def test_the_rest_of_the_partition_is_published_after_an_unroutable_row_that_is_skipped() -> None:
    report = write(LOST, ROW, ROW, onUnroutable="skip")
    assert Scripted.sent == [b"3", b"1", b"1"]
    assert (report.published, report.publish_report.confirmed) == (3, 2)
    with pytest.raises(PublishError, match="unroutable"):
        write(LOST, ROW, ROW)
    assert Scripted.sent == [b"3"]


#: Each of their fields is an option: `test_write_options.py`.
LIMITS, RETRIES = Limits(), Retries(retry_first_connection=True, nack_retries=3)


@pytest.mark.parametrize(
    ("option", "text", "argument", "value", "default"),
    [
        ("persistent", "false", "persistent", False, True),
        ("mandatory", "false", "mandatory", False, True),
        ("maxInFlight", "7", "limits", replace(LIMITS, max_in_flight=7), LIMITS),
        ("headersConst", '{"a": 1}', "properties", {"headers": {"a": 1}}, None),
        ("onUnroutable", "skip", "on_unroutable", "report", "raise"),
        ("nackRetries", "9", "retries", replace(RETRIES, nack_retries=9), RETRIES),
        ("connectionName", "{write}.{batch}", "connection_name", "w.7", "spark:-:0.0.0"),
        ("exchange", "y", "exchange", "y", "x"),
    ],
)
def test_an_option_reaches_the_publisher(
    option: str, text: str, argument: str, value: object, default: object
) -> None:
    write(ROW)
    assert Scripted.given[argument] == default
    write(ROW, **cast("Any", {option: text}))
    assert Scripted.given[argument] == value


def test_a_write_of_the_same_name_makes_the_same_ids() -> None:
    def ids(write_id: str, **options: Any) -> set[str]:
        write(ROW, ROW, task=Task(write_id=write_id), messageId="auto", **options)
        return set(Scripted.ids)

    assert len(ids("first")) == 2
    assert not ids("first") & ids("again")
    assert ids("first", writeName="monday") == ids("again", writeName="monday")
    assert not ids("first", writeName="monday") & ids("first", writeName="tuesday")


def test_a_ring_counts_the_rows_of_its_exchange_only() -> None:
    ring = RING.to_json()
    assert sum(write(ROW, OTHER, OTHER, ring=ring).predicted.values()) == 3
    elsewhere: Columns = {"key": ["a", "b"], "value": ["1", "2"], "exchange": ["other", None]}
    assert write(elsewhere, ring=ring, allowExchangeColumn="true").predicted == {}


def test_a_second_attempt_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    write(ROW, task=Task(partition=3, attempt=0))
    assert not caplog.records
    assert write(ROW, task=Task(partition=3, attempt=1, number=9)).task_id == 9
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("exchange 'x', partition 3: attempt 1 publishes all rows again")
    assert vars(record)["exchange"] == "x"


def test_the_task_refuses_copies_of_itself_before_it_connects() -> None:
    Scripted.given = {}
    cases: list[tuple[Any, dict[str, Any]]] = [
        (True, {"onSpeculation": "fail"}),
        (None, {"ordering": "per-key"}),
    ]
    for speculation, more in cases:
        with pytest.raises(InputError, match=r"^partition 0: .*spark\.speculation"):
            write(ROW, task=Task(speculation=speculation), **more)
    assert not Scripted.given
    assert "copies of a task" in write(ROW, task=Task(speculation=True)).notes[0]
    assert write(ROW, task=Task(speculation=False), ordering="per-key").keys
    assert not write(ROW, task=Task(speculation=False)).keys


def test_a_refusal_names_the_queue_by_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Returned("a", 0, "refused (basic.nack)")
    fail_with(monkeypatch, "a queue is full", rows=1, nacked=1, samples=(refused,))
    words = rf"^partition 0 \(queue '{RING.destination_for('a')}' by the ring\): a queue is full\n"
    with pytest.raises(PublishError, match=words):
        write(ROW, ring=RING.to_json())
    with pytest.raises(PublishError, match=r"^partition 0: a queue is full\n"):
        write(ROW)


def test_an_unfinished_earlier_task_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    task = Task(partition=3, number=4, write_id="w", speculation=False)
    with pytest.raises(RowError):
        write(NULL, task=task)
    (note,) = write(ROW, task=replace(task, number=9)).notes
    assert note.startswith("Spark ran a stage of this write again")
    assert write(ROW, task=replace(task, attempt=1, number=10)).notes == ()  # that one is counted


def test_a_task_whose_input_was_cut_reports_nothing_as_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its rows are sent, so the next task notes that they may be in the queues twice."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    task = Task(partition=3, number=4, write_id="w", speculation=False)
    with monkeypatch.context() as cut:
        cut.setattr(task_writer, "find_input", lambda: io.BufferedReader(io.BytesIO()))
        with pytest.raises(RabbitChxError, match=r"partition 3: .* was cut after 2 rows"):
            write(ROW, OTHER, task=task)
    (note,) = write(ROW, task=replace(task, number=9)).notes
    assert note.startswith("Spark ran a stage of this write again")


def test_made_ids_need_a_write() -> None:
    with pytest.raises(InputError, match=r"does not report the streaming query .*: add a column message_id"):
        write(ROW, task=Task(), messageId="auto")


def test_bad_rows_alone_open_no_connection() -> None:
    Scripted.given = {}
    report = write(NULL, badRows="skip")
    assert (report.rows, report.skipped, report.published) == (1, 1, 0)
    assert not Scripted.given


def test_a_long_task_logs_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writer, "_PROGRESS_S", 0.0)
    with caplog.at_level(logging.INFO, "spark_connector"):
        write(NULL, ROW, ROW, badRows="skip")
        Scripted.given["progress"](PublishReport(rows=2))
    done, so_far = caplog.messages
    assert done.startswith("exchange 'x', partition 0, attempt 0, done: 2 of 3 rows confirmed")
    assert ", so far: " in so_far


def test_a_long_task_says_on_stderr_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody has configured logging, as in Spark's workers."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    write(ROW)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(task_writer, "_PROGRESS_S", 0.0)
    write(ROW)
    assert ", done: 1 of 1 rows confirmed" in capsys.readouterr().err
