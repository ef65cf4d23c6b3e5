"""Validation of short strings: names, routing keys, binding keys and message ids of at most 255 bytes (AMQP 0-9-1, 4.2.5.3)."""

from __future__ import annotations

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.errors import InputError


def bytes_of(text: object, what: str) -> bytes:
    """Return the bytes of a str (UTF-8) or of bytes; raise an InputError for anything else."""
    if isinstance(text, bytes):
        return bytes(text)
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r:.60}: give str or bytes")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{what} {text!r:.60} holds half of a surrogate pair: give whole text, or bytes where bytes are possible"
        ) from None


def short_string(text: str | bytes, what: str, *, exchange: str | None = None) -> bytes:
    """Return the bytes of a short string; raise an InputError if it has more than 255."""
    data = bytes_of(text, what)
    if len(data) > MAX_SHORTSTR:
        raise InputError(too_long(f"{what} {text[:40]!r}...", len(data)), exchange=exchange)
    return data


def check_name(name: object, kind: str) -> None:
    """Raise an InputError for an invalid name of a queue or an exchange."""
    if not isinstance(name, str) or not name:
        raise InputError(f"{name!r} names no {kind}: give its name as non-empty text")
    short_string(name, f"the {kind} name")


def too_long(what: str, size: int) -> str:
    """Return the error text for a text that exceeds a short string."""
    return f"{what} has {size} bytes: AMQP carries at most {MAX_SHORTSTR}"
