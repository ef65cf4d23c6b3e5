"""A plan as JSON text.

::

    {
      "format": "rabbit-chx/plan",
      "changes": [{"action": "bind", "kind": "binding", "name": "orders -> orders.1 (key 1)",
                   "fields": [{"field": "routing_key", "old": null, "new": "1"}]}],
      "rings": [{"exchange": "orders", "moved": 0.1, "moved_at_worst": 0.2,
                 "proposals": [{"strategy": "as-written", "moved": 0.1, "moved_at_worst": 0.2,
                                "ring": [{"queue": "orders.1", "weight": "1"}]}],
                 "handed_over": [{"slot": "orders.slot.07", "old": "orders.1", "new": "orders.5"}]}],   only with slots
      "refusals": [{"says": "...", "allow_with": "--allow-moved 0.2"}],       null: no flag allows it
      "checksum": "...",
      "parked": [{"queue": "events.park", "messages": 12}]        only where messages are parked
    }

A member of a ring is written as in a topology file, its weight as the text of the binding key. The old queue of a slot is null
where there is none, or several; the new one likewise. The proposal ``slots`` has three fields more, as `SlotForecast` has them:
``slots``, ``moved_by_next`` and ``moved_by_leaving``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.argument_table import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rabbit_chx.topology.objects import RingMember
    from rabbit_chx.topology.planning.plan_refusals import PlanRefusal
    from rabbit_chx.topology.planning.planned_change import PlannedChange
    from rabbit_chx.topology.planning.ring_plan import RingPlan
    from rabbit_chx.topology.planning.ring_proposals import RingProposal

__all__ = ["change_entry", "plan_as_json", "ring_entries"]

_FORMAT = "rabbit-chx/plan"


def plan_as_json(
    changes: tuple[PlannedChange, ...],
    rings: Mapping[str, RingPlan],
    refusals: tuple[PlanRefusal, ...],
    parked: Mapping[str, int],
    checksum: str,
) -> str:
    """Return the JSON text of the parts of a plan, on one line."""
    document: dict[str, Any] = {
        "format": _FORMAT,
        "changes": [change_entry(change) for change in changes],
        "rings": [_ring(ring) for ring in rings.values()],
        "refusals": [{"says": one.says, "allow_with": one.allow_with} for one in refusals],
        "checksum": checksum,
    }
    if parked:
        document["parked"] = [{"queue": queue, "messages": count} for queue, count in parked.items()]
    return json.dumps(document, ensure_ascii=False)


def change_entry(change: PlannedChange) -> dict[str, Any]:
    """Return a change as JSON writes it."""
    fields = []
    for one in change.fields:
        values = plain({"old": one.old, "new": one.new})
        fields.append({"field": one.field, "old": values["old"], "new": values["new"]})
    return {"action": change.action, "kind": change.kind, "name": change.name, "fields": fields}


def ring_entries(members: tuple[RingMember, ...]) -> list[dict[str, Any]]:
    """Return the members of a ring as a topology file writes them."""
    entries = []
    for member in members:
        place = member.destination
        entry: dict[str, Any] = (
            {"exchange": place.name} if isinstance(place, ExchangeRef) else {"queue": place}
        )
        if member.slots is None:
            entry["weight"] = member.key
        else:
            entry["slots"] = list(member.slots)
        if member.arguments:
            entry["arguments"] = plain(member.arguments)
        entries.append(entry)
    return entries


def _ring(ring: RingPlan) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "exchange": ring.exchange,
        "moved": ring.moved,
        "moved_at_worst": ring.moved_at_worst,
        "proposals": [_proposal(one) for one in ring.proposals],
    }
    if ring.hands is not None:
        entry["handed_over"] = [one._asdict() for one in ring.hands.handed_over]
    return entry


def _proposal(one: RingProposal) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "strategy": one.strategy,
        "moved": one.moved,
        "moved_at_worst": one.moved_at_worst,
        "ring": ring_entries(one.ring),
    }
    if one.forecast is not None:
        entry |= {
            "slots": one.forecast.slots,
            "moved_by_next": one.forecast.moved_by_next,
            "moved_by_leaving": one.forecast.moved_by_leaving,
        }
    return entry
