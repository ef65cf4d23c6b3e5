"""What speculative execution does to a write.

Spark starts copies of slow tasks, and each copy publishes its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_connector.options.write_options import WriteOptions

__all__ = ["check_speculation", "speculation_of"]


def speculation_of(spark: SparkSession) -> bool:
    """Return whether ``spark.speculation`` is on, as the user's session knows it, classic or Connect."""
    conf: Any = spark.conf
    return bool(conf.get("spark.speculation", "false").lower() == "true")


def check_speculation(options: WriteOptions, *, speculation: bool | None) -> tuple[str, ...]:
    """Return notes for the report on what speculative execution does to a write.

    Args:
        options: how to write.
        speculation: whether ``spark.speculation`` is on; None if Spark does not say.

    Raises:
        InputError: it is on, or may be, and ``onSpeculation`` is fail or ``ordering`` is per-key.
    """
    must_be_off = options.keep_order or options.on_speculation == "fail"
    if speculation is False or (options.on_speculation == "ignore" and not must_be_off):
        return ()
    why = "ordering is per-key" if options.keep_order else "onSpeculation is fail"
    if speculation is None:
        if must_be_off:
            raise InputError(
                f"{why}, and this Spark does not tell whether spark.speculation is on: "
                "call spark_connector.register(spark) before the write"
            )
        return ("this Spark does not tell whether spark.speculation is on",)
    if must_be_off:
        raise InputError(
            f"spark.speculation is on, whose copies of a task publish its rows again, and {why}: set "
            "spark.speculation to false"
            + ("" if options.keep_order else ", or onSpeculation to warn or ignore")
        )
    return ("spark.speculation is on: copies of a task publish its rows again, and do not count here",)
