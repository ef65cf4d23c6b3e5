"""The kinds of values that a field, an argument or a setting accepts, each with the fault of any other value and its remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rabbit_chx.checks import MAX_SHORTSTR, is_whole, similar, too_long

#: The fault of a value, and its remedy.
Fault = tuple[str, str]
_UNQUOTED = "write it without quotes"
_INTEGER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The set of values that a field accepts.

    Attributes:
        label: the name of the kind in the documentation.
        fault: returns the fault of a value and its remedy; None if the value is valid.
        allowed: the values, if they can be listed.
    """

    label: str
    fault: Callable[[Any], Fault | None]
    allowed: tuple[str, ...] | range = ()


def choice(*words: str) -> Kind:
    """Return the kind of a field with a few permitted words."""

    def fault(value: Any) -> Fault | None:
        if isinstance(value, str) and value in words:
            return None
        meant = similar(value, words) if isinstance(value, str) else None
        remedy = f'write "{meant}"' if meant else "write one of them in quotes"
        return f"the value must be {', '.join(words[:-1])} or {words[-1]}", remedy

    return Kind(" or ".join(f"`{word}`" for word in words), fault, words)


def whole_number(least: int, most: int | None = None, unit: str = "") -> Kind:
    """Return the kind of a field that is an integer within bounds."""
    bounds = f"an integer of {least} or more" if most is None else f"an integer from {least} to {most}"
    expected = str(least) if least == most else bounds
    allowed = range(least, (1 << 63 if most is None else most + 1))

    def fault(value: Any) -> Fault | None:
        if is_whole(value) and value in allowed:
            return None
        remedy = f"write a number, such as {max(least, 1)}"
        if is_whole(value):
            remedy = f"write {least} or more" if value < least else f"write {allowed[-1]} or less"
        elif isinstance(value, str) and _INTEGER.fullmatch(value) and int(value) in allowed:
            remedy = _UNQUOTED
        return f"the value must be {expected}{unit}", remedy

    return Kind("integer", fault, allowed)


def kind_of(label: str, is_valid: Callable[[Any], bool], expected: str, remedy: str) -> Kind:
    """Return a kind whose values pass a test; all others have the same fault."""
    fault = (f"the value must be {expected}", remedy)
    return Kind(label, lambda value: None if is_valid(value) else fault)


def name_fault(value: Any) -> Fault | None:
    """Return what is wrong with a name; None if it is valid."""
    if isinstance(value, list):
        return "the value must be one name", 'write an entry for each, or a range such as "orders.{1..4}"'
    if not isinstance(value, str) or not value:
        return (
            "a name must be a non-empty string",
            "write a name" if value == "" else "write the name in quotes",
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "the name contains half of a surrogate pair, which is not UTF-8", "write whole characters"
    if size > MAX_SHORTSTR:
        return too_long("the name", size), "write a shorter name"
    if "\n" in value or "\r" in value:
        return "RabbitMQ removes line breaks from names, so the name would differ", "write it on one line"
    return None


def _flag_fault(value: Any) -> Fault | None:
    if isinstance(value, bool):
        return None
    return "the value must be true or false", _UNQUOTED if value in ("true", "false") else "write one of them"


def _key_fault(value: Any) -> Fault | None:
    if not isinstance(value, str):
        return STRING.fault(value)
    size = len(value.encode(errors="replace"))
    return (too_long("the key", size), "write a shorter key") if size > MAX_SHORTSTR else None


NAME = Kind("name", name_fault)
KEY = Kind("string", _key_fault)
STRING = kind_of("string", lambda value: isinstance(value, str), "a string", "write it in quotes")
FLAG = Kind("`true` or `false`", _flag_fault)
