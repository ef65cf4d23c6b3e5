"""Commands in the output: each is printed with the broker options of the command that prints it, so that it acts on the same broker, and
with its values of variables if it reads a topology file.

Messages and findings of the library contain commands such as ``rabbit-chx topology apply FILE``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import click

from rabbit_chx.rendering import Block, Facts, Line, Lines, Report, Section
from rabbit_chx.rendering.output import COMMAND

#: Options of a command line and their values.
Options: TypeAlias = Sequence[tuple[str, str]]

#: The fields of documents that may contain commands. All else may be text of the user.
_FIELDS = ("fix", "message")
_USER_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):[^@/?#]*@")
_KEY_PASSWORD = re.compile(r"(?<=[?&])password=[^&]*&?")
_NO_PASSWORD = re.compile(r"[^:]*://(?:[^:@/?#]*@)?[^@]*")

#: What a command that reads a topology file contains.
_READS_FILE = re.compile(r" topology | --file ")

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


def complete_commands(text: str, options: Options | None = None) -> str:
    """Return a text whose commands have the options, unless they name them; by default those of this command line without passwords."""
    if "rabbit-chx " not in text:
        return text

    def completed(command: re.Match[str]) -> str:
        words = [command[0]]
        variables = _variables.get() if _READS_FILE.search(command[0]) else ()
        for name, value in [*_given.get(), *variables] if options is None else options:
            if f" {name} " in f"{command[0]} ":
                continue
            shown = without_passwords(value) if "url" in name else value
            if shown != value and name not in _without.get():
                _without.set((*_without.get(), name))
            words.append(f"{name} {shlex.quote(shown)}")
        return " ".join(words)

    return COMMAND.sub(completed, text)


def password_note() -> str:
    """Return a sentence about the passwords that the printed commands do not have; empty if there are none."""
    variables = {"--url": "$AMQP_URL", "--management-url": "$RABBIT_CHX_MANAGEMENT_URL"}
    sources = " and ".join(f"{variables[name]} for {name}" for name in _without.get())
    return (
        f"a printed command does not contain a password: put the URL with it into {sources}"
        if sources
        else ""
    )


@dataclass(frozen=True, slots=True)
class CompletedReport:
    """A report whose commands are complete."""

    report: Report

    def blocks(self) -> Iterator[Block]:
        """Return the blocks of the report; tables and files are left alone."""
        return _complete_blocks(self.report.blocks())

    def as_json(self) -> dict[str, Any]:
        """Return the document of the report."""
        completed: dict[str, Any] = _complete_json(self.report.as_json())
        return completed


def _complete_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, Line):
            yield Line(complete_commands(block.text))
        elif isinstance(block, Lines):
            yield Lines(complete_commands(text) for text in block.texts)
        elif isinstance(block, Facts):
            yield Facts([(name, complete_commands(value)) for name, value in block.pairs])
        elif isinstance(block, Section):
            yield replace(block, blocks=list(_complete_blocks(block.blocks)))
        else:
            yield block


def _complete_json(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _complete_json(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_complete_json(inner, name) for inner in value]
    return complete_commands(value) if isinstance(value, str) and name in _FIELDS else value
