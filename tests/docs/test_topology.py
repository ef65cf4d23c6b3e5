"""docs/topology.md: the files on it are read, and the answers are those of the library."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from blocks import ROOT, page, run_doctest

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/topology.md"
DEFINITIONS = ROOT / "tests/unit/topology/definitions/whole-4.3.6.json"


def files() -> list[str]:
    """Return the TOML blocks of the page."""
    return re.findall(r"^```toml\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)


def test_the_answers_are_those_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, mistakes, *_ = files()
    (tmp_path / "topology.toml").write_text(whole)
    (tmp_path / "mistakes.toml").write_text(mistakes)
    shutil.copy(DEFINITIONS, tmp_path / "definitions.json")
    monkeypatch.chdir(tmp_path)
    run_doctest(PAGE)


def test_the_files_are_read() -> None:
    whole, mistakes, *others = files()
    assert len(others) == 3
    for text in (whole, *others):
        Topology.from_toml(text)
    with pytest.raises(TopologyError):
        Topology.from_toml(mistakes)


def test_the_ranges_stand_for_what_the_page_says() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (.*) \|$", page(PAGE).partition("## Hash exchanges")[0], re.MULTILINE
    )
    said = {written: re.findall(r"`([^`]+)`", meaning) for written, meaning in rows}
    assert len(said) == 4
    for written, names in said.items():
        found = [queue.name for queue in Topology.from_toml(f'[[queues]]\nname = "{written}"').queues]
        if "10" in written:
            assert [found[0], found[1], found[-1], len(found)] == [*names, 10]
        else:
            assert found == names
