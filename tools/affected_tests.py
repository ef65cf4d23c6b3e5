"""Run the unit tests that a change may affect.

A change is what differs from the branch ``main``, with uncommitted, new and deleted files. Affected are

- changed tests, and the tests of the folder of a changed fixture or data file;
- tests that import a changed module, or a module that imports it directly;
- the tests of the command line after a change of a command, which is imported only when it is called;
- the tests of the packaging after a change of anything else, such as a page or ``pyproject.toml``.

``make test-unit`` runs all unit tests.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("rabbit_chx/", "spark_connector/")
_MODULES = (*_PACKAGES, "tests/support/", "tools/")
_UNIT = "tests/unit/"
#: So many files run in less than a minute on two cores.
_MOST_FILES = 60


def changed_files(root: Path = _ROOT) -> list[str]:
    """Return the files that differ from ``main``, also deleted ones and both names of renamed ones.

    Args:
        root: the folder of the repository.
    """
    for branch in ("main", "origin/main"):
        base = _git(root, "merge-base", "HEAD", branch)
        if base is not None:
            break
    else:
        sys.exit("the changes are those since the branch main, which is missing: git fetch origin main:main")
    changed = _git(root, "diff", "--name-only", "--no-renames", base[0]) or []
    new = _git(root, "ls-files", "--others", "--exclude-standard") or []
    return sorted({*changed, *new})


def affected_tests(changed: list[str], most: int = _MOST_FILES) -> tuple[list[str], int]:
    """Return the files of affected unit tests, the most likely ones if there are too many, and the number of all of them."""
    modules, tests = _changed_modules(changed), set[str]()
    for path in changed:
        if path.startswith(_UNIT):
            tests |= {path} if _is_test(path) else _tests_below(Path(path).parent)
        elif path.startswith("rabbit_chx/cli/"):
            tests |= _tests_below(Path("tests/unit/cli"))
        elif path.startswith("tests/vectors/"):
            tests |= {name for name in _unit_files() if "vectors" in _text(name)}
        elif path == "tests/conftest.py":
            tests |= _tests_below(Path(_UNIT))
        elif not path.endswith(".py") or not path.startswith((*_PACKAGES, "tests/", "bench/", "examples/")):
            tests |= _tests_below(Path("tests/unit/packaging"))
    names = {(name.rpartition(".")[0], defined) for name in modules for defined in _defined_by(name)}
    for path in _unit_files() if modules else ():
        if _uses(path, modules, names):
            tests |= {path} if _is_test(path) else _tests_below(Path(path).parent)
    found = sorted(path for path in tests if (_ROOT / path).exists())
    if len(found) <= most:
        return found, len(found)
    folders = (
        Path(path.removeprefix("rabbit_chx/")).parent for path in changed if path.startswith(_PACKAGES)
    )
    own = tuple(f"{_UNIT}{folder}/" for folder in folders)
    first = [path for path in found if path in changed]
    first = [*first, *(path for path in found if path.startswith(own) and path not in first)][:most]
    others = [path for path in found if path not in first]
    room = most - len(first)
    spread = [others[i * len(others) // room] for i in range(room)]
    return sorted([*first, *spread]), len(found)


def _changed_modules(changed: list[str]) -> set[str]:
    """Return the changed modules, and those that import one directly."""
    modules = {_module(path) for path in changed if path.startswith(_MODULES) and path.endswith(".py")}
    graph = _import_graph()
    users = {
        user
        for module in modules & graph.modules
        for user in graph.find_modules_that_directly_import(module)
        if not graph.find_children(user)
    }
    support = [str(path.relative_to(_ROOT)) for path in (_ROOT / "tests/support").rglob("*.py")]
    return modules | users | {_module(path) for path in support if _uses(path, modules, set())}


@cache
def _import_graph() -> grimp.ImportGraph:
    return grimp.build_graph("rabbit_chx", "spark_connector")


def _uses(path: str, modules: set[str], names: set[tuple[str, str]]) -> bool:
    """Return True if a file imports one of the modules, or one of the names, each with its package."""
    return any(
        {module, f"{module}.{name}"} & modules
        or any(name == defined and package.startswith(module) for package, defined in names)
        for module, name in _imports(path)
    )


def _module(path: str) -> str:
    """Return the name under which tests import a file."""
    name = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    return name if path.startswith(_PACKAGES) else name.rpartition(".")[2]


def _defined_by(module: str) -> Iterator[str]:
    """Yield the names of the public functions, classes and constants of a module."""
    path = f"{module.replace('.', '/')}.py"
    for node in ast.parse(_text(path) if (_ROOT / path).exists() else "").body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


@cache
def _imports(path: str) -> list[tuple[str, str]]:
    """Return each module that a file imports, with the name that it takes from it."""
    found = []
    for node in ast.walk(ast.parse(_text(path))):
        if isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return found


def _unit_files() -> list[str]:
    return [str(path.relative_to(_ROOT)) for path in (_ROOT / _UNIT).rglob("*.py")]


def _tests_below(folder: Path) -> set[str]:
    """Return the tests of a folder; those of the nearest folder above it that has tests, if it has none."""
    while not (found := {str(path.relative_to(_ROOT)) for path in (_ROOT / folder).rglob("test_*.py")}):
        folder = folder.parent
    return found


def _is_test(path: str) -> bool:
    return Path(path).match("test_*.py")


def _text(path: str) -> str:
    return (_ROOT / path).read_text(encoding="utf-8")


def _git(root: Path, *arguments: str) -> list[str] | None:
    """Return the lines that git prints; None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, check=False, capture_output=True, text=True)
    return None if done.returncode else done.stdout.splitlines()


def main() -> None:
    """Find the tests, and run them."""
    changed = changed_files()
    if not changed:
        print("nothing has changed since main")
        return
    tests, count = affected_tests(changed)
    if not tests:
        print("the change affects no unit tests")
        return
    note = f", of {count} that may be affected; make test-unit runs all" if count > len(tests) else ""
    print(f"{len(tests)} files of unit tests{note}", flush=True)
    code = pytest.main(["-n", "auto", "--dist", "worksteal", "-m", "not extended", *tests])
    sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code))


if __name__ == "__main__":
    main()
