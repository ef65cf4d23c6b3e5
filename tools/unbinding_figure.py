"""The picture of the README: ten queues, before and after one of them is unbound. Every width is an exact share."""

from __future__ import annotations

from canvas import Canvas, Theme

from rabbit_chx import HashRing
from rabbit_chx.analysis import movement_matrix

_WIDTH, _HEIGHT = 880, 364
_LEFT, _STRIP = 24, 832
_BAND = 40
_QUEUES = tuple(f"q{n}" for n in range(1, 11))


def draw(theme: Theme) -> str:
    """Return the SVG."""
    ring = HashRing.from_bindings([(queue, 1) for queue in _QUEUES])
    canvas = Canvas(
        _WIDTH, _HEIGHT, theme, "Ten queues before and after one is unbound: which keys go to another queue"
    )
    colour = dict(zip(_QUEUES, theme.scale, strict=True))

    canvas.text(_LEFT, 34, "Ten queues of weight 1, bound as q1, q2, ... q10: who gets which keys", bold=True)
    x = float(_LEFT)
    for queue, share in ring.shares().items():
        _piece(canvas, theme, x, 48, _STRIP * share, name=str(queue), colour=colour[str(queue)])
        x += _STRIP * share

    for y, queue in ((128, "q1"), (236, "q10")):
        movement = movement_matrix(ring, ring.unbind(queue))
        had = ring.shares()[queue]
        which = "the first" if queue == "q1" else "the last"
        canvas.text(_LEFT, y, f"unbind {queue}", bold=True, mono=True)
        canvas.text(
            _LEFT + 100,
            y,
            f"{which} to be bound: {movement.moved:.1%} of all keys go to another queue",
            fill=theme.alarm,
            bold=True,
        )
        canvas.text(_LEFT + _STRIP, y, f"{queue} had {had:.1%}", fill=theme.dim, anchor="end")
        x = float(_LEFT)
        for (source, target), amount in movement.amounts.items():
            width = _STRIP * amount
            _piece(canvas, theme, x, y + 14, width, name=str(target), colour=colour[str(target)])
            if source != target:
                canvas.rect(x + 0.5, y + 14 + _BAND + 4, width - 1, 5, fill=theme.alarm)
            x += width

    canvas.rect(_LEFT, 331, 24, 5, fill=theme.alarm)
    canvas.text(
        _LEFT + 34, 338, "keys that moved. A column is the same keys in all three strips.", fill=theme.dim
    )
    return canvas.svg()


def _piece(canvas: Canvas, theme: Theme, x: float, y: float, width: float, *, name: str, colour: str) -> None:
    canvas.rect(x, y, width, _BAND, fill=colour, stroke=theme.page)
    if width > 30:  # a narrower one is known by its colour
        canvas.text(x + width / 2, y + 25, name, fill=theme.on_scale, anchor="middle", mono=True)
