"""Store the rings that a command has read, so that the next one knows their order without the ring source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.command import option, say
from rabbit_chx.errors import AccessRefusedError, InputError, PlanOutdatedError
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import Topology
from rabbit_chx.topology.ring_records import records_of
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker


def no_record_option() -> Any:
    """Return the option that leaves out the records, as the default of a parameter."""
    return option(
        is_flag=True, help="Do not store the order of rings that --ring-via reads and that have no record."
    )


def unrecorded_rings(live: Topology) -> dict[str, HashRing]:
    """Return the rings of a live topology without records."""
    return {name: ring for name, ring in live.rings.items() if not records_of(name, live.records)}


def store_read_rings(rings: Mapping[str, HashRing], broker: Broker) -> None:
    """Store the order of rings that a ring source has read, unless the broker has a record, and say so."""
    read = {name: ring for name, ring in rings.items() if ring.provenance == "read"}
    if not read:
        return
    try:
        stored = broker.record(read, keep=True)
    except (AccessRefusedError, InputError, PlanOutdatedError) as error:
        say(f"the order of the ring is not stored on the broker (--no-record accepts that): {error}")
        return
    if stored:
        say(
            f"stored on the broker: the order of {listed(list(stored))}, in exchange{'s' * (len(stored) > 1)} rabbit-chx.ring.NAME"
        )
