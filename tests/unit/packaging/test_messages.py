"""The texts that the product prints, raises and logs: in the usual words, and short.

Every string constant counts that is no docstring. What an option means is a docstring, too: `option(...)` and the help of commands have no
limit of length.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from usual_words import UNUSUAL

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(
    path
    for room in ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")
    for path in (ROOT / room).rglob("*.py")
)
MOST_WORDS = 40


def text_of(node: ast.AST) -> str:
    """The text of a string, with {} for each value in it; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "{}" for part in parts)
    return ""


def texts(node: ast.AST, *, is_help: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Yield the line of each string that is no docstring, its text, and whether it is a help text."""
    if text := text_of(node):
        yield getattr(node, "lineno", 0), text, is_help
        return
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Call(func=ast.Name(id=name)) if name == "option" or name.endswith(("Group", "_Program")):
                yield from texts(child, is_help=True)
            case ast.keyword(arg="help"):
                yield from texts(child, is_help=True)
            case _:
                yield from texts(child, is_help=is_help)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_are_short_and_use_the_usual_words(path: Path) -> None:
    found = list(texts(ast.parse(path.read_text(encoding="utf-8"))))
    assert [(line, text) for line, text, _ in found if UNUSUAL.search(text)] == []
    assert [
        (line, text) for line, text, is_help in found if not is_help and len(text.split()) > MOST_WORDS
    ] == []
