"""The daemon of Spark's Python workers, with everything that they import: a worker that it forks starts in 0.04 s of CPU instead of a second.

Programs that tests start, such as the examples and the README, have Spark's own daemon.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The configuration of a Spark whose workers come from this daemon.
CONF: dict[str, Any] = {
    "spark.python.daemon.module": "spark_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
}
#: What the command lines of the two daemons and their workers contain. The driver's has the name of the module, too.
COMMANDS = ("-m pyspark.daemon", "-m spark_daemon")
_IMPORTED = (
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "spark_connector.reading.spark_readers",
    "spark_connector.writing.spark_writers",
)


def _load() -> None:
    from pyspark.sql import worker

    runners = [f"{worker.__name__}.{module.name}" for module in pkgutil.iter_modules(worker.__path__)]
    for name in (*_IMPORTED, *runners):
        with suppress(ImportError):  # of a PySpark without it
            importlib.import_module(name)
    # Each worker has these entries read all of Spark's zip files again.
    sys.path_importer_cache.clear()


if __name__ == "__main__":
    from pyspark.daemon import manager

    _load()
    manager()
