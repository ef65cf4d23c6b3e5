"""Pictures of rings and movements say what the values say."""

from __future__ import annotations

import pytest

from rabbit_chx import ExchangeRef, HashRing, SlotTable
from rabbit_chx.analysis import movement
from rabbit_chx.analysis.reports import draw_map, draw_movement, draw_slots
from rabbit_chx.rendering.document import Bars, Strip

RING = HashRing.from_buckets(["a", "b", None, "b"])


def test_a_ring_is_drawn_with_its_holes_and_exact_shares() -> None:
    strip, bars = draw_map(RING, {"a": 0.75})
    assert isinstance(strip, Strip)
    assert strip.places == ["a", "b", "", "b"]
    assert isinstance(bars, Bars)
    assert {bar.name: bar.share for bar in bars.bars} == {
        place or "": s for place, s in RING.shares().items()
    }
    assert [bar.share for bar in bars.bars] == sorted((bar.share for bar in bars.bars), reverse=True)
    assert {bar.name: bar.real for bar in bars.bars} == {"a": 0.75, "b": 0.0, "": 0.0}


def test_slots_are_drawn_as_their_queues() -> None:
    slots = [ExchangeRef(f"s{n}") for n in range(3)]
    table = SlotTable(HashRing.from_bindings([(slot, 1) for slot in slots]), {slots[0]: "a", slots[2]: "b"})
    strip, _ = draw_map(table)
    assert isinstance(strip, Strip)
    assert strip.places == ["a", "", "b"]
    assert [(cell.name, cell.depth) for cell in draw_slots(table).cells] == [
        ("a", None),
        ("", None),
        ("b", None),
    ]
    loaded = draw_slots(table, {slots[0]: 2.0, slots[2]: 4.0})
    assert [cell.depth for cell in loaded.cells] == [0.5, 0.0, 1.0]


def test_flows_add_up_and_move_what_the_matrix_moves() -> None:
    before = HashRing.from_bindings([(f"q{n}", 1) for n in range(5)])
    matrix = movement(before, before.unbind("q2"))
    flows = draw_movement(matrix)
    assert sum(flows.amounts.values()) == pytest.approx(1)
    moved = sum(share for (source, target), share in flows.amounts.items() if source != target)
    assert moved == pytest.approx(matrix.moved)
    assert flows.headline[1] == "of all keys move"


def test_of_more_flows_than_one_can_follow_only_the_share_is_shown() -> None:
    before = HashRing.from_bindings([(f"q{n}", 1) for n in range(60)])
    flows = draw_movement(movement(before, before.unbind("q2")))
    assert (flows.amounts, flows.headline[1]) == ({}, "of all keys move")


def test_a_ring_whose_order_is_not_known_is_not_drawn() -> None:
    assert draw_map(HashRing.unordered([("a", 1), ("b", 1)])) == ()
