"""Decode what pamqp (4.0.1, decode.py) does not: a text that is not UTF-8, and a time after the year 9999.

A routing key, a property and the name of a header may be such a text; microseconds are such a time. They are an error of pamqp, which ends the
connection of each consumer that gets the message, again and again until the broker drops it, and good ones with it. So the bytes of such a
text are surrogate escapes, and such a time is its number.

pamqp has one table of decoders for the process. Ours decode as pamqp does unless it is our connection that reads.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from pamqp import decode, frame

_is_unmarshalling: ContextVar[bool] = ContextVar("_is_unmarshalling", default=False)
_readers: WeakSet[asyncio.Task[object]] = WeakSet()


def unmarshal(data: bytes) -> Any:  # pamqp's tuple
    """Return the frame at the beginning of bytes, as ``pamqp.frame.unmarshal`` does."""
    _install()
    before = _is_unmarshalling.set(True)
    try:
        return frame.unmarshal(data)
    finally:
        _is_unmarshalling.reset(before)


def decode_all(reader: asyncio.Task[object]) -> None:
    """Decode all that this task reads: that of aiormq which reads from a connection."""
    _install()
    _readers.add(reader)


def _install() -> None:
    decode.METHODS.update(shortstr=_short_string, timestamp=_timestamp, table=_table)
    decode.TABLE_MAPPING.update({b"T": _timestamp, b"F": _table})


def _is_ours() -> bool:
    if _is_unmarshalling.get():
        return True
    try:
        return asyncio.current_task() in _readers
    except RuntimeError:  # no loop runs
        return False


def _short_string(value: bytes) -> tuple[int, str]:
    try:
        return decode.short_str(value)
    except UnicodeDecodeError:
        if not _is_ours():
            raise
        end = value[0] + 1
        return end, value[1:end].decode(errors="surrogateescape")


def _timestamp(value: bytes) -> tuple[int, Any]:
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        if not _is_ours():
            raise
        return 8, int.from_bytes(value[:8])


def _table(value: bytes) -> tuple[int, Any]:
    try:
        return decode.field_table(value)
    except UnicodeDecodeError:
        if not _is_ours():
            raise
        end = 4 + int.from_bytes(value[:4])
        at = 4
        table = {}
        while at < end:
            size, name = _short_string(value[at:end])
            consumed, table[name] = decode.embedded_value(value[at + size : end])
            at += size + consumed
        return end, table
