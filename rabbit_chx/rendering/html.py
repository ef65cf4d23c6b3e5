"""Results as HTML: one page that opens from disk, without a network and without a script; or a piece for a notebook."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rabbit_chx.rendering.blocks import (
    Block,
    Facts,
    Figure,
    Line,
    Lines,
    Report,
    Section,
    Table,
    Verbatim,
    Ways,
)
from rabbit_chx.rendering.output import Record, write_utf8
from rabbit_chx.rendering.svg import DEFINITIONS, Palette, colour_rules, escaped, figures_svg
from rabbit_chx.rendering.table import TableColumn

_WIDE, _NARROW = 880, 328
_MOST_WAYS = 12
_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 -apple-system,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;
--soft:color-mix(in srgb,var(--line) 22%,transparent)}
main{max-width:928px;margin:0 auto;padding:24px 24px 48px}
h1,h2,h3,h4{line-height:1.25;text-wrap:balance;overflow-wrap:anywhere}
h1{font-size:28px;margin:0 0 24px;padding-bottom:12px;border-bottom:1px solid var(--line)}
h2{font-size:21px;margin:40px 0 14px}h3{font-size:17px;margin:28px 0 10px}h4{font-size:16px;margin:22px 0 8px}
p{margin:10px 0;overflow-wrap:anywhere}
code,pre,td.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.88em}
pre{padding:12px 14px;background:var(--soft);border-radius:6px;overflow-x:auto}
dl{display:grid;grid-template-columns:fit-content(12em) 1fr;gap:6px 20px;margin:16px 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}dt,dd{min-width:0}
.table{overflow-x:auto;margin:12px 0}
table{border-collapse:collapse;font-size:14px;line-height:1.4}
th,td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{color:var(--dim);font-weight:600;white-space:nowrap}
td{max-width:34em;overflow-wrap:anywhere}td.code{min-width:6em}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-left:10px}
tfoot td{font-weight:600;border-bottom:0}
figure{margin:24px 0;padding:18px 20px 12px;border:1px solid var(--line);border-radius:8px}
figcaption h2,figcaption h3,figcaption h4{margin:0 0 2px;font-size:16px}figcaption p{margin:0 0 16px;color:var(--dim);font-size:14px}
svg{display:block;max-width:100%;height:auto}.narrow{display:none}
details{margin:14px 0}summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
figure details{margin:8px 0 0}figure summary{font-weight:400;font-size:13px;color:var(--dim)}
.ways{margin:16px 0;position:relative}.ways>input{position:absolute;opacity:0;pointer-events:none}
.ways>label{display:inline-block;padding:6px 12px;margin:0 6px 8px 0;border:1px solid var(--line);border-radius:6px;cursor:pointer;font-size:14px}
.ways>input:checked+label{border-color:var(--bar);box-shadow:inset 0 0 0 1px var(--bar);font-weight:600}
.ways>input:focus-visible+label{outline:2px solid var(--bar);outline-offset:2px}
.way{display:none}
@media(max-width:700px){main{padding:16px 16px 40px}.wide{display:none}.narrow{display:block}figure{margin:20px -6px;padding:14px 10px 10px}
dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}h1{font-size:23px}h2{margin-top:32px}}
@media print{.way{display:block}figure{break-inside:avoid}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class HtmlOutput:
    """For browsers: the whole result as one page.

    Args:
        stream: where to write; None for stdout.
        title: the heading of the page.
    """

    def __init__(self, stream: TextIO | None = None, title: str = "rabbit-chx") -> None:
        self._stream = stream or sys.stdout
        self._title = title

    def show(self, report: Report) -> None:
        """Write the page.

        Args:
            report: the result to write.
        """
        write_utf8(self._stream, html_page(self._title, report.blocks()))

    def show_each(self, records: Iterable[Record]) -> None:
        """Raise an error, since results that come one by one make no page.

        Args:
            records: the results.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"there is no page of {records!r:.60}")


def html_page(title: str, blocks: Iterable[Block]) -> str:
    """Return blocks as a page. It needs no other file and no script, and goes by what the browser prefers, light or dark.

    Args:
        title: its heading.
        blocks: what it shows.
    """
    heading = escaped(title)
    choices = ",".join(
        f".ways>input:nth-of-type({n}):checked~.way:nth-of-type({n})" for n in range(1, _MOST_WAYS + 1)
    )
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{heading}</title>",
            f"<style>{colour_rules()}{_STYLE}{choices}{{display:block}}</style>\n</head>\n<body>",
            f'<svg width="0" height="0" style="position:absolute" aria-hidden="true">{DEFINITIONS}</svg>',
            f"<main>\n<h1>{heading}</h1>",
            *_Page().parts(blocks, 2),
            "</main>\n</body>\n</html>\n",
        ]
    )


def html_piece(blocks: Iterable[Block]) -> str:
    """Return blocks as a piece of a page that others style, such as a notebook.

    A figure is an image: notebooks that are not trusted keep no SVG of their own.

    Args:
        blocks: what it shows.
    """
    return "\n".join(_Piece().parts(blocks, 4))


class _Page:
    """Writes blocks as HTML, with figures as SVG.

    Attributes:
        margin: the attributes of a figure.
        most_open: the table of a figure is folded if it has more rows.
    """

    margin = ""
    most_open = 0

    def __init__(self) -> None:
        self._palette = Palette()
        self._ways = 0

    def parts(self, blocks: Iterable[Block], level: int) -> Iterator[str]:
        """Yield the elements of blocks."""
        for block in blocks:
            if isinstance(block, Section):
                yield from self._section(block, level)
            elif isinstance(block, Figure):
                yield from self._figure(block, level)
            elif isinstance(block, Ways):
                yield from self.ways(block, level)
            else:
                yield self._leaf(block)

    def facts(self, facts: Facts) -> str:
        """Return names and values; a value without a name belongs to the name before it."""
        pairs = (
            f"{f'<dt>{escaped(name)}</dt>' if name else '<dt></dt>'}<dd>{escaped(value)}</dd>"
            for name, value in facts.pairs
        )
        return f"<dl>{''.join(pairs)}</dl>"

    def drawn(self, figure: Figure, level: int) -> str:
        """Return a figure with its title and its words, as it fits a desk and a phone."""
        title, words = escaped(figure.title), escaped(figure.words)
        caption = f"<figcaption><h{level}>{title}</h{level}><p>{words}</p></figcaption>"
        wide, narrow = (figures_svg([figure], self._palette, width) for width in (_WIDE - 42, _NARROW - 10))
        return f'{caption}<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'

    def ways(self, ways: Ways, level: int) -> Iterator[str]:
        """Yield alternatives, of which one is shown: without a script, by the button that is checked."""
        self._ways += 1
        named = list(ways.ways)
        yield f'<h{level}>{escaped(ways.title)}</h{level}>\n<p>{escaped(ways.words)}</p>\n<div class="ways">'
        for number, (name, _) in enumerate(named):
            id_ = f"way-{self._ways}-{number}"
            checked = "" if number else " checked"
            yield f'<input type="radio" name="ways-{self._ways}" id="{id_}"{checked}><label for="{id_}">{escaped(name)}</label>'
        for _, blocks in named:
            yield '<div class="way">'
            yield from self.parts(blocks, level + 1)
            yield "</div>"
        yield "</div>"

    def _leaf(self, block: Line | Lines | Facts | Table | Verbatim) -> str:
        if isinstance(block, Line):
            return f"<p>{escaped(block.text)}</p>"
        if isinstance(block, Facts):
            return self.facts(block)
        if isinstance(block, Table):
            return _table(block)
        return _preformatted(list(block.texts) if isinstance(block, Lines) else block.text.splitlines())

    def _section(self, section: Section, level: int) -> Iterator[str]:
        title = escaped(section.title)
        if section.folded:
            yield f"<details><summary>{title}</summary>"
        else:
            yield f"<section><h{level}>{title}</h{level}>"
        yield from self.parts(section.blocks, min(level + 1, 6))
        yield "</details>" if section.folded else "</section>"

    def _figure(self, figure: Figure, level: int) -> Iterator[str]:
        yield f"<figure{self.margin}>{self.drawn(figure, level)}"
        opened = " open" if len(figure.numbers.rows) <= self.most_open else ""
        yield f"<details{opened}><summary>The numbers</summary>{_table(figure.numbers)}</details></figure>"


class _Piece(_Page):
    """Writes the same for a notebook, whose styles it has to do with."""

    margin = ' style="margin:8px 0"'
    most_open = 20

    def facts(self, facts: Facts) -> str:
        """Return a table, as a notebook has no style for a list of facts."""
        columns = [TableColumn("", numeric=False), TableColumn("", numeric=False)]
        return _table(Table(columns, facts.pairs))

    def drawn(self, figure: Figure, level: int) -> str:  # noqa: ARG002  # an image has no headings
        """Return an image in the colours that the browser prefers."""
        image = b64encode(figures_svg([figure], self._palette, _WIDE - 100, alone=True).encode()).decode()
        words = escaped(f"{figure.title}: {figure.words}")
        return f'<img alt="{words}" src="data:image/svg+xml;base64,{image}" style="max-width:100%">'

    def ways(self, ways: Ways, level: int) -> Iterator[str]:
        """Yield each alternative as a part that unfolds."""
        for name, blocks in ways.ways:
            yield from self.parts([Section(name, list(blocks), folded=True)], level)


def _table(table: Table) -> str:
    head = "".join(_cell("th", column, column.heading) for column in table.columns)
    rows = [_row(table.columns, row) for row in table.rows]
    foot = f"<tfoot>{_row(table.columns, table.total)}</tfoot>" if table.total else ""
    head = f"<thead><tr>{head}</tr></thead>" if any(column.heading for column in table.columns) else ""
    return f'<div class="table"><table>{head}<tbody>{"".join(rows)}</tbody>{foot}</table></div>'


def _row(columns: Sequence[TableColumn], row: Sequence[object]) -> str:
    cells = (_cell("td", column, value) for column, value in zip(columns, row, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(tag: str, column: TableColumn, value: object) -> str:
    kind = ' class="number" style="text-align:right"' if column.numeric else ' style="text-align:left"'
    if column.code and tag == "td":
        kind = ' class="code"' + kind
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return f"<{tag}{kind}>{escaped(text)}</{tag}>"


def _preformatted(lines: Sequence[str]) -> str:
    text = "\n".join(map(escaped, lines))
    return f"<pre>{text}</pre>" if text else ""
