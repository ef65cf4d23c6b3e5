"""The budget of docs/contributing/decisions.md: each package has at most its lines of code, and the product its characters."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")
DECISIONS = (ROOT / "docs" / "contributing" / "decisions.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([a-z_/]+)` \| ([0-9,]+) \| (.*) \|$", re.MULTILINE)
TOTAL = re.compile(r"at\s+most ([0-9,]+) characters")
#: A package may exceed its figure by this share: a small change needs no sentence.
MARGIN = 0.02
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> list[str]:
    """Return the lines of code of a file, stripped, without docstrings, comments and blank lines."""
    code: set[int] = set()
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docs.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = source.splitlines()
    return [lines[number - 1].strip() for number in sorted(code - docs)]


def rooms() -> Iterator[tuple[str, list[str]]]:
    """Yield the code of each file of the product, with its package: the first two folders, or one of a file above them."""
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            folders = path.relative_to(ROOT).parts[:-1]
            room = "/".join(folders[:2] if package == "rabbit_chx" else folders[:1])
            yield room, code_lines(path.read_text(encoding="utf-8"))


@cache
def numbers() -> tuple[Counter[str], int]:
    lines: Counter[str] = Counter()
    characters = 0
    for room, code in rooms():
        lines[room] += len(code)
        characters += sum(map(len, code))
    return lines, characters


def test_no_package_exceeds_its_lines_of_code_and_each_growth_has_a_sentence() -> None:
    figures = {room: (int(figure.replace(",", "")), why) for room, figure, why in ROW.findall(DECISIONS)}
    lines, _ = numbers()
    assert figures.keys() == lines.keys()
    excess = {
        room: f"{count} lines, and the budget is {figures[room][0]}"
        for room, count in lines.items()
        if count > figures[room][0] * (1 + MARGIN)
    }
    assert excess == {}, "shorten it, or raise the figure, with a sentence of what that buys and replaces"
    assert all(why.strip() for _, why in figures.values())


def test_the_product_does_not_exceed_its_characters_by_longer_lines() -> None:
    [total] = TOTAL.findall(DECISIONS)
    _, characters = numbers()
    assert characters <= int(total.replace(",", ""))
