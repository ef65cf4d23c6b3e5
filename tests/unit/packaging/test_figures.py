"""The pictures of the documents say what the code says now. Their letters are paths; a comment has each text."""

from __future__ import annotations

import re
from pathlib import Path

import figures
import pytest

NAMES = [(name, theme) for name in figures.FIGURES for theme in figures.THEMES]


def texts(path: Path) -> list[str]:
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("name", "theme"), NAMES)
def test_a_picture_has_the_texts_of_today(name: str, theme: str, tmp_path: Path) -> None:
    figures.draw(name, theme, tmp_path / "drawn.svg")
    assert texts(tmp_path / "drawn.svg") == texts(figures.FOLDER / f"{name}-{theme}.svg"), "run: make figures"


def test_each_picture_is_on_a_page() -> None:
    root = figures.FOLDER.parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"figures/([\w-]+\.svg)", page.read_text("utf-8"))}
    assert shown == {path.name for path in figures.FOLDER.glob("*.svg")} == {f"{n}-{t}.svg" for n, t in NAMES}
