"""What is noted before the first message, without asking a broker."""

from __future__ import annotations

from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.preflight import check_secret_name


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
