"""Tables as text."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from rabbit_chx.rendering import TableColumn, render_table, table


def test_text_is_folded_and_numbers_are_not() -> None:
    columns = (TableColumn("name", numeric=False), TableColumn("count"))
    text = render_table(columns, [("x" * 50, 1_000_000)], width=30)
    assert text.count("x") == 50
    assert "1,000,000" in text
    assert max(map(len, text.splitlines())) <= 30


CELLS = [0, 1_234_567, 0.5, "", "q1", "a b\tc ", " lead", "x" * 12]


@pytest.mark.parametrize("seed", range(60))
def test_a_table_of_ascii_is_as_rich_has_it(seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311  # no secret
    count = choice.randint(1, 5)
    columns = [
        TableColumn("heading "[: choice.randint(0, 8)], numeric=choice.random() < 0.5) for _ in range(count)
    ]
    rows = [[choice.choice(CELLS) for _ in columns] for _ in range(choice.randint(0, 4))]
    total = [choice.choice(CELLS) for _ in columns] if choice.random() < 0.3 else ()
    for encoding in ("utf-8", "ascii"):
        for width in (20, 40, table.WIDE):
            plain = render_table(columns, rows, total, width=width, encoding=encoding)
            measured = table.table_width(columns, rows, total, encoding)
            with patch.object(table, "_plain_lines", lambda *_: None):
                assert plain == render_table(columns, rows, total, width=width, encoding=encoding)
                assert measured == table.table_width(columns, rows, total, encoding)
