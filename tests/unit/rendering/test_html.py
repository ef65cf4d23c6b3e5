"""A document as a page: no text becomes markup, and each block has its element."""

from __future__ import annotations

import io
import re

import pytest

from rabbit_chx.rendering.document import (
    MOST_BARS,
    Bar,
    Bars,
    Batch,
    Block,
    Cell,
    Document,
    Facts,
    Flows,
    Grid,
    Line,
    Lines,
    Picture,
    Section,
    Strip,
    Table,
    TableColumn,
    Verbatim,
)
from rabbit_chx.rendering.output import HtmlOutput

HOSTILE = "<script>alert('x')</script>\"'&{{ 7*7 }}"


def page(*blocks: Block) -> str:
    stream = io.StringIO()
    HtmlOutput(stream).show(Document("given", blocks))
    return stream.getvalue()


def body(*blocks: Block) -> str:
    """The page after its heading, with single blanks."""
    return " ".join(page(*blocks).partition("</defs></svg>")[2].split())


def drawn(*pictures: Picture, name: str = "a") -> str:
    columns = [TableColumn("name", numeric=False)]
    return body(Table(columns, [(name,)], pictures=lambda: pictures))


def test_the_page_needs_nothing_else() -> None:
    text = page(Line("one"))
    assert text.startswith("<!doctype html>")
    assert "<script" not in text
    assert re.findall(r"""(?:href|src)=|url\((?!#)|@import""", text) == []


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (Line("one"), "<p>one</p>"),
        (Lines(["l", "m"]), '<p class="line">l</p> <p class="line">m</p>'),
        (Facts([("a", "x"), ("", "y")]), "<dl> <dt>a</dt><dd>x</dd> <dd>y</dd> </dl>"),
        (Verbatim("a\n  b"), "<pre>a b</pre>"),
        (Section("s", [Section("t", [Line("x")])]), "<h2>s</h2> <section> <h3>t</h3> <p>x</p>"),
        (Section("s", [Line("x")], folded=True), "<details><summary>s</summary> <p>x</p> </details>"),
        (
            Line("repair it: `rabbit-chx repair orders`; then look"),
            'repair it: <code class="command">rabbit-chx repair orders</code>; then look',
        ),
    ],
)
def test_each_block_has_its_element(block: Block, shown: str) -> None:
    assert shown in body(block)


def test_a_table_has_headings_numbers_and_sums() -> None:
    columns = [TableColumn("name", numeric=False, code=True), TableColumn("n")]
    text = body(Table(columns, [("q1", 1000), ("", 2)], ("", 1002)))
    assert '<th scope="col">name</th><th scope="col" class="number">n</th>' in text
    assert '<td data-label="name"><code>q1</code></td> <td data-label="n" class="number">1,000</td>' in text
    assert '<tfoot><tr> <td data-label="name"></td><td data-label="n" class="number">1,002</td>' in text


def test_no_name_becomes_markup() -> None:
    columns = [TableColumn(HOSTILE, numeric=False)]
    pictures: list[Picture] = [
        Strip(HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}),
        Bars(HOSTILE, [Bar(HOSTILE, 1.0, 1.0)]),
        Flows(HOSTILE, ("1%", HOSTILE), {(HOSTILE, "a"): 1.0}),
        Grid(HOSTILE, [Cell(HOSTILE, HOSTILE)]),
    ]
    text = page(
        Line(HOSTILE),
        Lines([HOSTILE]),
        Facts([(HOSTILE, HOSTILE)]),
        Section(HOSTILE, [Verbatim(HOSTILE)], folded=True),
        Section(HOSTILE, []),
        Table(columns, [(HOSTILE,)], (HOSTILE,), pictures=lambda: pictures),
    )
    assert "<script" not in text
    assert "49" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert text.count("&lt;script&gt;") > 15
    assert "alert('x')</script>\"" not in text


def test_control_characters_are_escaped() -> None:
    assert "a\\x1b[2Jb" in body(Line("a\x1b[2Jb"))


def test_a_strip_joins_neighbours_and_hatches_holes() -> None:
    text = drawn(Strip("ring", ["a", "a", "", "b"], {"a": "50%"}))
    assert '<rect class="c0" x="0" width="2" height="1"><title>a: buckets 0 to 1; 50%</title></rect>' in text
    assert (
        '<rect class="hole" x="2" width="1" height="1"><title>no destination: buckets 2 to 2</title>' in text
    )
    assert '<rect class="c1" x="3" width="1"' in text


def test_one_name_has_one_colour_in_all_pictures_and_in_the_table() -> None:
    text = drawn(
        Strip("ring", ["b", "a"], {}), Grid("slots", [Cell("s0", "a")]), Bars("share", [Bar("a", 1, 1)])
    )
    assert "<title>s0: a</title>" in text
    colours = re.findall(r'class="(c[0-9]+|hole)"', text)
    assert set(colours[-3:]) == {"c1"}


def test_bars_are_as_wide_as_their_shares_and_bounded() -> None:
    text = drawn(Bars("share", [Bar("a", 0.5, 0.25, 0.1), Bar("b", 0.0, 0.25)]))
    assert 'width="996.0" height="4"' in text
    assert 'class="tick" d="M498.0 0v10"' in text
    assert "50.000% of the keys, ideal 25.000%, 10.000% of the traffic" in text
    many = drawn(Bars("share", [Bar(f"q{n}", 0.1, 0.1) for n in range(MOST_BARS + 5)]))
    assert many.count('class="tick"') == MOST_BARS
    assert "The table has 5 more." in many


def test_flows_show_what_moves_and_what_stays() -> None:
    text = drawn(Flows("movement", ("25%", "of all keys move"), {("a", "a"): 0.75, ("a", "b"): 0.25}))
    assert "<strong>25%</strong> of all keys move" in text
    assert text.count("<path") == 2
    assert "a to b: 25.000%" in text
    assert 'class="c1 moves"' in text
    assert 'class="c0 stays"' in text


def test_flows_that_nobody_could_follow_are_a_number_and_a_list() -> None:
    text = drawn(Flows("movement", ("100%", "of all keys move"), {}))
    assert "<strong>100%</strong> of all keys move" in text
    assert "<path" not in text


def test_a_table_with_pictures_and_rows_that_are_left_out_are_folded() -> None:
    columns = [TableColumn("key", numeric=False)]
    table = Table(columns, [("k1",)], whole=Table(columns, [("k1",), ("k2",)]))
    text = body(table, Line("and 1 more key", of_rest=True))
    assert "<summary>2 rows: key</summary>" in text
    assert text.count("k2") == 1
    assert "more key" not in text
    assert "<summary>1 row: name</summary>" in drawn(Grid("slots", []))


def test_a_page_is_called_after_its_subject_and_begins_with_a_sentence() -> None:
    stream = io.StringIO()
    HtmlOutput(stream).show(Document("given", [], title=HOSTILE, about="rabbit:5672, today", lead="It is."))
    text = stream.getvalue()
    assert text.count("&lt;script&gt;") == 2
    assert '<p class="state">rabbit:5672, today</p>' in text
    assert '<p class="lead">It is.</p>' in text.replace("\n", "")


def test_a_grid_shows_the_load_as_depth() -> None:
    text = drawn(Grid("slots", [Cell("s0", "a", 1.0), Cell("s1", "a", 0.0), Cell("s2", "")]))
    assert re.findall(r'fill-opacity="([0-9.]+)"', text) == ["1.0", "0.25", "1"]
    assert "s2: no queue" in text


def test_incremental_results_have_no_page() -> None:
    with pytest.raises(TypeError, match="rows has no such form"):
        HtmlOutput(io.StringIO()).show_each(Batch("rows", Table([], [])))


def test_what_is_typed_is_marked_without_its_backticks() -> None:
    shown = body(Line("run `rabbit-chx plan f` (`plan(a, b)`) or pass `--all`; see rabbit-chx check and `f`"))
    marked = '<code class="command">rabbit-chx plan f</code> (<code>plan(a, b)</code>)'
    assert f"<p>run {marked} or pass <code>--all</code>; see rabbit-chx check and `f`</p>" in shown
