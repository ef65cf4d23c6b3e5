"""Draw the pictures of the README and of the documents with `rabbit_chx.plot`, for light and dark pages: `make generated`.

With ``--check`` nothing is written, and a picture whose texts differ from those of a new one is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rabbit_chx import ExchangeRef, HashRing, SlotTable, Topology, plot
from rabbit_chx.topology import LiveTopology, plan

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
THEMES = {"light": "#1f2328", "dark": "#f0f6fc"}
"""The colour of text by theme, as GitHub has it."""
_WIDTH = 5.2  # inches: the text is 10 pixels high where a page is 380 pixels wide
_KEY = "user-1"
_PLANNED = """
max_share_moved = 0.2
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [MEMBERS]
[[queues]]
name = "q{1..3}"
"""


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


def modelled() -> Figure:
    """The words of docs/model.md: a ring, the ring without a queue, and slots for the same queues."""
    bindings = [("q1", 2), ("q2", 1), ("q3", 2)]
    ring = HashRing.from_bindings(bindings)
    after = ring.unbind("q1")
    slots = [ExchangeRef(f"slot {n}") for n in range(5)]
    table = SlotTable(HashRing.from_buckets(slots), dict(zip(slots, map(str, ring.buckets), strict=True)))
    reassigned = table.reassigned({"q2": 1, "q3": 1})
    place = ring.buckets.index(
        ring.destination_for(_KEY)
    )  # of the first bucket of its queue, which has only one
    figure = Figure((_WIDTH, 3.6), layout="constrained")
    ax = figure.add_subplot(xlim=(0, 10), ylim=(0.3, 8.7))
    ax.axis("off")
    ax.text(0, 8.3, f"the key {_KEY}  →  hash  →  bucket {place}  →  {ring.buckets[place]}", weight="bold")
    ax.annotate("", (place + 2.5, 7.2), (place + 2.5, 8.1), arrowprops={"arrowstyle": "->", "color": "0.5"})
    _draw_cells(ax, 6.2, "ring", ring.buckets)
    for centre, (queue, weight) in zip((3, 4.5, 6), bindings, strict=True):
        ax.text(centre, 5.8, f"binding {queue},\nweight {weight}", ha="center", va="top", size="x-small")
    _draw_cells(ax, 3.4, "without q1", after.buckets)
    _draw_cells(ax, 1.5, "slots", slots)
    ends = [
        str(old) if old == reassigned.owners[slot] else f"→ {reassigned.owners[slot]}"
        for slot, old in zip(slots, ring.buckets, strict=True)
    ]
    _draw_cells(ax, 0.5, "their queues", ends)
    for height, moved in ((3.9, ring.share_moved(after)), (1.5, table.share_moved(reassigned))):
        ax.text(7.3, height, f"moves {moved:.1%}\nof all keys", va="center")
    return figure


def _draw_cells(ax: Axes, height: float, label: str, cells: Iterable[object]) -> None:
    """Draw a row of buckets, each in the colour of its queue; slots have none."""
    ax.text(0, height + 0.5, label, va="center")
    for place, cell in enumerate(cells):
        name = cell.name if isinstance(cell, ExchangeRef) else str(cell)
        colour = {"q1": "C0", "q2": "C3", "q3": "C2"}.get(name[-2:], "0.5")
        ax.add_patch(Rectangle((place + 2, height), 1, 1, facecolor=colour, alpha=0.35, edgecolor="0.5"))
        ax.text(place + 2.5, height + 0.5, name, ha="center", va="center", size="small")


FIGURES: dict[str, Callable[[], Figure]] = {
    "model": modelled,
    "plan": planned,
    "slots": slotted,
}


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
