"""Installing without starting services. Nothing is installed here."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import server_installation
from server_installation import run_with_services_denied

from rabbit_chx.errors import NoBrokerError


def test_services_are_denied_while_the_command_runs_and_not_after(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    run_with_services_denied("sh", "-c", f"{policy} any start; echo $? >{seen}", policy=policy)
    assert seen.read_text() == "101\n"
    assert not policy.exists()


def test_a_long_command_shows_the_time_and_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, lines = tmp_path / "shown", list[str]()

    class Terminal:
        """Lets the command end after its line was shown."""

        def write(self, text: str) -> None:
            lines.append(text)
            if "Unpacking" in text:
                shown.touch()

    monkeypatch.setattr(server_installation, "_LINE_EVERY_S", 0.1)
    monkeypatch.setattr("sys.stderr", Terminal())
    command = (
        f"echo Unpacking; for i in $(seq 400); do [ -e {shown} ] && break; sleep 0.05; done; echo end; exit 1"
    )
    with pytest.raises(NoBrokerError, match="Unpacking\nend"):
        run_with_services_denied("sh", "-c", command, policy=tmp_path / "policy-rc.d")
    assert any(re.fullmatch(r"  0:\d\d  Unpacking\n", line) for line in lines)


def _write_policy(path: Path, answer: int) -> None:
    path.write_text(f"#!/bin/sh\nexit {answer}\n")
    path.chmod(0o755)


def test_with_a_policy_that_permits_nothing_is_installed(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    _write_policy(policy, 0)
    with pytest.raises(NoBrokerError, match="lets services start"):
        run_with_services_denied("touch", str(seen), policy=policy)
    assert not seen.exists()


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_policy_goes_when_we_are_ended_meanwhile(tmp_path: Path, number: signal.Signals) -> None:
    policy = tmp_path / "policy-rc.d"
    program = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from server_installation import run_with_services_denied as run\n"
        "run('sleep', '3', policy=pathlib.Path(sys.argv[1]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(policy), str(Path(server_installation.__file__).parent)],
        stderr=subprocess.DEVNULL,
    ) as installer:
        _wait(policy.exists)
        installer.send_signal(number)
    _wait(lambda: not policy.exists())


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
