"""A plain SVG, drawn shape by shape, in the colours of a light or of a dark page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_SANS = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a page.

    Attributes:
        name: part of the file's name.
        page: the background.
        text: of what is read first.
        dim: of what is read next, and of lines.
        alarm: of what moved.
        scale: one colour for each queue, in ring order.
        on_scale: of text on these colours.
    """

    name: str
    page: str
    text: str
    dim: str
    alarm: str
    scale: tuple[str, ...]
    on_scale: str


LIGHT = Theme(
    name="light",
    page="#ffffff",
    text="#1f2328",
    dim="#59636e",
    alarm="#b3261e",
    scale=(
        "#a6cee3",
        "#fdbf6f",
        "#b2df8a",
        "#fb9a99",
        "#cab2d6",
        "#ffe08a",
        "#8dd3c7",
        "#e5c494",
        "#bebada",
        "#c9d1d9",
    ),
    on_scale="#1f2328",
)
DARK = Theme(
    name="dark",
    page="#0d1117",
    text="#f0f6fc",
    dim="#9198a1",
    alarm="#ff8f85",
    scale=(
        "#2f6f9f",
        "#a8651c",
        "#437f2c",
        "#a5403d",
        "#72508f",
        "#8a7212",
        "#22756a",
        "#7d5f36",
        "#5a579c",
        "#57606a",
    ),
    on_scale="#ffffff",
)


class Canvas:
    """Shapes in the order in which they are drawn. All lengths are in user units, 1 pixel at the natural size."""

    def __init__(self, width: int, height: int, theme: Theme, label: str) -> None:
        self._theme = theme
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="{_SANS}" font-size="14" role="img" aria-label="{escape(label)}">'
        )
        self._shapes = [head, f'<rect width="{width}" height="{height}" fill="{theme.page}"/>']

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str = "none",
        stroke_width: float = 1,
        radius: float = 0,
        dashed: bool = False,
    ) -> None:
        """Draw a rectangle from its upper left corner."""
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{stroke_width:g}"{dashes}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        fill: str | None = None,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
        size: int | None = None,
    ) -> None:
        """Write a line; y is its base line."""
        style = f' font-family="{_MONO}"' if mono else ""
        style += ' font-weight="600"' if bold else ""
        style += f' font-size="{size}"' if size else ""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" fill="{fill or self._theme.text}" text-anchor="{anchor}"{style}>'
            f"{escape(words)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, stroke: str, width: float = 1) -> None:
        """Draw a straight line."""
        self._shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}" stroke-width="{width:g}"/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, *, stroke: str) -> None:
        """Draw an arrow to the right."""
        self.line(x1, y1, x2, y1, stroke=stroke, width=1.5)
        self._head(f"M{x2 - 7:g} {y1 - 4:g} L{x2:g} {y1:g} L{x2 - 7:g} {y1 + 4:g} z", stroke)

    def hop(self, x1: float, x2: float, y: float, *, stroke: str, dashed: bool = False) -> None:
        """Draw an arc from one place to another at the same height."""
        rise = 22 + (x2 - x1) / 9
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self._shapes.append(
            f'<path d="M{x1:g} {y:g} C{x1 + 14:g} {y - rise:g} {x2 - 14:g} {y - rise:g} {x2:g} {y - 4:g}" '
            f'fill="none" stroke="{stroke}" stroke-width="2"{dashes}/>'
        )
        self._head(f"M{x2 - 5:g} {y - 9:g} L{x2:g} {y - 1:g} L{x2 + 3:g} {y - 10:g} z", stroke)

    def _head(self, path: str, fill: str) -> None:
        self._shapes.append(f'<path d="{path}" fill="{fill}"/>')

    def svg(self) -> str:
        """Return the whole text of the file."""
        return "\n".join([*self._shapes, "</svg>", ""])
