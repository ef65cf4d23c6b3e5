"""Tables as text."""

from __future__ import annotations

from rabbit_chx.rendering import TableColumn, render_table


def test_text_is_folded_and_numbers_are_not() -> None:
    columns = (TableColumn("name", numeric=False), TableColumn("count"))
    text = render_table(columns, [("x" * 50, 1_000_000)], width=30)
    assert text.count("x") == 50
    assert "1,000,000" in text
    assert max(map(len, text.splitlines())) <= 30
