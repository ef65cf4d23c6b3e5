"""``format("rabbitmq")``: the data source that Spark calls. Needs PySpark 4.0 or newer.

Spark pickles the data source for a planner process. It is pickled as code: a planner without our packages
then names what it lacks, instead of failing on a module name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from spark_connector.executor_functions import loader

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
            plan = load("spark_connector.writing.write_plan", "WritePlan").checked(
                self.options, schema, overwrite=overwrite, speculation=speculation
            )
            return load("spark_connector.writing.spark_writers", "BatchWriter")(plan)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001, N802  # Spark's
            plan = load("spark_connector.writing.write_plan", "WritePlan").checked(
                self.options, schema, overwrite=overwrite, streaming=True, speculation=speculation
            )
            return load("spark_connector.writing.spark_writers", "stream_writer")(plan)

        # Without these three methods, Spark fails in its own code, and may show local variables that include
        # the options.
        def schema(self) -> StructType:
            raise NotImplementedError(_WRITES_ONLY)

        def reader(self, schema: StructType) -> Any:  # noqa: ANN401
            raise NotImplementedError(_WRITES_ONLY)

        def simpleStreamReader(self, schema: StructType) -> Any:  # noqa: ANN401, N802
            raise NotImplementedError(_WRITES_ONLY)

    load = loader("that plans for Spark")
    return RabbitMQDataSource


RabbitMQDataSource = data_source()
