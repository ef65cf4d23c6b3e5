"""Draw the pictures of the README and of the documents with `rabbit_chx.plot`, for light and dark pages: `make generated`.

With ``--check`` nothing is written, and a picture whose texts differ from those of a new one is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from rabbit_chx import ExchangeRef, HashRing, SlotTable, Topology, plot
from rabbit_chx.topology import LiveTopology, plan

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
THEMES = {"light": "#1f2328", "dark": "#f0f6fc"}
"""The colour of text by theme, as GitHub has it."""
_WIDTH = 5.2  # inches: the text is 10 pixels high where a page is 380 pixels wide
_PLANNED = """
max_share_moved = 0.2
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [MEMBERS]
[[queues]]
name = "q{1..3}"
"""


def unbind() -> Figure:
    """Ten queues of weight 1: the first to be bound is unbound, and the last."""
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(1, 11)])
    figure = Figure((_WIDTH, 3.4), layout="constrained")
    sides = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, (queue, which) in zip(sides, (("q1", "first"), ("q10", "last")), strict=True):
        moved = plot.movement(ring, ring.unbind(queue), ax=ax).get_title()
        ax.set_title(f"unbind {queue}, bound {which}:\n{moved}")
        legend = ax.get_legend()
        handles, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
        legend.remove()
    sides[0].set_xlim(-0.12, 0.12)
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def planned() -> Figure:
    """The plan of docs/reference/commands/change.md."""
    wanted, there = (
        Topology.from_toml(
            _PLANNED.replace("MEMBERS", f'{more}{{ queue = "q1", weight = 10 }}, {{ queue = "q2" }}')
        )
        for more in ("", '{ queue = "q3", weight = 2 }, ')
    )
    read = HashRing.from_buckets(["q3"] * 2 + ["q1"] * 10 + ["q2"])
    figure = Figure((_WIDTH, 1.9), layout="constrained")
    live = replace(LiveTopology.of_file(there), rings={"orders": read})
    plot.movement(plan(wanted, live), ax=figure.add_subplot())
    return figure


def slotted() -> Figure:
    """The slots of docs/operate/slots.md."""
    slots = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
    owners = {slot: f"events.{n % 3 + 1}" for n, slot in enumerate(slots)}
    figure = Figure((_WIDTH, 2.0), layout="constrained")
    plot.slots(SlotTable(HashRing.from_buckets(slots), owners), ax=figure.add_subplot())
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {"unbind": unbind, "plan": planned, "slots": slotted}


def draw(name: str, theme: str, path: Path) -> None:
    """Write a figure; the same versions of the libraries write the same file.

    Args:
        name: one of `FIGURES`.
        theme: one of `THEMES`.
        path: the file, whose suffix is the format.
    """
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: Any = {**dict.fromkeys(colours, THEMES[theme]), "svg.hashsalt": "rabbit_chx"}
    with mpl.rc_context(style):
        FIGURES[name]().savefig(
            path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None
        )


def differences() -> list[str]:
    """Return the names of the pictures whose texts differ from those of a new one. The letters are paths; a comment has each text."""
    with TemporaryDirectory() as folder:
        new = Path(folder)
        _draw_all(new)
        return [path.name for path in sorted(new.iterdir()) if _texts(path) != _texts(FOLDER / path.name)]


def _texts(path: Path) -> list[str]:
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"), re.DOTALL) if path.exists() else []


def _draw_all(folder: Path) -> None:
    for name in FIGURES:
        for theme in THEMES:
            draw(name, theme, folder / f"{name}-{theme}.svg")


def main() -> None:
    """Write all figures, or only compare them."""
    if sys.argv[1:] != ["--check"]:
        _draw_all(FOLDER)
    elif found := differences():
        sys.exit(f"{', '.join(found)} differ from the code: run make generated")


if __name__ == "__main__":
    main()
