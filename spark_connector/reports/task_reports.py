"""The reports of tasks that finished, on the driver even where the job then fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

    from spark_connector.reports.write_report import TaskReport

__all__ = ["TaskReports"]


class _Lists(AccumulatorParam[list[Any]]):
    def zero(self, value: list[Any]) -> list[Any]:  # noqa: ARG002  # Spark's signature
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802  # Spark's name
        return [*value1, *value2]


class TaskReports:
    """Filled by tasks, read by the driver. Spark Connect has no such way, and it stays empty there."""

    def __init__(self, accumulator: Accumulator[list[Any]] | None) -> None:
        self._accumulator = accumulator

    @classmethod
    def of(cls, spark: SparkSession) -> TaskReports:
        """For one job of the session at a time."""
        try:
            context = spark.sparkContext
        except Exception:  # noqa: BLE001  # Connect's own, by version
            return cls(None)
        return cls(context.accumulator([], _Lists()))

    def clear(self) -> None:
        """Forget them; runs on the driver. PySpark keeps an accumulator for good, so its content has to go."""
        if self._accumulator is not None:
            self._accumulator.value = []

    def add(self, report: TaskReport) -> None:
        """Runs in the task; Spark takes it with the task's end, and not from one that fails."""
        if self._accumulator is not None:
            self._accumulator.add([report])

    @property
    def reports(self) -> tuple[TaskReport, ...]:
        """One for each partition, the latest."""
        found = [] if self._accumulator is None else self._accumulator.value
        return tuple({report.partition: report for report in found}.values())
