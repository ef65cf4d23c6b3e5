"""As the first process of a container, a command ends at SIGTERM."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rabbit_chx.testing import skip_unless_ci

WAITS = ["check", "--url", "amqp://127.0.0.1:1/", "--management-url", "http://127.0.0.1:1", "--wait", "300"]


def test_a_command_that_waits_ends_at_sigterm_as_the_first_process() -> None:
    """Linux ignores a signal for the first process of a namespace if that has no handler."""
    if os.geteuid() or shutil.which("unshare") is None:
        skip_unless_ci("NOT TRIED: a namespace of processes takes root and unshare")
    program = "import sys; from rabbit_chx.cli import main; sys.exit(main())"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", program, *WAITS]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as outer:
        try:
            assert outer.stderr is not None
            said = outer.stderr.readline()
            if "Operation not permitted" in said:
                skip_unless_ci(f"NOT TRIED: {said}")
            assert "waiting for" in said  # every two seconds
            (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert outer.wait(timeout=60) == 128 + signal.SIGTERM
        finally:
            outer.kill()


def test_the_handler_is_that_of_the_first_process_only() -> None:
    from rabbit_chx.cli import _end_at_sigterm

    before = signal.getsignal(signal.SIGTERM)
    _end_at_sigterm()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMQP_URL", "RABBIT_CHX_MANAGEMENT_URL", "RABBIT_CHX_RING_VIA"):
        monkeypatch.delenv(name, raising=False)
