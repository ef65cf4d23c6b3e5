"""Results as pages, pieces of notebooks and SVG."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from pages import Page, check_alone, parsed_svg

from rabbit_chx.rendering import (
    Block,
    ConsoleOutput,
    Facts,
    Figure,
    Line,
    Lines,
    Section,
    Table,
    TableColumn,
    Verbatim,
    Ways,
)
from rabbit_chx.rendering.figures import (
    Bar,
    Bars,
    Drawing,
    HeatMap,
    Segment,
    Strip,
    StripRow,
    lightened,
    owners_rows,
    owners_strip,
)
from rabbit_chx.rendering.html import HtmlOutput, html_page, html_piece
from rabbit_chx.rendering.svg import Palette, SvgOutput, figures_svg, fitted

EVIL = "<script>alert('1')</script>\x1b[2J & \"x\""
COLUMNS = [TableColumn("queue", numeric=False, code=True), TableColumn("n")]


@dataclass(frozen=True, slots=True)
class Written:
    """A report of given blocks."""

    given: tuple[Block, ...]

    def blocks(self) -> Iterable[Block]:
        """The given."""
        return self.given

    def as_json(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def figure(drawing: Drawing, title: str = "A title", **more: bool) -> Figure:
    return Figure(title, "What to see.", drawing, Table(COLUMNS, [("q1", 1000)], ("all", 1)), **more)


DRAWINGS: list[Drawing] = [
    owners_strip(("before", [EVIL, "q1", None, None]), ("after", ["q1", "q1"])),
    owners_strip(("ring", [])),
    Strip([StripRow("keys", [Segment(f"q{n}", 1 / 300, "x") for n in range(300)], "note", loud=True)], None),
    HeatMap([EVIL, "b"], ["b", "c"], {(EVIL, "b"): 0.25, ("b", "b"): 0.5, ("b", "c"): 0.0001}),
    HeatMap([], [], {}, ","),
    Bars([Bar(EVIL, 1, EVIL, 0.5, EVIL), Bar("q", 0, "0")], "expected", (0.7, "max_share_moved")),
    Bars([]),
]


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_each_figure_is_an_svg_and_a_page_with_its_words_and_numbers(drawing: Drawing) -> None:
    stream = io.StringIO()
    SvgOutput(stream).show(Written((figure(drawing),)))
    root = parsed_svg(stream.getvalue())
    assert root.get("role") == "img"
    assert "A title" in "".join(root.itertext())
    assert "What to see." in "".join(root.itertext())
    page = Page(html_page("t", [figure(drawing)]))
    assert page.tables == [[["queue", "n"], ["q1", "1,000"], ["all", "1"]]]
    assert "What to see." in page.text
    assert len(page.named("svg")) == 3  # the patterns, a wide and a narrow one


def test_a_page_shows_every_block_and_nothing_of_a_name_is_a_tag() -> None:
    blocks: list[Block] = [
        Line(EVIL),
        Lines([EVIL]),
        Lines([]),
        Verbatim(f"a\n{EVIL}\n"),
        Facts([(EVIL, EVIL), ("", "more")]),
        Table(COLUMNS, [(EVIL, 1)]),
        Section(EVIL, [Line("in it")], folded=True),
        Section("open", [Section("deeper", [Line("deep")])]),
        Ways("ways", "words", [(EVIL, [Line("first")]), ("b", [figure(DRAWINGS[0])])]),
    ]
    stream = io.StringIO()
    HtmlOutput(stream, EVIL).show(Written(tuple(blocks)))
    page = Page(stream.getvalue())
    assert page.text.count("<script>alert('1')</script>\\x1b[2J") >= 10
    assert [tag for tag, _ in page.tags].count("script") == 0
    radios = page.named("input")
    assert [radio["name"] for radio in radios] == ["ways-1", "ways-1"]
    assert ["checked" in radio for radio in radios] == [True, False]
    assert [label["for"] for label in page.named("label")] == [radio["id"] for radio in radios]


def test_a_text_has_the_numbers_of_a_figure_once() -> None:

    ways = iter([("one", [Line("way")])])
    blocks = (figure(DRAWINGS[0]), figure(DRAWINGS[0], page_only=True), Ways("ways", "words", ways))
    stream = io.StringIO()
    ConsoleOutput(stream, 80).show(Written(blocks))
    assert stream.getvalue().count("1,000") == 1
    assert list(ways)  # nobody asked for them


def test_a_piece_for_a_notebook_has_images_and_no_style_sheet() -> None:
    piece = html_piece([Facts([("a", "b")]), figure(DRAWINGS[0]), Ways("w", "x", [("one", [Line("y")])])])
    page = Page(piece)
    (image,) = page.named("img")
    assert image["alt"] == "A title: What to see."
    assert page.tables[0] == [["a", "b"]]
    assert not {"style", "svg", "script", "input"} & {tag for tag, _ in page.tags}
    parsed_svg(base64.b64decode(str(image["src"]).partition(",")[2]).decode())


def test_many_buckets_fold_into_cells_that_say_how_many() -> None:
    owners = [f"q{n}" for n in range(5000)]
    drawn = figures_svg([figure(owners_strip(("before", owners), ("after", owners[1:])))], Palette(), 880)
    assert len(drawn) < 120_000
    assert "Each cell is 23 buckets" in drawn
    assert re.search(r"and 4,9\d\d more", drawn)
    parsed_svg(drawn)


def test_a_large_matrix_keeps_its_sum() -> None:
    names = [f"q{n}" for n in range(200)]
    amounts = {
        (a, b): (n + 1) / 1e5 for n, (a, b) in enumerate(zip(names, [*names[1:], names[0]], strict=True))
    }
    heat = lightened(HeatMap(names, names, amounts), 12)
    assert (len(heat.rows), len(heat.columns)) == (12, 12)
    assert heat.rows[-1] == "189 others"
    assert sum(heat.amounts.values()) == pytest.approx(sum(amounts.values()))
    assert heat.amounts["q199", "q0"] == amounts["q199", "q0"]


def test_the_numbers_of_a_strip_are_its_buckets() -> None:
    strip = owners_strip(("before", ["a", "a", None, "b"]), ("after", ["a", "b"]))
    assert owners_rows(strip) == [
        ("a", "2 (0-1)", "1 (0)"),
        ("(nobody)", "1 (2)", ""),
        ("b", "1 (3)", "1 (1)"),
    ]
    assert [segment.marked for segment in strip.rows[1].segments] == [False, True]


def test_a_destination_keeps_its_colour_and_no_two_of_forty_are_alike() -> None:
    palette = Palette()
    colours = [palette.of(f"q{n}") for n in range(40)]
    assert len(set(colours)) == 40
    assert palette.of("q3") == colours[3]


def test_colours_of_a_dark_page_are_in_the_svg_itself() -> None:
    drawn = figures_svg([figure(DRAWINGS[0])], Palette(), 880, alone=True)
    assert "prefers-color-scheme:dark" in drawn
    fixed = figures_svg([figure(DRAWINGS[0])], Palette(), 880, alone=True, theme="dark")
    assert "prefers-color-scheme" not in fixed
    assert "#0d1117" in fixed
    assert not re.search(r' class="', fixed)


def test_a_long_name_keeps_both_ends() -> None:
    text = fitted("orders." + "x" * 300 + ".17", 100, 12)
    assert text.startswith("order")
    assert text.endswith("x.17")
    assert fitted("short", 100, 12) == "short"


def test_without_a_figure_an_svg_says_so() -> None:
    stream = io.StringIO()
    SvgOutput(stream).show(Written((Line("x"),)))
    assert "no figure" in "".join(parsed_svg(stream.getvalue()).itertext())
    for output in (SvgOutput(io.StringIO()), HtmlOutput(io.StringIO())):
        with pytest.raises(TypeError):
            output.show_each([])
    check_alone(html_page("t", []))


def test_a_legend_without_room_for_all_names_who_comes() -> None:
    strip = owners_strip(
        ("before", [f"orders.eu-west.{n}" for n in range(80)]), ("after", ["orders.eu-west.0"] * 79 + ["new"])
    )
    drawn = figures_svg([figure(strip)], Palette(), 880, alone=True)
    legend = drawn[drawn.index("another owner") :]
    assert ">new<" in legend
    assert "orders.eu-west.79<" not in legend
