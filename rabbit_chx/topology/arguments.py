"""The arguments of exchanges, queues, bindings and policies: a table that compares values as the broker does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, Union

from rabbit_chx.amqp.fields import INTEGER_RANGES
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
                raise InputError(f"the argument name {name!r:.60} is not a string: give a str")
        self._values: dict[str, ArgumentValue] = {
            name: _frozen(name, arguments[name]) for name in sorted(arguments)
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
        return {name: _plain(value) for name, value in self._values.items()}


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
        return f"the argument {name!r} is {value}", "give a finite number"
    if isinstance(value, int) and value not in _LONG:
        return f"the argument {name!r} is an integer of more than 64 bits", "give a smaller one"
    if value is None or isinstance(value, (str, int, float)):
        return None
    rule = f"the argument {name!r} is {value!r:.60} ({type(value).__name__})"
    return rule, "give a string, a number, true or false, a list or a table"


def _frozen(name: str, value: Any) -> ArgumentValue:  # noqa: ANN401
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(name, inner) for inner in value)
    if isinstance(value, Mapping):
        return value if isinstance(value, ArgumentTable) else ArgumentTable(value)
    if fault := argument_fault(name, value):
        raise InputError(": ".join(fault))
    checked: ArgumentValue = value
    return checked


def _plain(value: ArgumentValue) -> Any:  # noqa: ANN401
    if isinstance(value, ArgumentTable):
        return value.plain()
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value


def _identity(value: ArgumentValue) -> Any:  # noqa: ANN401
    """Return a key that distinguishes values that are equal in Python but not in the broker: 1, 1.0 and True."""
    if isinstance(value, ArgumentTable):
        return "table", tuple((name, _identity(inner)) for name, inner in value.items())
    if isinstance(value, tuple):
        return "list", tuple(map(_identity, value))
    return type(value).__name__, value


NO_ARGUMENTS = ArgumentTable()
