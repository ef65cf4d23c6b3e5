"""Installing without starting services. Nothing is installed here."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import server_installation
from bounded import until
from server_installation import run_with_services_denied

from rabbit_chx.errors import NoBrokerError


def test_services_are_denied_while_the_command_runs_and_not_after(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    run_with_services_denied("sh", "-c", f"{policy} any start; echo $? >{seen}", policy=policy)
    assert seen.read_text() == "101\n"
    with pytest.raises(NoBrokerError, match="the installation failed: sh exits with 3"):
        run_with_services_denied("sh", "-c", "exit 3", policy=policy)
    assert not policy.exists()


def test_with_a_policy_that_permits_nothing_is_installed(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    policy.write_text("#!/bin/sh\nexit 0\n")
    policy.chmod(0o755)
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
        until(policy.exists, "the policy is there", 15)
        installer.send_signal(number)
    until(lambda: not policy.exists(), "the policy is gone", 15)
