"""A program with a Spark of its own, which runs the functions that it is sent: a driver that can be killed.

`spark_driver.SparkDriver` starts it and says what travels. Requests run one after the other in the main thread, where Spark
looks for a data source that was registered. Those that are to run at once do so in another thread.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(conf: dict[str, str]) -> SparkSession:
    """Start a Spark that knows our format."""
    from pyspark.sql import SparkSession

    import spark_connector

    builder = SparkSession.builder
    for name, text in conf.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    spark_connector.register(spark)
    return spark


def main() -> None:
    """Run what comes, until the other side has gone."""
    connection = Connection(int(sys.argv[1]))
    answering = threading.Lock()
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def answer(number: int, value: object, error: str | None) -> None:
        with answering:
            connection.send((number, value, error))

    def run(number: int, function: Any, arguments: dict[str, Any]) -> None:
        try:
            value = function(spark, **arguments)
        except Exception as cause:  # noqa: BLE001  # the other side gets it
            traceback.print_exc()
            answer(number, None, f"{type(cause).__name__}: {cause}")
        else:
            answer(number, value, None)

    def listen() -> None:
        try:
            while True:
                number, at_once, function, arguments = connection.recv()
                if at_once:
                    run(number, function, arguments)
                else:
                    waiting.put((number, function, arguments))
        except (EOFError, OSError):
            waiting.put(None)

    spark = session(connection.recv())
    answer(0, None, None)
    threading.Thread(target=listen, daemon=True).start()
    while request := waiting.get():
        run(*request)
    spark.stop()


if __name__ == "__main__":
    main()
