"""Commands, run in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import CALL, Stored
from given_report import console_text
from modelled_commands import ModelledCommands
from output_documents import check_document

from rabbit_chx.cli import main
from rabbit_chx.rendering import Document
from rabbit_chx.rendering.output import metrics_text


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
def stored() -> Stored:
    """Compares a report as text, JSON and metrics with a file of `reports/`. To write a file anew, delete it first."""

    def compare(name: str, report: Document, words: Callable[[str], str] = str) -> None:
        document = report.as_json(words)
        check_document(document)
        text = f"{console_text(report, 100, words)}\n{json.dumps(document, indent=1, ensure_ascii=False)}\n"
        if report.gauges:
            # Without the zeros of kinds of findings: another kind changes no file.
            text += re.sub(r'.*kind=".* 0\n', "", f"\n{metrics_text(report.gauges)}")
        file = Path(__file__).with_name("reports") / f"{name}.txt"
        if not file.exists():
            file.write_text(text, encoding="utf-8")
            pytest.fail(f"{file} is written: read it")
        assert text == file.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelledCommands:
    """Commands on a broker made of values."""
    return ModelledCommands(tmp_path / "topology.toml", monkeypatch)
