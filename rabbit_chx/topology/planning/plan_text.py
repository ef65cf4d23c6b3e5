"""A plan in a few lines: how much changes, which share of keys moves, and why it may be refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rabbit_chx.analysis.wording import percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rabbit_chx.topology.planning.plan_refusals import PlanRefusal
    from rabbit_chx.topology.planning.planned_change import PlannedChange
    from rabbit_chx.topology.planning.ring_plan import RingPlan

__all__ = ["NOT_ONE_QUEUE", "counted_changes", "counted_kind", "text_of_plan"]

#: What a slot has in place of its one queue.
NOT_ONE_QUEUE = "no queue, or several"
_MOST_SLOTS = 10
_DONE = {
    "create": "created", "update": "updated", "replace": "replaced", "delete": "deleted", "bind": "made", "unbind": "removed",
}  # fmt: skip


def text_of_plan(
    changes: Sequence[PlannedChange],
    rings: Mapping[str, RingPlan],
    refusals: Iterable[PlanRefusal],
    checksum: str,
) -> str:
    """Return a plan in a few lines.

    Args:
        changes: its changes, in order.
        rings: its rings, by the name of the exchange.
        refusals: why it may be refused.
        checksum: its checksum.
    """
    count = "no change: what is there is as the topology says"
    if changes:
        count = f"{plural(len(changes), 'change')}: {counted_changes(changes)}"
    moving = (ring for ring in rings.values() if ring.moved_at_worst and ring.before.bucket_count)
    refused = (f"refused: {refusal}" for refusal in refusals)
    handed = (line for ring in rings.values() for line in _handed_over(ring))
    return "\n".join([count, *map(_moved, moving), *handed, *refused, f"checksum {checksum}"])


def _moved(ring: RingPlan) -> str:
    what = "destination" if ring.hands is None else "queue"
    lost = f", and {percent(ring.lost_at_worst)} are unroutable then" if ring.lost_at_worst else ""
    return (
        f"{ring.exchange}: {percent(ring.moved)} of the keys have another {what} in the end, {percent(ring.moved_at_worst)} at the "
        f"worst moment{lost}"
    )


def _handed_over(ring: RingPlan) -> list[str]:
    """Return a line for each of the first slots that have another queue."""
    over = () if ring.hands is None else ring.hands.handed_over
    lines = [f"{one.slot}: {one.old or NOT_ONE_QUEUE} -> {one.new or NOT_ONE_QUEUE}" for one in over]
    rest = len(lines) - _MOST_SLOTS
    return lines if rest <= 1 else [*lines[:_MOST_SLOTS], f"{rest:,} slots more"]


def counted_changes(changes: Iterable[PlannedChange]) -> str:
    """Return how many changes of each kind there are, such as ``2 queues created, 3 bindings made``.

    Args:
        changes: the changes of a plan.
    """
    counts = Counter((change.kind, change.action) for change in changes)
    return ", ".join(
        f"{counted_kind(count, kind)} {_DONE[action]}" for (kind, action), count in counts.items()
    )


def counted_kind(count: int, kind: str) -> str:
    """Return a count of objects, such as ``2 policies``.

    Args:
        count: the number.
        kind: what they are, such as ``policy``.
    """
    return f"{count:,} policies" if kind == "policy" and count != 1 else plural(count, kind)
