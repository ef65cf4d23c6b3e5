"""A sign of life for long work: on a terminal, and only if it takes long."""

from __future__ import annotations

import os
import pty
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bounded import until

from rabbit_chx.rendering import progress
from rabbit_chx.rendering.progress import CountProgress, reading, sign_of_life


class Terminal:
    """What a terminal shows."""

    def __init__(self) -> None:
        self._seen = bytearray()

    @property
    def text(self) -> str:
        return self._seen.decode(errors="ignore")  # the last character may be incomplete

    def read(self, leader: int) -> None:
        """Read until the last word comes."""
        while b"end" not in self._seen:
            self._seen += os.read(leader, 65_536)

    def until(self, words: str) -> None:
        """Wait until it shows this."""
        until(lambda: words in self.text, words, every_s=0.01)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Make stderr a terminal for a block."""
    leader, follower = pty.openpty()
    shown = Terminal()
    reader = threading.Thread(target=shown.read, args=(leader,))
    reader.start()
    with os.fdopen(follower, "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        try:
            yield shown
        finally:
            file.write("end\n")
            file.flush()
            reader.join()
    os.close(leader)


@pytest.mark.parametrize(("short_s", "seen"), [(0.05, True), (60.0, False)])
def test_work_that_takes_long_shows_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, short_s: float, *, seen: bool
) -> None:
    monkeypatch.setattr(progress, "_SHORT_S", short_s)
    with terminal(monkeypatch) as shown, sign_of_life("5 keys"):
        if seen:
            shown.until("5 keys")
        else:
            time.sleep(0.5)
    assert ("5 keys" in shown.text) == seen


def test_a_known_size_shows_the_percentage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SHORT_S", 0.01)
    with terminal(monkeypatch) as shown, CountProgress("compared", 3_000, lambda: 2_999):
        shown.until("99%, 2,999 of 3,000")
    assert "100%" not in shown.text, "only what is done is at 100%"


def test_a_file_is_read_by_its_bytes_and_a_pipe_has_no_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "_SHORT_S", 0.01)
    path = tmp_path / "keys"
    path.write_bytes(bytes(2_000_000))
    with terminal(monkeypatch) as shown, path.open("rb") as file:
        with reading("keys", file):
            file.read(500_000)
            shown.until("25%, 500.0 kB of 2.0 MB")
        read, write = os.pipe()
        os.close(write)
        with os.fdopen(read, "rb") as pipe, reading("a pipe", pipe):
            shown.until("a pipe")


def said_until(capsys: pytest.CaptureFixture[str], word: str) -> str:
    """Return what stderr has got when it has this word."""
    said, deadline = "", time.monotonic() + 60
    while word not in said and time.monotonic() < deadline:
        time.sleep(0.05)
        said += capsys.readouterr().err
    return said


def test_without_a_terminal_there_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_S", 0.05)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.05)
    monkeypatch.setattr(progress, "_SIGN_EVERY_S", 0.05)
    asked = threading.Event()

    def count() -> int:
        asked.set()
        return 30

    with CountProgress("applied", 120, count):
        assert asked.wait(30)
    with sign_of_life("planning"):
        lines = said_until(capsys, "planning").splitlines()
    assert lines[0].startswith("applied: 25%, 30 of 120 after ")
    assert lines[-1].startswith("planning ... ")


def test_what_is_short_is_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SHORT_S", 0.01)
    with sign_of_life("5 keys"):
        time.sleep(0.2)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(KeyError), sign_of_life("5 keys"):
        raise KeyError


def test_the_first_line_comes_early_and_the_innermost_work_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_S", 0.05)
    monkeypatch.setattr(progress, "_SIGN_EVERY_S", 3_600.0)
    with sign_of_life("reading the broker"), sign_of_life("planning"):
        said = said_until(capsys, "planning")
        time.sleep(0.2)
    said += capsys.readouterr().err
    assert said == "planning ... 0 s\n"


def test_an_interruption_in_a_message_does_not_block_the_next_one() -> None:
    """CPython runs signal handlers at the begin of a function and after a call, also in functions that acquire a lock."""
    for steps in range(100):
        left = steps

        def interrupt(_frame: object, event: str, _what: object) -> None:
            nonlocal left
            left -= event in {"call", "c_return"}
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

        before = sys.getprofile()
        sys.setprofile(interrupt)
        try:
            progress.clear_bar()
        except KeyboardInterrupt:
            is_complete = False
        else:
            is_complete = True
        finally:
            sys.setprofile(before)
        another = threading.Thread(target=progress.clear_bar, daemon=True)
        another.start()
        another.join(5)
        assert not another.is_alive(), f"it is blocked after an interruption at step {steps}"
        if is_complete:
            break
    assert steps >= 2
