"""The reports of tasks that finished, on the driver even if the job then fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

    from spark_connector.reports.task_report import TaskReport

__all__ = ["FinishedTasks"]


class _Lists(AccumulatorParam[list[Any]]):
    def zero(self, value: list[Any]) -> list[Any]:  # noqa: ARG002  # Spark's signature
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802  # Spark's name
        return [*value1, *value2]


class FinishedTasks:
    """Reports that tasks add and the driver reads.

    Spark Connect has no accumulators, so it stays empty there.

    Args:
        accumulator: a Spark accumulator of lists; None with Spark Connect.
    """

    def __init__(self, accumulator: Accumulator[list[Any]] | None) -> None:
        self._accumulator = accumulator

    @classmethod
    def of(cls, spark: SparkSession) -> FinishedTasks:
        """Return a new one for the jobs of a session, which use it one after the other."""
        try:
            context = spark.sparkContext
        except Exception:  # noqa: BLE001  # Connect raises its own error, which differs by version
            return cls(None)
        return cls(context.accumulator([], _Lists()))

    def clear(self) -> None:
        """Forget all reports. Runs on the driver.

        PySpark keeps each accumulator until its process ends, so the content is removed.
        """
        if self._accumulator is not None:
            self._accumulator.value = []

    def add(self, report: TaskReport) -> None:
        """Add the report of the current task.

        Spark delivers it when the task ends, and drops it if the task fails.
        """
        if self._accumulator is not None:
            self._accumulator.add([report])

    @property
    def reports(self) -> tuple[TaskReport, ...]:
        """The latest report of each partition."""
        found = [] if self._accumulator is None else self._accumulator.value
        return tuple({report.partition: report for report in found}.values())
