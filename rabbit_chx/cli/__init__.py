"""``rabbit-chx``: the command line. Needs the extra `cli` (click)."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_FAILED = 70
_TERMINATED = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _end_at_sigterm()
    try:
        from rabbit_chx.cli.app import run
    except ImportError as error:
        if error.name != "click":
            raise
        from rabbit_chx.version import missing_extra

        sys.stderr.write(f"rabbit-chx: {missing_extra('the command line', 'click', 'cli')}\n")
        return _FAILED
    return int(run(sys.argv[1:] if arguments is None else arguments))


def _end_at_sigterm() -> None:
    """Let SIGTERM end the program also where it is the first process of a container, for which Linux ignores signals without a handler."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(_TERMINATED))
