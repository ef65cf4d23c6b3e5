"""Commands, run in this process."""

from __future__ import annotations

import io
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
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with ``--output json``, expects an exit code, gives the document."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--output", "json"]) == code
        found = capsys.readouterr()
        assert found.err == ""
        return json.loads(found.out)

    return run


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, expects an exit code, gives what it prints."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        found = capsys.readouterr()
        assert found.err == ""
        assert not CALL.search(found.out)
        return found.out

    return run


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
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """Gives stdin a text."""

    def give(text: str | bytes) -> None:
        content = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.fixture
def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelledCommands:
    """Commands of ``rabbit-chx topology`` on a broker made of values."""
    return ModelledCommands(tmp_path / "topology.toml", monkeypatch)
