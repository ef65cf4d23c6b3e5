"""The chart of docs/which-way.md: five questions, each with the way that one answer leads to."""

from __future__ import annotations

from rabbit_chx.rendering.svg import SCALE, Canvas, ThemeName

_LEFT, _WIDE, _RIGHT, _END, _HIGH, _STEP = 2, 330, 388, 620, 56, 92
#: The question in two lines, the answer that leads to a way, the way, and what it is.
_QUESTIONS = (
    ("Must all messages of a key be", "in one queue, for order or a cache?", "no", "plain ring", "nothing to plan"),
    ("Are messages read again later,", "or by several readers?", "yes", "super stream", "a log; the client hashes"),
    ("Can you fix the number of queues now,", "or is the ring out of your reach?", "yes", "fixed partitions", "bind all now, a group shares"),
    ("Do queues come and go,", "or change weight, again and again?", "yes", "slots", "only its own keys move"),
    ("One change: may keys move", "there and back on the way?", "yes", "arranged ring", "topology arrange writes it"),
)  # fmt: skip
_LAST = ("new exchange", "a key moves once at most")


def draw(theme: ThemeName) -> str:
    """Return the SVG."""
    says = "; ".join(f"{first} {second} {answer}: {way}" for first, second, answer, way, _ in _QUESTIONS)
    canvas = Canvas(622, f"{says}; else: {_LAST[0]}", height=_STEP * 6 - 16, theme=theme)
    canvas.rect(0, 0, canvas.width, canvas.height, fill="page")
    for number, (first, second, answer, way, what) in enumerate(_QUESTIONS):
        top = 2 + number * _STEP
        canvas.rect(_LEFT, top, _WIDE, _HIGH, stroke="dim", radius=6)
        canvas.text(_LEFT + 12, top + 24, first, bold=True)
        canvas.text(_LEFT + 12, top + 43, second, bold=True)
        middle = top + _HIGH / 2
        canvas.arrow(_LEFT + _WIDE, middle, _RIGHT, stroke="dim")
        canvas.text((_LEFT + _WIDE + _RIGHT) / 2, middle - 8, answer, anchor="middle")
        _way(canvas, top, number, way, what)
        down, below = _LEFT + 60, top + _HIGH
        canvas.line(down, below, down, top + _STEP, stroke="dim", width=1.5)
        for side in (-4, 4):
            canvas.line(down + side, top + _STEP - 7, down, top + _STEP, stroke="dim", width=1.5)
        canvas.text(down + 12, below + 23, "yes" if answer == "no" else "no")
    _way(canvas, 2 + len(_QUESTIONS) * _STEP, len(_QUESTIONS), *_LAST, left=_LEFT)
    return canvas.svg()


def _way(canvas: Canvas, top: float, number: int, way: str, what: str, *, left: float = _RIGHT) -> None:
    canvas.rect(left, top, _END - _RIGHT, _HIGH, stroke="dim", radius=6)
    canvas.rect(left, top, 12, _HIGH, fill=SCALE[number], radius=6)
    canvas.text(left + 24, top + 24, way, bold=True)
    canvas.text(left + 24, top + 43, what, fill="dim")
