"""A Spark driver as a process of its own, with everything that it writes in one folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from process_table import Process, connected_to, processes_of

_T = TypeVar("_T")
_PROGRAM = Path(__file__).with_name("spark_program.py")
_START_S = 120.0
_END_S = 60.0
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "INFO",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",  # so that rows that come slowly are published as they come
    "spark.sql.files.maxPartitionBytes": "32k",  # so that a small file is read by several tasks
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class JobFailedError(Exception):
    """A function raised in the driver; the text is that of what it raised."""


class DriverEndedError(Exception):
    """The driver has ended, or was killed."""


class SparkDriver:
    """A driver, its JVM, and what they have started. It runs the functions that it is sent.

    Its folder gets its event log, stdout and stderr, the scratch files of Spark, and the logs of executors.

    Args:
        folder: an empty folder, or that of an earlier driver.
        master: Spark's master, such as ``local[2,4]``.
        conf: more of Spark's configuration.
    """

    def __init__(self, folder: Path, master: str, conf: dict[str, str] | None = None) -> None:
        self.folder = folder
        for name in ("events", "scratch"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        connection, of_program = multiprocessing.Pipe()
        environment = _environment(folder, master)
        self._connection: Connection = connection
        self._numbers = 0
        self._answers: dict[int, tuple[Any, str | None]] = {}
        with of_program, (folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(of_program.fileno())],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[of_program.fileno()],
                start_new_session=True,
            )
        try:
            connection.send(
                {
                    "spark.master": master,
                    "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"],
                    "spark.local.dir": str(folder / "scratch"),
                    "spark.eventLog.dir": (folder / "events").as_uri(),
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                    **_CONF,
                    **(conf or {}),
                }
            )
            self.answer(0, _START_S)
        except BaseException:
            self.kill()
            raise

    def begin(self, function: Callable[..., Any], /, **arguments: Any) -> int:
        """Have a function run, and return the number of its answer.

        Args:
            function: a function at the top of a module; it takes the session first.
            arguments: its other arguments.
        """
        return self._send(function, arguments, at_once=False)

    def at_once(self, function: Callable[..., _T], /, **arguments: Any) -> _T:
        """Run a function beside the one that runs, and return what it returns."""
        answer: _T = self.answer(self._send(function, arguments, at_once=True), _END_S)
        return answer

    def has_answered(self, number: int) -> bool:
        """Whether the answer of a request is there, or will never be."""
        try:
            while self._take_answer(0.0):
                pass
        except DriverEndedError:
            return True
        return number in self._answers

    def answer(self, number: int, within_s: float) -> Any:
        """Wait for the answer of a request.

        Raises:
            JobFailedError: the function raised.
            DriverEndedError: the driver is no more.
            TimeoutError: nothing has come in time.
        """
        deadline = time.monotonic() + within_s
        while number not in self._answers:
            if not self._take_answer(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"the driver has not answered within {within_s:g} s: {self.last_words()}")
        value, error = self._answers.pop(number)
        if error is not None:
            raise JobFailedError(error)
        return value

    def _take_answer(self, within_s: float) -> bool:
        """Keep the next answer; return whether one has come."""
        try:
            if not self._connection.poll(within_s):
                return False
            number, value, error = self._connection.recv()
        except (EOFError, OSError):
            raise DriverEndedError(f"the driver has ended: {self.last_words()}") from None
        self._answers[number] = value, error
        return True

    def _send(self, function: Callable[..., Any], arguments: dict[str, Any], *, at_once: bool) -> int:
        self._numbers += 1
        self._connection.send((self._numbers, at_once, function, arguments))
        return self._numbers

    @property
    def processes(self) -> list[Process]:
        """All living processes of the driver, itself the first."""
        return sorted(processes_of(self._process.pid), key=lambda process: process.pid != self._process.pid)

    def workers(self, port: int | None = None) -> list[Process]:
        """The Python processes that run tasks.

        Args:
            port: only those that are connected to it; None for all.
        """
        daemons = {process.pid: process for process in self.processes if "pyspark.daemon" in process.command}
        workers = [process for process in daemons.values() if process.parent in daemons]
        return [process for process in workers if port is None or connected_to(port, process)]

    def executors(self, port: int) -> list[Process]:
        """The JVMs whose tasks are connected to a port, if they are not the driver's own."""
        processes = {process.pid: process for process in self.processes}
        daemons = {worker.parent for worker in self.workers(port)} & processes.keys()
        jvms = {processes[daemon].parent for daemon in daemons} & processes.keys()
        return [processes[jvm] for jvm in jvms if "CoarseGrainedExecutorBackend" in processes[jvm].command]

    def kill(self) -> None:
        """Kill the driver and its JVM by SIGKILL, as a machine's end does, and wait until nothing of them lives.

        Raises:
            TimeoutError: what they have started lives on.
        """
        if self._process.poll() is None:
            drivers = {self._process.pid}
            drivers |= {
                process.pid
                for process in self.processes
                if process.parent in drivers and "java" in process.command
            }
            for pid in drivers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait(_END_S)
        self._connection.close()
        self._expect_none_left()

    def stop(self) -> None:
        """Let the driver end in good order; do nothing if it was killed.

        Raises:
            TimeoutError: it does not end, or what it has started lives on.
        """
        if not self._connection.closed:
            self._connection.close()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise TimeoutError(f"the driver does not end: {self.last_words()}") from None
        self._expect_none_left()

    def _expect_none_left(self) -> None:
        deadline = time.monotonic() + _END_S
        while left := self.processes:
            if time.monotonic() > deadline:
                for process in left:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                raise TimeoutError(
                    f"lives on after its driver: {[process.command[:200] for process in left]}"
                )
            time.sleep(0.2)

    def last_words(self) -> str:
        """The end of what the driver has written."""
        return (self.folder / "output.txt").read_text(errors="replace")[-2_000:]


def _environment(folder: Path, master: str) -> dict[str, str]:
    """Return the environment of a driver whose workers find what the tests share."""
    path = os.pathsep.join([str(_PROGRAM.parent), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path.rstrip(os.pathsep),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if master.startswith("local-cluster"):
        environment["SPARK_HOME"] = str(_home_in(folder))
    return environment


def _home_in(folder: Path) -> Path:
    """Return a home of Spark in the folder: executors write their logs there."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        link = home / path.name
        if not link.exists():
            link.symlink_to(path)
    return home
