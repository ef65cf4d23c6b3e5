"""The data source, as Spark calls it; Spark itself is left out."""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="format('rabbitmq') needs PySpark 4.0")

from spark_messages import SCHEMA

from rabbit_chx.errors import InputError
from spark_connector.datasource import data_source
from spark_connector.reading import spark_readers
from spark_connector.writing.spark_writers import BatchWriter

OPTIONS = {"url": "amqp://here", "exchange": "x", "preflight": "false"}
CLOUDPICKLE: Any = import_module("pyspark.cloudpickle")  # untyped


def travelled(value: Any) -> Any:
    return pickle.loads(CLOUDPICKLE.dumps(value))  # noqa: S301  # as Spark does


def test_its_writers_are_found_after_it_travelled() -> None:
    source = travelled(data_source(speculation=False))(OPTIONS)
    assert isinstance(travelled(source.writer(SCHEMA, overwrite=False)), BatchWriter)


def test_a_session_with_speculation_is_refused_on_the_driver() -> None:
    source = data_source(speculation=True)({**OPTIONS, "onSpeculation": "fail"})
    with pytest.raises(
        InputError, match=r"spark\.speculation is on, whose copies of a task publish its rows"
    ):
        source.writer(SCHEMA, overwrite=False)


def test_a_release_that_lacks_what_a_query_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyspark.sql.datasource.DataSourceStreamArrowWriter", raising=False)
    monkeypatch.setattr(spark_readers, "_HAS_LIMITS", False)
    source = data_source(speculation=False)
    words = r"needs PySpark 4\.1 or newer, .*: upgrade, or use writeStream\.foreachBatch"
    with pytest.raises(InputError, match=words):
        source(OPTIONS).streamWriter(SCHEMA, overwrite=False)
    words = r"needs PySpark 4\.2 or newer, .*: upgrade, or read batches with spark\.read"
    with pytest.raises(InputError, match=words):
        source({"url": "amqp://here", "stream": "s"}).streamReader(SCHEMA)


def test_a_queue_is_drained_and_not_read() -> None:
    source = data_source(speculation=False)({"url": "amqp://here", "QUEUE": "q", "mode": "peek"})
    for read in (source.schema, lambda: source.reader(SCHEMA), lambda: source.streamReader(SCHEMA)):
        with pytest.raises(InputError, match=r"take batches out of the queue with spark_connector\.drain"):
            read()
