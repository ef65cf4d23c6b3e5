"""What a writer does with the messages that Spark hands it at the end of a write; Spark itself is left out."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="format('rabbitmq') needs PySpark 4.0")

from pathlib import Path

from pyspark.sql import datasource
from spark_messages import DONE, SCHEMA

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.routing import HashRing
from spark_connector.placing.rings import WatchedRing
from spark_connector.writing import spark_writers
from spark_connector.writing.preflight import plan_write
from spark_connector.writing.spark_writers import BatchWriter, MicroBatchWriter, _TaskDone, stream_writer

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

RING = HashRing.from_buckets(["q1", "q2"])
OPTIONS = {"url": "amqp://h", "exchange": "x", "preflight": "false"}


def test_a_write_that_the_client_routes_and_that_fails_has_one_report(tmp_path: Path) -> None:
    """Where all tasks are done, the commit has failed, and has saved the report that says why."""
    path = tmp_path / "report.json"
    options = {**OPTIONS, "routing": "client", "ring": RING.to_json(), "reportPath": str(path)}
    plan = plan_write(options, SCHEMA, ring=WatchedRing(lambda: RING))
    BatchWriter(plan).abort([_TaskDone(DONE, plan)])
    assert not path.exists()
    BatchWriter(plan).abort([_TaskDone(DONE, plan), None])
    report = json.loads(path.read_text())
    assert (report["failed"], report["confirmed"], report["unfinished"]) == (True, 5, 1)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_commit_has_one_report_of_each_task_or_fails(*, streaming: bool) -> None:
    """A continuous trigger gives commits without reports, since Spark does not call the writer in its tasks."""
    plan = plan_write(OPTIONS, SCHEMA, streaming=streaming)
    writer, batch = (MicroBatchWriter(plan), 7) if streaming else (BatchWriter(plan), None)
    for done, tasks in (0, 0), (0, 3), (1, 3), (2, 3):
        messages: list[WriterCommitMessage | None] = [_TaskDone(DONE, plan)] * done + [None] * (tasks - done)
        with pytest.raises(PublishError, match=f"^{done} of {tasks} tasks") as raised:
            writer.commit(messages, batch)
        assert raised.value.exchange == "x"
        assert f'"confirmed": {5 * done}' in raised.value.__notes__[0]
        assert ("continuous" in str(raised.value)) is streaming
    writer.commit([_TaskDone(DONE, plan)] * 3, batch)


@pytest.mark.skipif(not hasattr(datasource, "DataSourceStreamArrowWriter"), reason="streams need PySpark 4.1")
def test_where_a_batch_is_committed_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are published: a check that fails then would only repeat them."""
    with pytest.raises(InputError, match="cannot be overwritten"):
        stream_writer(OPTIONS, SCHEMA, overwrite=True, speculation=None)
    monkeypatch.setitem(sys.modules, spark_writers._COMMITTING, sys)
    assert isinstance(stream_writer(OPTIONS, SCHEMA, overwrite=True, speculation=None), MicroBatchWriter)
