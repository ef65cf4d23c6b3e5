"""Programs that print much, that never end, and that leave others behind that hold their output open."""

from __future__ import annotations

import subprocess
import time

import pytest

from rabbit_chx.subprocesses import OutputTooLongError, run_program


def test_what_a_program_prints_and_its_code_are_returned() -> None:
    done = run_program(["sh", "-c", "printf 'a\\377\\0'; printf b >&2; exit 3"], 20, 1_000)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"a\xff\0", b"b")
    done = run_program(["sh", "-c", "head -c 900000 /dev/zero"], 20, 1_000_000)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 900_000, b"")
    assert run_program(["cat"], 20, 10).stdout == b"", "it has no input"


@pytest.mark.parametrize("to", ["", " >&2"])
def test_a_program_that_prints_without_an_end_is_killed(to: str) -> None:
    began = time.monotonic()
    with pytest.raises(OutputTooLongError):
        run_program(["sh", "-c", f"exec yes{to}"], 60, 100_000)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("command", ["exec sleep 60", "sleep 60 & exit 0", "exec >&- 2>&-; exec sleep 60"])
def test_a_program_that_does_not_end_is_killed_whoever_holds_its_output(command: str) -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["sh", "-c", command], 0.5, 1_000)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("words", "error"), [(["/no/such/program"], OSError), (["a\0b"], ValueError)])
def test_what_cannot_be_run_is_an_error(words: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        run_program(words, 5, 1_000)
