"""What messages advise: commands and options, taken from what is printed; and who may run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from command_line import CALL
from tables import commands

from rabbit_chx.fixes import Argument, CommandLine, Fix

#: The commands by their names.
_COMMANDS = {name: context.command for name, context in commands()}
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


class Heard:
    """What is put into words while a command runs."""

    def __init__(self) -> None:
        self._said: dict[str, Advice] = {}

    def hear(self, part: CommandLine | Argument, words: str) -> None:
        """Note a part of a message and its words."""
        command = words.partition(" > ")[0]  # a file gets its output
        split = tuple(shlex.split(command.removeprefix("rabbit-chx ")))
        self._said[words] = Advice(split, isinstance(part, Argument))

    def advice_in(self, said: str, command: str) -> list[Advice]:
        """Return what a command advises in what it has printed; each option in plain text is one, too."""
        assert not (call := CALL.search(said)), ("the words of Python", call, said)
        left, found = _NO_ADVICE.sub("", said), []
        for words in sorted(self._said, key=len, reverse=True):
            if words in left:
                found.append(self._said[words])
                left = left.replace(words, " ")
        verbs = re.findall(r"rabbit-chx (\w+)", left)
        assert not {*verbs} & {*_COMMANDS}, ("a command outside of a Fix", left)
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


@contextmanager
def heard() -> Iterator[Heard]:
    """Hear what is put into words within a block."""
    hearing, worded = Heard(), Fix.worded

    def hear(fix: Fix, words: Callable[[CommandLine | Argument], str]) -> str:
        def noted(part: CommandLine | Argument) -> str:
            text = words(part)
            hearing.hear(part, text)
            return text

        return worded(fix, noted)

    with patch.object(Fix, "worded", hear):
        yield hearing
