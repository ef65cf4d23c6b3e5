"""examples/README.md shows what the programs print."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

import pytest
from blocks import ROOT, page

from rabbit_chx import ConsistentHashExchange, HashRing

PAGE = page("examples/README.md")


def example(name: str) -> Any:
    if str(ROOT / "examples") not in sys.path:
        sys.path.insert(0, str(ROOT / "examples"))
    return import_module(name)


def test_the_table_is_that_of_a_hundred_thousand_messages(capsys: pytest.CaptureFixture[str]) -> None:
    readme = example("plugin_readme")
    members = readme.TOPOLOGY.exchange("by-key").ring
    exchange = ConsistentHashExchange(
        "by-key", HashRing.from_bindings([member.binding for member in members])
    )
    counts = exchange.counts([f"value-{number}" for number in range(100_000)])
    assert readme.compared(exchange.ring, counts, counts)
    assert capsys.readouterr().out in PAGE


def test_the_plans_are_those_of_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    change = example("topology_change_under_load")
    from rabbit_chx.topology import plan

    before = change.read_file(change.BEFORE)
    live = before.with_rings({"orders": HashRing.from_buckets(["orders.1"])})
    for file in (change.AFTER, change.WITHOUT_GAP):
        change.show_plan(file, plan(change.read_file(file), live))
        assert capsys.readouterr().out.strip() in PAGE


def test_the_sums_of_the_account_are_right() -> None:
    rows = re.findall(r"^ (?:before|bind|unbind) .*? ([\d,]+) +([\d,]+)$", PAGE, re.MULTILINE)
    numbers = [tuple(int(cell.replace(",", "")) for cell in row) for row in rows]
    sums = re.findall(r"^sent ([\d,]+) = confirmed ([\d,]+) \+ returned ([\d,]+)$", PAGE, re.MULTILINE)
    assert len(numbers) == 10
    for at, sent in zip((0, 5), sums, strict=True):
        queued, returned = map(sum, zip(*numbers[at : at + 5], strict=True))
        assert tuple(int(number.replace(",", "")) for number in sent) == (queued + returned, queued, returned)


def test_every_program_is_on_the_page() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py") if "__main__" in path.read_text()}
    assert {name for name in programs if f"]({name})" not in PAGE} == set()
