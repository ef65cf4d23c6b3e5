"""Findings about a ring and its record on the broker: what other programs bound and unbound, and another order."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checking.checked_exchange import CheckedExchange
from rabbit_chx.planning.refusals import know_rings
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.records.live_rings import (
    find_live_ring,
    find_recorded,
    make_ring,
    none_lasts,
    record_command,
    record_here,
)
from rabbit_chx.records.mark import has_restarted
from rabbit_chx.records.ring_records import changes_since, unlisted_queues, why_void
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.objects import RingMember
from rabbit_chx.topology.rules.plugin_objects import is_sharded
from rabbit_chx.topology.slots.owners import number_slots
from rabbit_chx.words import ShareByWeight, listed, percent


def record_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield a finding if a ring that was read has another order than its record. Of a ring whose order is not known nothing can be said."""
    record = find_recorded(checked.live, checked.name)
    if record is None or number_slots(checked.name, checked.bound):
        return
    if checked.ring.provenance in (None, "recorded"):
        return
    before = record.ring
    bound = {member.destination for member in checked.bound}
    if _only(checked.ring, bound) == _only(before, bound):
        return
    by_queue = checked.slots.map_of
    share = by_queue(checked.ring).share_moved(by_queue(before))
    keeps = checked.ring.release.follows(RESTART_KEEPS)
    if not keeps and has_restarted(record.stamp, evidence_of(checked.live).mark):
        message = f"the broker restarted: {percent(share)} of the keys moved; record of {record.about}"
    else:
        message = (
            f"the ring has another order than the record of {record.about}: another program bound its members again; {percent(share)} of all "
            "keys go to a different queue"
        )
    yield checked.finding("order", message, checked.repair_command, share=share)


def other_binding_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield a finding if other programs bound or unbound members since the record of a ring was written."""
    record = record_here(checked.live, checked.name)
    # The plugin binds and unbinds the shards of a sharded exchange.
    if record is None or is_sharded(checked.exchange, checked.live):
        return
    evidence = evidence_of(checked.live)
    changes = changes_since(record, checked.bound, evidence.mark.absent)
    if not changes:
        return
    message = f"since the record of {record.about} another program {changes}"
    share = None
    means = evidence.means
    if not checked.ring.is_determined:
        kept = know_rings({checked.name: checked.ring}, means)
    else:
        share = record.ring.share_moved(checked.ring)
        message += f": {percent(share)} of all keys moved"
        kept = f"store the ring as it is with {record_command(checked.name)}"
    if means.voids:
        kept = f"know that of the records {none_lasts(means)}"
    # To bind a member again would make it the last one, and the bindings those of the record.
    fix = f"if this is intended, {kept}; otherwise {checked.apply_command}"
    yield checked.finding("different", message, fix, share=share)


def absent_member_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the queues of the file, or else of the record, of which the broker lists no bindings as their node is down."""
    mark = evidence_of(checked.live).mark
    record = record_here(checked.live, checked.name)
    members: tuple[RingMember, ...] = ()
    source = ""
    if checked.listed is not None:
        members = checked.listed.ring or ()
        source = "the file"
    elif record is not None:
        members = record.members
        source = f"the record of {record.about}"
    for queue in unlisted_queues(members, checked.bound, mark):
        share = ShareByWeight(round(make_ring(members, checked.ring.release).shares().get(queue, 0.0), 3))
        message = (
            f"the broker reports {queue} as down, and lists no bindings of a queue whose node is down, so that nobody knows whether it is still "
            f"bound; {source} gives it {percent(share)} of all keys"
        )
        fix = f"start {listed(sorted(mark.nodes.get(queue, ()))) or 'its node'} again, and then check again"
        yield checked.finding("down-destination", message, fix, queue)


def why_order_unknown(live: LiveTopology, name: str) -> str:
    """Return why the order of a ring is compared with nothing; empty if its record is compared with it, or is its source."""
    live_ring = find_live_ring(live, live.exchange(name), name)
    ring = live_ring.ring
    if ring.provenance == "recorded" or find_recorded(live, name) is not None:
        return ""
    if not ring.ground.is_certain:
        return "no record to compare it with"
    if (record := evidence_of(live).records.get(name)) is not None:
        why = why_void(record, live_ring.bound, ring.release, evidence_of(live).mark)
        return f"its record does not prove it ({why}), so it is compared with nothing; the command record replaces it"
    if ring.release.follows(RESTART_KEEPS):
        return "no record to compare it with"
    return (
        "no record of the order before the last start, so whether the restart moved keys is not known; the command record keeps it from "
        "now on"
    )


def _only(ring: HashRing, places: Collection[Place]) -> list[Place]:
    return [place for place in ring.buckets if place in places]
