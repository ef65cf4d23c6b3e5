"""Whatever goes wrong, a traceback with its local variables shows no password."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import RabbitChxError
from spark_connector.options.addresses import Brokers
from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.columns import MessageColumns
from spark_connector.writing.task_writer import write_partition
from spark_connector.writing.write_plan import WritePlan

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = {"url": "amqp://ann@here", "password": "c4nary", "exchange": "x", "preflight": "false"}
SCHEMA = StructType().add("key", StringType()).add("value", StringType())


def with_locals(error: Exception) -> str:
    """As Spark shows it, without this test's own variables."""
    assert error.__traceback__ is not None
    from_ours = error.__traceback__.tb_next
    shown = traceback.TracebackException(type(error), error, from_ours, capture_locals=True)
    return "".join(shown.format())


def test_of_an_unforeseen_error_while_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(values: Mapping[str, str]) -> NoReturn:
        raise KeyError(values["password"])

    monkeypatch.setattr(Brokers, "of", fail)
    with pytest.raises(
        RabbitChxError, match=r"^unforeseen KeyError \(at .*test_spark_errors.py:\d+\)"
    ) as caught:
        WritePlan.checked(OPTIONS, SCHEMA, overwrite=False)
    assert "c4nary" not in with_locals(caught.value)


def test_of_an_unforeseen_error_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(brokers: Brokers, _: int) -> NoReturn:
        secret = brokers.addresses[0].password.reveal()
        raise KeyError(len(secret))

    monkeypatch.setattr(Brokers, "resolve", fail)
    parsed = WriteOptions.parse(OPTIONS)
    batch = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})
    with pytest.raises(RabbitChxError, match=r"^partition 0: unforeseen KeyError: 6 \(at ") as caught:
        write_partition([batch], MessageColumns.of(SCHEMA, parsed), parsed, write_id="w")
    assert "c4nary" not in with_locals(caught.value)
