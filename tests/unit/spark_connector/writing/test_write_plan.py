"""A write is refused before it begins, and says what stays behind when it fails."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import InputError, RowError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from spark_connector.placing.rings import WatchedRing
from spark_connector.reports import TaskReport
from spark_connector.writing.write_plan import WritePlan

SCHEMA = StructType().add("key", StringType()).add("value", StringType())
OPTIONS = {"url": "amqp://ann:c4nary@here", "exchange": "x", "preflight": "false"}
DONE = TaskReport(0, 0, rows=5, publish_report=PublishReport(rows=5, confirmed=5))


@pytest.mark.parametrize(("streaming", "mode"), [(False, "mode"), (True, "outputMode")])
def test_messages_are_not_overwritten(streaming: bool, mode: str) -> None:  # noqa: FBT001
    with pytest.raises(InputError, match=rf"^{mode}\(.*messages in queues cannot be overwritten"):
        WritePlan.checked(OPTIONS, SCHEMA, overwrite=True, streaming=streaming)


def test_only_a_batch_has_an_id_of_its_own() -> None:
    first, second = (WritePlan.checked(OPTIONS, SCHEMA, overwrite=False) for _ in range(2))
    assert first.write_id
    assert first.write_id != second.write_id
    assert WritePlan.checked(OPTIONS, SCHEMA, overwrite=False, streaming=True).write_id is None
    assert "c4nary" not in repr(first)


def test_a_stream_has_the_ids_of_its_query() -> None:
    named = {**OPTIONS, "messageId": "auto", "writeName": "monday"}
    assert WritePlan.checked(named, SCHEMA, overwrite=False).options.write_name == "monday"
    with pytest.raises(InputError, match="option 'writeName' is for batch writes"):
        WritePlan.checked(named, SCHEMA, overwrite=False, streaming=True)


@pytest.mark.parametrize(
    ("expected", "others"), [(None, "the other tasks"), (2, "1 other task"), (3, "2 other tasks")]
)
def test_a_failed_write_says_what_stays_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expected: int | None, others: str
) -> None:
    path = tmp_path / "report.json"
    plan = WritePlan.checked({**OPTIONS, "reportPath": str(path)}, SCHEMA, overwrite=False)
    with caplog.at_level(logging.WARNING):
        report = plan.abort([DONE], expected, cause=RowError("row 7: too long"))
    assert (report.failed, report.confirmed) == (True, 5)
    assert report.notes == ("the write failed: row 7: too long",)
    assert json.loads(path.read_text())["unfinished"] == (None if expected is None else expected - 1)
    assert (
        f"the write failed; at least 5 rows of 1 finished task are in the queues and stay there; rows of {others} may be in the "
        "queues as well\n" in caplog.text
    )


def test_a_committed_write_saves_its_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    plan = WritePlan.checked({**OPTIONS, "reportPath": str(path)}, SCHEMA, overwrite=False)
    report = plan.commit([DONE])
    assert path.read_text() == report.to_json()
    assert (report.failed, report.rows, report.write_id) == (False, 5, plan.write_id)


def test_a_batch_by_slots_notes_that_slots_changed_hands_while_all_connections_lived() -> None:
    slots = [ExchangeRef("s0"), ExchangeRef("s1")]
    ring = HashRing.from_buckets(slots)
    before, after = (SlotTable(ring, {slots[0]: "q1", slots[1]: queue}) for queue in ("q1", "q2"))
    tables = iter([before, after, before, before])
    for notes in (["the slots or the ring have changed"], []):
        watched = WatchedRing(lambda: next(tables))
        given = {**OPTIONS, "ring": before.to_json()}
        report = WritePlan.checked(given, SCHEMA, overwrite=False, ring=watched).commit([DONE], ring=watched)
        assert [note[:34] for note in report.notes] == notes
