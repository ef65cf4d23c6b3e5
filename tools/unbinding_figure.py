"""The picture of the README: ten queues, before and after one of them is unbound. Every width is an exact share."""

from __future__ import annotations

from rabbit_chx import HashRing
from rabbit_chx.analysis import movement_matrix
from rabbit_chx.rendering import Figure, Table
from rabbit_chx.rendering.figures import Segment, Strip, StripRow
from rabbit_chx.rendering.svg import Palette, ThemeName, figures_svg

_QUEUES = tuple(f"q{n}" for n in range(1, 11))


def draw(theme: ThemeName) -> str:
    """Return the SVG."""
    ring = HashRing.from_bindings([(queue, 1) for queue in _QUEUES])
    shares = [Segment(str(queue), share, f"{queue}: {share:.1%}") for queue, share in ring.shares().items()]
    rows = [StripRow("ten queues of weight 1, bound in this order", shares)]
    for queue, which in (("q1", "first"), ("q10", "last")):
        movement = movement_matrix(ring, ring.unbind(queue))
        pieces = [
            Segment(str(target), amount, f"{source} to {target}: {amount:.1%}", marked=source != target)
            for (source, target), amount in movement.amounts.items()
        ]
        said = f"{movement.moved:.1%} of all keys move; {queue} had {ring.shares()[queue]:.1%}"
        rows.append(StripRow(f"unbind {queue}, the {which} to be bound", pieces, said, loud=True))
    figure = Figure(
        "Which keys go to another queue when one of ten is unbound",
        "A column is the same keys in all three strips. Removing q1 renumbers every bucket behind it.",
        Strip(rows, None, "keys that move"),
        Table([], []),
    )
    return figures_svg([figure], Palette(), 880, alone=True, theme=theme)
