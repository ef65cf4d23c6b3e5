"""A standalone Spark cluster: a master and workers, each a process of this machine on a free port of 127.0.0.1."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
from bounded import until
from spark_archive import ARCHIVE, SHORT_LIVED_JVM, with_archive

SPARK_HOME = Path(pyspark.__file__).resolve().parent
_HOST = "127.0.0.1"
_READY_TIMEOUT_S = 90.0
_END_TIMEOUT_S = 20.0
_PR_SET_PDEATHSIG = 1
#: What a program of the cluster must not take over from us: it is to find our packages only where it is told to.
_OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")


@dataclass(frozen=True, slots=True)
class StandaloneSpark:
    """A cluster that runs.

    Attributes:
        master: its address, such as ``spark://127.0.0.1:40123``.
        folder: where the logs of master and workers are, and below ``work`` those of the executors.
    """

    master: str
    folder: Path

    def submit(
        self, command: str, *, cwd: Path, timeout_s: float = 240, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command that submits a job, and end it with all that it started if it takes too long.

        Args:
            command: such as ``spark-submit --master ... job.py``.
            cwd: the folder to run it in.
            timeout_s: how many seconds it may take.
            environment: variables besides those of the cluster.
        """
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=cwd,
            env=_environment(self.folder, environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def processes(self) -> dict[int, str]:
        """The command lines of the cluster's processes by number: master, workers, executors and their Pythons."""
        return _processes_in(self.folder)

    def executor_logs(self) -> str:
        """What the executors wrote to stderr, for a test that fails."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("work/*/*/stderr"))


@contextmanager
def standalone_spark(
    folder: Path, *, cores: int = 2, hosts: Sequence[str] = (_HOST, _HOST)
) -> Iterator[StandaloneSpark]:
    """Start a cluster, and end it with its executors; nothing of it runs afterwards.

    Args:
        folder: an empty folder for logs and work.
        cores: the cores of each worker.
        hosts: the addresses of this machine that the workers are at. Spark takes each for a machine.
    """
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(_kill_all, folder)
        master = _started(
            stack,
            folder,
            "master",
            ("org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", "0", "--webui-port", "0"),
            r"Starting Spark master at (spark://\S+)",
        )
        for number, host in enumerate(hosts):
            _started(
                stack,
                folder,
                f"worker-{number}",
                (
                    *("org.apache.spark.deploy.worker.Worker", "--host", host),
                    *("--webui-port", "0"),
                    *("--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / "work"), master),
                ),
                r"Successfully registered with master (spark://\S+)",
            )
        yield StandaloneSpark(master, folder)


def _started(stack: ExitStack, folder: Path, name: str, command: tuple[str, ...], ready: str) -> str:
    """Start a program of Spark's, and return what its log names once it is ready."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *command],
            cwd=folder,
            env=_environment(folder, {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  # one system call, before Spark's script begins
        )
    stack.callback(_ended, process)
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while (found := re.search(ready, log.read_text(errors="replace"))) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Spark's {name} is not ready: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return found[1]


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OURS}
    jvm = with_archive(SHORT_LIVED_JVM, ARCHIVE)
    conf = {"spark.ui.enabled": "false", "spark.log.level": "WARN", "spark.executor.extraJavaOptions": jvm}
    return {
        **inherited,
        # Not that of the user; and a JVM ignores the archive where a folder of more classes is there.
        "SPARK_CONF_DIR": str(folder / "none"),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": jvm,
        "SPARK_SUBMIT_OPTS": " ".join([jvm, *(f'"-D{name}={text}"' for name, text in conf.items())]),
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED_JVM,
        **more,
    }


def _end_with_parent() -> None:
    """Have the system end this process when its parent dies, such as a test that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End a program in good order, in which a worker ends its executors."""
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _kill_all(folder: Path) -> None:
    """Kill what still runs in the folder, such as executors whose worker was killed."""

    def are_gone() -> bool:
        left = _processes_in(folder)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return not left

    until(are_gone, f"the processes in {folder} end", _END_TIMEOUT_S)


def _processes_in(folder: Path) -> dict[int, str]:
    """The processes that work in the folder or below it: Spark's executors do, and so do the Pythons that they start."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").resolve(strict=True).is_relative_to(folder.resolve()):
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found
