"""The report of an exchange."""

from __future__ import annotations

from collections.abc import Mapping

from rabbit_chx.analysis.report_parts import hashes_text, ring_text
from rabbit_chx.fixes import Fix
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.planning.refusals import know_rings


def exchange_facts(
    exchange: str, vhost: str, arguments: Mapping[str, str] | None, ring: KeyMap
) -> list[tuple[str, str]]:
    """Return the facts in the heading of a report about the ring of a live exchange."""
    facts = [
        ("exchange", exchange),
        ("vhost", vhost),
        ("hashes", hashes_text(arguments)),
        ("ring", ring_text(ring)),
    ]
    return (
        [*facts, ("not determined", Fix("the member of a key: ", know_rings({exchange: ring})))]
        if ring.ground.is_assumed
        else facts
    )
