"""Lines for people, on stderr."""

from __future__ import annotations

import sys

from rabbit_chx.rendering import printable

__all__ = ["say"]


def say(message: str) -> None:
    """Write one line to stderr, whatever characters the message has."""
    if sys.stderr is not None:
        sys.stderr.write(f"rabbit-chx: {printable(' '.join(message.split()))}\n")
