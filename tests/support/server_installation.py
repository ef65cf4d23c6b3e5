"""``apt-get install rabbitmq-server`` for the demo and the tests of this repository. POSIX only.

It is done as root on Debian or Ubuntu, and only where no other broker is to be had. No system service is started.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from found_broker import local_series
from local_server import find_tools

from rabbit_chx.errors import NoBrokerError, RabbitChxError, UnreachableError
from rabbit_chx.testing.containers import broker_is_named, official_image, require_docker, require_image
from rabbit_chx.testing.running_broker import run_bounded

_POLICY = Path("/usr/sbin/policy-rc.d")
_LOCK = Path("/run/lock/rabbit-chx-install")
_DENIED = 101
_STDERR = 2

# A shell of its own owns the policy file, so that the file is removed even if Python is killed.
_WITH_POLICY = """
set -eu
policy=$1
shift
trap 'exit 143' INT TERM HUP
trap 'rm -f "$policy"' EXIT
printf '#!/bin/sh\\nexit 101\\n' >"$policy"
chmod 755 "$policy"
"$@"
"""
_APT = "timeout --foreground --kill-after=30 {seconds} apt-get -o DPkg::Lock::Timeout=60 -y {command}"
_UPDATE = _APT.format(seconds=300, command="update")
_INSTALL = _APT.format(seconds=900, command="--no-install-recommends install rabbitmq-server")


def install_if_needed() -> None:
    """Install the package if no broker is named, there is no container to be had, no server on this machine, and we may.

    Raises:
        NoBrokerError: the installation failed; the message says why.
    """
    if broker_is_named() or _is_installed():
        return
    try:
        require_docker()
        if not local_series():
            require_image(official_image("4.3"))
    except RabbitChxError:
        if os.geteuid() == 0 and shutil.which("apt-get"):
            _install()


def _install() -> None:
    """Install the package and leave it installed; a line on stderr says so first. Of several processes one installs, and the others wait."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_installed():
            return  # another process has installed it
        sys.stderr.write(
            "rabbit_chx: installing the package rabbitmq-server with apt-get; its system service is not started"
            " now\n"
        )
        # Package lists may be absent or too old; only then are they fetched.
        script = f"{_INSTALL} || {{ {_UPDATE} && {_INSTALL}; }}"
        run_with_services_denied("sh", "-c", script)


def run_with_services_denied(*command: str, policy: Path = _POLICY) -> None:
    """Run a command as root while packages may not start services; the command limits its own time.

    A policy of the machine that denies this already is kept. Our policy exists only while the command runs.

    Args:
        command: the program and its arguments.
        policy: the file that says which services may start.

    Raises:
        NoBrokerError: the machine has a policy that lets services start, or the command failed.
    """
    if policy.exists():
        _require_denial(policy)
    else:
        command = ("sh", "-c", _WITH_POLICY, "sh", str(policy), *command)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    # In our process group: Ctrl-C of a terminal ends the command too, in good order.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=_STDERR, env=environment) as process:
        code = process.wait()
    if code:
        raise NoBrokerError(f"the installation failed: {command[0]} exits with {code}, and says why above")


def _is_installed() -> bool:
    try:
        return bool(find_tools())
    except NoBrokerError:
        return False


def _require_denial(policy: Path) -> None:
    try:
        answer = run_bounded((str(policy), "rabbitmq-server", "start"), timeout_s=10).returncode
    except UnreachableError as error:
        raise NoBrokerError(f"{policy} cannot be asked whether services may start: {error}") from error
    if answer != _DENIED:
        raise NoBrokerError(f"{policy} lets services start (it exits with {answer}, not {_DENIED})")


if __name__ == "__main__":
    with suppress(NoBrokerError):  # what looks for a broker later says what is missing
        install_if_needed()
