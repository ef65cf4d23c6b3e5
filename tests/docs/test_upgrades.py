"""docs/upgrades.md: the comparison is one."""

from __future__ import annotations

import re
from pathlib import Path

from blocks import console_examples, page, run_command

PAGE = "docs/upgrades.md"


def test_the_comparison_prints_the_output_of_the_page(tmp_path: Path) -> None:
    (topology,) = re.findall(r"^```toml\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)
    (tmp_path / "topology.toml").write_text(topology)
    ((command, printed),) = console_examples(page(PAGE))
    ran = run_command(command, 60, tmp_path)
    assert ran.stdout.decode() == printed, ran.stderr.decode()
