"""What a command prints about commands: each with the broker options of the command that prints it, so that it acts on the same broker, and
with its values of variables if it reads a topology file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

import click

from rabbit_chx.command_texts import EXCHANGE_PREFIX, with_options
from rabbit_chx.rendering.document import Document

#: Options of a command line and their values.
Options: TypeAlias = Sequence[tuple[str, str]]

_USER_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):[^@/?#]*@")
_KEY_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*&?")
_NO_PASSWORD = re.compile(r"[^:]*://(?:[^:@/?#]*@)?[^@]*")

#: The commands that read a topology file. One of `check` in a text does so only with ``--offline``.
_OF_FILES = re.compile(r"rabbit-chx (?:plan|arrange|apply)\b|.* --offline(?= |$)", re.DOTALL)

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
    if argument.startswith(EXCHANGE_PREFIX):
        return False
    return argument == "-" or argument.endswith((".toml", ".json")) or Path(argument).is_file()


def exchange_named(text: str) -> str:
    """Return the name of an exchange of the broker, which ``exchange:NAME`` or ``NAME`` is."""
    return text.removeprefix(EXCHANGE_PREFIX)


def with_own_options(text: str) -> str:
    """Return a text with the options of this command line in its commands."""
    return with_options(text, _own_options)


def as_printed(document: Document) -> Document:
    """Return a document with the options of this command line in the commands of its texts."""
    return document.with_texts(with_own_options)


def _own_options(command: str) -> Iterator[tuple[str, str]]:
    """Yield the options of this command line that belong to a command as well, without passwords."""
    of_file = _variables.get() if _OF_FILES.match(command) else ()
    for name, value in (*_given.get(), *of_file):
        shown = without_passwords(value) if "url" in name else value
        if shown != value and name not in _without.get():
            _without.set((*_without.get(), name))
        yield name, shown


def password_note() -> str:
    """Return a sentence about the passwords that the printed commands do not have; empty if there are none."""
    variables = {"--url": "$AMQP_URL", "--management-url": "$RABBIT_CHX_MANAGEMENT_URL"}
    sources = " and ".join(f"{variables[name]} for {name}" for name in _without.get())
    return (
        f"a printed command does not contain a password: put the URL with it into {sources}"
        if sources
        else ""
    )
