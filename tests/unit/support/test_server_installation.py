"""Installing without starting services. Nothing is installed here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import server_installation
from server_installation import install_if_needed, install_rabbitmq_server, run_with_services_denied

from rabbit_chx.errors import NoBrokerError


def test_services_are_denied_while_the_command_runs_and_not_after(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    run_with_services_denied("sh", "-c", f"{policy} any start; echo $? >{seen}", policy=policy)
    assert seen.read_text() == "101\n"
    assert not policy.exists()


def test_the_policy_goes_when_the_command_fails(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with pytest.raises(NoBrokerError, match="the installation failed: E: no such package"):
        run_with_services_denied("sh", "-c", "echo E: no such package; exit 100", policy=policy)
    assert not policy.exists()


def _write_policy(path: Path, answer: int) -> None:
    path.write_text(f"#!/bin/sh\nexit {answer}\n")
    path.chmod(0o755)


def test_a_policy_that_denies_is_kept(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    _write_policy(policy, 101)
    run_with_services_denied("touch", str(seen), policy=policy)
    assert seen.exists()
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"


def test_with_a_policy_that_permits_nothing_is_installed(tmp_path: Path) -> None:
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    _write_policy(policy, 0)
    with pytest.raises(NoBrokerError, match="lets services start"):
        run_with_services_denied("touch", str(seen), policy=policy)
    assert not seen.exists()


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


@pytest.mark.skipif(os.geteuid() == 0, reason="as root it would install")
def test_only_root_installs() -> None:
    with pytest.raises(NoBrokerError, match="only root"):
        install_rabbitmq_server()


@pytest.mark.skipif(not Path("/usr/lib/rabbitmq/bin").exists(), reason="it would install")
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="others are refused before that")
def test_what_is_installed_is_not_installed_again() -> None:
    with pytest.raises(NoBrokerError, match="installed already"):
        install_rabbitmq_server()


def test_of_two_at_once_one_installs_and_the_other_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Scripted: what is there and what may be done here, since nothing is installed by a test."""
    tools: list[Path] = []
    runs: list[tuple[str, ...]] = []

    def find_tools() -> Path:
        if not tools:
            raise NoBrokerError("none")
        return tools[0]

    def install(*command: str) -> None:
        runs.append(command)
        time.sleep(0.3)
        tools.append(tmp_path)

    monkeypatch.setattr(server_installation, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(server_installation, "find_tools", find_tools)
    monkeypatch.setattr(server_installation, "run_with_services_denied", install)
    monkeypatch.setattr(server_installation, "_require_permission", lambda: None)
    with ThreadPoolExecutor() as both:
        for done in [both.submit(install_rabbitmq_server) for _ in range(2)]:
            done.result()
    assert len(runs) == 1


@pytest.mark.parametrize("has", ["named", "docker", "local", "nothing"])
def test_a_server_is_installed_only_where_no_broker_is_to_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has: str
) -> None:
    def fail() -> None:
        raise NoBrokerError("none")

    installed: list[bool] = []
    monkeypatch.setattr(server_installation, "broker_is_named", lambda: has == "named")
    monkeypatch.setattr(server_installation, "require_docker", lambda: None if has == "docker" else fail())
    monkeypatch.setattr(server_installation, "require_image", lambda _: None)
    monkeypatch.setattr(server_installation, "find_tools", lambda: tmp_path if has == "local" else fail())
    monkeypatch.setattr(server_installation, "install_rabbitmq_server", lambda: installed.append(True))
    install_if_needed()
    assert installed == [True] * (has == "nothing")
