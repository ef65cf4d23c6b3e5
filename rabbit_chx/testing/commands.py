"""Running a program for a bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

from rabbit_chx.errors import BrokerTimeoutError, UnreachableError


def run_bounded(command: tuple[str, ...], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code, stdout and stderr; its stdin is empty.

    Args:
        command: the program and its arguments.
        timeout_s: how many seconds the program may take.

    Raises:
        UnreachableError: the program does not exist or cannot be executed.
        BrokerTimeoutError: the program did not end in time, and was killed with its children.
    """
    # Arguments may be secret, so messages have the first two words only.
    name = " ".join(command[:2])
    try:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise UnreachableError(f"cannot run {name}: {error.strerror}") from error
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            raise BrokerTimeoutError(f"{name} did not end within {timeout_s:g} s") from None
        except BaseException:
            _kill_group(process.pid)
            raise
    return subprocess.CompletedProcess(name, process.returncode, stdout, stderr)


def last_lines(text: str, count: int = 20) -> str:
    """Return the last lines of a program's output that are not empty.

    Args:
        text: the output.
        count: how many lines at most.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:]) or "no output"


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
