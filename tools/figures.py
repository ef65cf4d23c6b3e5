"""Every figure of the documents, in light and in dark."""

from __future__ import annotations

import floors_figure
import key_figure
import plan_figure
import unbinding_figure
import way_figure

from rabbit_chx.rendering.svg import ThemeName

_MAKERS = {
    "floors": floors_figure.draw,
    "plan": plan_figure.draw,
    "route": key_figure.draw,
    "unbind": unbinding_figure.draw,
    "way": way_figure.draw,
}
_THEMES: tuple[ThemeName, ...] = ("light", "dark")


def figures() -> dict[str, str]:
    """Return the text of each file, by its path in the repository."""
    return {
        f"docs/figures/{name}-{theme}.svg": draw(theme) for name, draw in _MAKERS.items() for theme in _THEMES
    }
