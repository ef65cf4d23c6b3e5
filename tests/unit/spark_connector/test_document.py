"""docs/spark.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from spark_tables import PAGE, with_tables

from spark_connector.options.option_table import OPTIONS

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "run python tests/support/spark_tables.py"
    for option in OPTIONS:
        assert f"| `{option.name}` |" in page


def test_the_readme_promises_the_same_delivery() -> None:
    def promise(text: str) -> str:
        (found,) = re.findall(r"^> (A successful write .*?consumer\.)$", text, re.MULTILINE | re.DOTALL)
        return re.sub(r"\s+(> )?", " ", str(found))

    assert promise(README.read_text()) == promise(PAGE.read_text())
