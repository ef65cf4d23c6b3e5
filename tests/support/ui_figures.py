"""The pictures of `rabbit-chx ui` in the documentation, and what they were made of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / "docs" / "figures"
_SOURCES = ("rabbit_chx/rendering/templates", "rabbit_chx/ui/templates", "rabbit_chx/ui/static")
#: The pictures, each with the first and the last element that it shows.
_PICTURES = {"ui-exchange.png": ("h1", "#report .note"), "ui-answers.png": ("#where", "#changed .legend")}


def are_new() -> bool:
    """Return whether the pictures show these templates."""
    made_of: dict[str, str] = json.loads((_FOLDER / "ui.json").read_text())
    return made_of == _sources()


def make(page: Any) -> None:
    """Make them of an open page."""
    for name, (first, last) in _PICTURES.items():
        top, end = (page.locator(each).last.bounding_box() for each in (first, last))
        height = end["y"] + end["height"] - top["y"]
        clip = {"x": 0, "y": top["y"] - 8, "width": page.viewport_size["width"], "height": height + 24}
        page.screenshot(path=_FOLDER / name, full_page=True, clip=clip)
    (_FOLDER / "ui.json").write_text(json.dumps(_sources(), indent=1) + "\n")


def _sources() -> dict[str, str]:
    files = [path for folder in _SOURCES for path in sorted((ROOT / folder).iterdir())]
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in files
    }
