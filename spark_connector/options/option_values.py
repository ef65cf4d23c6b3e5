"""The kinds of options: how a text becomes a value, and a default value a text.

Spark passes every option as text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rabbit_chx.errors import InputError

__all__ = ["COUNT", "FLAG", "JSON_OBJECT", "SECONDS", "SIZE", "TEXT", "WHOLE", "Kind", "one_of", "shown"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?")
_IN_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}
_SIZE = re.compile(r"(\d+)\s*(b|k|kib|m|mib|g|gib)?", re.IGNORECASE)
_IN_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SHOWN = 60
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """How the text of an option is read.

    Attributes:
        label: what the documents call the kind.
        read: returns the value of a text; raises ValueError if the text has none.
        remedy: what to give instead of a text that cannot be read.
        write: returns a text that `read` understands, for the default in the documents.
    """

    label: str
    read: Callable[[str], Any]
    remedy: str
    write: Callable[[Any], str] = str

    def value(self, name: str, text: str) -> Any:  # noqa: ANN401  # each kind has its own type
        """Return the value of a text.

        Args:
            name: the option, for the message.
            text: what the user gave.

        Raises:
            InputError: the text cannot be read. The message shows it.
        """
        try:
            return self.read(text)
        except ValueError:
            raise InputError(f"option {name!r} is {shown(text)}: give {self.remedy}") from None


def shown(text: str) -> str:
    """Return the text of an option for a message.

    Only the beginning of a long text is shown, and nothing of a text that may be an address with a password.
    """
    if "@" in text:
        return "a text with an '@', which is not shown"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def one_of(*choices: str) -> Kind:
    """Return the kind of an option that is one of a few words, in any case."""

    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in choices:
            raise ValueError
        return word

    return Kind(" or ".join(choices), read, " or ".join(repr(choice) for choice in choices))


def _whole(text: str, least: int) -> int:
    number = int(text)
    if number < least:
        raise ValueError
    return number


def _flag(text: str) -> bool:
    try:
        return _FLAGS[text.strip().lower()]
    except KeyError:
        raise ValueError from None


def _flag_text(flag: bool) -> str:  # noqa: FBT001  # it is the value
    return "true" if flag else "false"


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError
    seconds = float(match[1]) * _IN_SECONDS[match[2] or "s"]
    if math.isinf(seconds):
        raise ValueError
    return seconds


def _seconds_text(seconds: float) -> str:
    return f"{seconds:g}s"


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError
    return int(match[1]) * _IN_BYTES[(match[2] or "b")[0].lower()]


def _size_text(size: int) -> str:
    for unit in ("g", "m", "k"):
        if size % _IN_BYTES[unit] == 0:
            return f"{size // _IN_BYTES[unit]}{unit.upper()}iB"
    return str(size)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError from None
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004  # `Kind.value` expects this one
    return value


TEXT = Kind("text", str, "a text")
FLAG = Kind("true or false", _flag, "true or false", _flag_text)
COUNT = Kind("whole number, 1 or more", lambda text: _whole(text, 1), "a whole number, 1 or more")
WHOLE = Kind("whole number", lambda text: _whole(text, 0), "a whole number, 0 or more")
SECONDS = Kind("duration", _seconds, "seconds, as 60 or with a unit: 500ms, 60s, 5m, 1h", _seconds_text)
SIZE = Kind(
    "size",
    _size,
    "bytes, as 65536 or with a unit of 1,024: 64KiB, 8MiB, 1GiB (or k, m, g)",
    _size_text,
)
JSON_OBJECT = Kind("JSON object", _json_object, "a JSON object", json.dumps)
