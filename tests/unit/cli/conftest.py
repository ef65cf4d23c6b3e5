"""Commands, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from command_line import CALL
from modelled_commands import ModelledCommands
from output_documents import check_document

from rabbit_chx.cli import app as app_module
from rabbit_chx.cli import main, printed
from rabbit_chx.cli.app import app
from rabbit_chx.fixes import Argument, CommandLine


@pytest.fixture(autouse=True)
def documents_are_as_their_schemas_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document that a test lets a command write is valid."""
    dumps = json.dumps

    def dumps_valid(written: Any, **options: Any) -> str:
        text = dumps(written, **options)
        if written:  # a check that failed has no document
            check_document(json.loads(text))
        return text

    monkeypatch.setattr("rabbit_chx.rendering.output.json", SimpleNamespace(dumps=dumps_valid))


@pytest.fixture(autouse=True)
def printed_options_are_those_of_their_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command that a test lets a command print exists, with its options; an option alone is one of the command that prints it."""
    run, words, running = app_module._run, printed._words, [""]

    def noted(arguments: Sequence[str]) -> int:
        running[0] = next(iter(arguments), "")
        return run(arguments)

    def checked(part: CommandLine | Argument) -> str:
        name = part.name if isinstance(part, CommandLine) else running[0]
        flags = {option.flag for option in (part.options if isinstance(part, CommandLine) else (part,))}
        if flags <= {
            "--drain",
            "--hand-over",
            "--wait-drained",
        }:  # "--drain of apply", in the output of `plan`
            name = "apply"
        command = app.get_command(click.Context(app), name)
        assert command is not None or isinstance(part, Argument), name
        assert command is None or flags <= {text for option in command.params for text in option.opts}, (
            name,
            flags,
        )
        return words(part)

    monkeypatch.setattr(app_module, "_run", noted)
    monkeypatch.setattr(printed, "_words", checked)


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        found = capsys.readouterr()
        assert not CALL.search(found.out + found.err)
        return code, found.out, found.err

    return run


@pytest.fixture
def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelledCommands:
    """Commands on a broker made of values."""
    return ModelledCommands(tmp_path / "topology.toml", monkeypatch)
