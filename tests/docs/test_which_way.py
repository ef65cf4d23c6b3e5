"""docs/which-way.md and docs/slots.md: the shares on them are those of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import page, run_doctest

from rabbit_chx import Topology


def test_the_ways_of_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = re.findall(r"^```toml\n(.*?)^```$", page("docs/which-way.md"), re.DOTALL | re.MULTILINE)
    (tmp_path / "orders.toml").write_text(file)
    monkeypatch.chdir(tmp_path)
    run_doctest("docs/which-way.md")


def test_a_ring_becomes_slots() -> None:
    run_doctest("docs/slots.md")


def test_the_file_of_slots_is_read() -> None:
    (file,) = re.findall(r"^```toml\n(.*?)^```$", page("docs/slots.md"), re.DOTALL | re.MULTILINE)
    assert Topology.from_toml(file).exchanges[0].slots == 64
