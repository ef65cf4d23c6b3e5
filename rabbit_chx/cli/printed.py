"""The words of the command line for the commands and arguments in a text.

A command is printed with the broker options of the command that prints it, so that it acts on the same broker, and with its values of
variables if it reads a topology file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

import click

from rabbit_chx.fixes import Argument, CommandLine, Fix

#: Options of a command line and their values.
Options: TypeAlias = Sequence[tuple[str, str]]

_USER_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):[^@/?#]*@")
_KEY_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*&?")
_NO_PASSWORD = re.compile(r"[^:]*://(?:[^:@/?#]*@)?[^@]*")

#: RING as a file, which is known by its suffix, or by a path that begins with a slash or with a dot and a slash; and the exchange in it.
FILE_RING = re.compile(r"(-|.*?\.(?:toml|json)|\.{0,2}/.*?)(?:#(.*))?", re.IGNORECASE | re.DOTALL)
_EXCHANGE = "exchange:"
#: What is bindings, an option or a name with its type.
_OTHER_RING = re.compile(rf"-|.*=|modulus:|super-stream:|{_EXCHANGE}", re.DOTALL)
#: The commands whose arguments are exchanges; one of `check` that is not ``--offline`` is, too.
_OF_EXCHANGES = ("check", "export", "record", "repair", "show", "verify")

_given: ContextVar[Options] = ContextVar("broker options of this command line", default=())
_variables: ContextVar[Options] = ContextVar("values of variables of this command line", default=())
_without: ContextVar[tuple[str, ...]] = ContextVar("printed options without their password", default=())


def on_line(context: click.Context) -> Iterator[tuple[click.Parameter, Any]]:
    """Yield the options and arguments that are on a command line, and not only in the environment, each with its value."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            yield parameter, context.params.get(name)


def remember_options(context: click.Context | None) -> None:
    """Record the broker options and the values of variables of a command line; None: there are none yet."""
    _without.set(())
    given: dict[str, list[tuple[str, str]]] = {"Broker": [], "Variable": []}
    for option, value in () if context is None else on_line(context):
        for one in value if isinstance(value, tuple) else [value]:
            text = f"{one:g}" if isinstance(one, float) else str(one)
            given.get(getattr(option, "section", ""), []).append((max(option.opts, key=len), text))
    _given.set(given["Broker"])
    _variables.set(given["Variable"])


def without_passwords(url: str) -> str:
    """Return a URL without the passwords of the user and of the TLS key; ``URL`` if it is malformed."""
    shown = _KEY_PASSWORD.sub("", _USER_PASSWORD.sub(r"\1@", url)).rstrip("?&")
    return shown if _NO_PASSWORD.fullmatch(shown) else "URL"


def names_file(argument: str) -> bool:
    """Return True if an argument of `check` is a topology file, and not the name of an exchange."""
    if argument.startswith(_EXCHANGE):
        return False
    return argument == "-" or argument.endswith((".toml", ".json")) or Path(argument).is_file()


def exchange_named(text: str) -> str:
    """Return the name of an exchange of the broker, which ``exchange:NAME`` or ``NAME`` is."""
    return text.removeprefix(_EXCHANGE)


def exchange_argument(name: str) -> str:
    """Return an exchange of the broker as an argument: ``exchange:NAME`` if the name alone is read as something else."""
    is_other = _OTHER_RING.match(name) or FILE_RING.fullmatch(name) or names_file(name)
    return f"{_EXCHANGE}{name}" if is_other else name


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
    reads_file = part.name in ("plan", "arrange", "apply") or "--offline" in own
    of_exchanges = part.name in _OF_EXCHANGES and not reads_file
    arguments = map(exchange_argument, part.arguments) if of_exchanges else part.arguments
    words = ["rabbit-chx", part.name, *map(shlex.quote, arguments)]
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
