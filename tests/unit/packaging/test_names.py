"""Names and sizes: what a file list tells is true, and nothing in a package is called as something else is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = ("rabbit_chx", "spark_connector")
MODULES = [path for package in OURS for path in sorted((ROOT / package).rglob("*.py"))]
PACKAGES = [
    path
    for package in OURS
    for path in sorted((ROOT / package).iterdir())
    if (path / "__init__.py").is_file()
]
FOLDERS = ("rabbit_chx", "spark_connector", "pyspark_rabbitmq", "tests", "examples", "bench", "tools")


def more_than_once(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Return the names that several files have."""
    files: dict[str, list[str]] = defaultdict(list)
    for name, path in named:
        files[name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in files.items() if len(paths) > 1}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_two_modules_of_a_package_have_one_name(package: Path) -> None:
    modules = [path for path in MODULES if path.is_relative_to(package) and path.name != "__init__.py"]
    assert more_than_once((path.stem, path) for path in modules) == {}


def public_types(path: Path) -> Iterable[str]:
    """Yield the names of a module's public classes and type aliases."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            name = ast.unparse(node.target)
        else:
            continue
        if not name.startswith("_"):
            yield name


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_two_public_classes_or_type_aliases_of_a_package_have_one_name(package: Path) -> None:
    modules = [path for path in MODULES if path.is_relative_to(package)]
    assert more_than_once((name, path) for path in modules for name in public_types(path)) == {}


def test_no_module_imports_what_another_keeps_to_itself() -> None:
    """A name is a module's own if it begins with an underscore; packages say in ``__all__`` what users may import."""
    private = {
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS)
        for alias in node.names
        if alias.name.startswith("_") and alias.name != "__version__"
    }
    assert private == set()


def test_packages_alone_say_what_they_export() -> None:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            assert path.name == "__init__.py" or "\n__all__" not in path.read_text(encoding="utf-8"), path
