"""`print(plan)`: counts, shares, refusals and what allows them."""

from __future__ import annotations

import pytest
from slot_files import live_of, slotted

from rabbit_chx import Topology
from rabbit_chx.topology import plan

FILE = """
max_share_moved = 0.1
owns = ["q*"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q{1..3}" }]
[[queues]]
name = "q{1..3}"
"""
WANTED = Topology.from_toml(FILE)


@pytest.mark.all_seeds
def test_a_plan_is_shown_in_a_few_lines() -> None:
    there = live_of(WANTED)
    fewer = Topology.from_toml(FILE.replace("{1..3}", "{2..3}"))
    made = plan(fewer, there)
    moved = made.rings["orders"]
    assert str(made).splitlines() == [
        "changes     1 binding removed, 1 queue deleted",
        f"moves       orders: {moved.moved:.3%} of the keys in the end, {moved.moved_at_worst:.3%} at the peak",
        *(f"refused     {refusal}" for refusal in made.refusals),
        f"checksum    {made.checksum}",
    ]
    assert [str(refusal.override) for refusal in made.refusals] == ["allow_moved=0.8335", "allow_delete=True"]
    assert str(made.refusals[1]).endswith("or allow it with allow_delete=True")


def test_slots_are_counted_by_queue() -> None:
    three = slotted(8, '[{ queue = "events.{1..3}" }]')
    four = slotted(8, '[{ queue = "events.{1..4}" }]')
    lines = str(plan(four, live_of(three))).splitlines()
    assert lines[0] == "changes     2 bindings removed, 2 bindings made"
    assert "of the keys in the end" in lines[1]
    assert lines[2:4] == [
        "slot        events.slot.02: events.1 -> events.4",
        "slot        events.slot.05: events.2 -> events.4",
    ]


def test_of_many_slots_that_change_hands_the_first_are_named() -> None:
    first, second = (slotted(32, f'[{{ queue = "events.{n}" }}]') for n in (1, 2))
    lines = str(plan(second, live_of(first))).splitlines()
    assert lines[2:13] == [
        *(f"slot        events.slot.{n:02d}: events.1 -> events.2" for n in range(10)),
        "slot        22 more",
    ]
