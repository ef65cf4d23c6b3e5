"""The options of all commands: few enough, documented, and the whole help on one screen."""

from __future__ import annotations

import re

import click
import pytest
from tables import all_commands, commands

from rabbit_chx.cli import main
from rabbit_chx.cli.command import SECTIONS, CommandOption

#: Of a command, without those that many commands have.
MOST = 10
SHARED = {"--output", "--help-all", "--address"}


def options_of(context: click.Context) -> list[CommandOption]:
    return [parameter for parameter in context.command.params if isinstance(parameter, CommandOption)]


@pytest.mark.parametrize(("name", "context"), list(commands()), ids=[name for name, _ in commands()])
def test_a_command_has_few_options_each_in_a_group(name: str, context: click.Context) -> None:
    options = options_of(context)
    own = {max(option.opts, key=len) for option in options if option.section not in ("Broker", "Variable")}
    assert len(own - SHARED) <= MOST, name
    assert {option.section for option in options} <= set(SECTIONS)


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_the_help_of_a_command_fits_on_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_the_page_of_the_site_shows_each_option() -> None:
    names = {max(option.opts, key=len) for _, context in commands() for option in options_of(context)}
    text = all_commands()
    assert [name for name in sorted(names) if not re.search(rf"{name}(?![\w-])", text)] == []


def test_the_help_of_the_program_fits_on_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    assert [name for name, _ in commands() if f"\n  {name} " not in shown] == []
    assert all(option in shown for option in ("-V", "--version", "-h", "--help"))


def test_the_help_of_a_command_has_its_options_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arrange", "--help"]) == 0
    headings = re.findall(r"^(\w.*) options:$", capsys.readouterr().out, re.MULTILINE)
    assert headings == ["Command", "Sample", "Variable", "Broker", "Output"]
