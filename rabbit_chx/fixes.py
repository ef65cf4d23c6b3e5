"""Texts that contain commands and arguments: in Python's words, which the command line replaces by its own.

``Fix("allow it with ", Argument("allow_delete"))`` is the text ``allow it with allow_delete=True``. The command line prints
``allow it with --allow delete``. An f-string with a Fix has the words of Python only, so a longer text is a Fix of parts, too; the unit
tests refuse such an f-string in our code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

#: The beginning of the names of the arguments that permit what is refused otherwise.
_PERMISSION = "allow_"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a function, and the option of the same name; ``allow_delete`` is ``--allow delete``.

    Attributes:
        name: its name in Python.
        value: its value; True for an option without a value.
        call: the words of Python; empty for ``name=value``.
    """

    name: str
    value: str | float = True
    call: str = ""

    def __str__(self) -> str:
        return self.call or f"{self.name}={self._value(repr)}"

    @property
    def flag(self) -> str:
        """The name of the option, such as ``--write``."""
        name = "allow" if self.name.startswith(_PERMISSION) else self.name
        return f"--{name.replace('_', '-')}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the option, such as ``--allow`` and ``moved=0.2``."""
        values = [] if self.value is True else [self._value(str)]
        if self.name.startswith(_PERMISSION):
            values = ["=".join((self.name.removeprefix(_PERMISSION), *values))]
        return self.flag, *values

    @property
    def option(self) -> str:
        """The option, such as ``--allow moved=0.2``."""
        return " ".join(self.words)

    def _value(self, words: Callable[[object], str]) -> str:
        return f"{self.value:g}" if type(self.value) is float else words(self.value)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command of the command line, and the call that does the same.

    Attributes:
        name: its name, such as ``repair``.
        call: the call in Python.
        arguments: its arguments, such as the name of an exchange.
        options: its options, in order.
        output: the file to which its output goes; None: it is shown.
    """

    name: str
    call: str
    arguments: tuple[str, ...] = ()
    options: tuple[Argument, ...] = ()
    output: str | None = None

    def __str__(self) -> str:
        return self.call


Part: TypeAlias = str | CommandLine | Argument


class Fix(str):
    """A text that contains commands and arguments. As a string it is in Python's words.

    Args:
        parts: the parts of the text, in order; a part may be a Fix.

    Attributes:
        parts: the same, without a Fix among them.
    """

    __slots__ = ("parts",)
    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> Self:  # noqa: D102  # the class documents it
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, Fix) else (part,))]
        fix = super().__new__(cls, "".join(map(str, flat)))
        fix.parts = tuple(flat)
        return fix

    def __str__(self) -> str:
        return self  # `str` of an error with this message has the parts, too

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.parts

    def with_option(self, option: Argument) -> Fix:
        """Return the text with a further option of each command."""
        return Fix(
            *(
                replace(part, options=(*part.options, option)) if isinstance(part, CommandLine) else part
                for part in self.parts
            )
        )

    def worded(self, words: Callable[[CommandLine | Argument], str]) -> str:
        """Return the text with other words for its commands and arguments."""
        return "".join(part if isinstance(part, str) else words(part) for part in self.parts)


def first_command(text: str) -> CommandLine | None:
    """Return the first command in a text; None for one without commands."""
    parts = text.parts if isinstance(text, Fix) else ()
    return next((part for part in parts if isinstance(part, CommandLine)), None)


def joined(separator: str, texts: Iterable[str]) -> Fix:
    """Return texts as one, with a separator between them."""
    parts = [part for text in texts for part in (separator, text)]
    return Fix(*parts[1:])
