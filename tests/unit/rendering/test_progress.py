"""A sign of life for long work: on a terminal, and only if it takes long."""

from __future__ import annotations

import os
import pty
import sys
import time

import pytest

from rabbit_chx.rendering import progress, sign_of_life


@pytest.mark.parametrize(("short_s", "seen"), [(0.05, True), (60.0, False)])
def test_work_that_takes_long_shows_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    short_s: float,
    *,
    seen: bool,
) -> None:
    leader, follower = pty.openpty()
    monkeypatch.setattr(progress, "_SHORT_S", short_s)
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with sign_of_life("5 keys"):
            time.sleep(0.5)
        terminal.write("end\n")
    shown = b""
    while b"end" not in shown:
        shown += os.read(leader, 65_536)
    os.close(leader)
    assert (b"5 keys" in shown) == seen


def test_what_is_no_terminal_is_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SHORT_S", 0.01)
    with sign_of_life("5 keys"):
        time.sleep(0.2)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(KeyError), sign_of_life("5 keys"):
        raise KeyError
