"""Run the unit tests that a change may affect: those that name a changed module, or something that it defines.

A change is what differs from the branch ``main``, with uncommitted and new files. ``make test`` runs all tests.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_PRODUCT = ("rabbit_chx/", "spark_connector/", "tests/support/", "tools/")


def changed_files() -> list[str]:
    """Return the Python files that differ from ``main``."""
    base = _git("merge-base", "HEAD", "main")[0]
    changed = _git("diff", "--name-only", "--diff-filter=d", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in changed + new if name.endswith(".py")})


def affected_tests(changed: list[str]) -> list[str]:
    """Return the unit tests that are changed themselves, or that name what a changed module defines."""
    names = {name for path in changed if path.startswith(_PRODUCT) for name in _names_of(_ROOT / path)}
    tests = {path for path in changed if path.startswith("tests/unit/")}
    if names:
        named = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(names))) + r")\b")
        paths = (_ROOT / "tests/unit").rglob("test_*.py")
        tests |= {
            str(path.relative_to(_ROOT)) for path in paths if named.search(path.read_text(encoding="utf-8"))
        }
    return sorted(tests)


def _names_of(path: Path) -> set[str]:
    """Return the dotted name of a module, and the names of its public functions and classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
    }
    return defined | {".".join(path.relative_to(_ROOT).with_suffix("").parts)}


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def main() -> None:
    """Find the tests, and run them."""
    tests = affected_tests(changed_files())
    if not tests:
        print("no unit test names what has changed")
        return
    print(f"{len(tests)} files of unit tests", flush=True)
    arguments = ["-n", "auto", "--dist", "worksteal", "-m", "not extended", *tests]
    sys.exit(pytest.main(arguments))


if __name__ == "__main__":
    main()
