"""The picture of docs/commands/topology-plan.md: what a plan moves beside what may move, and the ring before and after."""

from __future__ import annotations

from dataclasses import replace

from rabbit_chx import HashRing, Topology
from rabbit_chx.rendering.svg import Palette, ThemeName, figures_of, figures_svg
from rabbit_chx.topology import plan
from rabbit_chx.topology.pictures import moved_figure, ring_figures

_FILE = """
max_share_moved = 0.2
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [MEMBERS]
[[queues]]
name = "q{1..3}"
"""


def draw(theme: ThemeName) -> str:
    """Return the SVG."""
    wanted, there = (
        Topology.from_toml(
            _FILE.replace("MEMBERS", f'{more}{{ queue = "q1", weight = 10 }}, {{ queue = "q2" }}')
        )
        for more in ("", '{ queue = "q3", weight = 2 }, ')
    )
    read = HashRing.from_buckets(["q3"] * 2 + ["q1"] * 10 + ["q2"])
    (ring,) = plan(wanted, replace(there, rings={"orders": read})).rings.values()
    assert f"{ring.moved:.3%}" == "30.772%"  # as the page says
    figures = [moved_figure(ring, wanted.max_share_moved), *figures_of(ring_figures(ring, ring.matrix()))]
    return figures_svg(figures, Palette(), 880, alone=True, theme=theme)
