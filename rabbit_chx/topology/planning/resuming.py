"""A second run of an apply that was interrupted: the steps of rings that were left, and the shares of keys from before the first run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.routing import HashRing
from rabbit_chx.routing.ring_changes import RingState
from rabbit_chx.topology.live_rings import LiveRing, find_live_ring, make_ring
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.argument_table import canonical_json, canonical_texts
from rabbit_chx.topology.objects.objects import BindingDefinition, RingMember
from rabbit_chx.topology.pending_apply import PendingApply, PendingRing, left_by
from rabbit_chx.topology.planning.ring_plan import (
    KeyMapPlan,
    Moment,
    Movement,
    RingSteps,
    Way,
    apply_steps,
    make_step,
)
from rabbit_chx.words import listed

if TYPE_CHECKING:
    from rabbit_chx.topology.planning.comparison import Comparison
    from rabbit_chx.topology.planning.plan_value import Plan


def make_pending(plan: Plan, live: LiveTopology, written: str, writer: str) -> PendingApply:
    """Return what a broker keeps of a plan until it is applied."""
    return PendingApply(
        (live.cluster, live.vhost),
        _digest_of(plan.wanted),
        plan.checksum,
        written,
        writer,
        tuple(map(str, plan.changes)),
        {name: _pending_ring(ring, live) for name, ring in plan.rings.items() if ring.is_moving},
    )


def _pending_ring(ring: KeyMapPlan, live: LiveTopology) -> PendingRing:
    has_ring = ring.before.hashing.has_order
    state = find_live_ring(live, live.exchange(ring.exchange), ring.exchange).state
    return PendingRing(
        HashRing(*state) if has_ring else None,
        tuple((step.action == "bind", step.binding.member) for step in ring.steps),
        0 if ring.ring is None else len(ring.ring.early),
        tuple(ring.moments),
        {
            "unknown": ring.movement.unknown,
            "is_reset": ring.way == "reset",
            "transient_share": ring.movement.transient_share,
        },
    )


def _digest_of(wanted: Topology) -> str:
    """Return the SHA-256 of what a file says."""
    fields = wanted.cluster, wanted.vhost, wanted.max_share_moved, sorted(set(wanted.owns))
    texts = canonical_texts([*wanted.by_name.values(), *wanted.bindings])
    return hashlib.sha256(canonical_json([fields, texts]).encode()).hexdigest()


def find_pending(wanted: Topology, live: LiveTopology) -> PendingApply | None:
    """Return the apply of the same file that has begun on this broker, and not ended."""
    pending = live.facts.pending
    if pending is None or pending.where != (live.cluster, live.vhost):
        return None
    return pending if pending.file == _digest_of(wanted) else None


def resume_steps(
    pending: PendingApply | None, live: LiveRing, wanted: tuple[RingMember, ...]
) -> RingSteps | None:
    """Return the steps that were left; None if the ring is not one between the planned steps, or they do not make the wanted one."""
    planned = None if pending is None else pending.rings.get(live.exchange)
    if planned is None or planned.before is None:
        return None
    members = {member.binding: member for member in (*live.bound, *wanted)}
    steps = [
        make_step("bind" if is_bind else "unbind", live.exchange, members.get(binding, RingMember(*binding)))
        for is_bind, binding in planned.steps
    ]
    before = planned.before
    state = RingState(
        before.buckets, live.ring.release, live.ring.ground, before.bindings or (), before.end_known
    )
    states = [state]
    for step in steps:
        states.append(apply_steps(states[-1], [step]).ring)
    bound = {*(live.state.bindings or ())}
    done = next(
        (
            number
            for number in range(len(steps), -1, -1)
            if states[number].buckets == live.ring.buckets and {*(states[number].bindings or ())} == bound
        ),
        None,
    )
    if done is None or states[-1].buckets != make_ring(wanted, live.ring.release).buckets:
        return None
    early = max(planned.early - done, 0)
    left = tuple(steps[done:])
    after = HashRing(*states[-1]) if left else live.ring
    return RingSteps(live.ring, after, left[:early], left[early:], way="by-order")


def resume_ring(ring: RingSteps, planned: PendingRing) -> RingSteps:
    """Return the steps of a ring from the ring before the first run."""
    before = ring.before if planned.before is None else planned.before
    is_certain = ring.before.ground.is_certain and ring.way == "by-order"
    way: Way = "reset" if planned.about["is_reset"] else "unchanged" if is_certain else ring.way
    return replace(ring, before=before, way=way)


def resume_movement(planned: PendingRing, *, has_flows: bool) -> Movement:
    """Return the keys that move, counted from before the first run."""
    about = planned.about
    moments = tuple(Moment(*moment) for moment in planned.moments)
    return Movement(moments, about["unknown"], about["transient_share"], has_flows)


def what_is_given_up(compared: Comparison) -> str:
    """Return a sentence about an apply that has not ended, and that a plan does not resume; empty if there is none."""
    live, pending = compared.live, compared.live.facts.pending
    if pending is None or pending.where != (live.cluster, live.vhost):
        return ""
    existing = (f"{kind} {name}" for kind, name in live.by_name)
    left = [*left_by(pending, _names_of_bindings(live), existing)]
    what = f": {listed(left)}" if left else ""
    return (
        f"the apply of {pending.written} by {pending.writer} has not ended, and this plan gives up what that has left{what}; "
        "apply its file again to do it"
    )


def _names_of_bindings(live: LiveTopology) -> Iterator[str]:
    yield from (binding.name for binding in live.bindings)
    for exchange in live.exchanges:
        for member in exchange.ring or ():
            yield BindingDefinition(exchange.name, member.destination, member.key).name
