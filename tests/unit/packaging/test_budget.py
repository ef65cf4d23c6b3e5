"""The budget of docs/contributing/decisions.md: the sum of its ledger is the code, and the product has at most its characters."""

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
#: A row of the ledger: date, package, lines, what they buy, what they replace.
ROW = re.compile(
    r"^\| (\d{4}-\d\d-\d\d) \| `([a-z_/]+)` \| ([-+]?[0-9,]+) \| (.*?) \| ?(.*?) ?\|$", re.MULTILINE
)
TOTAL = re.compile(r"at\s+most ([0-9,]+) characters")
#: The code may differ from the sum of the ledger by this share: a small change needs no row.
ALLOWANCE = 0.005
#: So many rows of growth in a row may replace nothing.
MOST_PURE_GROWTH = 4
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


def ledger() -> list[tuple[str, str, int, str, str]]:
    """Return the rows: date, package, lines, what they buy, what they replace."""
    rows = ROW.findall(DECISIONS)
    return [
        (date, room, int(lines.replace(",", "")), buys, replaces)
        for date, room, lines, buys, replaces in rows
    ]


def test_the_sum_of_the_ledger_is_the_code() -> None:
    total = sum(count for _, _, count, _, _ in ledger())
    lines, _ = numbers()
    assert {room for _, room, _, _, _ in ledger()} <= {"all", *lines}
    assert abs(sum(lines.values()) - total) <= total * ALLOWANCE, (
        f"the code has {sum(lines.values())} lines and the ledger {total}: shorten it, or append a row of what the lines buy and replace"
    )


def test_rows_are_appended_and_growth_says_what_it_replaces() -> None:
    rows = ledger()
    dates = [date for date, *_ in rows]
    assert dates == sorted(dates)
    assert all(buys.strip() for _, _, _, buys, _ in rows)
    growth = [
        (room, replaces) for _, room, count, buys, replaces in rows if count > 0 and buys != "the opening"
    ]
    assert all(replaces for _, replaces in growth), "say what it replaces, or `nothing`"
    run = 0
    for room, replaces in growth:
        run = run + 1 if replaces == "nothing" else 0
        assert run <= MOST_PURE_GROWTH, f"{room}: five rows of growth replace nothing"


def test_the_product_does_not_exceed_its_characters_by_longer_lines() -> None:
    [total] = TOTAL.findall(DECISIONS)
    _, characters = numbers()
    assert characters <= int(total.replace(",", ""))
