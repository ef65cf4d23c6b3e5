"""Tests may be coroutine functions: each runs in an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path

import pytest
from command_line import Stored
from given_report import console_text
from output_documents import check_document

from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.output import metrics_text


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def stored() -> Stored:
    """Compares a report as text, JSON and metrics with a file of `reports/`. To write a file anew, delete it first."""

    def compare(name: str, report: Document) -> None:
        document = report.as_json()
        check_document(document)
        text = f"{console_text(report, 100)}\n{json.dumps(document, indent=1, ensure_ascii=False)}\n"
        if report.gauges:
            # Without the zeros of kinds of findings: another kind changes no file.
            text += re.sub(r'.*kind=".* 0\n', "", f"\n{metrics_text(report.gauges)}")
        file = Path(__file__).with_name("reports") / f"{name}.txt"
        if not file.exists():
            file.write_text(text, encoding="utf-8")
            pytest.fail(f"{file} is written: read it")
        assert text == file.read_text(encoding="utf-8"), (
            f"if it is meant, delete {file}, run the test again, and read the file"
        )

    return compare
