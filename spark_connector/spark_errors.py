"""Errors without the way to them, for Spark.

Spark can be told to show local variables in tracebacks (``tracebackWithLocals.enabled``), and puts tracebacks into event
logs. Among our variables are options with their password.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from rabbit_chx.errors import RabbitChxError

__all__ = ["without_traceback"]

_PLACES = 3
_MOST_TEXT = 300


def without_traceback(cause: Exception, *, show_text: bool = True) -> RabbitChxError:
    """What to raise in its place, once its ``except`` is left.

    Args:
        cause: one of our own is given back; of any other, which nobody foresaw, the last places are told.
        show_text: whether the text of such another one may be shown, as it holds nothing of an option.
    """
    if isinstance(cause, RabbitChxError):
        return cause.with_traceback(None)
    places = ", ".join(
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(cause.__traceback__)[-_PLACES:]
    )
    words = " ".join(str(cause).split())[:_MOST_TEXT] if show_text else ""
    text = f": {words}" if words else ""
    return RabbitChxError(f"unforeseen {type(cause).__name__}{text} (at {places}): please report it")
