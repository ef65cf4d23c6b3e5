"""What is checked before the first message of a write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spark_messages import SCHEMA

from rabbit_chx.errors import InputError
from rabbit_chx.routing import SuperStream
from spark_connector.options.write_options import WriteOptions, check_speculation
from spark_connector.writing import preflight
from spark_connector.writing.preflight import PreflightCache, check_broker, check_secret_name, plan_write
from spark_connector.writing.stream_layout import StreamLayout

OPTIONS = {"url": "amqp://ann:c4nary@here", "exchange": "x", "preflight": "false"}


def test_messages_are_not_overwritten() -> None:
    """What Spark advises for a write without a mode is "append" or "overwrite"."""
    for streaming, mode in (False, "mode"), (True, "outputMode"):
        words = rf"^{mode}\(.*messages in queues cannot be overwritten, .*: use {mode}\('append'\)"
        with pytest.raises(InputError, match=words):
            plan_write(OPTIONS, SCHEMA, overwrite=True, streaming=streaming)


def test_only_a_batch_has_an_id_and_a_name() -> None:
    named = {**OPTIONS, "messageId": "auto", "writeName": "monday"}
    first, second = (plan_write(named, SCHEMA) for _ in range(2))
    assert first.write_id
    assert first.write_id != second.write_id
    assert first.options.write_name == "monday"
    assert "c4nary" not in repr(first)
    assert plan_write(OPTIONS, SCHEMA, streaming=True).write_id is None
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
        assert f"as spark.executorEnv.{name}, Spark shows the password in its event log and UI" in note


# -- what is noted and refused where Spark may start copies of a task


def test_speculation_is_noted_or_ignored() -> None:
    for more in ({}, {"onSpeculation": "fail"}, {"ordering": "per-key"}):
        assert check_speculation(options(**more), speculation=False) == ()
    for unknown in (None, True):
        assert check_speculation(options(onSpeculation="ignore"), speculation=unknown) == ()
    (note,) = check_speculation(options(), speculation=True)
    assert "copies of a task publish its rows again" in note
    (note,) = check_speculation(options(), speculation=None)
    assert note == "this Spark does not report whether spark.speculation is on"


@pytest.mark.parametrize(
    ("given", "why", "remedy"),
    [
        ({"onSpeculation": "fail"}, "onSpeculation is fail", ", or onSpeculation to warn or ignore"),
        ({"ordering": "per-key"}, "ordering is per-key", ""),
        ({"ordering": "per-key", "onSpeculation": "fail"}, "ordering is per-key", ""),
        ({"ordering": "per-key", "onSpeculation": "ignore"}, "ordering is per-key", ""),
    ],
)
def test_speculation_is_refused(given: dict[str, str], why: str, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"{why}: set spark\.speculation to false{remedy}$"):
        check_speculation(options(**given), speculation=True)
    with pytest.raises(InputError, match=rf"{why}, .*register\(spark\)"):
        check_speculation(options(**given), speculation=None)


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
        words = r"publishes to 'b' in vhost 'v'; this one publishes to 'c' in vhost 'v'"
        with pytest.raises(InputError, match=words):
            check(location, exchange="c")
    with pytest.raises(InputError, match=r"delete .*rabbitmq-target.json"):
        check(superStream="s")
    check("s3a://bucket/checkpoint", exchange="c")
    (tmp_path / "rabbitmq-target.json").write_text("{")
    check(exchange="c")


def test_a_look_is_kept_for_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers at the address, so asking again would fail."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/other")

    def cache(place: str = "here", **more: str) -> PreflightCache:
        return PreflightCache.of_query(options(**more), {"checkpointLocation": place})

    assert cache().notes is None
    cache().keep(("a note", "another"))
    assert check_broker(options(), cache=cache()) == ("a note", "another")
    for other in (cache("there"), cache(exchange="y"), cache(url="amqp://bob@127.0.0.1:1")):
        assert other.notes is None
    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text()) == ["a note", "another"]
    file.write_text("half")
    assert cache().notes is None  # looks again


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


def test_a_broker_whose_password_only_the_executors_have_is_not_looked_at() -> None:
    (note,) = check_broker(options(passwordEnv="NOT_SET_HERE"))
    assert note == "the broker was not checked before the write: only the executors have the password"


def test_streams_are_looked_at_before_each_write_and_once_for_a_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[bool] = []

    def look(*_: object, **given: bool) -> StreamLayout:
        looks.append(given["checks_streams"])
        return StreamLayout(SuperStream(["s-0"]), "", notes=("seen",) if given["checks_streams"] else ())

    monkeypatch.setattr(preflight, "plan_layout", look)
    once = {"url": "amqp://h", "superStream": "s", "delivery": "exactly-once", "appId": "load"}
    cache = PreflightCache()
    seen = []
    for _ in range(2):
        assert "seen" in plan_write({**once, "version": "1"}, SCHEMA).notes
        seen.append("seen" in plan_write(once, SCHEMA, streaming=True, cache=cache).notes)
    assert looks == [True, True, True, False]
    assert seen == [True, False]


def test_an_amqp_url_of_a_super_stream_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the URL of streams names a port that is used, and neither says that delivery is exactly once."""
    monkeypatch.setattr(preflight, "plan_layout", lambda *_, **__: StreamLayout(SuperStream(["s-0"]), ""))
    once = {"delivery": "exactly-once", "appId": "load", "version": "1"}
    port = "rows go to super stream 's' by the stream protocol at port 5552, and not to the port of the amqp:// URL: "
    port += "rabbitmq-stream:// names that port"
    stored_again = (
        "; delivery is at-least-once, so a repeated task stores its rows again: set delivery to exactly-once"
    )
    for url, more, notes in (
        ("amqp://h:5673", {}, (port + stored_again,)),
        ("amqp://h:5673", once, (port,)),
        ("rabbitmq-stream://h", {}, ()),
    ):
        assert plan_write({"url": url, "superStream": "s", **more}, SCHEMA).notes == notes
