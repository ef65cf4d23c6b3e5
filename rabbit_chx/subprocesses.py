"""Programs of others: each ends in time, whatever it prints, and takes a bounded amount of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from selectors import EVENT_READ, DefaultSelector

_PIECE = 1 << 16


class OutputTooLongError(Exception):
    """A program printed more than it may."""


def run_program(
    words: Sequence[str], timeout_s: float, most_bytes: int, *, with_children: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without a shell and without input; return its exit code and what it printed.

    Args:
        words: the program and its arguments.
        timeout_s: the time limit in seconds, after which it is killed.
        most_bytes: the most that it may print, after which it is killed.
        with_children: whether its own programs are killed with it. Then none of them has a terminal.

    Raises:
        subprocess.TimeoutExpired: it has not ended in time.
        OutputTooLongError: it printed more.
        OSError: it cannot be run.
        ValueError: it cannot be run, since a NUL is in a word.
    """
    end = time.monotonic() + timeout_s
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(  # noqa: S603  # the user's
            words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=with_children
        ) as program,
        DefaultSelector() as selector,
        ExitStack() as block,
    ):
        block.callback(program.kill)  # which does nothing to one that has ended
        if with_children:
            block.callback(_kill_group, program.pid)
        printed = bytearray(), bytearray()
        for stream, output in zip((program.stdout, program.stderr), printed, strict=True):
            assert stream is not None  # both are pipes
            selector.register(stream, EVENT_READ, output)
        while selector.get_map():
            for key, _ in selector.select(max(0.0, end - time.monotonic())):
                piece = os.read(key.fd, _PIECE)
                key.data.extend(piece)
                if not piece:
                    selector.unregister(key.fileobj)
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired(words, timeout_s)
            if sum(map(len, printed)) > most_bytes:
                raise OutputTooLongError
        code = program.wait(max(0.0, end - time.monotonic()))
        block.pop_all()  # what a program leaves running, as a daemon, is its own
    return subprocess.CompletedProcess(words, code, *map(bytes, printed))


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
