"""docs/upgrades.md: the comparison is one, and the answers are those of the library."""

from __future__ import annotations

import re
from pathlib import Path

from blocks import console_examples, page, run_command, run_doctest

PAGE = "docs/upgrades.md"


def test_the_answers_are_those_of_the_library() -> None:
    run_doctest(PAGE)


def test_the_comparison_prints_the_output_of_the_page(tmp_path: Path) -> None:
    (topology,) = re.findall(r"^```toml\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)
    (tmp_path / "topology.toml").write_text(topology)
    ((command, printed),) = console_examples(page(PAGE))
    ran = run_command(command, 60, tmp_path)
    assert ran.stdout.decode() == printed, ran.stderr.decode()
