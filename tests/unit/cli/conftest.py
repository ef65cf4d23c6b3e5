"""Commands, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from advice import advice_of, each_printed_text, options_of
from modelled_commands import ModelledCommands
from output_documents import check_document

from rabbit_chx.cli import app as app_module
from rabbit_chx.cli import main

#: The options of `apply` that the output of `plan` names.
OF_APPLY = {"--drain", "--hand-over", "--wait-drained"}


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
def printed_options_are_those_of_their_commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each command that a test lets a command print exists, with its options; an option alone is one of the command that prints it."""
    run, running = app_module._run, [""]

    def noted(arguments: Sequence[str]) -> int:
        running[0] = next(iter(arguments), "")
        return run(arguments)

    def check(text: str) -> None:
        for advice in advice_of(text).values():
            name = running[0] if advice.is_option else advice.words[0]
            if (
                advice.is_option and advice.options <= OF_APPLY
            ):  # "`--drain` of apply", in the output of `plan`
                name = "apply"
            if name:  # some tests print without a command
                assert advice.options <= options_of(name), (name, text)

    monkeypatch.setattr(app_module, "_run", noted)
    with each_printed_text(check):
        yield


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


@pytest.fixture
def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelledCommands:
    """Commands on a broker made of values."""
    return ModelledCommands(tmp_path / "topology.toml", monkeypatch)
