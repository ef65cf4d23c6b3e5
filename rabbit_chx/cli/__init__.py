"""``rabbit-chx``: the command line. Needs the extra `cli` (click)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_FAILED = 70


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        from rabbit_chx.cli.app import run
    except ImportError as error:
        if error.name != "click":
            raise
        from rabbit_chx.installation import missing_extra

        sys.stderr.write(f"rabbit-chx: {missing_extra('the command line', 'click', 'cli')}\n")
        return _FAILED
    return int(run(sys.argv[1:] if arguments is None else arguments))
