"""``format("rabbitmq")``: the data source that Spark calls. Needs PySpark 4.0 or newer.

Spark pickles it for a planner process, as code: the error of a planner without our packages then names the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from spark_connector.executor_functions import loader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def data_source(*, speculation: bool | None = None) -> type[DataSource]:
    """Return the data source; `speculation` is ``spark.speculation``, or None in a planner process, which leaves the check to the tasks."""

    class RabbitMQDataSource(DataSource):  # nested, so that it is pickled as code and not by name
        """Publishes rows to an ``x-consistent-hash`` exchange of RabbitMQ, and reads streams.

        Name: ``rabbitmq``

        Columns to write: `value`, and `key` (or `routing_key`), each string or binary; others in docs/reference/spark-options.md.
        Columns that are read: `key`, `value`, `stream`, `offset`, `timestamp`; others in docs/streams/python.md.

        Options: `url` is required, and `exchange` to write, or `stream` to read; others in docs/reference/spark-options.md.
        """

        @classmethod
        def name(cls) -> str:
            return "rabbitmq"

        def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
            writer = load("spark_connector.writing.spark_writers", "batch_writer")
            return writer(self.options, schema, overwrite=overwrite, speculation=speculation)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's
            writer = load("spark_connector.writing.spark_writers", "stream_writer")
            return writer(self.options, schema, overwrite=overwrite, speculation=speculation)

        def schema(self) -> str:
            options = load("spark_connector.options.read_options", "ReadOptions")
            include = options.parse(self.options, streaming=None).include
            return str(load("spark_connector.reading.spark_readers", "columns")(include))

        def reader(self, schema: StructType) -> Any:
            return load("spark_connector.reading.spark_readers", "batch_reader")(self.options, schema)

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802
            return load("spark_connector.reading.spark_readers", "stream_reader")(self.options, schema)

    load = loader("that plans for Spark")
    return RabbitMQDataSource


RabbitMQDataSource = data_source()
