"""What is checked before the first message of a write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import InputError
from rabbit_chx.publishing import PublishReport
from spark_connector.options.write_options import WriteOptions, check_speculation
from spark_connector.reports import TaskReport
from spark_connector.writing import preflight
from spark_connector.writing.preflight import (
    PreflightCache,
    check_broker,
    check_secret_name,
    plan_write,
)

SCHEMA = StructType().add("key", StringType()).add("value", StringType())
OPTIONS = {"url": "amqp://ann:c4nary@here", "exchange": "x", "preflight": "false"}
DONE = TaskReport(0, 0, rows=5, publish_report=PublishReport(rows=5, confirmed=5))


@pytest.mark.parametrize(("streaming", "mode"), [(False, "mode"), (True, "outputMode")])
def test_messages_are_not_overwritten(streaming: bool, mode: str) -> None:  # noqa: FBT001
    with pytest.raises(InputError, match=rf"^{mode}\(.*messages in queues cannot be overwritten"):
        plan_write(OPTIONS, SCHEMA, overwrite=True, streaming=streaming)


def test_only_a_batch_has_an_id() -> None:
    first, second = (plan_write(OPTIONS, SCHEMA) for _ in range(2))
    assert first.write_id
    assert first.write_id != second.write_id
    assert plan_write(OPTIONS, SCHEMA, streaming=True).write_id is None
    assert "c4nary" not in repr(first)


def test_a_stream_has_the_ids_of_its_query() -> None:
    named = {**OPTIONS, "messageId": "auto", "writeName": "monday"}
    assert plan_write(named, SCHEMA).options.write_name == "monday"
    with pytest.raises(InputError, match="option 'writeName' is for batch writes"):
        plan_write(named, SCHEMA, streaming=True)


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://ann@127.0.0.1:1", "exchange": "x", **more})


def test_a_variable_that_spark_would_show_in_clear_is_noted() -> None:
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
    with pytest.raises(InputError, match=r"onSpeculation is fail: set spark\.speculation"):
        check_speculation(options(onSpeculation="fail"), speculation=True)


@pytest.mark.parametrize("on_speculation", ["warn", "fail", "ignore"])
def test_an_order_by_key_refuses_speculation(on_speculation: str) -> None:
    ordered = options(ordering="per-key", onSpeculation=on_speculation)
    with pytest.raises(InputError, match=r"ordering is per-key: set spark\.speculation to false$"):
        check_speculation(ordered, speculation=True)
    with pytest.raises(InputError, match=r"ordering is per-key, .*register\(spark\)"):
        check_speculation(ordered, speculation=None)


def test_speculation_that_spark_does_not_report_is_noted_or_refused() -> None:
    assert check_speculation(options(onSpeculation="ignore"), speculation=None) == ()
    assert check_speculation(options(), speculation=None) == (
        "this Spark does not report whether spark.speculation is on",
    )
    with pytest.raises(InputError, match=r"onSpeculation is fail, .*register\(spark\)"):
        check_speculation(options(onSpeculation="fail"), speculation=None)


# -- one look at the broker is enough for a streaming query


def test_the_target_of_a_checkpoint_is_that_of_its_first_batch(tmp_path: Path) -> None:
    def check(checkpoint: str = str(tmp_path), **target: str) -> None:
        given = WriteOptions.parse({"url": "amqp://h/v", **target})
        preflight.check_checkpoint(given, {"checkpointLocation": checkpoint})

    check(exchange="a")
    assert list(tmp_path.iterdir()) == []  # it may be the folder of another file system
    (tmp_path / "metadata").touch()
    check(exchange="b")
    check(exchange="b")
    for location in (str(tmp_path), tmp_path.as_uri()):
        with pytest.raises(
            InputError, match=r"publishes to 'b' in vhost 'v'; this one publishes to 'c' in vhost 'v'"
        ):
            check(location, exchange="c")
    with pytest.raises(InputError, match=r"delete .*rabbitmq-target.json"):
        check(superStream="s")
    check("s3a://bucket/checkpoint", exchange="c")
    (tmp_path / "rabbitmq-target.json").write_text("{")
    check(exchange="c")


def test_a_look_is_kept_for_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers at the address, so asking again would fail."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/other")
    given = {"checkpointLocation": "here"}
    assert PreflightCache.of_query(options(), given).notes is None
    PreflightCache.of_query(options(), given).keep(("a note", "another"))
    assert check_broker(options(), cache=PreflightCache.of_query(options(), given)) == ("a note", "another")
    for other in (
        PreflightCache.of_query(options(), {"checkpointLocation": "there"}),
        PreflightCache.of_query(options(exchange="y"), given),
        PreflightCache.of_query(options(url="amqp://bob@127.0.0.1:1"), given),
    ):
        assert other.notes is None
    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text()) == ["a note", "another"]
    file.write_text("half")
    assert PreflightCache.of_query(options(), given).notes is None  # looks again


def test_a_look_that_cannot_be_kept_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/no/such/folder")
    PreflightCache.of_query(options(), {}).keep(())
    assert PreflightCache.of_query(options(), {}).notes is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    cache = PreflightCache.of_query(options(), {})
    cache.keep(("kept in this object",))
    assert check_broker(options(), cache=cache) == ("kept in this object",)


def test_a_broker_that_does_not_answer_is_looked_at_again() -> None:
    cache = PreflightCache()
    (note,) = check_broker(options(), patient=True, cache=cache)
    assert note == "the broker was not checked before the write: no address answered"
    assert cache.notes is None


@pytest.mark.parametrize("streaming", [False, True])
def test_streams_are_looked_at_before_the_first_row_and_once_for_a_query(
    monkeypatch: pytest.MonkeyPatch, *, streaming: bool
) -> None:
    looks: list[bool] = []
    monkeypatch.setattr(
        preflight, "plan_layout", lambda *_, checks_streams, **__: looks.append(checks_streams)
    )
    once = {"url": "amqp://h", "superStream": "s", "delivery": "exactly-once", "appId": "load"}
    options = once if streaming else {**once, "version": "1"}
    cache = PreflightCache() if streaming else None
    for _ in range(2):
        plan_write(options, SCHEMA, streaming=streaming, cache=cache)
    assert looks == [True, not streaming]
