"""Run the unit tests that a change may affect: those that import a changed module, or one that uses it.

A change is what differs from the branch ``main``, with uncommitted and new files. ``make test`` runs all tests.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = ("rabbit_chx/", "spark_connector/", "tests/support/", "tools/")


def changed_files() -> list[str]:
    """Return the Python files that differ from ``main``."""
    base = _git("merge-base", "HEAD", "main")[0]
    changed = _git("diff", "--name-only", "--diff-filter=d", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in changed + new if name.endswith(".py")})


def affected_tests(changed: list[str]) -> list[str]:
    """Return the changed unit tests, and those that import a changed module or one that imports it directly."""
    tests = {path for path in changed if path.startswith("tests/unit/")}
    modules = {_module(path) for path in changed if path.startswith(_SOURCES)}
    graph = grimp.build_graph("rabbit_chx", "spark_connector")
    for module in modules & graph.modules:
        modules |= {
            user for user in graph.find_modules_that_directly_import(module) if not graph.find_children(user)
        }
    if not modules:
        return sorted(tests)
    names = {(name.rpartition(".")[0], defined) for name in modules for defined in _defined_by(name)}
    for path in (_ROOT / "tests/unit").rglob("test_*.py"):
        if any(
            {module, f"{module}.{name}"} & modules or _is_one_of(module, name, names)
            for module, name in _imports(path)
        ):
            tests.add(str(path.relative_to(_ROOT)))
    return sorted(tests)


def _is_one_of(module: str, name: str, names: set[tuple[str, str]]) -> bool:
    """Whether a name that is imported from a package is defined by one of the package's modules that changed."""
    return any(name == defined and package.startswith(module) for package, defined in names)


def _module(path: str) -> str:
    """Return the name under which tests import a file."""
    name = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    return name if name.startswith(("rabbit_chx", "spark_connector")) else name.rpartition(".")[2]


def _defined_by(module: str) -> list[str]:
    """Return the names of the public functions and classes of a module."""
    path = (_ROOT / module.replace(".", "/")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        node.name for node in tree.body if isinstance(node, definitions) and not node.name.startswith("_")
    ]


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each module that a file imports, with the name that it takes from it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


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
