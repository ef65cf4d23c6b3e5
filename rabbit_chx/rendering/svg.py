"""Figures as SVG, drawn shape by shape: in the colours of a light or of a dark page, or of whichever shows them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TextIO, TypeAlias
from unicodedata import east_asian_width

from rabbit_chx.rendering.blocks import Block, Figure, Report, Section, Ways
from rabbit_chx.rendering.figures import Bar, Bars, Drawing, HeatMap, Segment, Strip, folded, lightened
from rabbit_chx.rendering.output import Record, write_utf8
from rabbit_chx.rendering.table import printable

ThemeName: TypeAlias = Literal["light", "dark"]
Role: TypeAlias = Literal["page", "text", "dim", "line", "alarm", "bar", "move"]

_SANS = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"

#: The colours by what they are for.
THEMES: dict[ThemeName, dict[Role, str]] = {
    "light": {
        "page": "#ffffff",
        "text": "#1f2328",
        "dim": "#59636e",
        "line": "#d1d9e0",
        "alarm": "#b3261e",
        "bar": "#0072b2",
        "move": "#d55e00",
    },
    "dark": {
        "page": "#0d1117",
        "text": "#f0f6fc",
        "dim": "#9198a1",
        "line": "#3d444d",
        "alarm": "#ff8f85",
        "bar": "#56b4e9",
        "move": "#e07b28",
    },
}
#: Paul Tol's light scheme, for cells with dark labels: https://personal.sron.nl/~pault/. Colour-blind people tell them apart.
SCALE = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
ON_SCALE = "#1f2328"
NOBODY = "#dddddd"
#: Laid over a colour that is used again.
_PATTERNS = (
    '<path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" stroke="#1f2328" stroke-opacity=".55"/>',
    '<circle cx="3" cy="3" r="1.2" fill="#1f2328" fill-opacity=".65"/>',
    '<path d="M0 3H6" stroke="#1f2328" stroke-opacity=".55"/>',
    '<path d="M0 3H6M3 0V6" stroke="#1f2328" stroke-opacity=".4"/>',
)
_HOLES = '<path d="M-1 -1L7 7M5 -1L7 1M-1 5L1 7" stroke="#b3261e" stroke-opacity=".8"/>'
#: The patterns. A page has them once, since what is in a hidden SVG is not found.
DEFINITIONS = "<defs>{}</defs>".format(
    "".join(
        f'<pattern id="chx-{name}" width="6" height="6" patternUnits="userSpaceOnUse">{shape}</pattern>'
        for name, shape in [*enumerate(_PATTERNS, 1), ("holes", _HOLES)]
    )
)
_NARROW = 500
_DASHES = ' stroke-dasharray="4 4"'
#: The width from which on a pattern can be seen.
_PATTERN = 8
_MOST_BARS = 24


def colour_rules() -> str:
    """Return the CSS that gives shapes the colours of a light or a dark page. Without CSS they have those of a light one."""
    light, dark = (
        "".join(f"--{role}:{colour};" for role, colour in THEMES[name].items()) for name in ("light", "dark")
    )
    paint = "".join(
        f".f-{role}{{fill:var(--{role})}}.s-{role}{{stroke:var(--{role})}}" for role in THEMES["light"]
    )
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{paint}"


class Canvas:
    """Shapes in the order in which they are drawn. All lengths are in user units, 1 pixel at the natural size.

    A colour is a role in a theme, or a colour itself.

    Args:
        width: its width.
        label: what it shows, in words.
        height: its height; it may be set until `svg` is called.
        theme: the theme of all shapes; None for that of whoever shows them.
        title: its title; empty where `label` is all.
    """

    def __init__(
        self,
        width: float,
        label: str,
        *,
        height: float = 0,
        theme: ThemeName | None = None,
        title: str = "",
    ) -> None:
        self.width, self.height = width, height
        self._theme: ThemeName | None = theme
        self._label, self._title = label, title
        self._shapes: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str = "",
        stroke_width: float = 1,
        radius: float = 0,
        opacity: float = 1,
        dashed: bool = False,
        says: str = "",
    ) -> None:
        """Draw a rectangle from its upper left corner; a mouse over it shows what it says."""
        more = "".join(
            [
                f' rx="{radius:g}"' if radius else "",
                f' fill-opacity="{opacity:.2f}"' if opacity != 1 else "",
                f' stroke-width="{stroke_width:g}"' if stroke_width != 1 else "",
                _DASHES if dashed else "",
            ]
        )
        inner = f"><title>{escaped(says)}</title></rect>" if says else "/>"
        self._shapes.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"{self._paint(fill=fill, stroke=stroke)}{more}{inner}'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        fill: str = "text",
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
        size: int = 14,
        turned: bool = False,
        halo: bool = False,
    ) -> None:
        """Write a line; y is its base line. Turned it runs upwards; with a halo it is read over other shapes."""
        style = f' font-family="{_MONO}"' if mono else ""
        style += ' font-weight="600"' if bold else ""
        style += f' font-size="{size}"' if size != 14 else ""
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += ' stroke-width="4" paint-order="stroke"' if halo else ""
        style += f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turned else ""
        self._shapes.append(
            f'<text x="{_n(x)}" y="{_n(y)}"{self._paint(fill=fill, stroke="page" if halo else "")}{style}>{escaped(words)}</text>'
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        stroke: str,
        width: float = 1,
        dashed: bool = False,
    ) -> None:
        """Draw a straight line."""
        self._shapes.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"{self._lines(stroke, width, dashed=dashed)}/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, *, stroke: str) -> None:
        """Draw an arrow to the right."""
        self.line(x1, y1, x2, y1, stroke=stroke, width=1.5)
        self._head(f"M{x2 - 7:g} {y1 - 4:g} L{x2:g} {y1:g} L{x2 - 7:g} {y1 + 4:g} z", stroke)

    def hop(self, x1: float, x2: float, y: float, *, stroke: str, dashed: bool = False) -> None:
        """Draw an arc from one place to another at the same height."""
        rise = 22 + (x2 - x1) / 9
        self._shapes.append(
            f'<path d="M{x1:g} {y:g} C{x1 + 14:g} {y - rise:g} {x2 - 14:g} {y - rise:g} {x2:g} {y - 4:g}" '
            f'fill="none"{self._lines(stroke, 2, dashed=dashed)}/>'
        )
        self._head(f"M{x2 - 5:g} {y - 9:g} L{x2:g} {y - 1:g} L{x2 + 3:g} {y - 10:g} z", stroke)

    def svg(self, *, alone: bool = True) -> str:
        """Return the whole text.

        Args:
            alone: whether it is a file; else a part of a page, which has `colour_rules` and `DEFINITIONS`.
        """
        size = f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" width="{_n(self.width)}" height="{_n(self.height)}"'
        title = f"<title>{escaped(self._title)}</title>" if self._title else ""
        label = escaped(self._label)
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_SANS}" font-size="14" role="img">',
            f"{title}<desc>{label}</desc>",
        ]
        if alone:
            lines += [f"<style>{colour_rules()}</style>"] if self._theme is None else []
            lines += [DEFINITIONS] if any("url(#" in shape for shape in self._shapes) else []
            page = self._paint(fill="page")
            lines.append(f'<rect width="{_n(self.width)}" height="{_n(self.height)}"{page}/>')
        return "\n".join([*lines, *self._shapes, "</svg>", ""])

    def _head(self, path: str, fill: str) -> None:
        self._shapes.append(f'<path d="{path}"{self._paint(fill=fill)}/>')

    def _lines(self, stroke: str, width: float, *, dashed: bool) -> str:
        return f'{self._paint(stroke=stroke)} stroke-width="{width:g}"{_DASHES if dashed else ""}'

    def _paint(self, **colours: str) -> str:
        """Return the attributes of a fill and a stroke: a class that the page colours, and the colour of a light page."""
        roles = {str(role): shade for role, shade in THEMES[self._theme or "light"].items()}
        given = {what: colour for what, colour in colours.items() if colour}
        classes = " ".join(f"{what[0]}-{colour}" for what, colour in given.items() if colour in roles)
        named = f' class="{classes}"' if classes and self._theme is None else ""
        return named + "".join(f' {what}="{roles.get(colour, colour)}"' for what, colour in given.items())


class Palette:
    """The colours of destinations: each has the next one, and keeps it over all figures of a page."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, name: str | None) -> tuple[str, str | None]:
        """Return the colour of a destination, and the pattern over it."""
        if name is None:
            return NOBODY, "holes"
        number = self._numbers.setdefault(name, len(self._numbers))
        again = number // len(SCALE) % (len(_PATTERNS) + 1)
        return SCALE[number % len(SCALE)], str(again) if again else None


@dataclass
class _Pen:
    """Draws into a part of a canvas, from above to below.

    Attributes:
        canvas: the canvas.
        palette: the colours of destinations.
        left: where it begins.
        width: how wide it may draw.
        y: where the next thing comes.
    """

    canvas: Canvas
    palette: Palette
    left: float
    width: float
    y: float = 0

    def draw(self, drawing: Drawing) -> None:
        """Draw what a figure shows."""
        if isinstance(drawing, Strip):
            self._strip(drawing)
        elif isinstance(drawing, HeatMap):
            self._heat_map(drawing)
        else:
            self._bars(drawing)

    def words(self, text: str, *, size: int = 14, fill: str = "text", bold: bool = False) -> None:
        """Write a paragraph."""
        for line in textwrap.wrap(printable(text), max(20, int(self.width / (size * 0.53)))):
            self.canvas.text(self.left, self.y + size, line, size=size, fill=fill, bold=bold)
            self.y += size * 1.4

    def box(self, x: float, width: float, height: float, name: str | None, says: str) -> None:
        """Draw a box in the colour of a destination."""
        colour, pattern = self.palette.of(name)
        edge = "page" if width > 3 else ""
        self.canvas.rect(x, self.y, width, height, fill=colour, stroke=edge, says=says)
        if pattern and width > _PATTERN:
            self.canvas.rect(x, self.y, width, height, fill=f"url(#chx-{pattern})", stroke=edge, says=says)

    def _label(self, x: float, y: float, words: str, width: float, size: int = 12, **style: Any) -> None:  # noqa: ANN401  # as `Canvas.text` has it
        """Write a text that is no wider."""
        self.canvas.text(x, self.y + y, fitted(words, width, size), size=size, **style)

    def _strip(self, strip: Strip) -> None:
        pieces = [segment for row in strip.rows for segment in row.segments]
        for segment in pieces:
            self.palette.of(segment.name)  # in the order of the ring, whatever is folded
        shown, cell = folded(strip, int(self.width / 4))
        longest = max((sum(segment.amount for segment in row.segments) for row in strip.rows), default=0) or 1
        named: set[str | None] = set()
        for row in shown.rows:
            fill, right = "alarm" if row.loud else "dim", self.left + self.width
            self._label(right, 13, row.note, self.width * 0.6, 13, fill=fill, anchor="end")
            rest = self.width - 16 - min(text_width(row.note, 13), self.width * 0.6)
            self._label(self.left, 13, row.label, rest, 13, bold=True)
            self.y += 20
            named |= self._pieces(row.segments, self.width / longest)
            self.y += 56 if any(segment.marked for segment in row.segments) else 50
        if cell:
            each = (
                f"{cell:,.0f} {strip.unit}s" if strip.unit else f"{cell:.2%} of a strip with too many pieces"
            )
            self.words(f"Each cell is {each}, in the colour of who has most of them.", size=12, fill="dim")
            self.y += 4
        if any(segment.marked for segment in pieces):
            self.canvas.rect(self.left, self.y + 4, 22, 5, fill="alarm")
            self._label(self.left + 30, 12, strip.mark, self.width - 30, 13, fill="dim")
            self.y += 22
        owners = dict.fromkeys(segment.name for row in shown.rows[::-1] for segment in row.segments)
        count = len({segment.name for segment in pieces})
        # The legend has room for some: first who comes, then who goes.
        staying = set.intersection(set(owners), *({part.name for part in row.segments} for row in strip.rows))
        unnamed = sorted((name for name in owners if name not in named), key=staying.__contains__)
        self._legend(unnamed, count - len(named))

    def _pieces(self, segments: Sequence[Segment], scale: float) -> set[str | None]:
        """Draw one strip, and return which owners have a label."""
        canvas, x, drawn, named = self.canvas, self.left, 0.0, set()
        if not segments:
            canvas.rect(x, self.y, self.width, 36, stroke="line", dashed=True)
            self._label(x + self.width / 2, 23, "empty", self.width, 13, fill="dim", anchor="middle")
        for segment in segments:
            drawn += segment.amount
            width = self.left + scale * drawn - x
            self.box(x, width, 36, segment.name, segment.says)
            name = segment.name or "nobody"
            wide = text_width(name, 13) + 6
            if wide + 2 <= width:
                if self.palette.of(segment.name)[1]:
                    at = x + (width - wide) / 2
                    canvas.rect(at, self.y + 9, wide, 18, fill="#ffffff", opacity=0.75, radius=3)
                self._label(x + width / 2, 23, name, width, 13, fill=ON_SCALE, anchor="middle", mono=True)
                named.add(segment.name)
            if segment.marked:
                gap = 0.5 if width > 3 else 0
                canvas.rect(x + gap, self.y + 39, width - 2 * gap, 5, fill="alarm")
            x += width
        return named

    def _legend(self, names: Sequence[str | None], count: int) -> None:
        """Say whose colours are whose, of `count` owners."""
        x, right, lines = self.left, self.left + self.width, 6 if self.width < _NARROW else 4
        for number, name in enumerate(names):
            text = fitted(name or "nobody", min(self.width - 24, 240), 12)
            wide, more = 34 + text_width(text, 12), lines == 1 and number < count - 1
            if x > self.left and x + wide > right - (80 if more else 0):
                if lines == 1:
                    self._label(x, 12, f"and {count - number:,} more", self.width, fill="dim")
                    break
                x, lines, self.y = self.left, lines - 1, self.y + 20
            self.box(x, 14, 14, name, text)
            self._label(x + 20, 12, text, self.width, fill="dim")
            x += wide
        self.y += 22 if names else 0

    def _bars(self, bars: Bars) -> None:
        narrow, limit = self.width < _NARROW, bars.limit[0] if bars.limit else 0
        most = sorted(bars.bars, key=lambda bar: -bar.value)
        shown = most[:_MOST_BARS] if len(most) > _MOST_BARS else bars.bars
        longest = max([limit, *(max(bar.value, bar.expected or 0) for bar in bars.bars)]) or 1
        names = 0.0 if narrow else min(_widest((bar.name for bar in shown), 13) + 12, self.width * 0.36)
        track = self.width - names - _widest((bar.text for bar in shown), 13) - 10
        start, scale = self.left + names, track / longest
        if bars.limit:
            half = text_width(bars.limit[1], 12) / 2
            at = min(max(start + limit * scale, self.left + half), self.left + self.width - half)
            self._label(at, 12, bars.limit[1], self.width, anchor="middle")
            self.y += 18
            end = self.y + len(shown) * (43 if narrow else 26) - 4
            self.canvas.line(
                start + limit * scale, self.y, start + limit * scale, end, stroke="text", width=1.5
            )
        for bar in shown:
            if narrow:
                self._label(self.left, 12, bar.name, self.width, mono=True)
                self.y += 17
            else:
                self._label(start - 10, 15, bar.name, names - 10, 13, anchor="end", mono=True)
            self._bar(bar, start, scale, "alarm" if bars.limit and bar.value > limit else "bar")
        if rest := most[len(shown) :]:
            words = f"These are the largest. There are {len(rest):,} more, from {rest[0].text} to {rest[-1].text}."
            self.words(words, size=12, fill="dim")
        if bars.expected and any(bar.expected is not None for bar in shown):
            self.canvas.line(self.left + 4, self.y + 2, self.left + 4, self.y + 16, stroke="text", width=2)
            self._label(self.left + 14, 13, bars.expected, self.width - 14, fill="dim")
            self.y += 22

    def _bar(self, bar: Bar, start: float, scale: float, fill: str) -> None:
        width, says = max(bar.value * scale, 1 if bar.value else 0), f"{bar.name}: {bar.text}"
        if bar.owner == "":
            self.canvas.rect(start, self.y + 1, width, 18, fill=fill, radius=2, says=says)
        else:
            self.box(start, width, 19, bar.owner, says)
        if bar.expected is not None:
            at = start + bar.expected * scale
            self.canvas.line(at, self.y - 1, at, self.y + 21, stroke="text", width=2)
            width = max(width, bar.expected * scale)
        self._label(start + width + 8, 15, bar.text, self.width, 13, halo=True)
        self.y += 26

    def _heat_map(self, heat: HeatMap) -> None:
        names = {*heat.rows, *heat.columns}
        heat = lightened(heat, 8 if self.width < _NARROW else 14)
        label = min(_widest((*heat.rows, "from \\ to"), 12) + 12, self.width * 0.3)
        cell = min((self.width - label) / max(len(heat.columns), 1), 96)
        wide = _widest(heat.columns, 12)
        turned, head = wide > cell - 6, min(wide + 8, 110) if wide > cell - 6 else 18
        anchor = "start" if turned else "middle"
        self._label(self.left, head - 4, "from \\ to", label, fill="dim")
        for number, name in enumerate(heat.columns):
            x, room = self.left + label + cell * (number + 0.5), head - 4 if turned else cell - 4
            self._label(x + 4 * turned, head - 4, name, room, anchor=anchor, mono=True, turned=turned)
        self.y += head
        single = [amount for ends, amount in heat.amounts.items() if ends[0] != ends[1] and {*ends} <= names]
        for source in heat.rows:
            self._label(self.left + label - 8, 19, source, label - 10, anchor="end", mono=True)
            for number, to in enumerate(heat.columns):
                amount = heat.amounts.get((source, to), 0)
                stays = amount and source == to and source in names
                part = None if stays else min(amount / max(single, default=1), 1)
                self._cell(
                    self.left + label + cell * number, cell, (source, to), _amount(amount, heat.form), part
                )
            self.y += 30
        self.y += 8

    def _cell(self, x: float, width: float, ends: tuple[str, str], text: str, heat: float | None) -> None:
        """Draw a cell of a heat map; without heat it is of what stays."""
        fill, opacity = ("move", 0.14 + 0.66 * heat) if heat else ("line", 0.15 if heat == 0 else 0.6)
        says = f"{ends[0]}: {text} stay" if heat is None else f"{' to '.join(ends)}: {text}"
        self.canvas.rect(x + 1, self.y + 1, width - 2, 28, fill=fill, opacity=opacity, radius=2, says=says)
        if heat != 0 and text_width(text, 12) <= width - 4:
            self._label(x + width / 2, 19, text, width, fill="text" if heat else "dim", anchor="middle")


def _widest(texts: Iterable[str], size: float) -> float:
    return max((text_width(text, size) for text in texts), default=0)


def _amount(amount: float, form: str) -> str:
    if form == "," and amount >= 10_000:
        return f"{amount / 1000:,.0f}k" if amount < 1e6 else f"{amount / 1e6:,.1f}M"
    text = f"{amount:{form}}"
    return "<0.1%" if amount and text == "0.0%" else text


def text_width(text: str, size: float) -> float:
    """Return about how wide a line is at most; a font of another machine may differ."""
    return size * sum(1.0 if east_asian_width(char) in "WF" else 0.62 for char in printable(text))


def fitted(text: str, width: float, size: float) -> str:
    """Return a text that is no wider: its middle is left out, since names differ at their ends."""
    text = shown = printable(text)
    kept = len(text)
    while kept > 2 and text_width(shown, size) > width:
        kept -= 1
        shown = f"{text[: kept // 2]}…{text[kept // 2 - kept :]}"
    return shown


def figures_svg(
    figures: Sequence[Figure],
    palette: Palette,
    width: float,
    *,
    alone: bool = False,
    theme: ThemeName | None = None,
) -> str:
    """Return figures as one SVG, one below the other.

    Args:
        figures: the figures.
        palette: the colours of destinations.
        width: its width in pixels.
        alone: whether it is shown by itself, and not as a part of a page that says their titles and words.
        theme: the theme of its colours; None for that of whoever shows it.
    """
    margin = 20 if alone else 0
    label = " ".join(f"{figure.title}: {figure.words}" for figure in figures) or "This result has no figure."
    canvas = Canvas(width, label, title=figures[0].title if figures else label, theme=theme)
    pen = _Pen(canvas, palette, margin, width - 2 * margin, margin)
    for number, figure in enumerate(figures):
        pen.y += 28 if number else 0
        if alone:
            pen.words(figure.title, size=16, bold=True)
            pen.words(figure.words, size=13, fill="dim")
            pen.y += 10
        pen.draw(figure.drawing)
    if not figures:
        pen.words(label)
    canvas.height = pen.y + margin
    return canvas.svg(alone=alone)


def figures_of(blocks: Iterable[Block], title: str = "") -> Iterator[Figure]:
    """Yield the figures of blocks, those of sections and ways too, each with the titles above it."""
    for block in blocks:
        if isinstance(block, Figure):
            yield Figure(f"{title}{block.title}", block.words, block.drawing, block.numbers)
        elif isinstance(block, Section):
            yield from figures_of(block.blocks, f"{title}{block.title}: ")
        elif isinstance(block, Ways):
            for name, inner in block.ways:
                yield from figures_of(inner, f"{title}{name}: ")


class SvgOutput:
    """For documents: the figures of a result, one below the other, in one SVG.

    Args:
        stream: where to write; None for stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def show(self, report: Report) -> None:
        """Write the figures; without one the document says so.

        Args:
            report: the result to draw.
        """
        figures = list(figures_of(report.blocks()))
        write_utf8(self._stream, figures_svg(figures, Palette(), 880, alone=True))

    def show_each(self, records: Iterable[Record]) -> None:
        """Raise an error, since results that come one by one have no figures.

        Args:
            records: the results.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"there is no picture of {records!r:.60}")


def _n(number: float) -> str:
    return f"{round(number, 2):g}"


def escaped(text: str) -> str:
    """Return a text for HTML or SVG, without what would drive a terminal."""
    return escape(printable(text))
