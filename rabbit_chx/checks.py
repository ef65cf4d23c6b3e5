"""Validation of arguments: numbers, short strings, JSON objects, and the name that was meant.

Short strings are names, routing keys, binding keys and message ids of at most 255 bytes (AMQP 0-9-1, 4.2.5.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address
from typing import Any, Final, TypeGuard

from rabbit_chx.errors import InputError

#: Bytes of the longest short string.
MAX_SHORTSTR: Final = 255
_ENDLESS = float("inf")


def is_whole(value: object, least: float = -_ENDLESS, most: float = _ENDLESS) -> TypeGuard[int]:
    """Return whether a value is an int within these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float; infinity and NaN are floats."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether a value is a number other than infinity and NaN."""
    return is_number(value) and -_ENDLESS < value < _ENDLESS


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise an InputError for what is not an integer within these bounds; the name is for the error."""
    if not is_whole(value, least, _ENDLESS if most is None else most):
        wanted = f", {least} or more" if most is None else f" from {least} to {most}"
        raise InputError(f"{name} is {shown(value)}: pass a whole number{wanted}")


def check_seconds(name: str, value: object, *, zero: bool = True) -> None:
    """Raise an InputError for what is not a finite number of seconds, 0 or more; with ``zero=False`` more than 0."""
    if not is_finite(value) or value < 0 or (value == 0 and not zero):
        wanted = "0 or more" if zero else "more than 0"
        raise InputError(f"{name} is {shown(value)}: pass a finite number of seconds, {wanted}")


def check_share(name: str, value: object) -> None:
    """Raise an InputError for a value that is not a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(f"{name} is {shown(value)}: pass a share from 0 to 1")


def shown(value: object) -> str:
    """Return a value for an error: the start of a long one, and the size of an integer too large to print."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.60}"


# -- short strings


def bytes_of(text: object, what: str) -> bytes:
    """Return the bytes of a str (UTF-8) or of bytes; raise an InputError for anything else."""
    if isinstance(text, bytes):
        return b"".join((text,))  # a subclass may have its own __bytes__
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r:.60}: pass str or bytes")
    try:
        return str.encode(text)
    except UnicodeEncodeError:
        raise InputError(
            f"{what} {text!r:.60} holds half of a surrogate pair: pass whole text, or bytes where bytes are possible"
        ) from None


def short_string(text: str | bytes, what: str, *, exchange: str | None = None) -> bytes:
    """Return the bytes of a short string; raise an InputError if it has more than 255."""
    data = bytes_of(text, what)
    if len(data) > MAX_SHORTSTR:
        raise InputError(too_long(f"{what} {text[:40]!r}...", len(data)), exchange=exchange)
    return data


def check_column(name: str, values: object) -> None:
    """Raise an InputError for a single value in the place of a column."""
    if isinstance(values, (str, bytes, bytearray, Mapping)) or not hasattr(values, "__iter__"):
        raise InputError(f"{name} is a single {type(values).__name__}: pass a list of them")


def check_name(name: object, kind: str) -> None:
    """Raise an InputError for an invalid name of a queue or an exchange."""
    if not isinstance(name, str) or not name:
        raise InputError(f"{name!r} names no {kind}: pass its name as non-empty text")
    short_string(name, f"the {kind} name")


def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def too_long(what: str, size: int) -> str:
    """Return the error text for a text that exceeds a short string."""
    return f"{what} has {size} bytes: AMQP carries at most {MAX_SHORTSTR}"


# -- names


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text; {} if it contains none."""
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def similar(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar word, regardless of case, ``-`` and ``_``; None if no word is close.

    Args:
        word: the word that is not known.
        words: the known ones.
        cutoff: the least similarity, from 0 to 1.
    """
    from difflib import get_close_matches  # only errors need it

    by_spelling = {_spelling(known): known for known in words}
    close = get_close_matches(_spelling(word), by_spelling, n=1, cutoff=cutoff)
    return by_spelling[close[0]] if close else None


def _spelling(word: str) -> str:
    return word.lower().replace("-", "_")


# -- Times, as reports and records have them


def time_text(moment: datetime) -> str:
    """Return a time in ISO 8601 and UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
