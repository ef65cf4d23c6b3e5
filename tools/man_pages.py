"""The pages that `man rabbit-chx` and `man rabbit-chx-route` show, one for each command, from its help."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from tables import contexts

from rabbit_chx.cli import app as app_module
from rabbit_chx.cli.app import LazyGroup

_PROGRAM_DOES = "See where RabbitMQ sends each key."
_EXIT_CODE = re.compile(r"^(\d+) +(.+)$", re.MULTILINE)


def man_pages() -> dict[str, str]:
    """Return the text of each page, by its path in the repository."""
    return {
        f"man/{_name(context)}.1": "".join(f"{line}\n" for line in _page(context)) for context in contexts()
    }


def _name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context) -> Iterator[str]:
    command, parent, name = context.command, context.parent, _name(context)
    yield f'.TH "{name.upper()}" 1 "" "rabbit-chx" "User Commands"'
    yield ".nh"  # a hyphen in an option would be read as part of it
    yield from (".SH NAME", f"{_escaped(name)} \\- {_escaped(_short(context))}")
    yield from (".SH SYNOPSIS", f".B {_escaped(context.command_path)}")
    yield _text(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for paragraph in (command.help or "").split("\n\n"):
        if not paragraph.strip().startswith("Example: "):
            yield from (".PP", _text(paragraph))
    if isinstance(command, LazyGroup):
        yield ".SH COMMANDS"
        for inner in command.list_commands(context):
            yield from (".TP", f".BR {_escaped(f'{name}-{inner}')} (1)", _text(command.line_of(inner)))
    yield ".SH OPTIONS"
    for option, says in filter(None, (part.get_help_record(context) for part in command.get_params(context))):
        if says:
            yield from (".TP", f".B {_escaped(option)}", _text(says))
    yield ".SH EXIT STATUS"
    if parent is None:
        for code, says in _EXIT_CODE.findall(str(app_module.__doc__)):
            yield from (".TP", f".B {code}", _text(says))
    else:
        yield "See"
        yield ".BR rabbit\\-chx (1)."
    example = re.search(r"Example: (.+)", f"{command.help or ''}\n{command.epilog or ''}")
    if example:
        yield from (".SH EXAMPLE", ".EX", _text(example[1]), ".EE")


def _short(context: click.Context) -> str:
    group = context.parent and context.parent.command
    line = group.line_of(str(context.info_name)) if isinstance(group, LazyGroup) else _PROGRAM_DOES
    return line.removesuffix(".")


def _text(text: str) -> str:
    """Return words that roff takes for nothing else, on one line."""
    line = " ".join(text.split())
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", ("\\&" if line[:1] in (".", "'") else "") + _escaped(line))


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
    )
