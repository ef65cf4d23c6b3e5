"""docs/reference/error-messages.md: each error text on it is one of the code. docs/operate/fix-an-exchange.md: each kind of finding is a kind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from blocks import ROOT, page

from rabbit_chx.analysis.findings import CHECK_KINDS

ERRORS = page("docs/reference/error-messages.md").partition("Messages of Spark:")[0]
MESSAGES = re.findall(r"^- `([^`]+)`:\s", ERRORS, re.MULTILINE)


def texts() -> Iterator[str]:
    """Each text of the code; what is put into it is `...`."""
    for package in ("rabbit_chx", "spark_connector"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        part.value
                        if isinstance(part, ast.Constant) and isinstance(part.value, str)
                        else "..."
                        for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_the_code_has_each_message() -> None:
    code = sorted(set(texts()))
    assert MESSAGES
    assert [message for message in MESSAGES if not any(message in text for text in code)] == []


def test_each_finding_is_one_of_a_check() -> None:
    symptoms = page("docs/operate/fix-an-exchange.md")
    named = {
        kind for row in re.findall(r"finds? (.*?) \|", symptoms) for kind in re.findall(r"`([a-z-]+)`", row)
    }
    assert named
    assert named <= set(CHECK_KINDS)
