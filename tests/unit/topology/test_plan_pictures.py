"""Each way to a ring is drawn with a ring that moves what the plan says, and a check with what it found."""

from __future__ import annotations

import pytest
from pages import Page
from plan_scenarios import SCENARIOS

from rabbit_chx import ExchangeRef, HashRing, Topology
from rabbit_chx.analysis import Finding
from rabbit_chx.rendering.figures import Bars, Strip
from rabbit_chx.rendering.html import html_page
from rabbit_chx.topology import plan
from rabbit_chx.topology.pictures import checked_rings, moved_figure, ring_figures, share_allowed, way_rings

FILE = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{}]\n[[queues]]\nname = "q{{1..3}}"\n'
GROWING = (
    Topology.from_toml(FILE.format('{ queue = "q{1..3}", weight = 20 }')),
    Topology.from_toml(FILE.format('{ queue = "q{1..2}", weight = 30 }')),
)


@pytest.mark.parametrize(
    ("wanted", "live"),
    [SCENARIOS[name] for name in SCENARIOS if name[:2] in {"07", "43", "46", "50", "51"}],
)
def test_the_ring_of_each_way_moves_what_the_plan_says(wanted: Topology, live: Topology) -> None:
    for ring in plan(wanted, live).rings.values():
        assert ring.proposals
        for way in ring.proposals:
            before, after = way_rings(ring, way)
            assert before.share_moved(after) == pytest.approx(way.moved)


def test_slots_in_the_place_of_a_ring_are_drawn_as_their_queues() -> None:
    wanted, live = GROWING
    read = HashRing.from_buckets(["q1"] * 30 + ["q2"] * 30)
    (ring,) = plan(wanted, live_with(live, read)).rings.values()
    (slots,) = (way for way in ring.proposals if way.slots)
    before, after = way_rings(ring, slots)
    assert {*after.destinations} == {"q1", "q2", "q3"}
    assert before.share_moved(after) == pytest.approx(slots.moved)
    page = Page(html_page("plan", ring_figures(ring, ring.matrix())))
    assert len(page.named("input")) == len(ring.proposals) > 2


def live_with(live: Topology, ring: HashRing) -> Topology:
    return Topology(exchanges=live.exchanges, queues=live.queues, bindings=live.bindings, rings={"x": ring})


def test_what_moves_is_beside_what_may_move() -> None:
    wanted, live = next(SCENARIOS[name] for name in SCENARIOS if name.startswith("47"))
    made = plan(wanted, live)
    (ring,) = made.rings.values()
    limit = share_allowed(made.wanted, ring.exchange)
    drawn = moved_figure(ring, limit).drawing
    assert isinstance(drawn, Bars)
    assert drawn.limit == (0.1, "max_share_moved 0.1")
    assert [bar.value for bar in drawn.bars] == [ring.moved, ring.moved_at_worst]
    assert "no max_share_moved" in moved_figure(ring, None).words


def test_a_check_draws_rings_with_findings_first_and_marks_what_they_are_about() -> None:
    rings = {
        "fine": HashRing.from_buckets(["q1", "q2"]),
        "bad": HashRing.from_buckets(["q1", None, ExchangeRef("x"), "q2"]),
        **{f"more.{n}": HashRing.from_buckets(["q1"]) for n in range(40)},
    }
    found = [
        Finding("ghost-bucket", "says", exchange="bad", destination=ExchangeRef("x")),
        Finding("missing", "says"),
    ]
    figure = checked_rings(rings, found)
    assert isinstance(figure.drawing, Strip)
    first, second, *_ = figure.drawing.rows
    assert [(piece.name, piece.marked) for piece in first.segments] == [
        ("q1", False),
        (None, True),
        ("exchange x", True),
        ("q2", False),
    ]
    assert (first.note, first.loud) == ("4 buckets; 1 finding", True)
    assert (second.note, second.loud) == ("2 buckets; sound", False)
    assert "18 more rings" in figure.words
    assert len(figure.numbers.rows) == 42
