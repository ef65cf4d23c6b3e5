"""The arguments of objects: a table that compares values as a broker does, the values that can be sent, and canonical text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields as fields_of
from typing import Any, TypeAlias, Union

from rabbit_chx.amqp.fields import INTEGER_RANGES
from rabbit_chx.checks import MAX_SHORTSTR
from rabbit_chx.errors import InputError

ArgumentValue: TypeAlias = Union[str, int, float, bool, tuple["ArgumentValue", ...], "ArgumentTable", None]
_LONG = INTEGER_RANGES["long"]


class ArgumentTable(Mapping[str, ArgumentValue]):
    """An immutable, hashable table of arguments.

    Two tables are equal if they have the same names with the same values of the same types, in any order. So 1, 1.0 and true differ, as in
    the broker. A table also equals a dict with the same contents.

    Args:
        arguments: names and values: text, whole numbers, floats, booleans, None, lists and tables of these.

    Raises:
        InputError: a name is not text, or a value has a type that is not listed above.
    """

    __slots__ = ("_values",)

    def __init__(self, arguments: Mapping[str, Any] | None = None) -> None:
        arguments = arguments or {}
        for name in arguments:
            if not isinstance(name, str):
                raise InputError(f"the argument name {name!r:.60} is not a string: pass a str")
        self._values: dict[str, ArgumentValue] = {
            name: _immutable(name, arguments[name]) for name in sorted(arguments)
        }

    def __getitem__(self, name: str) -> ArgumentValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ArgumentTable):
            return bool(_identity(self) == _identity(other))
        if isinstance(other, Mapping):
            try:
                return self == ArgumentTable(other)
            except InputError:
                return False
        return NotImplemented

    def __hash__(self) -> int:
        return hash(_identity(self))

    def __repr__(self) -> str:
        return f"ArgumentTable({self.plain()!r})"

    def plain(self) -> dict[str, Any]:
        """Return the table as dicts and lists for `json`."""
        return {name: _plain_value(value) for name, value in self._values.items()}


def plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as dicts and lists for `json`."""
    return ArgumentTable(arguments).plain()


def argument_fault(name: str, value: object) -> tuple[str, str] | None:
    """Return the fault of an argument's value and its remedy; None if the broker accepts the value."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, (argument_fault(name, inner) for inner in value)), None)
    if isinstance(value, Mapping):
        return next(filter(None, (argument_fault(str(key), inner) for key, inner in value.items())), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"the argument {name!r} is {value}", "pass a finite number"
    if isinstance(value, int) and value not in _LONG:
        return f"the argument {name!r} is an integer of more than 64 bits", "pass a smaller one"
    if value is None or isinstance(value, (str, int, float)):
        return None
    rule = f"the argument {name!r} is {value!r:.60} ({type(value).__name__})"
    return rule, "use a string, a number, true or false, a list or a table"


def unsendable(name: str, value: object) -> tuple[str, str] | None:
    """Return why AMQP, or pika, cannot send an argument, and the remedy; None if it can be sent."""
    if len(name.encode(errors="replace")) > MAX_SHORTSTR:
        return f"the argument name {name[:40]!r}... exceeds {MAX_SHORTSTR} bytes", "write a shorter name"
    if not is_utf8(name) or (isinstance(value, str) and not is_utf8(value)):
        return f"the argument {name!a} contains half of a surrogate pair", "write whole characters"
    if isinstance(value, float):
        return f"the argument {name!r} is {value}, and pika sends no floats", "write an integer, or a text"
    if isinstance(value, Mapping):
        return next(filter(None, (unsendable(str(key), inner) for key, inner in value.items())), None)
    if isinstance(value, list | tuple):
        return next(filter(None, (unsendable(name, inner) for inner in value)), None)
    return None


def is_utf8(text: str) -> bool:
    """Return True if a text has no half of a surrogate pair."""
    return text.isascii() or text == text.encode(errors="replace").decode()


def _immutable(name: str, value: Any) -> ArgumentValue:
    if isinstance(value, (list, tuple)):
        return tuple(_immutable(name, inner) for inner in value)
    if isinstance(value, Mapping):
        return value if isinstance(value, ArgumentTable) else ArgumentTable(value)
    if fault := argument_fault(name, value):
        raise InputError(": ".join(fault))
    checked: ArgumentValue = value
    return checked


def _plain_value(value: ArgumentValue) -> Any:
    if isinstance(value, ArgumentTable):
        return value.plain()
    if isinstance(value, tuple):
        return [_plain_value(inner) for inner in value]
    return value


def _identity(value: ArgumentValue) -> Any:
    """Return a key that distinguishes values that are equal in Python but not in the broker: 1, 1.0 and True."""
    if isinstance(value, ArgumentTable):
        return "table", tuple((name, _identity(inner)) for name, inner in value.items())
    if isinstance(value, tuple):
        return "list", tuple(map(_identity, value))
    return type(value).__name__, value


def canonical_json(value: object) -> str:
    """Return canonical JSON text of objects. The texts of 1, 1.0 and true differ, as the values do in the broker.

    `queues` are left out, because they are among the bindings.
    """

    def as_dict(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        return {"is": type(value).__name__} | {
            part.name: getattr(value, part.name) for part in fields_of(value) if part.name != "queues"
        }

    return json.dumps(value, default=as_dict, sort_keys=True, separators=(",", ":"))


def canonical_texts(values: Iterable[object]) -> list[str]:
    """Return the sorted `canonical_json` of each value."""
    return sorted(map(canonical_json, values))


NO_ARGUMENTS = ArgumentTable()


def as_table(arguments: Mapping[str, Any]) -> ArgumentTable:
    """Return arguments as a table; a table is returned as it is."""
    return arguments if isinstance(arguments, ArgumentTable) else ArgumentTable(arguments)


# -- Values as TOML on one line


_SHOWN = 60
#: str() refuses a number of 4,300 digits, which TOML may have in another base.
_MOST_BITS = 200
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def show_value(value: object) -> str:
    """Return a value as TOML for a message, shortened."""
    text = toml_value(value).encode(errors="replace").decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def toml_value(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml_key(name)} = {toml_value(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length()} bits"  # only a message has such a number
    if value is None or isinstance(value, (str, int)):
        # JSON text is TOML text, except for U+007F, which TOML requires to be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def toml_key(name: str) -> str:
    """Return the name of a field as TOML."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)
