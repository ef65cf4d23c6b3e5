"""What messages advise: commands and options, taken from what is printed; and who may run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from tables import commands

from rabbit_chx import text
from rabbit_chx.text import COMMAND

#: The commands by their names.
_COMMANDS = {name: context.command for name, context in commands()}
#: An option between backticks, with its value.
_OPTION_TEXT = re.compile(r"`(--[a-z][a-z-]+(?: [^`]+)?)`")
#: An option in plain text.
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
#: The values of options that are in plain text.
_VALUES = {
    "--management-url": ("http://user:password@host:15672",),
    "--ring-via": ("PREFIX",),
    "--hash-header": ("tenant",),
    "--hash-property": ("message_id",),
}
#: What names a command without advising it.
_NO_ADVICE = re.compile(r"\(see rabbit-chx \w+ -h\)")


@dataclass(frozen=True, slots=True)
class Advice:
    """A command, or an option of the command that says it.

    Attributes:
        words: the words of the command behind ``rabbit-chx``, or of the option.
        is_option: True for an option.
    """

    words: tuple[str, ...]
    is_option: bool = False

    @property
    def options(self) -> set[str]:
        """The names of its options."""
        return {word for word in self.words if word.startswith("--") and word != "--"}


def advice_of(text: str) -> dict[str, Advice]:
    """Return the commands and options between backticks in a text, each by what is written there."""
    found: dict[str, Advice] = {}
    for command in COMMAND.finditer(text):
        typed = command[1].partition(" > ")[0]  # a file gets its output
        found[command[1]] = Advice(tuple(shlex.split(typed)[1:]))
    for option in _OPTION_TEXT.finditer(COMMAND.sub("", text)):
        found[option[1]] = Advice(tuple(shlex.split(option[1])), is_option=True)
    return found


class Heard:
    """What texts advise that are printed while a command runs."""

    def __init__(self) -> None:
        self._said: dict[str, Advice] = {}

    def hear(self, text: str) -> None:
        """Note what a text advises."""
        self._said |= advice_of(text)

    def advice_in(self, said: str, command: str) -> list[Advice]:
        """Return what a command advises in what it has printed; each option in plain text is one, too."""
        left = _NO_ADVICE.sub("", said)
        found: list[Advice] = []
        for said_words in sorted(self._said, key=len, reverse=True):
            if said_words in left:
                found.append(self._said[said_words])
                left = left.replace(said_words, " ")
        verbs = re.findall(r"rabbit-chx (\w+)", left)
        assert not {*verbs} & {*_COMMANDS}, ("a command without backticks", left)
        for option in dict.fromkeys(_OPTION.findall(left)):
            value = _VALUES.get(option, ())
            assert value or option in flags_of(command), (f"an option that {command} lacks", option, left)
            found.append(Advice((option, *value), is_option=True))
        return found


def flags_of(command: str) -> set[str]:
    """Return the options of a command that take no value."""
    return {
        name
        for option in _COMMANDS[command].params
        if getattr(option, "is_flag", False)
        for name in option.opts
    }


def options_of(command: str) -> set[str]:
    """Return the options of a command."""
    return {name for option in _COMMANDS[command].params for name in option.opts}


@contextmanager
def each_printed_text(hear: Callable[[str], None]) -> Iterator[None]:
    """Call a function with each text that is printed within a block."""
    with_options = text.with_options

    def complete(text: str, options: Callable[[str], Iterable[tuple[str, str]]]) -> str:
        completed = with_options(text, options)
        hear(completed)
        return completed

    with patch("rabbit_chx.cli.command.with_options", complete):
        yield


@contextmanager
def heard() -> Iterator[Heard]:
    """Hear what is advised within a block."""
    hearing = Heard()
    with each_printed_text(hearing.hear):
        yield hearing
