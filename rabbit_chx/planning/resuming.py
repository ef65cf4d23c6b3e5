"""The plan of a file whose apply was interrupted: all steps of each ring again, and the shares of keys from before the first run."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.planning.ring_plan import RingSteps, make_step
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.records.live_rings import LiveRing, make_ring
from rabbit_chx.records.pending_apply import PendingApply, PlannedSteps
from rabbit_chx.records.ring_records import why_void
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.argument_table import canonical_json, canonical_texts
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import RingMember

if TYPE_CHECKING:
    from rabbit_chx.planning.diff import Comparison


def digest_of(wanted: Topology, live: LiveTopology) -> str:
    """Return the SHA-256 of what a file says, and of where it is applied."""
    fields = wanted.cluster, wanted.vhost, wanted.max_share_moved, sorted(set(wanted.owns))
    texts = canonical_texts([*wanted.by_name.values(), *wanted.bindings])
    return hashlib.sha256(canonical_json([fields, texts, live.cluster, live.vhost]).encode()).hexdigest()


def find_pending(wanted: Topology, live: LiveTopology) -> PendingApply | None:
    """Return the apply of the same file that has begun on this broker, and not ended."""
    pending = evidence_of(live).pending
    return pending if pending is not None and pending.file == digest_of(wanted, live) else None


def repeat_steps(
    pending: PendingApply | None, live: LiveRing, wanted: tuple[RingMember, ...], topology: LiveTopology
) -> RingSteps | None:
    """Return all steps of a ring again; None if they do not lead to the wanted ring from every state that it may have.

    An apply unbinds a member just before it binds it. So it does not matter which steps are done, nor whether another program has bound a
    member of a step again. The members that no step names have to be bound as before the first step, and in their order.
    """
    evidence = evidence_of(topology)
    release = live.ring.release
    planned = evidence.steps_of(live.exchange)
    if pending is None or planned is None:
        return None
    named = {destination for _, (destination, _) in planned.steps}
    bound, kept = (
        Counter(member for member in members if member.destination not in named)
        for members in (live.bound, planned.record.members)
    )
    # Of one member that stays, or of none, no restart changes the order.
    staying = tuple(kept.elements())
    of_kept = replace(planned.record, members=staying)
    is_kept = len(kept) < 2 or not why_void(of_kept, staying, release, evidence.mark)
    if bound != kept or not is_kept:
        return None
    after = make_ring(wanted, release)
    if f"replace exchange {live.exchange}" in pending.changes:  # nothing shows whether that is done
        return RingSteps(live.ring, after, way="impossible")
    ring = replace(planned.before, release=release)  # which an update may have changed
    for is_bind, binding in planned.steps:
        ring = ring.bind(*binding) if is_bind else ring.unbind(*binding, missing_ok=True)
    if ring.buckets != after.buckets:
        return None
    early, late = _list_steps(planned, live, wanted)
    return RingSteps(live.ring, after, early, late, way="repeated")


def members_after(planned: PlannedSteps) -> tuple[RingMember, ...]:
    """Return the members that a ring has after its steps."""
    members = {member.binding: member for member in planned.record.members}
    for is_bind, binding in planned.steps:
        member = members.pop(binding, RingMember(*binding))
        if is_bind:
            members[binding] = member
    return tuple(members.values())


def _list_steps(
    planned: PlannedSteps, live: LiveRing, wanted: tuple[RingMember, ...]
) -> tuple[tuple[PlannedChange, ...], tuple[PlannedChange, ...]]:
    """Return the steps before and after the replacement of objects: first the unbinds of what others bound, then those of the plan."""
    known = {member.binding: member for member in (*planned.record.members, *live.bound, *wanted)}
    members = [known.get(binding, RingMember(*binding)) for _, binding in planned.steps]
    steps = [
        make_step("bind" if is_bind else "unbind", live.exchange, member)
        for (is_bind, _), member in zip(planned.steps, members, strict=True)
    ]
    named = {member.destination for member in members}
    foreign = [
        make_step("unbind", live.exchange, member)
        for member in live.bound
        if member.destination in named and member not in members
    ]
    early = steps[: planned.early]
    late = steps[planned.early :]
    return (*(foreign if early else ()), *early), (*(() if early else foreign), *late)


def covers(pending: PendingApply, changes: tuple[PlannedChange, ...], rings: Mapping[str, RingSteps]) -> bool:
    """Return True if a plan is the repetition of an apply: its changes are among those of that one, of which some may be done.

    The steps of rings are its own. Of a replacement, the deletion may be done, and the creation left.
    """
    repeated = {
        name
        for name, ring in rings.items()
        if ring.way == "repeated" or f"replace exchange {name}" in pending.changes
    }
    planned = Counter(pending.changes)
    texts = [str(change) for change in changes if not (change.ring and change.binding.source in repeated)]
    replacements = (text.replace("create ", "replace ", 1) for text in texts)
    left = (
        text if text in planned or replacement not in planned else replacement
        for text, replacement in zip(texts, replacements, strict=True)
    )
    return not Counter(left) - planned


def what_is_given_up(compared: Comparison) -> str:
    """Return a sentence about an apply that has not ended, and that a plan does not repeat; empty if there is none."""
    evidence = evidence_of(compared.live)
    if evidence.pending is None or evidence.pending.has_ended(evidence.records):
        return ""
    return f"{evidence.pending} has not ended, and this plan gives up what that has left; apply its file again to do it"
