"""Commands, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import CALL
from modelled_commands import ModelledCommands
from output_documents import check_document

from rabbit_chx.cli import main


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
