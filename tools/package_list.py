"""The packages of the house, floor by floor, each with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from floors_figure import floors

_ROOT = Path(__file__).resolve().parents[1]


def package_list() -> str:
    """Return a table of a row for each package or module of a floor, the top floor first, with the packages inside it."""
    rows = [row for floor in floors() for room in floor for row in _rows(_ROOT / room.replace(".", "/"))]
    return "\n".join(["| package | |", "| --- | --- |", *rows])


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
