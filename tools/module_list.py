"""The packages and modules of the house, floor by floor, each with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from floors_figure import floors

__all__ = ["module_list"]

_ROOT = Path(__file__).resolve().parents[1]


def module_list() -> str:
    """Return a section for each room, the top floor first; a folder inside a room has its modules below it."""
    return "\n\n".join(_section(room) for floor in floors() for room in floor)


def _section(room: str) -> str:
    path = _ROOT / room.replace(".", "/")
    if not path.is_dir():
        return f"### `{room}`\n\n{_says(path.with_suffix('.py'))}"
    title = f"### `{room.replace('.', '/')}/`\n\n{_says(path / '__init__.py')}"
    modules = sorted(path.rglob("*.py"), key=lambda file: (file.parent.parts, file.name))
    rows = [
        f"| [`{file.relative_to(path)}`](../{file.relative_to(_ROOT)}) | {_says(file)} |"
        for file in modules
        if file != path / "__init__.py"
    ]
    return "\n".join([title, "", "| module | |", "| --- | --- |", *rows]) if rows else title


def _says(file: Path) -> str:
    """Return the first sentence of the module's docstring, in Markdown."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].removesuffix("::").split())
    return re.sub(r"``([^`]+)``", r"`\1`", paragraph).replace("|", "\\|")
