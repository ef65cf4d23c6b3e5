"""examples/README.md shows what the programs print."""

from __future__ import annotations

import pytest
from blocks import ROOT, example, page

from rabbit_chx import ConsistentHashExchange, HashRing

PAGE = page("examples/README.md")


def test_the_table_is_that_of_a_hundred_thousand_messages(capsys: pytest.CaptureFixture[str]) -> None:
    readme = example("plugin_readme")
    members = readme.TOPOLOGY.exchange("by-key").ring
    exchange = ConsistentHashExchange(
        "by-key", HashRing.from_bindings([member.binding for member in members])
    )
    counts = exchange.counts([f"value-{number}" for number in range(100_000)])
    assert readme.compared(exchange.ring, counts, counts)
    assert capsys.readouterr().out in PAGE
    assert not readme.compared(
        exchange.ring, counts, dict(zip(counts, [*counts.values()][::-1], strict=True))
    )


def test_every_program_is_on_the_page() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py") if "__main__" in path.read_text()}
    assert {name for name in programs if f"]({name})" not in PAGE} == set()
