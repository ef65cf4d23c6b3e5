"""The picture of docs/how-it-routes.md: the way of one key from its bytes to a bucket, and what an unbind does to it."""

from __future__ import annotations

from collections.abc import Sequence

from rabbit_chx import ConsistentHashExchange, HashRing
from rabbit_chx.erlang.exs1024 import exs1024_uniform
from rabbit_chx.rendering.svg import ON_SCALE, SCALE, Canvas, ThemeName

_KEY = "customer-8"
_BINDINGS = [("a", 1), ("b", 2), ("c", 3)]
_UNBOUND = "b"
_STEP, _BOX = 90, 88
_SEED_BITS = 21


def draw(theme: ThemeName) -> str:
    """Return the SVG."""
    ring = HashRing.from_bindings(_BINDINGS)
    after = ring.unbind(_UNBOUND)
    way = ConsistentHashExchange("orders", ring).explain(_KEY)
    assert way.phash2 is not None
    assert way.seed is not None
    canvas = Canvas(880, f"How the key {_KEY} finds its queue", height=470, theme=theme)

    canvas.text(20, 28, "1  What is hashed", bold=True)
    boxes = (
        ("routing key", _KEY),
        ("Erlang term", way.term or ""),
        ("phash2, 27 bits", str(way.phash2)),
        (f"seed, its low {_SEED_BITS} bits", str(way.seed)),
    )
    for number, (name, value) in enumerate(boxes):
        x = 20 + 215 * number
        canvas.rect(x, 42, 180, 54, stroke="dim", radius=5)
        canvas.text(x + 12, 64, name, fill="dim")
        canvas.text(x + 12, 84, value, mono=True, size=13)
        if number:
            canvas.arrow(x - 33, 69, x - 2, stroke="dim")

    canvas.text(20, 140, "2  The walk", bold=True)
    canvas.text(
        118,
        140,
        "From bucket j the walk jumps to (j + 1) / R, rounded down; R is the seed's next random number.",
        fill="dim",
    )
    _walk(canvas, way.walk, way.seed, behind=len(ring.buckets))
    _buckets(canvas, 226, ring.buckets, chosen=way.walk[-1])
    behind = 26 + _STEP * len(ring.buckets)
    canvas.rect(behind, 226, _BOX, 46, stroke="dim", dashed=True)
    _label(canvas, behind + _BOX / 2, 226, number=str(len(ring.buckets)), name="none", faint=True)
    for line, words in enumerate(
        (
            f"Bucket {len(ring.buckets)} is behind the last,",
            f"so the walk stops at {way.walk[-1]}:",
            f"the message goes to {way.destination}.",
        )
    ):
        canvas.text(behind + _BOX + 14, 240 + 18 * line, words, fill="dim")

    gone = [str(number) for number, name in enumerate(ring.buckets) if name == _UNBOUND]
    canvas.text(20, 322, "3  The ring changes", bold=True)
    canvas.text(
        190,
        322,
        f"Unbinding {_UNBOUND} removes buckets {' and '.join(gone)}; each later bucket gets a smaller number.",
        fill="dim",
    )
    walk = tuple(bucket for bucket in way.walk if bucket < len(after.buckets))
    _buckets(canvas, 340, after.buckets, chosen=walk[-1])
    x = 26 + _STEP * len(after.buckets) + 18
    canvas.text(x, 358, f"The same walk, {', '.join(map(str, walk))}, now stops at {walk[-1]}.", fill="dim")
    canvas.text(
        x,
        376,
        f"{ring.share_moved(after):.1%} of all keys move, where {_UNBOUND} had {ring.shares()[_UNBOUND]:.1%}.",
        fill="dim",
    )

    bound = ", then ".join(f"{name} with weight {weight}" for name, weight in _BINDINGS)
    canvas.text(26, 424, f"The bindings of this ring: {bound}.", fill="dim")
    canvas.text(
        26,
        444,
        "A weight is a number of buckets. The order of the bindings is the order of the buckets.",
        fill="dim",
    )
    return canvas.svg()


def _walk(canvas: Canvas, walk: Sequence[int], seed: int, *, behind: int) -> None:
    def middle(bucket: int) -> float:
        return 26 + _STEP * bucket + _BOX / 2

    numbers = exs1024_uniform((seed, seed, seed))
    for source, target in zip(walk, [*walk[1:], behind], strict=True):
        number = next(numbers)
        assert min(int((source + 1) / number), behind) == target
        canvas.hop(middle(source), middle(target), 222, stroke="alarm", dashed=target == behind)
        canvas.text(
            (middle(source) + middle(target)) / 2,
            176,
            f"{source + 1} / {number:.3f}",
            fill="alarm",
            anchor="middle",
            mono=True,
            size=13,
        )


def _buckets(canvas: Canvas, y: float, buckets: Sequence[object], *, chosen: int) -> None:
    colours = {name: SCALE[number] for number, (name, _) in enumerate(_BINDINGS)}
    for number, name in enumerate(buckets):
        x = 26 + _STEP * number
        edge = {"stroke": "alarm", "stroke_width": 3} if number == chosen else {"stroke": "dim"}
        canvas.rect(x, y, _BOX, 46, fill=colours[str(name)], **edge)
        _label(canvas, x + _BOX / 2, y, number=str(number), name=str(name), bold=number == chosen)


def _label(
    canvas: Canvas,
    x: float,
    y: float,
    *,
    number: str,
    name: str,
    bold: bool = False,
    faint: bool = False,
) -> None:
    fill = "dim" if faint else ON_SCALE
    canvas.text(x, y + 20, number, fill=fill, anchor="middle", bold=bold)
    canvas.text(x, y + 38, name, fill=fill, anchor="middle", bold=bold)
