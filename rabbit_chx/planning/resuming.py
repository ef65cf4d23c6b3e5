"""The plan of a file whose apply was interrupted: all steps of each ring again, and the shares of keys from before the first run."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.planning.movement import Moment
from rabbit_chx.planning.ring_plan import Movement, RingSteps, make_step
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.records.live_rings import LiveRing, make_ring
from rabbit_chx.records.pending_apply import PendingApply, PlannedSteps
from rabbit_chx.records.ring_records import why_void
from rabbit_chx.routing import HashRing
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.argument_table import canonical_json, canonical_texts
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import RingMember

if TYPE_CHECKING:
    from rabbit_chx.planning.comparison import Comparison


def digest_of(wanted: Topology) -> str:
    """Return the SHA-256 of what a file says."""
    fields = wanted.cluster, wanted.vhost, wanted.max_share_moved, sorted(set(wanted.owns))
    texts = canonical_texts([*wanted.by_name.values(), *wanted.bindings])
    return hashlib.sha256(canonical_json([fields, texts]).encode()).hexdigest()


def find_pending(wanted: Topology, live: LiveTopology) -> PendingApply | None:
    """Return the apply of the same file that has begun on this broker, and not ended."""
    pending = _pending_here(live)
    return pending if pending is not None and pending.file == digest_of(wanted) else None


def _pending_here(live: LiveTopology) -> PendingApply | None:
    pending = evidence_of(live).pending
    return None if pending is None or pending.where != (live.cluster, live.vhost) else pending


def repeat_steps(
    pending: PendingApply | None, live: LiveRing, wanted: tuple[RingMember, ...], topology: LiveTopology
) -> RingSteps | None:
    """Return all steps of a ring again; None if they do not lead to the wanted ring from every state that it may have.

    An apply unbinds a member just before it binds it. So it does not matter which steps are done, nor whether another program has bound a
    member of a step again. The members that no step names have to be bound as before the first step, and in their order.
    """
    name = live.exchange
    _, planned = evidence_of(topology).kept.about(name)
    if pending is None or planned is None or planned.record is None:
        return None
    before = planned.record
    named = {destination for _, (destination, _) in planned.steps}
    bound, kept = (
        Counter(member for member in members if member.destination not in named)
        for members in (live.bound, before.members)
    )
    release, after = live.ring.release, make_ring(wanted, live.ring.release)
    # Of one member that stays, or of none, no restart changes the order.
    staying = tuple(kept.elements())
    of_kept = replace(before, members=staying)
    is_kept = len(kept) < 2 or not why_void(of_kept, staying, release, evidence_of(topology).mark)
    if bound != kept or not is_kept:
        return None
    if f"replace exchange {name}" in pending.changes:  # nothing shows whether that is done
        return RingSteps(live.ring, after, way="impossible")
    ring = HashRing(before.ring.buckets, release, before.ring.ground, before.ring.bindings)
    for is_bind, binding in planned.steps:
        ring = ring.bind(*binding) if is_bind else ring.unbind(*binding, missing_ok=True)
    if ring.buckets != after.buckets:
        return None
    early, late = _list_steps(planned, live, wanted)
    return RingSteps(live.ring, after, early, late, way="repeated")


def members_after(planned: PlannedSteps) -> tuple[RingMember, ...]:
    """Return the members that a ring has after its steps."""
    members = {} if planned.record is None else {member.binding: member for member in planned.record.members}
    for is_bind, binding in planned.steps:
        member = members.pop(binding, RingMember(*binding))
        if is_bind:
            members[binding] = member
    return tuple(members.values())


def _list_steps(
    planned: PlannedSteps, live: LiveRing, wanted: tuple[RingMember, ...]
) -> tuple[tuple[PlannedChange, ...], tuple[PlannedChange, ...]]:
    """Return the steps before and after the replacement of objects: first the unbinds of what others bound, then those of the plan."""
    members = {member.binding: member for member in (*live.bound, *wanted)}
    steps = [(is_bind, members.get(binding, RingMember(*binding))) for is_bind, binding in planned.steps]
    bound = {*live.bound}
    named = {member.destination for _, member in steps}
    foreign = [
        member
        for member in live.bound
        if member.destination in named and member not in {known for _, known in steps}
    ]

    def list_changes(part: list[tuple[bool, RingMember]]) -> Iterator[PlannedChange]:
        for is_bind, member in part:
            if is_bind or member in bound:
                yield make_step("bind" if is_bind else "unbind", live.exchange, member)
            (bound.add if is_bind else bound.discard)(member)

    parts = [steps[: planned.early], steps[planned.early :]]
    parts[0 if planned.early else 1][:0] = [(False, member) for member in foreign]
    early, late = (tuple(list_changes(part)) for part in parts)
    return early, late


def covers(pending: PendingApply, changes: tuple[PlannedChange, ...], rings: Mapping[str, RingSteps]) -> bool:
    """Return True if a plan is the repetition of an apply: its changes are those of that one, and its rings take the same steps.

    What others have bound of the members of a step, too, is unbound without being named.
    """
    for name, ring in rings.items():
        planned = pending.rings.get(name)
        is_remade = f"replace exchange {name}" in pending.changes
        if ring.steps and (
            planned is None or (ring.way == "reset" and not is_remade and planned.about["way"] != "reset")
        ):
            return False
    repeated = {
        name
        for name, ring in rings.items()
        if ring.way == "repeated" or f"replace exchange {name}" in pending.changes
    }
    return pending.covers(
        change
        for change in changes
        if not (change.ring and change.action == "unbind" and change.binding.source in repeated)
    )


def as_planned(ring: RingSteps, planned: PlannedSteps) -> RingSteps:
    """Return the steps of a ring from the ring before the first run."""
    before = ring.before if planned.record is None else planned.record.ring
    return replace(ring, before=before, way=planned.about["way"])


def movement_as_planned(planned: PlannedSteps, *, has_flows: bool) -> Movement:
    """Return the keys that move, counted from before the first run."""
    about = planned.about
    moments = tuple(Moment(*moment) for moment in planned.moments)
    return Movement(moments, about["unknown"], about["transient_share"], has_flows)


def what_is_given_up(compared: Comparison) -> str:
    """Return a sentence about an apply that has not ended, and that a plan does not repeat; empty if there is none."""
    pending = _pending_here(compared.live)
    if pending is None or pending.has_ended(evidence_of(compared.live).records):
        return ""
    return (
        f"{pending} has not ended, and this plan gives up what that has left; apply its file again to do it"
    )
