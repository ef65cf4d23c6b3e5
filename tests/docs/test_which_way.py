"""docs/which-way.md and docs/slots.md: the shares on them are those of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import page, run_doctest
from slot_files import live_of

from rabbit_chx import Topology
from rabbit_chx.analysis.wording import percent
from rabbit_chx.topology import plan


def test_the_ways_of_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = re.findall(r"^```toml\n(.*?)^```$", page("docs/which-way.md"), re.DOTALL | re.MULTILINE)
    (tmp_path / "orders.toml").write_text(file)
    monkeypatch.chdir(tmp_path)
    run_doctest("docs/which-way.md")


def test_a_ring_becomes_slots() -> None:
    run_doctest("docs/slots.md")


def test_the_file_of_slots_is_read() -> None:
    file, without_slots = re.findall(r"^```toml\n(.*?)^```$", page("docs/slots.md"), re.DOTALL | re.MULTILINE)
    assert Topology.from_toml(file).exchanges[0].slots == 64
    live = live_of(Topology.from_toml(file.replace("slots = 64", "slots = 8")))
    wanted = Topology.from_toml(f'{without_slots}[[queues]]\nname = "events.{{1..4}}"\ntype = "quorum"\n')
    made = plan(wanted, live)
    ring = made.rings["events"]
    assert (ring.moved, ring.lost_at_worst, percent(ring.moved_at_worst)) == (0.0, 0.0, "74.993%")
    told = [str(change) for change in made.changes]
    assert {"delete exchange events.slot.00", "delete queue events.park"} <= set(told)
    assert {refusal.allow_with for refusal in made.refusals} == {"--allow-delete"}
