"""The rings that a command has read and that no record on the broker fits. A command that reads stores none: it names the one that does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rabbit_chx.cli.command import say
from rabbit_chx.routing.ground import RECORD_CONDITION, UNORDERED
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.broker.live_exchange import LiveExchange
    from rabbit_chx.topology import LiveTopology


def say_unrecorded_rings(live: LiveTopology) -> None:
    """Write to stderr that rings of a live topology were read, and that no record on the broker fits them."""
    from rabbit_chx.records.evidence import evidence_of
    from rabbit_chx.records.live_rings import how_to_record, read_without_record

    if names := read_without_record(live):
        say(how_to_record(names, evidence_of(live).means))


def say_unrecorded(live: LiveExchange) -> None:
    """Write to stderr that the ring of a live exchange was read, and that no record on the broker fits it."""
    from rabbit_chx.records.live_rings import how_to_record

    if live.ring.provenance == "read" and live.bindings and not live.is_recorded:
        say(how_to_record([live.name], live.means))


def say_conditions(rings: Mapping[str, KeyMap]) -> None:
    """Write to stderr on which condition recorded rings are known, where the output itself has no place for it."""
    recorded = [exchange for exchange, ring in rings.items() if ring.provenance == "recorded"]
    if recorded:
        say(f"the order of {listed(recorded)} is {RECORD_CONDITION}")


def say_doubts(rings: Mapping[str, KeyMap]) -> None:
    """Write to stderr why the records of rings are not certain."""
    for exchange, ring in rings.items():
        if ring.ground.doubt and ring.ground != UNORDERED:
            say(f"the ring of {exchange} is {ring.ground}")
