"""Findings about the order of a ring that was read, compared with its record on the broker: a restart on Mnesia changes the order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import Binding, Place
from rabbit_chx.routing.rules import RESTART_KEEPS, RESTART_SORTS
from rabbit_chx.topology.checking.checked_exchange import CheckedExchange
from rabbit_chx.topology.live_rings import find_live_ring, find_recorded_ring
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.ring_records import BrokerStart, RingRecord, records_of
from rabbit_chx.topology.slots.owners import number_slots
from rabbit_chx.words import percent


def record_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield a finding if a ring that was read has another order than its record."""
    found = find_recorded_ring(checked.live, checked.name)
    if found is None or checked.ring.provenance == "recorded" or number_slots(checked.name, checked.bound):
        return
    record, before = found
    bound = {member.destination for member in checked.bound}
    if _only(checked.ring, bound) == _only(before, bound):
        return
    share = checked.comparison.share_elsewhere(before)
    start = checked.live.facts.start
    keeps = checked.ring.release.follows(RESTART_KEEPS)
    if not keeps and record.start.has_restarted(start, marks=True):
        time = _time_of(start)
        # The start of the node is older if only the application was stopped and started.
        at = f" at {time}" if time and (start.last_start() or 0) > _written_at(record) else ""
        message = f"the broker restarted{at}: {percent(share)} of the keys moved; record of {record.about}"
        if _is_restarted(before, checked.ring):
            message += "; the order is the one that a restart of Mnesia gives"
    else:
        message = (
            f"the ring has another order than the record of {record.about}: another program bound its members again; {percent(share)} of all "
            "keys go to a different queue"
        )
    yield checked.finding("order", message, checked.repair_command, share=share)


def why_order_unknown(live: LiveTopology, name: str) -> str:
    """Return why the order of a ring is compared with nothing; empty if its record is compared with it, or is its source."""
    live_ring = find_live_ring(live, live.exchange(name), name)
    ring = live_ring.ring
    found = find_recorded_ring(live, name)
    adopted = found is not None and found[0].adopted and found[0].start.mark == live.facts.start.mark
    if not adopted and (ring.provenance == "recorded" or found is not None):
        return ""
    if found is None and records_of(name, live.facts.records) and ring.ground.is_certain:
        return "its record does not fit its bindings, so it is compared with nothing; the command record replaces it"
    if ring.release.follows(RESTART_KEEPS) or not ring.ground.is_certain:
        return "no record to compare it with"
    bindings: list[Binding] = [member.binding for member in live_ring.bound]
    is_sorted = _is_restarted(HashRing.from_bindings(bindings, ring.release), ring)
    time = _time_of(live.facts.start)
    when = f" ({time})" if time else ""
    as_restart = " (it is the one that a restart gives)" if is_sorted else ""
    remedy = "the command record keeps it from now on"
    if adopted and found is not None:
        remedy = f"the record of {found[0].about} was made after that start, and the command record accepts its order"
    return f"no record of the order before the last start{when}, so whether the restart moved keys is not known{as_restart}; {remedy}"


def _only(ring: HashRing, places: Collection[Place]) -> list[Place]:
    return [place for place in ring.buckets if place in places]


def _is_restarted(before: HashRing, after: HashRing) -> bool:
    """Return True if a restart that sorts the bindings makes `after`."""
    return before.release.follows(RESTART_SORTS) and before.restarted().buckets == after.buckets


def _written_at(record: RingRecord) -> float:
    """Return the time of a record in seconds since 1970; 0 if it has none that can be read."""
    try:
        return datetime.fromisoformat(record.written).timestamp()
    except ValueError:
        return 0.0


def _time_of(start: BrokerStart) -> str:
    """Return the time of the last start in UTC, as text; empty if it is not known."""
    time = start.last_start()
    return "" if time is None else f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"
