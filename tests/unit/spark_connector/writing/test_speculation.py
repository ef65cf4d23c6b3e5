"""What is noted and refused where Spark may start copies of a task."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import InputError
from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.speculation import check_speculation


def options(**more: str) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://ann@127.0.0.1:1", "exchange": "x", **more})


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
