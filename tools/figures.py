"""Draw the pictures of the documents, for light and dark pages: `make generated`. Rings, slots and plans are those of `-o html`.

With ``--check`` nothing is written, and a picture that differs from a new one is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path

from rabbit_chx import ExchangeRef, HashRing, SlotTable, Topology
from rabbit_chx.analysis.reports import draw_movement, draw_slots
from rabbit_chx.rendering.document import Flows, Grid
from rabbit_chx.rendering.output import TEMPLATES, environment
from rabbit_chx.topology import LiveTopology, plan

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
THEMES = {"light": "#1f2328", "dark": "#f0f6fc"}
"""The colour of text by theme, as GitHub has it."""
_WIDTH = 480
_TITLE, _LEGEND = 24, 26
_CELL = 44
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


def planned() -> str:
    """The plan of docs/reference/commands/change.md."""
    wanted, there = (
        Topology.from_toml(
            _PLANNED.replace("MEMBERS", f'{more}{{ queue = "q1", weight = 10 }}, {{ queue = "q2" }}')
        )
        for more in ("", '{ queue = "q3", weight = 2 }, ')
    )
    read = HashRing.from_buckets(["q3"] * 2 + ["q1"] * 10 + ["q2"])
    live = replace(LiveTopology.of_file(there), rings={"orders": read})
    matrix = plan(wanted, live).rings["orders"].matrix()
    assert matrix is not None
    return "".join(_picture(draw_movement(matrix), 140))


def slotted() -> str:
    """The slots of docs/reference/commands/look.md."""
    slots = [ExchangeRef(f"events.slot.{n:02}") for n in range(8)]
    owners = {slot: f"events.{n % 3 + 1}" for n, slot in enumerate(slots)}
    return "".join(_picture(draw_slots(SlotTable(HashRing.from_buckets(slots), owners)), 30))


def modelled() -> str:
    """The words of docs/model.md: a ring, the ring without a queue, and slots for the same queues."""
    bindings = [("q1", 2), ("q2", 1), ("q3", 2)]
    ring = HashRing.from_bindings(bindings)
    after = ring.unbind("q1")
    slots = [ExchangeRef(f"slot {n}") for n in range(5)]
    table = SlotTable(HashRing.from_buckets(slots), dict(zip(slots, map(str, ring.buckets), strict=True)))
    reassigned = table.reassigned({"q2": 1, "q3": 1})
    # Of the first bucket of its queue, which has only one.
    place = ring.buckets.index(ring.destination_for(_KEY))
    arrow = f"M{_left(place) + _CELL / 2} 24 v24 m-4 -6 l4 6 l4 -6"
    ends = [
        str(old) if old == reassigned.owners[slot] else f"→ {reassigned.owners[slot]}"
        for slot, old in zip(slots, ring.buckets, strict=True)
    ]
    parts = [
        _text(0, 16, f"the key {_KEY}  →  hash  →  bucket {place}  →  {ring.buckets[place]}", "bold"),
        f'<path d="{arrow}" fill="none" stroke="#808080"/>',
        *_cells(52, "ring", ring.buckets),
        *(
            _text(_left(centre), 114, f"weight {weight}", "middle small")
            for centre, (_, weight) in zip((1, 2.5, 4), bindings, strict=True)
        ),
        *_cells(136, "without q1", after.buckets),
        *_cells(200, "slots", slots),
        *_cells(200 + _CELL, "their queues", ends),
    ]
    for height, moved in ((154, ring.share_moved(after)), (236, table.share_moved(reassigned))):
        parts += [
            _text(_left(5) + 12, height, f"moves {moved:.1%}"),
            _text(_left(5) + 12, height + 18, "of all keys"),
        ]
    return "".join(parts)


def _left(place: float) -> float:
    return 110 + place * _CELL


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>\n'


def _cells(top: float, label: str, cells: Iterable[object]) -> Iterator[str]:
    """Yield a row of buckets, each in the colour of its queue; slots have none."""
    yield _text(0, top + _CELL / 2 + 5, label)
    for place, cell in enumerate(cells):
        name = cell.name if isinstance(cell, ExchangeRef) else str(cell)
        colour = {"q1": "c0", "q2": "c5", "q3": "c2"}.get(name[-2:], "none")
        yield f'<rect class="cell {colour}" x="{_left(place):g}" y="{top:g}" width="{_CELL}" height="{_CELL}"/>\n'
        yield _text(_left(place + 0.5), top + _CELL / 2 + 5, name, "middle")


def _picture(picture: Flows | Grid, height: int) -> Iterator[str]:
    """Yield the title of a picture of `-o html`, the picture, and the names of its colours."""
    names = list(picture.names())
    colours = {name: number for number, name in enumerate(names)}
    shown = str(environment().get_template("blocks.html").module.show_picture(picture, colours))  # type: ignore[attr-defined]
    (drawn,) = re.findall(r'<svg (viewBox=[^>]*role="img".*?</svg>)', shown, re.DOTALL)
    title = " ".join(picture.headline) if isinstance(picture, Flows) else picture.title
    yield _text(0, 16, title)
    yield f'<svg y="{_TITLE}" width="{_WIDTH}" height="{height}" {drawn}\n'
    below = _TITLE + height + _LEGEND
    for name, number in colours.items():
        yield f'<rect class="c{number}" x="{110 * number}" y="{below - 11}" width="11" height="11"/>\n'
        yield _text(110 * number + 17, below, name)


#: How each picture is drawn, and its height.
FIGURES: dict[str, tuple[Callable[[], str], int]] = {
    "model": (modelled, 292),
    "plan": (planned, 196),
    "slots": (slotted, 86),
}


def draw(name: str, theme: str) -> str:
    """Return a picture as SVG.

    Args:
        name: one of `FIGURES`.
        theme: one of `THEMES`.
    """
    drawn, height = FIGURES[name]
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    colours = " ".join(re.findall(r"\.c\d+ \{ fill: [^}]*\}", css))
    style = (
        f"text {{ fill: {THEMES[theme]}; font: 14px system-ui, sans-serif; white-space: pre; }} .bold {{ font-weight: bold; }} "
        ".small { font-size: 12px; } .middle { text-anchor: middle; } .stays { opacity: .25; } .moves { opacity: .8; } "
        f".none {{ fill: #808080; }} .cell {{ fill-opacity: .35; stroke: #808080; }} {colours}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">\n'
        f"<style>{style}</style>\n{drawn()}</svg>\n"
    )


def main() -> None:
    """Write all figures, or only compare them."""
    drawn = {FOLDER / f"{name}-{theme}.svg": draw(name, theme) for name in FIGURES for theme in THEMES}
    if sys.argv[1:] != ["--check"]:
        for path, text in drawn.items():
            path.write_text(text, encoding="utf-8")
    elif found := [
        path.name for path, text in drawn.items() if not path.exists() or path.read_text("utf-8") != text
    ]:
        sys.exit(f"{', '.join(found)} differ from the code: run make generated")


if __name__ == "__main__":
    main()
