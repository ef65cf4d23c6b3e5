"""Tables as text."""

from __future__ import annotations

from rabbit_chx.rendering.document import TableColumn, cell_width, render_table, table_width


def test_text_is_folded_and_numbers_are_not() -> None:
    columns = (TableColumn("name", numeric=False), TableColumn("count"))
    text = render_table(columns, [("x" * 50, 1_000_000)], width=30)
    assert text.count("x") == 50
    assert "1,000,000" in text
    assert max(map(len, text.splitlines())) <= 30


def test_wide_and_combining_characters_keep_the_columns_straight() -> None:
    columns = (TableColumn("key", numeric=False), TableColumn("n"))
    text = render_table(columns, [("\u65e5\u672c", 1), ("e\u0301e", 2), ("abcd", 3)], total=("", 6))
    assert {cell_width(line) for line in text.splitlines()} == {9}
    assert table_width(columns, [("\u65e5\u672c", 1)]) == 10
