"""What `make test` is going to do on this machine: the broker, what is installed, and about how long it takes.

It runs before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_READY = Path(".venv/.ready")
_PROGRAMS = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
#: Measured on a Debian 12 with two cores, without Docker: 6:33 with the packages there, and 2:41 for their installation.
_MINUTES, _MINUTES_OF_SETUP = 7, 3


def main() -> None:
    """Print three lines."""
    is_ready = _READY.exists()
    minutes = _MINUTES + (0 if is_ready else _MINUTES_OF_SETUP)
    sys.stdout.write(
        f"make test takes about {minutes} minutes on two cores: {'' if is_ready else 'set-up, '}unit tests, then tests with a broker and "
        f"Spark\n"
        f"  packages  {'in .venv already' if is_ready else 'PySpark and the development tools, from the package index into .venv'}\n"
        f"  broker    {_broker()}\n"
    )
    sys.stdout.flush()


def _broker() -> str:
    """Return the broker that the tests will find, in words (see `found_broker.find_broker`)."""
    if os.environ.get("RABBIT_CHX_TEST_URL"):
        return "the one that RABBIT_CHX_TEST_URL names"
    if _output("docker", "version", "--format", "{{.Server.Version}}"):
        tags = _output("docker", "image", "ls", "--format", "{{.Tag}}", "rabbitmq").split()
        if "4.3-management" in tags:
            return "RabbitMQ 4.3 in Docker"
        others = sorted(tag for tag in tags if tag.endswith("-management"))
        then = f", else {others[-1]}" if others else ""
        return f"rabbitmq:4.3-management in Docker, if it can be pulled within a minute{then}"
    if shutil.which("rabbitmq-server") or _PROGRAMS.exists():
        version = _output("dpkg-query", "--show", "--showformat=${Version}", "rabbitmq-server")
        return (
            f"the rabbitmq-server of this machine {version}".rstrip()
            + ", run privately, since no Docker daemon answers"
        )
    if os.geteuid() == 0 and shutil.which("apt-get"):
        return "the package rabbitmq-server, which apt-get installs (no service is started), since no Docker daemon answers"
    return (
        "none: the tests with a broker are skipped. Start Docker, install rabbitmq-server, run as root on Debian or Ubuntu, or set "
        "RABBIT_CHX_TEST_URL"
    )


def _output(*command: str) -> str:
    """Return the standard output of a program; empty if it fails."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


if __name__ == "__main__":
    main()
