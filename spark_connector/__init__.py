"""Write Spark DataFrames and streams to RabbitMQ, confirmed, and read its streams.

::

    import spark_connector

    spark_connector.register(spark)
    df.write.format("rabbitmq").options(url="amqp://...", exchange="orders").mode("append").save()

Spark finds the format without `register` if the packages are installed for the Python that ``PYSPARK_PYTHON`` names.
docs/spark/write.md is installed in the folder of `rabbit_chx`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import MissingExtraError
from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_connector.draining import DrainReport as DrainReport
    from spark_connector.draining import drain as drain
    from spark_connector.placing.placement import place as place
    from spark_connector.placing.placement import place_for_streams as place_for_streams
    from spark_connector.placing.placement import queue_for as queue_for
    from spark_connector.publishing import batch_publisher as batch_publisher
    from spark_connector.publishing import publish as publish
    from spark_connector.reading.micro_batches import offsets_behind_latest as offsets_behind_latest
    from spark_connector.reports import WriteReport as WriteReport

_NAMES = {
    "spark_connector.draining": ["drain", "DrainReport"],
    "spark_connector.placing.placement": ["place", "place_for_streams", "queue_for"],
    "spark_connector.publishing": ["batch_publisher", "publish"],
    "spark_connector.reading.micro_batches": ["offsets_behind_latest"],
    "spark_connector.reports": ["WriteReport"],
}

__all__ = ["register"]
__all__ += [name for names in _NAMES.values() for name in names]


def register(spark: SparkSession) -> None:
    """Register ``format("rabbitmq")`` in a session.

    Args:
        spark: the session, classic or Connect.

    Raises:
        MissingExtraError: PySpark is not installed, or is older than 4.0; or the Python of Spark's workers is another one on this machine,
            and lacks the connector.
    """
    try:
        from spark_connector.datasource import data_source
    except ImportError as cause:
        raise MissingExtraError(
            f'format("rabbitmq") needs PySpark 4.0 or newer ({cause}): pip install "pyspark>=4"'
        ) from None

    from pyspark.errors import AnalysisException

    from spark_connector.executor_functions import check_worker_python, speculation_of

    check_worker_python(spark)
    try:
        spark.dataSource.register(data_source(speculation=speculation_of(spark)))
    except AnalysisException as cause:  # PySpark 4.0 refuses it if it has found the format by itself
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(cause):
            raise


__getattr__, __dir__ = lazy(__name__, _NAMES)
