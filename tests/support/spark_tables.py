"""The tables of docs/spark.md, made from the code. ``python tests/support/spark_tables.py`` writes them anew."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from spark_connector.options.option_table import OPTIONS
from spark_connector.writing.columns import COLUMNS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
_MARKED = re.compile(r"(<!-- (columns|options): made from the code -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with its tables as the code says."""
    tables = {"columns": _columns(), "options": _options()}
    return _MARKED.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n{match[3]}", page)


def _columns() -> str:
    rows = (f"| `{column.name}` | {column.types} | {column.meaning} |" for column in COLUMNS)
    return "\n".join(["| column | type | |", "| --- | --- | --- |", *rows, ""])


def _options() -> str:
    lines: list[str] = []
    for group, options in groupby(OPTIONS, lambda option: option.group):
        lines += [f"### {group}", "", "| option | type | default | |", "| --- | --- | --- | --- |"]
        for option in options:
            default = "" if option.default is None else f"`{option.default}`"
            lines.append(f"| `{option.name}` | {option.kind.label} | {default} | {option.meaning} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
