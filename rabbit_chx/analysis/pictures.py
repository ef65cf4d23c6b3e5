"""The pictures of key maps and movements, for the reports in HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rabbit_chx.analysis.simulation import simulate
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.rendering.pictures import Bar, Bars, Cell, Flows, Grid, Picture, Strip
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.routing import flows
    from rabbit_chx.routing.bindings import Destination, Place
    from rabbit_chx.routing.key_map import KeyMap

#: The most places on a side of the flows, and the most moves, that one can follow.
_MOST_PLACES = 40
_MOST_MOVES = 40


def draw_map(key_map: KeyMap, real: Mapping[str, float] | None = None) -> tuple[Picture, ...]:
    """Return the buckets in the order of the ring, and the shares, the most traffic or the largest first; nothing of a ring whose order is not known.

    Args:
        key_map: the ring, its slots, or another map.
        real: the share of the traffic of each queue, 0 to 1; None if it is not known.
    """
    if not key_map.is_determined:
        return ()
    places = [key_map.queue_of(place) for place in key_map.beneath.buckets]
    shares = simulate(key_map).places
    notes = {_name(part.place): f"{percent(part.share or 0.0)} of all keys" for part in shares}
    traffic = {part.place: None if real is None else real.get(_name(part.place), 0.0) for part in shares}
    bars = [
        Bar(_name(part.place), part.share or 0.0, part.ideal, traffic[part.place])
        for part in sorted(shares, key=lambda part: (-(traffic[part.place] or 0.0), -(part.share or 0.0)))
    ]
    strip = Strip(
        f"{plural(len(places), key_map.hashing.part)} in order", [_name(place) for place in places], notes
    )
    return strip, Bars("share of all keys" if real is None else "share of all keys, and of the traffic", bars)


def draw_slots(slots: KeyMap, load: Mapping[Destination, float] | None = None) -> Grid:
    """Return the slots, each coloured by its queue; the load of a sample, if there is one, is their depth."""
    most = max(load.values(), default=0.0) if load else 0.0
    cells = [
        Cell(
            place_text(place),
            _name(slots.queue_of(place)),
            load.get(place, 0.0) / most if load and most else None,
        )
        for place in slots.slots or ()
    ]
    return Grid(
        "slots by queue" if load is None else "slots by queue, and as depth the load of the sample", cells
    )


def draw_movement(matrix: flows.Flows, of: str = "all keys") -> Flows:
    """Return the flows between the places; of more than one can follow only how much moves.

    Args:
        matrix: the movement.
        of: what the amounts are parts of.
    """
    total = sum(matrix.before_totals().values()) or 1.0
    amounts: dict[tuple[str, str], float] = {}
    if len(matrix.before) <= _MOST_PLACES and matrix.move_count <= _MOST_MOVES:
        amounts = {
            (_name(source), _name(target)): amount / total for (source, target), amount in matrix.items()
        }
    share = percent(matrix.moved / total, 1)
    return Flows("movement between the destinations", (share, f"of {of} move"), amounts)


def _name(place: Place) -> str:
    return "" if place is None else place_text(place)
