"""One look at the broker is enough for a streaming query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.preflight import check_broker
from spark_connector.writing.preflight_answer import PreflightAnswer


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://ann@127.0.0.1:1", "exchange": "x", **more})


def test_a_look_is_kept_for_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers at the address, so asking again would fail."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/other")
    given = {"checkpointLocation": "here"}
    assert PreflightAnswer.of_query(options(), given).notes is None
    PreflightAnswer.of_query(options(), given).keep(("a note", "another"))
    assert check_broker(options(), answer=PreflightAnswer.of_query(options(), given)) == ("a note", "another")
    for other in (
        PreflightAnswer.of_query(options(), {"checkpointLocation": "there"}),
        PreflightAnswer.of_query(options(exchange="y"), given),
        PreflightAnswer.of_query(options(url="amqp://bob@127.0.0.1:1"), given),
    ):
        assert other.notes is None
    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text()) == ["a note", "another"]
    file.write_text("half")
    assert PreflightAnswer.of_query(options(), given).notes is None  # looks again


def test_a_look_that_cannot_be_kept_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/no/such/folder")
    PreflightAnswer.of_query(options(), {}).keep(())
    assert PreflightAnswer.of_query(options(), {}).notes is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    answer = PreflightAnswer.of_query(options(), {})
    answer.keep(("kept in this object",))
    assert check_broker(options(), answer=answer) == ("kept in this object",)


def test_a_broker_that_does_not_answer_is_looked_at_again() -> None:
    answer = PreflightAnswer()
    (note,) = check_broker(options(), patient=True, answer=answer)
    assert note == "the broker was not checked before the write: no address answered"
    assert answer.notes is None
