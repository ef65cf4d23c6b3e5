"""Write an archive of the classes that a local Spark loads, for the JVMs of the tests.

    python tools/spark_archive.py

A JVM that maps it does not read the classes from their jars: a job of seconds takes half as long. It ignores an
archive that another Java wrote, and one of other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: A JVM that ends after seconds does not earn back what its better compiler costs: a small job took 43 s of CPU with
#: it, and 24 s without.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Of one virtual environment, since it has one Spark.
ARCHIVE = Path(sys.prefix) / ".spark-classes.jsa"
#: A JVM reports on stdout the classes that it cannot archive, and that it ignores an archive.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_ENDING_TIMEOUT_S = 120


def with_archive(options: str, archive: Path) -> str:
    """Return the options of a JVM that uses the archive; those that are given where there is none.

    Args:
        options: the options of the JVM.
        archive: what `write` has written.
    """
    return f"{options} -XX:SharedArchiveFile={archive} {_SILENT}" if archive.exists() else options


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _counted(frame: DataFrame, _: int) -> None:
    frame.count()


def write(archive: Path) -> None:
    """Run a job that does what the tests do, and have its JVM write the archive when it ends.

    Args:
        archive: the file.
    """
    new_archive = archive.with_suffix(".new")
    new_archive.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED_JVM} -XX:ArchiveClassesAtExit={new_archive} {_SILENT}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from rabbit_chx import HashRing
    from spark_connector import queue_for

    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2,2]")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "OFF")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.dir", Path(folder).as_uri())
            .getOrCreate()
        )
        rows = spark.range(0, 1_000, 1, 2).selectExpr("concat('key ', id % 7) AS key", "string(id) AS value")
        same = rows.repartition(3, "key").mapInArrow(_unchanged, rows.schema).cache()
        same.groupBy("key").count().orderBy("key").toPandas()
        same.select(queue_for("key", HashRing.from_bindings([("q1", 1)]))).distinct().collect()
        with suppress(PySparkException):  # nobody listens there
            same.write.format("rabbitmq").options(url="amqp://127.0.0.1:1", exchange="x").mode(
                "append"
            ).save()
        same.write.parquet(f"{folder}/rows")
        stream = (
            spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").writeStream.foreachBatch(_counted)
        )
        stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
        spark.stop()
        gateway: Any = SparkContext._gateway  # noqa: SLF001
        jvm = gateway.proc
        jvm.stdin.close()
        jvm.wait(_ENDING_TIMEOUT_S)
    new_archive.replace(archive)


if __name__ == "__main__":
    write(ARCHIVE)
