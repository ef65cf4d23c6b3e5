"""Commands and other programs, as tests run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

#: Runs a command in this process, and returns its exit code, its stdout and its stderr.
Ran: TypeAlias = Callable[..., tuple[int, str, str]]
#: Compares a report with the stored one of this name.
Stored: TypeAlias = Callable[..., None]
PROGRAM = str(Path(sys.executable).with_name("rabbit-chx"))
BIND = ("q1=1,q2=10",)


def ended(
    *command: str | Path, cwd: Path | None = None, timeout_s: float = 170, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever it returns."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
