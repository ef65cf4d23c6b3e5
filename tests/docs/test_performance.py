"""docs/performance.md quotes figures that were measured."""

from __future__ import annotations

import re

from blocks import page

#: Where figures are measured, with their conditions.
MEASURED = "".join(
    page(path)
    for path in (
        "bench/README.md",
        "docs/spark/write.md",
        "docs/publish/bulk.md",
        "docs/reference/commands/predict.md",
    )
)


def test_each_figure_was_measured() -> None:
    text = page("docs/performance.md").replace("4.3.6", "").replace("4.0.5", "")
    figures = set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b|\b\d+\.\d+\b", text))
    assert figures
    assert {
        figure
        for figure in figures
        if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d,]|\.\d)", MEASURED)
    } == set()
