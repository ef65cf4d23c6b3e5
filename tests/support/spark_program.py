"""A program with a Spark of its own, which runs the functions that it is sent: a driver that can be killed.

`spark_driver.SparkDriver` starts it and says what travels. Requests run one after the other in the main thread, where Spark
looks for a data source that was registered. Those that are to run at once do so in another thread.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(conf: dict[str, Any]) -> SparkSession:
    """Start a Spark that knows our format."""
    from pyspark.sql import SparkSession

    import spark_connector

    spark = SparkSession.builder.config(map=conf).getOrCreate()
    spark_connector.register(spark)
    return spark


class Program:
    """The requests and their answers.

    Args:
        connection: to who sends the requests.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answering = threading.Lock()
        self._busy = threading.Event()
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._spark = session(connection.recv())

    def serve(self) -> None:
        """Run what comes, until the other side has gone."""
        self._answer(0, None, None)
        threading.Thread(target=self._listen, daemon=True).start()
        while request := self._waiting.get():
            self._busy.set()
            self._run(*request)
            self._busy.clear()
        self._spark.stop()

    def _listen(self) -> None:
        try:
            while True:
                number, at_once, function, arguments = self._connection.recv()
                if at_once:
                    self._run(number, function, arguments)
                else:
                    self._waiting.put((number, function, arguments))
        except (EOFError, OSError):
            if self._busy.is_set():
                os._exit(1)  # the JVM and the rest follow, so that nothing outlives a test that was killed
            self._waiting.put(None)

    def _run(self, number: int, function: Any, arguments: dict[str, Any]) -> None:
        try:
            value = function(self._spark, **arguments)
        except Exception as cause:  # noqa: BLE001  # the other side gets it
            traceback.print_exc()
            self._answer(number, None, f"{type(cause).__name__}: {cause}")
        else:
            self._answer(number, value, None)

    def _answer(self, number: int, value: object, error: str | None) -> None:
        with self._answering:
            self._connection.send((number, value, error))


if __name__ == "__main__":
    Program(Connection(int(sys.argv[1]))).serve()
