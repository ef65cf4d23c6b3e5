"""Every figure of the documents, in light and in dark."""

from __future__ import annotations

import floors_figure
import key_figure
import unbinding_figure
from canvas import DARK, LIGHT

_MAKERS = {"floors": floors_figure.draw, "route": key_figure.draw, "unbind": unbinding_figure.draw}


def figures() -> dict[str, str]:
    """Return the text of each file, by its path in the repository."""
    return {
        f"docs/figures/{name}-{theme.name}.svg": draw(theme)
        for name, draw in _MAKERS.items()
        for theme in (LIGHT, DARK)
    }
