"""Tables of plain text."""

from __future__ import annotations

from spark_connector.reports import text_table_of


def test_numbers_are_on_the_right_but_in_the_first_column() -> None:
    rows = [("1", 1_000, 2.25, "a"), ("10", 7, 10.0, "bc")]
    assert text_table_of(("n", "rows", "s", "text"), rows).splitlines() == [
        " n    rows     s  text",
        " 1   1,000   2.2  a",
        " 10      7  10.0  bc",
    ]


def test_empty_headings_are_left_out() -> None:
    assert text_table_of(("", ""), [("rows", 5)]) == " rows  5"
