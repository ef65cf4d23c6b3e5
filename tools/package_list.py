"""The levels of the packages, top first, each with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def level_table() -> str:
    """Return a table with a row for each package or module, by level; the top level is first."""
    return "\n".join(["| level | package | |", "| --- | --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    """Yield the rows, by the layers of the import linter's contract in pyproject.toml."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    for level, layer in zip(range(len(layers), 0, -1), layers, strict=True):
        for package in layer.split("|"):
            path = _ROOT / package.strip().replace(".", "/")
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            name = f"{path.relative_to(_ROOT)}{'/' if path.is_dir() else '.py'}"
            yield f"| {level} | [`{name}`](../{name.removesuffix('/')}) | {_summary(file)} |"


def _summary(file: Path) -> str:
    """Return the first sentence of the module's docstring, in Markdown."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].removesuffix("::").split())
    return re.sub(r"``([^`]+)``", r"`\1`", paragraph).replace("|", "\\|")
