"""A command whose output nobody reads any more ends with the code of a shell, 141."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

PROGRAM = "import sys; from rabbit_chx.cli import main; sys.exit(main())"


def code_without_reader(*arguments: str, also_stderr: bool = False) -> int:
    """Run a command whose reader has ended, and return its exit code."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=writing,
            stderr=writing if also_stderr else subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writing)
    if not also_stderr:
        assert done.stderr == b""
    return done.returncode


@pytest.mark.parametrize("also_stderr", [False, True])
@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["compare", "-h"], ["compare", "a=1,b=1", "--remove", "a"]]
)
def test_a_command_without_a_reader_ends_with_141(arguments: list[str], *, also_stderr: bool) -> None:
    assert code_without_reader(*arguments, also_stderr=also_stderr) == 141


SPEAKER = """
import sys
import threading
from rabbit_chx.cli.app import watched_streams
with watched_streams():
    sys.stderr.write("waiting\\n")
    sys.stdin.readline()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_is_written_at_once(unbuffered: str) -> None:
    """Also with PYTHONUNBUFFERED, which many images set: stderr is then no stream that flushes lines."""
    with subprocess.Popen(
        [sys.executable, "-c", SPEAKER],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stderr is not None
        too_late = threading.Timer(60, process.kill)
        too_late.start()
        try:
            line = process.stderr.readline()
            is_running = process.poll() is None
            process.communicate(b"\n", timeout=30)
        finally:
            too_late.cancel()
            process.kill()
    assert (line, is_running) == (b"waiting\n", True)
