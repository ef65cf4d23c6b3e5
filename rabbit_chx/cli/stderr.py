"""Lines for people, on stderr."""

from __future__ import annotations

import sys

from rabbit_chx.rendering import printable


def say(message: str, *, keep_lines: bool = False) -> None:
    """Write a message to stderr, whatever characters it has: one line, unless it is a list.

    Args:
        message: what to say.
        keep_lines: whether the message has lines of its own.
    """
    if sys.stderr is None:
        return
    lines = message.splitlines() if keep_lines else [" ".join(message.split())]
    text = "\n".join(map(printable, lines))
    sys.stderr.write(f"rabbit-chx: {text}\n")
