"""What is checked before the first message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rabbit_chx.errors import InputError
from spark_connector.options.write_options import WriteOptions, check_speculation
from spark_connector.writing.write_plan import (
    PreflightAnswer,
    check_broker,
    check_secret_name,
)


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://ann@127.0.0.1:1", "exchange": "x", **more})


def test_a_variable_that_spark_would_show_in_clear() -> None:
    for name in ("RABBIT_PASSWORD", "my_secret_1", "Token", "MyAccessKey"):
        assert check_secret_name(options(passwordEnv=name)) == ()
    assert check_secret_name(options(passwordFile="/pw")) == ()
    assert check_secret_name(options(password="p")) == ()  # noqa: S106  # what is meant
    for name in ("RABBIT_PW", "PASS", "ACCESS_KEY"):
        (note,) = check_secret_name(options(passwordEnv=name))
        assert (
            f"if it is set as spark.executorEnv.{name}, Spark shows the password in its event log and UI"
            in note
        )


# -- what is noted and refused where Spark may start copies of a task


def test_speculation_that_is_off_needs_no_word() -> None:
    for more in ({}, {"onSpeculation": "fail"}, {"ordering": "per-key"}):
        assert check_speculation(options(**more), speculation=False) == ()


def test_speculation_is_noted_refused_or_ignored() -> None:
    (note,) = check_speculation(options(), speculation=True)
    assert "copies of a task publish its rows again" in note
    assert check_speculation(options(onSpeculation="ignore"), speculation=True) == ()
    with pytest.raises(
        InputError, match=r"onSpeculation is fail: set spark\.speculation to false, or onSpeculation to warn"
    ):
        check_speculation(options(onSpeculation="fail"), speculation=True)


@pytest.mark.parametrize("on_speculation", ["warn", "fail", "ignore"])
def test_an_order_by_key_refuses_speculation(on_speculation: str) -> None:
    ordered = options(ordering="per-key", onSpeculation=on_speculation)
    with pytest.raises(InputError, match=r"ordering is per-key: set spark\.speculation to false$"):
        check_speculation(ordered, speculation=True)
    with pytest.raises(
        InputError, match=r"ordering is per-key, and this Spark does not tell .*register\(spark\)"
    ):
        check_speculation(ordered, speculation=None)


def test_speculation_that_nobody_tells() -> None:
    assert check_speculation(options(onSpeculation="ignore"), speculation=None) == ()
    assert check_speculation(options(), speculation=None) == (
        "this Spark does not tell whether spark.speculation is on",
    )
    with pytest.raises(
        InputError, match=r"onSpeculation is fail, and this Spark does not tell .*register\(spark\)"
    ):
        check_speculation(options(onSpeculation="fail"), speculation=None)


# -- one look at the broker is enough for a streaming query


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
