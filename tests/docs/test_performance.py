"""docs/performance.md quotes figures that were measured; docs/choose.md those that are computed."""

from __future__ import annotations

import re

import pytest
from blocks import console_examples, page, run_command

#: Where figures are measured, with their conditions.
MEASURED = "".join(
    page(path)
    for path in (
        "bench/README.md",
        "docs/spark.md",
        "docs/publishing.md",
        "docs/commands/consumers-and-streams.md",
    )
)
COMPUTED = console_examples(page("docs/choose.md"))


def test_each_figure_was_measured() -> None:
    text = page("docs/performance.md").replace("4.3.6", "").replace("4.0.5", "")
    figures = set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b|\b\d+\.\d+\b", text))
    assert len(figures) >= 28
    assert {
        figure
        for figure in figures
        if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d,]|\.\d)", MEASURED)
    } == set()


@pytest.mark.parametrize(("command", "printed"), COMPUTED, ids=[command[:70] for command, _ in COMPUTED])
def test_what_one_more_queue_moves(command: str, printed: str) -> None:
    assert run_command(command, 60).stdout.decode() == printed
