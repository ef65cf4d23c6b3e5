"""The result of a repair: what it takes, what it moves, what was done, and what a check finds afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rabbit_chx.cli.notation import percent, plural, ring_text
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, PARTLY
from rabbit_chx.cli.plan_report import PlanReport
from rabbit_chx.rendering import Block, Facts
from rabbit_chx.topology.plan_output import counted_changes

if TYPE_CHECKING:
    from rabbit_chx.analysis import Finding
    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology import Plan, PlannedChange, PlanRefusal
    from rabbit_chx.topology.repair import MemberGap

__all__ = ["RepairReport", "RepairState"]

#: How a repair ended; ``planned`` is a dry run.
RepairState: TypeAlias = Literal["planned", "unchanged", "refused", "applied", "partly"]
_CODES: dict[RepairState, int] = {
    "planned": DIFFERENCE, "unchanged": DONE, "refused": DIFFERENCE, "applied": DONE, "partly": PARTLY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair does, or did.

    Attributes:
        state: how it ended.
        exchange: the exchange.
        about: names and values at its head.
        plan: the plan.
        gap: the longest time without a bucket of a member, in operations; None for none.
        refusals: why it is refused.
        changes: what was done.
        ring: the ring afterwards.
        gap_s: the longest time that a member was without a bucket, at most, in seconds; None where it was not measured.
        left: what a check finds afterwards.
        says: what went wrong, in words; None where nothing did.
    """

    state: RepairState
    exchange: str
    about: Sequence[tuple[str, str]]
    plan: Plan
    gap: MemberGap | None = None
    refusals: Sequence[PlanRefusal] = ()
    changes: Sequence[PlannedChange] = ()
    ring: HashRing | None = None
    gap_s: float | None = None
    left: Sequence[Finding] = ()
    says: str | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        return _CODES[self.state]

    def blocks(self) -> Iterator[Block]:
        """Return what is to be done, or was done."""
        if self.state == "unchanged":
            yield Facts([*self.about, ("repair", "nothing to do: the ring is as it should be")])
        elif self.state in ("planned", "refused"):
            yield from self._planned()
        elif self.state == "applied":
            yield Facts([*self.about, *self._applied()])
        else:
            done = f"{len(self.changes):,} of {plural(len(self.plan.changes), 'change')}"
            yield Facts(
                [*self.about, ("done", done), ("left", "repair again: it plans anew, and does the rest")]
            )

    def _planned(self) -> Iterator[Block]:
        ending = []
        if self.gap is not None:
            what = plural(self.gap.operations, "operation")
            ending.append(
                f"Members that are bound again have no bucket in between: {self.gap.member!s} for the longest time, {what}."
            )
        if self.state == "planned":
            ending.append("Nothing was changed: --apply does it.")
        # A repair is about one exchange, and there is one way that it goes.
        rings = {name: replace(ring, reordered=None) for name, ring in self.plan.rings.items()}
        plan = replace(self.plan, unmanaged=(), rings=rings)
        yield from PlanReport(plan, self.about, self.refusals, ending=ending).blocks()

    def _applied(self) -> Iterator[tuple[str, str]]:
        yield "repaired", f"{plural(len(self.changes), 'change')}: {counted_changes(self.changes)}"
        ring = self.plan.rings.get(self.exchange)
        if ring is not None:
            worst = f"{percent(ring.moved_at_worst)} at the worst moment"
            lost = f"; at most {percent(ring.lost_at_worst)} were unroutable" if ring.lost_at_worst else ""
            yield "moved", f"{percent(ring.moved)} of the keys in the end, {worst}{lost}"
        if self.ring is not None:
            yield "ring", ring_text(self.ring)
        if self.gap_s is not None:
            yield "gap", f"no member was without a bucket for more than {self.gap_s * 1000:.1f} ms"
        if not self.left:
            yield "check", "sound"
        for one in self.left:
            yield "check", f"{one.kind}: {one.says}"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return {
            "format": "rabbit-chx/repair",
            "format_version": 1,
            "state": self.state,
            "exchange": self.exchange,
            "plan": json.loads(self.plan.to_json()),
            "refusals": [{"says": one.says, "allow_with": one.allow_with} for one in self.refusals],
            "done": len(self.changes),
            "ring": None if self.ring is None else json.loads(self.ring.to_json()),
            "longest_gap": {
                "operations": 0 if self.gap is None else self.gap.operations,
                "seconds": self.gap_s,
            },
            "left": [one.kind for one in self.left],
            "says": self.says,
        }
