"""The rings that a command has read and that no record on the broker fits. A command that reads stores none: it names the one that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rabbit_chx.cli.command import say
from rabbit_chx.cli.printed import to_type
from rabbit_chx.fixes import Fix
from rabbit_chx.routing.ground import UNORDERED
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.topology import LiveTopology
    from rabbit_chx.topology.live.reading import LiveExchange


def read_without_record(live: LiveTopology) -> list[str]:
    """Return the exchanges whose rings were read, and that no record on the broker fits."""
    from rabbit_chx.topology.live_rings import find_live_ring
    from rabbit_chx.topology.ring_records import is_recorded, records_of

    found = []
    for name, ring in live.rings.items():
        if len(ring.destinations) < 2:  # it needs no order
            continue
        bound = find_live_ring(live, live.exchange(name), name).state.bindings or ()
        records = records_of(name, live.facts.records)
        if ring.provenance == "read" and not is_recorded(ring, records, bound, live.facts.mark):
            found.append(name)
    return found


def how_to_record(names: Sequence[str], **options: str) -> Fix:
    """Return a sentence that names rings without a record that fits them, and the command that stores one."""
    return Fix(
        f"no record on the broker fits the order of {listed(list(names))}: if this order is right, store it with ",
        to_type("record", *names, **options),
    )


def say_unrecorded_rings(live: LiveTopology) -> None:
    """Write to stderr that rings of a live topology were read, and that no record on the broker fits them."""
    if names := read_without_record(live):
        say(how_to_record(names))


def say_unrecorded(live: LiveExchange) -> None:
    """Write to stderr that the ring of a live exchange was read, and that no record on the broker fits it."""
    if live.ring.provenance == "read" and len(live.ring.destinations) > 1 and not live.is_recorded:
        say(how_to_record([live.name]))


def say_doubts(rings: Mapping[str, KeyMap]) -> None:
    """Write to stderr why the records of rings are not certain."""
    for exchange, ring in rings.items():
        if ring.ground.doubt and ring.ground != UNORDERED:
            say(f"the ring of {exchange} is {ring.ground}")
