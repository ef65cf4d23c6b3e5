"""Removing what this process started if it dies, whatever kills it.

A small process in a session of its own holds the reading end of a pipe from us. It ends when the pipe says
that all is done. When the pipe breaks, or its parent changes, it removes the containers and Docker networks, or
the local server. It runs this file by its path, so this file imports the standard library only. POSIX only.

testcontainers has Ryuk for that, whose image is not everywhere.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_DISMISSED, _FINISHED = b"dismissed", b"completed"
_ROUNDS = 8
_ROUND_S = 0.5


class Reaper:
    """Watches over the containers and networks of a process, or one local server, until it is dismissed."""

    def __init__(self, kind: str, what: str) -> None:
        """Start watching; `what` need not exist yet.

        Args:
            kind: ``"containers"`` or ``"server"``.
            what: the label of the containers and networks, or the folder of the server.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, kind, what, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the watch; further calls do nothing."""
        self._end(_DISMISSED)

    def finish(self) -> None:
        """Remove what is left, and end the watch; further calls do nothing."""
        self._end(_FINISHED)

    def _end(self, message: bytes) -> None:
        if self._process.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.communicate(message, timeout=10)


def session_label() -> str:
    """Return the label of all containers that testcontainers starts in this process."""
    from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID

    return f"{LABEL_SESSION_ID}={SESSION_ID}"


@cache
def watch_containers() -> Reaper:
    """Let the containers that testcontainers starts in this process be removed when it ends, in place of Ryuk."""
    from testcontainers.core.config import testcontainers_config

    testcontainers_config.ryuk_disabled = True
    reaper = Reaper("containers", session_label())
    atexit.register(
        reaper.finish
    )  # a process that is not awaited is a ResourceWarning behind the last line of pytest
    return reaper


def kill_group(folder: str) -> None:
    """Kill the process group whose number the local server of `folder` has written to ``server.pid``."""
    number = Path(folder) / "server.pid"
    with suppress(OSError, ValueError):
        os.killpg(int(number.read_text(encoding="ascii")), signal.SIGKILL)
    number.unlink(missing_ok=True)  # the system may reuse the number


def _remove_containers(label: str) -> None:
    """Remove the containers with a label, and then the networks."""
    which = ("--quiet", "--filter", f"label={label}")
    for container in _docker("ps", "--all", *which).split():
        _docker("rm", "--force", "--volumes", container)
    for network in _docker("network", "ls", *which).split():
        _docker("network", "rm", network)


def _docker(*command: str) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            ["docker", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        ).stdout
    return ""


def _remove_server(folder: str) -> None:
    kill_group(folder)
    shutil.rmtree(folder, ignore_errors=True)


_REMOVE = {"containers": _remove_containers, "server": _remove_server}


def _await_message(owner: int) -> bytes:
    """Wait for the end of the watch, and return the owner's message; empty if it died."""
    while os.getppid() == owner:
        readable, _, _ = select.select([0], [], [], 1)
        if readable:
            return os.read(0, len(_DISMISSED))
    return b""


def _main(kind: str, what: str, owner: str) -> None:
    message = _await_message(int(owner))
    # More than once if the owner died: what it asked for last may be under way and appear only now.
    for number in range({_DISMISSED: 0, _FINISHED: 1}.get(message, _ROUNDS)):
        time.sleep(_ROUND_S if number else 0)
        _REMOVE[kind](what)


if __name__ == "__main__":
    _main(*sys.argv[1:])
