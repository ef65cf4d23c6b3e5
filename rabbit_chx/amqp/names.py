"""Names and short texts: what AMQP 0-9-1 carries in at most 255 bytes, checked once and with one wording.

Names of exchanges, queues and headers, routing keys, binding keys, message ids and the like are all short strings (AMQP 0-9-1, 4.2.5.3).
"""

from __future__ import annotations

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.errors import InputError


def bytes_of(text: object, what: str) -> bytes:
    """Return the bytes of text, which is str (its UTF-8) or bytes."""
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
    """Return the bytes of a short string: a name in a table, a routing key, a message id."""
    data = bytes_of(text, what)
    if len(data) > MAX_SHORTSTR:
        raise InputError(too_long(f"{what} {text[:40]!r}...", len(data)), exchange=exchange)
    return data


def check_name(name: object, kind: str) -> None:
    """Refuse what cannot be the name of a queue or an exchange."""
    if not isinstance(name, str) or not name:
        raise InputError(f"{name!r} names no {kind}: give its name as non-empty text")
    short_string(name, f"the {kind} name")


def too_long(what: str, size: int) -> str:
    """Return the words for a text that does not fit into a short string."""
    return f"{what} has {size} bytes: AMQP carries at most {MAX_SHORTSTR}"
