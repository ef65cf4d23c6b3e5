"""How an option is stated, how its text becomes a value, and how its default is written.

Spark passes every option as text.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from rabbit_chx.errors import InputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?")
_IN_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}
_SIZE = re.compile(r"(\d+)\s*(b|k|kib|m|mib|g|gib)?", re.IGNORECASE)
_IN_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SHOWN = 60
_FLAGS = {"true": True, "false": False}
#: Options that Spark itself adds.
_INJECTED = frozenset({"path", "checkpointlocation"})


@dataclass(frozen=True, slots=True)
class Kind:
    """How the text of an option is read.

    Attributes:
        label: what the documents call the kind.
        read: returns the value of a text. It raises InputError with a message of its own, or ValueError for the
            message that `remedy` ends.
        remedy: what to give instead of a text that cannot be read.
        write: returns a text that `read` understands, for the default in the documents.
    """

    label: str
    read: Callable[[str], Any]
    remedy: str = ""
    write: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: the name in camelCase; users may write it in any case.
        kind: how its text is read.
        meaning: one line for the documents.
        default: the value of an option that is not given.
        heading: the heading in the documents of this option and of those that follow; empty for the one before.
        only: the kind of write (``amqp``, ``streams``, ``exactly-once``) or read (``batch``, ``streaming``) that has the option;
            empty for all.
    """

    name: str
    kind: Kind
    meaning: str
    default: Any = None
    heading: str = ""
    only: str = ""

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty if there is none."""
        return "" if self.default in (None, "", {}) else self.kind.write(self.default)

    def value(self, text: str | None) -> Any:  # noqa: ANN401  # each option has its own type
        """Return the value of a text; an empty text counts as not given.

        Raises:
            InputError: the text cannot be read. The message shows it.
        """
        if not text:
            return self.default
        try:
            return self.kind.read(text)
        except InputError:
            raise
        except ValueError:
            raise InputError(f"option {self.name!r} is {shown(text)}: give {self.kind.remedy}") from None


def option(
    name: str, kind: Kind, meaning: str, *, default: object = None, heading: str = "", only: str = ""
) -> Any:  # noqa: ANN401  # a field of any type
    """Return the dataclass field of an option; the arguments are the attributes of `Option`."""
    return field(metadata={"option": Option(name, kind, meaning, default, heading, only)})


def options_of(values: type) -> dict[str, Option]:
    """Return the options of a dataclass by the names of their fields."""
    return {member.name: member.metadata["option"] for member in fields(values) if member.metadata}


def read_options(known: Iterable[Option], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of every option by its name.

    Args:
        known: the options that there are.
        texts: what the user gave; names in any case.

    Raises:
        InputError: an option is unknown, or its text cannot be read.
    """
    by_name = {option.name.lower(): option for option in known}
    text_of = {name.lower(): text for name, text in texts.items() if name.lower() not in _INJECTED}
    for name in text_of:
        if name not in by_name:
            raise InputError(f"unknown option {name!r}: {_hint(name, by_name)}")
    return {option.name: option.value(text_of.get(name)) for name, option in by_name.items()}


def _hint(name: str, known: Mapping[str, Option]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        return f"did you mean {known[nearest[0]].name!r}?"
    return f"known are {', '.join(option.name for option in known.values())}"


def check_only(known: Iterable[Option], texts: Mapping[str, str], unfit: Mapping[str, str]) -> None:
    """Check that no option is given that this write or read cannot have.

    Args:
        known: all options.
        texts: what the user gave; names in any case.
        unfit: the end of the error message by the value of `Option.only`.

    Raises:
        InputError: one is given.
    """
    given = {name.lower() for name, text in texts.items() if text}
    for known_option in known:
        if known_option.only in unfit and known_option.name.lower() in given:
            raise InputError(f"option {known_option.name!r}{unfit[known_option.only]}")


def check_exclusive(**values: object) -> list[str]:
    """Return the names of the options that are given, which is one at most.

    Raises:
        InputError: two are given.
    """
    given = [name for name, value in values.items() if value not in (None, "", ())]
    if len(given) > 1:
        raise InputError(f"options {given[0]!r} and {given[1]!r} are both given: give one of them")
    return given


def shown(text: str) -> str:
    """Return the text of an option for a message.

    Only the beginning of a long text is shown, and nothing of a text that may be an address with a password.
    """
    if "@" in text:
        return "a text with an '@', which is not shown"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def one_of(*words: str) -> Kind:
    """Return the kind of an option that is one of a few words, in any case."""

    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError
        return word

    return Kind(" or ".join(words), read, " or ".join(map(repr, words)))


def either(no: str, yes: str) -> Kind:
    """Return the kind of an option that is one of two words; its value is whether it is the second."""
    words = one_of(no, yes)
    return Kind(
        words.label, lambda text: words.read(text) == yes, words.remedy, lambda value: yes if value else no
    )


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


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError
    seconds = float(match[1]) * _IN_SECONDS[match[2] or "s"]
    if math.isinf(seconds):
        raise ValueError
    return seconds


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
        raise ValueError  # noqa: TRY004  # `Option.value` expects this one
    return value


TEXT = Kind("text", str)
FLAG = Kind("true or false", _flag, "true or false", lambda flag: "true" if flag else "false")
COUNT = Kind("whole number, 1 or more", lambda text: _whole(text, 1), "a whole number, 1 or more")
WHOLE = Kind("whole number", lambda text: _whole(text, 0), "a whole number, 0 or more")
SECONDS = Kind(
    "duration",
    _seconds,
    "seconds, as 60 or with a unit: 500ms, 60s, 5m, 1h",
    lambda seconds: f"{seconds:g}s",
)
SIZE = Kind(
    "size", _size, "bytes, as 65536 or with a unit of 1,024: 64KiB, 8MiB, 1GiB (or k, m, g)", _size_text
)
JSON_OBJECT = Kind("JSON object", _json_object, "a JSON object", json.dumps)
