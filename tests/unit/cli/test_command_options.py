"""The options of all commands: in groups, documented, and the help not wider than a terminal."""

from __future__ import annotations

import re

import click
import pytest
from tables import all_commands, commands

from rabbit_chx.cli import main
from rabbit_chx.cli.command import SECTIONS, CommandOption


def options_of(context: click.Context) -> list[CommandOption]:
    return [parameter for parameter in context.command.params if isinstance(parameter, CommandOption)]


@pytest.mark.parametrize(("name", "context"), list(commands()), ids=[name for name, _ in commands()])
def test_each_option_of_a_command_is_in_a_group(name: str, context: click.Context) -> None:
    assert {option.section for option in options_of(context)} <= set(SECTIONS), name


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_the_help_of_a_command_is_not_wider_than_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80


def test_the_page_of_the_site_shows_each_option() -> None:
    names = {max(option.opts, key=len) for _, context in commands() for option in options_of(context)}
    text = all_commands()
    assert [name for name in sorted(names) if not re.search(rf"{name}(?![\w-])", text)] == []


def test_the_help_of_the_program_is_not_wider_than_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    assert [name for name, _ in commands() if f"\n  {name} " not in shown] == []
    assert all(option in shown for option in ("-V", "--version", "-h", "--help"))


def test_the_help_of_a_command_has_its_options_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arrange", "--help"]) == 0
    headings = re.findall(r"^(\w.*) options:$", capsys.readouterr().out, re.MULTILINE)
    assert headings == ["Command", "Variable", "Broker", "Output"]
