"""Results as Markdown."""

from __future__ import annotations

import io

import pytest
from readme_renderer import markdown

from rabbit_chx.rendering.document import (
    Batch,
    Block,
    Document,
    Facts,
    Line,
    Lines,
    Section,
    Table,
    TableColumn,
    Verbatim,
)
from rabbit_chx.rendering.output import MarkdownOutput


def page(*blocks: Block) -> str:
    stream = io.StringIO()
    MarkdownOutput(stream).show(Document("given", blocks))
    return stream.getvalue()


def test_blocks_stand_apart() -> None:
    facts = Facts([("a", "x"), ("", "y"), ("b", "z")])
    assert page(Line("one"), facts, Lines(["l", "m"]), Lines([])) == (
        "one\n\n- **a**: x\n  <br>y\n- **b**: z\n\n```\nl\nm\n```\n"
    )


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a | b", "a \\| b"),
        ("`x` *y* [z](w) <br> ~s~ $1$", "\\`x\\` \\*y\\* \\[z\\](w) \\<br> \\~s\\~ \\$1\\$"),
        ("a\\b &amp;", "a\\\\b &amp;amp;"),
        ("_all_ max_share_moved __x__", "\\_all\\_ max_share_moved \\_\\_x\\_\\_"),
        ("two\nlines\x1b[2J", "two\\\\nlines\\\\x1b\\[2J"),
        ("@ops rabbit@prod #12 key #", "@<!-- -->ops rabbit@prod #<!-- -->12 key #"),
        ("# no heading", "\\# no heading"),
        ("1. no list", "1\\. no list"),
        ("- no list", "\\- no list"),
    ],
)
def test_text_is_shown_as_it_is(text: str, escaped: str) -> None:
    assert page(Line(text)) == f"{escaped}\n"


def test_a_table_has_its_numbers_to_the_right_and_names_as_code() -> None:
    columns = [TableColumn("a|b", numeric=False, code=True), TableColumn("n")]
    rows = [("x|y", 1000), ("`", 2), ("", 3), ("end\\", 4), ("``a`` b", 5), ("l\nm", 6)]
    assert page(Table(columns, rows, ("", 21))).splitlines() == [
        "| a\\|b | n |",
        "| --- | ---: |",
        "| `x\\|y` | 1,000 |",
        "| `` ` `` | 2 |",
        "|  | 3 |",
        "| `end\\` | 4 |",
        "| ``` ``a`` b ``` | 5 |",
        "| `l\\nm` | 6 |",
        "|  | **21** |",
    ]


def test_sections_are_headings_or_unfold() -> None:
    inner = Section("deeper", [Line("x")])
    assert page(Section("a_b <c>", [Line("one"), inner])) == "### a_b \\<c>\n\none\n\n#### deeper\n\nx\n"
    assert page(Section("long", [Line("one")], folded=True)) == (
        "<details>\n<summary>long</summary>\n\none\n\n</details>\n"
    )


def test_the_text_of_a_file_is_fenced() -> None:
    assert page(Verbatim("a = 1\n```\n")) == "````\na = 1\n```\n````\n"


def test_lists_in_a_row_stay_apart() -> None:
    facts = Facts([("a", "x")])
    shown = str(markdown.render(page(facts, facts, Section("b", [facts, facts]))))
    assert shown.count("<ul>") == 4


def test_a_line_stays_one_line_and_nothing_is_written_for_nothing() -> None:
    assert page(Lines(["a\nb"])) == "```\na\\nb\n```\n"
    assert page() == page(Lines([])) == ""


def test_records_are_one_table_whose_headings_are_the_names_of_the_fields() -> None:
    stream = io.StringIO()
    output = MarkdownOutput(stream)
    columns = [TableColumn(heading, numeric=False) for heading in ("key", "to")]
    for _ in range(2):
        output.show_each(Batch("b", Table(columns, [("a\t|", "*b*")])))
    row = "| a\\\\t\\| | \\*b\\* |"
    assert stream.getvalue().splitlines() == ["| key | to |", "| --- | --- |", row, row]
