"""``format("rabbitmq")``: the data source that Spark calls. Needs PySpark 4.0 or newer.

Spark pickles the data source for a planner process. It is pickled as code: a planner without our packages
then names what it lacks, instead of failing on a module name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_WRITES_ONLY = (
    "format('rabbitmq') writes only: read queues with a client of RabbitMQ, "
    "or streams with a Spark connector for them"
)


def data_source(*, speculation: bool | None = None) -> type[DataSource]:
    """Return the data source, with what Spark does not tell a planner process.

    Args:
        speculation: whether ``spark.speculation`` is on; None to leave the check to the tasks, which Spark
            tells.
    """

    class RabbitMQDataSource(DataSource):  # nested, so that it is pickled as code and not by name
        """Publishes rows to an ``x-consistent-hash`` exchange of RabbitMQ.

        Name: ``rabbitmq``

        Columns: `value`, and `key` (or `routing_key`), each string or binary; others in docs/spark.md.

        Options: `url` and `exchange` are required; others in docs/spark.md.
        """

        @classmethod
        def name(cls) -> str:
            return "rabbitmq"

        def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001  # Spark's signature
            write_plan, writers = _loaded()
            checked = write_plan.WritePlan.checked(
                self.options, schema, overwrite=overwrite, speculation=speculation
            )
            return writers.BatchWriter(checked)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802  # Spark's
            write_plan, writers = _loaded()
            checked = write_plan.WritePlan.checked(
                self.options, schema, overwrite=overwrite, streaming=True, speculation=speculation
            )
            return writers.stream_writer(checked)

        # Without these three methods, Spark fails in its own code, and may show local variables that include
        # the options.
        def schema(self) -> StructType:
            raise NotImplementedError(_WRITES_ONLY)

        def reader(self, schema: StructType) -> Any:  # noqa: ANN401
            raise NotImplementedError(_WRITES_ONLY)

        def simpleStreamReader(self, schema: StructType) -> Any:  # noqa: ANN401, N802
            raise NotImplementedError(_WRITES_ONLY)

    _loaded = _loader()
    return RabbitMQDataSource


def _loader() -> Callable[[], tuple[Any, Any]]:
    def load() -> tuple[Any, Any]:  # nested, so that it is pickled as code and not by name
        import sys

        try:
            from spark_connector.writing import spark_writers, write_plan
        except ImportError as cause:
            raise ImportError(
                f"the Python that plans for Spark, {sys.executable}, cannot load rabbit-chx ({cause}): "
                "install rabbit-chx[spark] there, or set PYSPARK_PYTHON to a Python that has it"
            ) from None
        return write_plan, spark_writers

    return load


RabbitMQDataSource = data_source()
