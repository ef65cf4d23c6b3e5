"""The words of the command line for the commands and arguments in a text.

A command is printed with the broker options of the command that prints it, so that it acts on the same broker, and with its values of
variables if it reads a topology file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

import click

from rabbit_chx.fixes import Argument, CommandLine, Fix

#: Options of a command line and their values.
Options: TypeAlias = Sequence[tuple[str, str]]

_USER_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):[^@/?#]*@")
_KEY_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*&?")
_NO_PASSWORD = re.compile(r"[^:]*://(?:[^:@/?#]*@)?[^@]*")

_given: ContextVar[Options] = ContextVar("broker options of this command line", default=())
_variables: ContextVar[Options] = ContextVar("values of variables of this command line", default=())
_without: ContextVar[tuple[str, ...]] = ContextVar("printed options without their password", default=())


def remember_options(context: click.Context | None) -> None:
    """Record the broker options and the values of variables of a command line; None: there are none yet."""
    _without.set(())
    given: dict[str, list[tuple[str, str]]] = {"Broker": [], "Variable": []}
    for option in [] if context is None else context.command.params:
        source = None if context is None else context.get_parameter_source(str(option.name))
        if (
            context
            and (section := getattr(option, "section", "")) in given
            and source is click.core.ParameterSource.COMMANDLINE
        ):
            value = context.params[str(option.name)]
            for one in value if isinstance(value, tuple) else [value]:
                text = f"{one:g}" if isinstance(one, float) else str(one)
                given[section].append((max(option.opts, key=len), text))
    _given.set(given["Broker"])
    _variables.set(given["Variable"])


def without_passwords(url: str) -> str:
    """Return a URL without the passwords of the user and of the TLS key; ``URL`` if it is malformed."""
    shown = _KEY_PASSWORD.sub("", _USER_PASSWORD.sub(r"\1@", url)).rstrip("?&")
    return shown if _NO_PASSWORD.fullmatch(shown) else "URL"


def names_file(argument: str) -> bool:
    """Return True if an argument of `check` is a topology file, and not the name of an exchange."""
    if argument.startswith("exchange:"):
        return False
    return argument == "-" or argument.endswith((".toml", ".json")) or Path(argument).is_file()


def to_type(name: str, *arguments: str, **options: str | float) -> CommandLine:
    """Return a command as part of a text."""
    return CommandLine(name, name, arguments, tuple(Argument(*option) for option in options.items()))


def in_words(text: str) -> str:
    """Return a text in the words of the command line: its commands and arguments are those to type."""
    return text.worded(_words) if isinstance(text, Fix) else text


def _words(part: CommandLine | Argument) -> str:
    if isinstance(part, Argument):
        return part.option
    own = {option.flag for option in part.options}
    reads_file = part.name in ("plan", "arrange", "apply")
    reads_file |= part.name == "check" and any(map(names_file, part.arguments))
    words = ["rabbit-chx", part.name, *map(shlex.quote, part.arguments)]
    words += [shlex.join(option.words) for option in part.options]
    for name, value in (*_given.get(), *(_variables.get() if reads_file else ())):
        if name not in own:
            words += [name, shlex.quote(_shown(name, value))]
    if part.output is not None:
        words += [">", shlex.quote(part.output)]
    return " ".join(words)


def _shown(name: str, value: str) -> str:
    """Return the value of an option without passwords, and note the option if it had one."""
    shown = without_passwords(value) if "url" in name else value
    if shown != value and name not in _without.get():
        _without.set((*_without.get(), name))
    return shown


def password_note() -> str:
    """Return a sentence about the passwords that the printed commands do not have; empty if there are none."""
    variables = {"--url": "$AMQP_URL", "--management-url": "$RABBIT_CHX_MANAGEMENT_URL"}
    sources = " and ".join(f"{variables[name]} for {name}" for name in _without.get())
    return (
        f"a printed command does not contain a password: put the URL with it into {sources}"
        if sources
        else ""
    )
