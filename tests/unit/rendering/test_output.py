"""The renderers: what people read, and what programs read."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from given_report import console_text

from rabbit_chx.rendering import output
from rabbit_chx.rendering.document import (
    Batch,
    Block,
    Document,
    Facts,
    Line,
    Lines,
    Table,
    TableColumn,
    cell_width,
)
from rabbit_chx.rendering.output import FORMATS, ConsoleOutput, JsonOutput, Output

NARROW = Table([TableColumn("way", numeric=False)], [("short",)])
WIDE = Table([TableColumn("a" * 30), TableColumn("b" * 30)], [(1, 2)], (1000, 2), narrow=NARROW)


def console(width: int, *blocks: Block) -> str:
    return console_text(Document("given", blocks), width)


def test_wide_characters_are_two_columns_of_a_line() -> None:
    for block in (Facts([("\u65e5\u672c", "\u672c\u672c " * 9), ("n", "x")]), Line("\u672c\u672c " * 20)):
        lines = console(30, block).splitlines()
        assert max(map(cell_width, lines)) <= 30
        assert {line.count("\u672c") % 2 for line in lines[1:]} == {0}
    assert console(80, Facts([("\u65e5", "a"), ("n", "b")])) == "\u65e5  a\nn   b\n"


def test_verbatim_lines_are_never_broken() -> None:
    assert console(20, Lines(["x " * 40])) == "x " * 40 + "\n"
    copied = Lines(["Apply it with: `rabbit-chx apply 'my f'`", "see `f`"])
    assert console(20, copied) == "Apply it with: rabbit-chx apply 'my f'\nsee `f`\n"


def test_a_table_gives_way_to_its_narrow_form() -> None:
    assert "1,000" in console(80, WIDE)
    assert console(50, WIDE).split() == ["way", "─────", "short"]


@pytest.mark.parametrize("columns", [None, "", "0", "-1", "wide", "40", "80", "150"])
def test_a_file_is_as_wide_as_the_variable_columns_or_a_page(
    columns: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a width, a table is not folded, but it has its narrow form if it is wider than a page."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    width = int(columns) if columns in ("40", "80", "150") else None
    long = Table([TableColumn("name", numeric=False), TableColumn("count")], [("long name " * 30, 1)])
    wide = Table([TableColumn("a" * 50), TableColumn("b" * 50)], [(1, 2)], narrow=NARROW)
    stream = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr("sys.__stdout__", stream)  # not a terminal
        ConsoleOutput(stream).show(
            Document("given", (Line("word " * 40), Facts([("name", "fact " * 40)]), long, wide))
        )
    line, facts, tables = (max(map(len, text.splitlines())) for text in stream.getvalue().split("\n\n", 2))
    page = width or 100
    assert page - 10 <= min(line, facts) <= max(line, facts) <= page
    assert page - 10 <= tables <= page if width else tables > 200
    assert ("short" in stream.getvalue().split()) == (columns != "150")


COMMAND = "rabbit-chx apply 'my file.toml' --allow moved=0.3 --url amqp://a-long-name.of-a-host.example:5672/vhost --yes"


@pytest.mark.parametrize("block", [Line, lambda text: Facts([("fix", text)])], ids=["line", "fact"])
@pytest.mark.parametrize("width", [40, 100])
def test_sentences_are_folded_and_a_command_is_alone_on_its_line(
    block: Callable[[str], Line | Facts], width: int
) -> None:
    text = f"the ring differs from that of the file, {'word ' * 40}so run: `{COMMAND}`; or rabbitmqctl list_queues, and look"
    shown = console(width, block(text))
    lines = shown.splitlines()
    assert [line.removeprefix("fix ").strip() for line in lines].count(COMMAND) == 1
    assert sum("rabbitmqctl list_queues" in line for line in lines) == 1
    assert max(len(line) for line in lines if "rabbit-chx" not in line) <= width
    assert " ".join(shown.split()).removeprefix("fix ") == text.replace("`", "").replace("--yes;", "--yes")
    spans = f"those of the broker (`{COMMAND}`) and `--all` (`whole=True`) and `f`"
    assert " ".join(console(width, block(spans)).split()).removeprefix("fix ") == spans


def test_what_the_stream_lacks_is_escaped_before_it_is_measured() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    columns = (TableColumn("näme", numeric=False), TableColumn("count"))
    ConsoleOutput(stream, 80).show(
        Document("given", (Table(columns, [("ü", 1), ("a", 2)]), Facts([("name", "ß")]), Line("é")))
    )
    stream.seek(0)
    lines = stream.read().splitlines()
    assert [line.rstrip() for line in lines[:4]] == [
        " n\\xe4me   count",
        " ---------------",
        " \\xfc          1",
        " a             2",
    ]
    assert lines[-3:] == ["name  \\xdf", "", "\\xe9"]


def test_json_is_one_document_or_one_on_each_line_and_records_are_lines() -> None:
    stream = io.StringIO()
    columns = (TableColumn("é", numeric=False), TableColumn("to"))
    batch = Batch("b", Table(columns, [("a\t|", 1000), ("c", "-")]), [{"é": "a\t|"}, {"é": "c"}])
    head = '{"format": "rabbit-chx/b", "format_version": 1, "é": '
    JsonOutput(stream).show(Document("a", [Line("x")], {"é": 0}))
    JsonOutput(stream).show_each(batch)
    ConsoleOutput(stream).show_each(batch)
    assert stream.getvalue() == (
        '{\n  "format": "rabbit-chx/a",\n  "format_version": 1,\n  "é": 0\n}\n'
        f'{head}"a\\t|"}}\n{head}"c"}}\na\\t|\t1000\nc\t-\n'
    )
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    JsonOutput(narrow).show_each(Batch("b", Table(columns, [("x", 1)]), [{"é": "x"}]))
    narrow.seek(0)
    assert '"\\u00e9": "x"' in narrow.read(), "escaped where the stream lacks characters"


def test_each_form_can_be_chosen_and_is_on_the_page() -> None:
    forms = {form for form in vars(output).values() if isinstance(form, type) and issubclass(form, Output)}
    assert forms - {Output} == {*FORMATS.values()}, "add it to FORMATS in rabbit_chx/rendering/output.py"
    page = Path(output.__file__).parents[2] / "docs/reference/commands/README.md"
    words = re.findall(r"[a-z]+", page.read_text(encoding="utf-8"))
    assert {*FORMATS} - {*words} == set(), "name it in docs/reference/commands/README.md, Output"
