"""What was done of a plan, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rabbit_chx.cli.change_rows import changes_table
from rabbit_chx.cli.notation import plural, ring_text
from rabbit_chx.rendering import Block, Facts, Section
from rabbit_chx.topology.plan_output import change_entry, counted_changes

if TYPE_CHECKING:
    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology import Applied, PlannedChange, PlanRefusal

__all__ = ["ApplyReport", "ApplyState"]

#: How an application ended.
ApplyState: TypeAlias = Literal["applied", "unchanged", "refused", "partly"]


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What was done of a plan.

    Attributes:
        state: how it ended.
        checksum: the checksum of the plan.
        planned: how many changes there were to do.
        changes: the changes that were done.
        rings: the rings that changed, as they are afterwards.
        refusals: why it was refused.
        says: what went wrong, in words; None where nothing did.
        done: what was done with slots and parked messages; None where nothing was.
    """

    state: ApplyState
    checksum: str
    planned: int
    changes: Sequence[PlannedChange] = ()
    rings: Mapping[str, HashRing] | None = None
    refusals: Sequence[PlanRefusal] = ()
    says: str | None = None
    done: Applied | None = None

    def blocks(self) -> Iterator[Block]:
        """Return what was done. What was to be done is shown before it."""
        if self.state == "unchanged":
            yield Facts(
                [("applied", "nothing: what is there is as the file says"), ("checksum", self.checksum)]
            )
        elif self.state == "applied":
            counted = f"{plural(self.planned, 'change')}: {counted_changes(self.changes)}"
            facts = [("applied", counted if self.changes else "no change: what is there is as the file says")]
            facts += self._slot_facts()
            facts += [("ring", f"{name}: {ring_text(ring)}") for name, ring in (self.rings or {}).items()]
            yield Facts(facts)
        elif self.state == "partly":
            done = f"{len(self.changes):,} of {plural(self.planned, 'change')}"
            yield Facts(
                [
                    ("done", done),
                    *self._slot_facts(),
                    ("left", "apply again: it plans anew, and does the rest"),
                ]
            )
            if self.changes:
                yield Section("Done", [changes_table(self.changes, whole=False)])

    def _slot_facts(self) -> list[tuple[str, str]]:
        if self.done is None:
            return []
        facts = []
        if self.done.handed_over:
            facts.append(("slots", f"{plural(len(self.done.handed_over), 'slot')} with another queue"))
        if self.done.unparked:
            facts.append(("parked", f"{plural(self.done.unparked, 'message')} published once more"))
        return [*facts, *(("overtaken", says) for says in self.done.overtaken)]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return {
            "format": "rabbit-chx/apply",
            "format_version": 1,
            "state": self.state,
            "checksum": self.checksum,
            "planned": self.planned,
            "changes": [change_entry(change) for change in self.changes],
            "rings": [
                {"exchange": name, "ring": json.loads(ring.to_json())}
                for name, ring in (self.rings or {}).items()
            ],
            "refusals": [{"says": one.says, "allow_with": one.allow_with} for one in self.refusals],
            "says": self.says,
            **self._slot_fields(),
        }

    def _slot_fields(self) -> dict[str, Any]:
        """Return what became of slots and parked messages; nothing where there were none."""
        done = self.done
        if done is None or not (done.handed_over or done.unparked):
            return {}
        return {
            "handed_over": [{"slot": slot, "old": old, "new": new} for slot, old, new in done.handed_over],
            "unparked": done.unparked,
            "overtaken": list(done.overtaken),
        }
