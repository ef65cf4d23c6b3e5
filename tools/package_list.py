"""The floors of the house, and its packages, each with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def floor_list() -> str:
    """Return the floors, the top one first, as lines of text."""
    lines = (", ".join(room.removeprefix("rabbit_chx.") for room in floor) for floor in _floors())
    return "\n".join(["```text", *lines, "```"])


def package_list() -> str:
    """Return a table of a row for each package or module of a floor, the top floor first, with the packages inside it."""
    rows = [row for floor in _floors() for room in floor for row in _rows(_ROOT / room.replace(".", "/"))]
    return "\n".join(["| package | |", "| --- | --- |", *rows])


def _floors() -> list[list[str]]:
    """Return the rooms of each floor, as the import linter's contract in pyproject.toml has them."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def _rows(path: Path) -> list[str]:
    if not path.is_dir():
        return [_row(path.with_suffix(".py"), "", path.with_suffix(".py"))]
    return [_row(file.parent, "/", file) for file in sorted(path.rglob("__init__.py"))]


def _row(path: Path, end: str, file: Path) -> str:
    name = path.relative_to(_ROOT)
    return f"| [`{name}{end}`](../{name}) | {_says(file)} |"


def _says(file: Path) -> str:
    """Return the first sentence of the module's docstring, in Markdown."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].removesuffix("::").split())
    return re.sub(r"``([^`]+)``", r"`\1`", paragraph).replace("|", "\\|")
