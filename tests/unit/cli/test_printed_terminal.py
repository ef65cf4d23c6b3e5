"""What a terminal shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Container

import pytest
from command_line import PROGRAM

from rabbit_chx.rendering.document import cell_width


def on_terminal(columns: int, *arguments: str, codes: Container[int] = (0, 1)) -> list[str]:
    """The lines that a terminal of so many columns is given, results and messages."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    seen = bytearray()
    with subprocess.Popen(
        [PROGRAM, *arguments], stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(follower)
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while data := os.read(leader, 65536):
                seen += data
        assert process.wait(60) in codes
    os.close(leader)
    return seen.decode().replace("\x1b[K", "").splitlines()  # where a bar was


MANY = ["a.queue.with.a.long.name.{0..9}=1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["route", *MANY, "k" * 120, "--explain"],
        ["route", *MANY, *(f"{'k' * 60}-{n}" for n in range(3))],
        ["compare", *MANY, "--remove", "a.queue.with.a.long.name.0", "--keys", "{0..998}"],
        ["compare", *MANY, "--to", "other=1", "--keys", "tenant-{0..998}"],
    ],
)
def test_eighty_columns_are_enough(arguments: list[str]) -> None:
    lines = on_terminal(80, *arguments)
    wide = [line for line in lines if cell_width(line) > 80 and "k" * 70 not in line]
    assert wide == []
    assert len(lines) > 5
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["route", "q1", "k"],
        ["route", "q1=1", "--hash-header", "tenant:integer", "k"],
        ["check", "--offline", "/absent/" + "folder/" * 20 + "topology.toml"],
    ],
)
def test_messages_are_folded_between_words(arguments: list[str]) -> None:
    lines = on_terminal(80, *arguments, codes=(2,))
    assert lines[0].startswith("rabbit-chx: ")
    assert [line for line in lines if len(line) > 80 and "/absent/" not in line] == []
    assert all(line.startswith("  ") for line in lines[1:])
