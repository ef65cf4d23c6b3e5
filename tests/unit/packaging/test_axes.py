"""What one change to a key map, a plan or a body has to touch, counted per subject wherever it stands: moving it elsewhere changes nothing.

A figure is the most that the product may have. It falls when a change makes it smaller, and never rises. The wanted one says how far.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")
KEY_MAPS = {
    "HashRing",
    "SlotTable",
    "ModulusHashExchange",
    "ConsistentHashExchange",
    "SuperStream",
    "KeyMap",
}
#: The values that grow with each feature.
LARGE_VALUES = ("KeyMapPlan", "Comparison", "BrokerFacts", "RingRecord")
LONG_BODY = 40
_SHARE_NAME = re.compile("share|moved|misplaced|elsewhere")
_SHARE_RESULT = re.compile(r"float( \| None)?|tuple\[float, float\]|dict\[.*float.*\]|Mapping\[.*float.*\]")


class Figure(NamedTuple):
    """The most that the product may have of something, and what is wanted."""

    most: int
    wanted: int


FIGURES = {
    "functions with a share in name and result": Figure(17, 18),
    "isinstance on a key map": Figure(11, 12),
    "places that make or complete a KeyMapPlan": Figure(2, 2),
    "literals 'alternate-exchange'": Figure(1, 1),
    "literals 'x-modulus-hash'": Figure(1, 1),
    "literals '.slot.'": Figure(1, 1),
    "fields of KeyMapPlan": Figure(8, 10),
    "fields of Comparison": Figure(8, 10),
    "fields of BrokerFacts": Figure(8, 10),
    "fields of RingRecord": Figure(7, 10),
    "bodies above 40 lines": Figure(15, 15),
    "lines of the longest body": Figure(48, 50),
}


def _names(node: ast.AST) -> set[str]:
    """Return the names and attributes in an expression."""
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return found | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _docstring(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    first = node.body[0] if node.body else None
    return first.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None


def _fields(node: ast.ClassDef) -> list[str]:
    return [
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]


def found_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each subject in a file with its size: 1, or the number of fields or lines."""
    documentation = {id(_docstring(node)) for node in ast.walk(tree)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            result = "" if node.returns is None else ast.unparse(node.returns)
            if _SHARE_NAME.search(node.name) and _SHARE_RESULT.fullmatch(result):
                yield "functions with a share in name and result", 1
            body = node.body[1:] if _docstring(node) is not None else node.body
            yield "body", (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "isinstance" and _names(node.args[1]) & KEY_MAPS:
                yield "isinstance on a key map", 1
            # `replace` of a plan is seen by the fields that no other value has.
            of_plan = {keyword.arg for keyword in node.keywords} & {"movement", "proposals"}
            if node.func.id == "KeyMapPlan" or (node.func.id == "replace" and of_plan):
                yield "places that make or complete a KeyMapPlan", 1
        elif isinstance(node, ast.Constant) and id(node) not in documentation:
            if node.value in ("alternate-exchange", "x-modulus-hash", ".slot."):
                yield f"literals {node.value!r}", 1
        elif isinstance(node, ast.ClassDef) and node.name in LARGE_VALUES:
            yield f"fields of {node.name}", len(_fields(node))


@cache
def counted() -> dict[str, int]:
    """Return what the product has of each subject."""
    counts, bodies = dict.fromkeys(FIGURES, 0), []
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            for subject, size in found_in(ast.parse(path.read_text(encoding="utf-8"))):
                if subject == "body":
                    bodies.append(size)
                else:
                    counts[subject] += size
    counts["bodies above 40 lines"] = sum(size > LONG_BODY for size in bodies)
    counts["lines of the longest body"] = max(bodies)
    return counts


@pytest.mark.parametrize("subject", FIGURES)
def test_no_figure_rises(subject: str) -> None:
    assert counted()[subject] <= FIGURES[subject].most, "shorten it: the figure only falls"


def test_each_subject_is_counted_wherever_it_stands() -> None:
    """Each of these lines counts once, in a function, a class or a module."""
    source = '''
def moved_to(other: object) -> float:
    """Return "x-modulus-hash", which a docstring may name."""
    if isinstance(other, (HashRing, int)) and other.kind == "x-modulus-hash":
        return 1.0
class RingRecord:
    exchange: str
    def shares(self) -> dict[str, float]:
        return {"alternate-exchange": 0.5}
made = replace(KeyMapPlan("x"), proposals=())
'''
    found = list(found_in(ast.parse(source)))
    assert sorted(found) == sorted(
        [
            ("functions with a share in name and result", 1),
            ("functions with a share in name and result", 1),
            ("isinstance on a key map", 1),
            ("places that make or complete a KeyMapPlan", 1),
            ("places that make or complete a KeyMapPlan", 1),
            ("literals 'x-modulus-hash'", 1),
            ("literals 'alternate-exchange'", 1),
            ("fields of RingRecord", 1),
            ("body", 2),
            ("body", 1),
        ]
    )
