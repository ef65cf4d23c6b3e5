"""A plan as JSON text, in a few lines for people, and its checksum.

::

    {
      "format": "rabbit-chx/plan",
      "format_version": 1,
      "changes": [{"action": "bind", "kind": "binding", "name": "orders -> orders.1 (key 1)",
                   "fields": [{"field": "routing_key", "old": null, "new": "1"}]}],
      "rings": [{"exchange": "orders", "moved": 0.1, "moved_at_worst": 0.2,
                 "proposals": [{"strategy": "as-written", "moved": 0.1, "moved_at_worst": 0.2,
                                "ring": [{"queue": "orders.1", "weight": "1"}]}],
                 "before": {"format": "rabbit-chx/ring", ...}, "after": {"format": "rabbit-chx/ring", ...},
                 "matrix": {"moved": 0.1, "least": 0.1, "cells": [{"from": "orders.2", "to": "orders.1", "amount": 0.1}]},
                 "handed_over": [{"slot": "orders.slot.07", "old": "orders.1", "new": "orders.5"}]}],   only with slots
      "refusals": [{"says": "...", "message": "...", "fix": "...", "allow_with": "--allow-moved 0.2"}],   null: no flag; says: both
      "checksum": "...",
      "unmanaged": [{"kind": "queue", "name": "other"}],          neither in the topology nor owned; it stays
      "warnings": [{"says": "..."}],                              only if there are warnings
      "parked": [{"queue": "events.park", "messages": 12}]        only if messages are parked
    }

`rings` also has an entry for each ``x-modulus-hash`` exchange, without proposals. Its ``before`` and ``after`` are
``{"exchange": "bills", "release": ..., "destinations": ["bills.1", ...]}``: one destination for each binding, in the order of the broker's
numbers. If that order is not known, the matrix is null, and the shares are the largest possible ones.

A member of a ring is written as in a topology file, its weight as the text of the binding key. ``before`` and ``after`` have the format of
`HashRing.to_json`, or with slots of `SlotTable.to_json`. The matrix is null if the exchange hashes something else afterwards, because no
ring determines the destinations then. In its cells text is a queue, and null is no destination. The old queue of a slot is null if it has
no queue or several queues; the new one likewise. The proposal ``slots`` also has the field ``slots``, the number of slots.

The checksum depends only on the contents of the two sides, not on the order of their parts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.matrix import MovementMatrix
from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.changes import PlannedChange, TopologyObject, kind_of, name_of
from rabbit_chx.topology.differences import binding_identity, by_name
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.modulus_plan import ModulusPlan
from rabbit_chx.topology.objects import RingMember
from rabbit_chx.topology.proposals import RingProposal
from rabbit_chx.topology.ring_plan import RingPlan

if TYPE_CHECKING:
    from rabbit_chx.topology.plan import Plan

_FORMAT = "rabbit-chx/plan"
_FORMAT_VERSION = 1
#: The text for a slot that does not have exactly one queue.
NOT_ONE_QUEUE = "no queue, or several"
_MOST_SLOTS = 10
_DONE = {
    "create": "created", "update": "updated", "replace": "replaced", "delete": "deleted", "bind": "made", "unbind": "removed",
}  # fmt: skip


def plan_as_json(plan: Plan) -> str:
    """Return the JSON text of a plan, on one line."""
    document: dict[str, Any] = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "changes": list(map(change_entry, plan.changes)),
        "rings": [*map(_ring, plan.rings.values()), *map(_modulus, plan.moduli.values())],
        "refusals": list(map(_refusal, plan.refusals)),
        "checksum": plan.checksum,
        "unmanaged": [{"kind": kind_of(subject), "name": name_of(subject)} for subject in plan.unmanaged],
    }
    if warned := [{"says": says} for says in plan.warnings]:
        document["warnings"] = warned
    if plan.parked_messages:
        document["parked"] = [
            {"queue": queue, "messages": count} for queue, count in plan.parked_messages.items()
        ]
    return json.dumps(document, ensure_ascii=False)


def _refusal(refusal: Finding) -> dict[str, Any]:
    return {
        "says": refusal.text,
        "message": refusal.message,
        "fix": refusal.fix,
        "allow_with": refusal.allow_with,
    }


def change_entry(change: PlannedChange) -> dict[str, Any]:
    """Return a change as an entry of the JSON document."""
    fields = []
    for field in change.fields:
        values = plain({"old": field.old, "new": field.new})
        fields.append({"field": field.field, "old": values["old"], "new": values["new"]})
    return {"action": change.action, "kind": change.kind, "name": change.name, "fields": fields}


def ring_entries(members: tuple[RingMember, ...]) -> list[dict[str, Any]]:
    """Return the members of a ring as entries of a topology file."""
    entries = []
    for member in members:
        place = member.destination
        entry: dict[str, Any] = {"queue": place} if isinstance(place, str) else {"exchange": place.name}
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
        "proposals": [_proposal(proposal) for proposal in ring.proposals],
        "before": _key_map(ring.before, {} if ring.ownership is None else ring.ownership.before),
        "after": _key_map(ring.after, {} if ring.ownership is None else ring.ownership.after),
        "matrix": _matrix(ring),
    }
    if ring.ownership is not None:
        entry["handed_over"] = [slot._asdict() for slot in ring.handed_over]
    return entry


def _key_map(ring: HashRing, names: Mapping[Place, Place]) -> dict[str, Any]:
    slots = {
        place.name: queue if isinstance(queue := names[place], str) else None
        for place in ring.destinations
        if isinstance(place, ExchangeRef) and place in names
    }
    document: dict[str, Any] = json.loads(ring.to_json())
    return {**document, "slots": slots} if slots else document


def _modulus(modulus: ModulusPlan) -> dict[str, Any]:
    matrix = modulus.matrix()
    sides = [
        {
            "exchange": modulus.exchange,
            "release": {part: getattr(modulus.release, part) for part in ("version", "store", "store_known")},
            "destinations": list(map(_place, numbered)),
        }
        for numbered in (modulus.before, modulus.after)
    ]
    return {
        "exchange": modulus.exchange,
        "moved": modulus.moved,
        "moved_at_worst": modulus.moved_at_worst,
        "proposals": [],
        "before": sides[0],
        "after": sides[1],
        "matrix": None if matrix is None else _matrix_entry(matrix),
    }


def _matrix(ring: RingPlan) -> dict[str, Any] | None:
    matrix = ring.matrix()
    return _matrix_entry(matrix) if ring.is_explained_by(matrix) else None


def _matrix_entry(matrix: MovementMatrix) -> dict[str, Any]:
    cells = [
        {"from": _place(before), "to": _place(after), "amount": amount}
        for (before, after), amount in matrix.amounts.items()
    ]
    return {"moved": matrix.moved, "least": matrix.least, "cells": cells}


def _place(place: Place) -> str | dict[str, str] | None:
    return {"exchange": place.name} if isinstance(place, ExchangeRef) else place


def _proposal(proposal: RingProposal) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "strategy": proposal.strategy,
        "moved": proposal.moved,
        "moved_at_worst": proposal.moved_at_worst,
        "ring": ring_entries(proposal.ring),
    }
    if proposal.slots is not None:
        entry["slots"] = proposal.slots
    return entry


def text_of_plan(plan: Plan) -> str:
    """Return a plan in a few lines."""
    count = "no change: what is there is as the topology says"
    if plan.changes:
        count = f"{plural(len(plan.changes), 'change')}: {counted_changes(plan.changes)}"
    rings, moduli = plan.rings.values(), plan.moduli.values()
    return "\n".join(
        [
            count,
            *(_moved(ring) for ring in rings if ring.moved_at_worst and ring.before.bucket_count),
            *(
                f"{modulus.exchange}: {modulus.moves}"
                for modulus in moduli
                if modulus.before and modulus.moved_at_worst
            ),
            *(line for ring in rings for line in _handed_over(ring)),
            *(f"warning: {warning}" for warning in plan.warnings),
            *(f"refused: {refusal}" for refusal in plan.refusals),
            f"checksum {plan.checksum}",
        ]
    )


def _moved(ring: RingPlan) -> str:
    what = "destination" if ring.ownership is None else "queue"
    lost = f", and {percent(ring.lost_at_worst)} are unroutable then" if ring.lost_at_worst else ""
    return (
        f"{ring.exchange}: {percent(ring.moved)} of the keys have another {what} in the end, {percent(ring.moved_at_worst)} at the "
        f"worst moment{lost}"
    )


def _handed_over(ring: RingPlan) -> list[str]:
    lines = [
        f"{slot}: {old or NOT_ONE_QUEUE} -> {new or NOT_ONE_QUEUE}" for slot, old, new in ring.handed_over
    ]
    rest = len(lines) - _MOST_SLOTS
    return lines if rest <= 1 else [*lines[:_MOST_SLOTS], f"{rest:,} slots more"]


def counted_changes(changes: Iterable[PlannedChange]) -> str:
    """Return the number of changes of each kind, such as ``2 queues created, 3 bindings made``."""
    counts = Counter((change.kind, change.action) for change in changes)
    return ", ".join(
        f"{counted_kind(count, kind)} {_DONE[action]}" for (kind, action), count in counts.items()
    )


def counted_kind(count: int, kind: str) -> str:
    """Return a count of objects of a kind, such as ``2 policies``."""
    return f"{count:,} policies" if kind == "policy" and count != 1 else plural(count, kind)


def checksum_of(
    wanted: Topology, live: Topology, changes: tuple[PlannedChange, ...], rings: Mapping[str, RingPlan]
) -> str:
    """Return the SHA-256 of the wanted topology, of the live state of its objects, and of the changes, in hexadecimal digits.

    Live objects that are neither wanted nor changed do not count.
    """
    objects, live_objects = by_name(wanted), by_name(live)
    bound = {binding_identity(binding) for binding in wanted.bindings}
    befores = {
        exchange.name: live.rings[exchange.name]
        for exchange in wanted.exchanges
        if exchange.name in live.rings
    }
    befores |= {name: ring.before for name, ring in rings.items()}
    parts = [
        [wanted.cluster, wanted.max_share_moved, sorted(set(wanted.owns))],
        _texts([*objects.values(), *wanted.bindings]),
        [live.cluster, live.release],
        _texts(live_objects[key] for key in objects if key in live_objects),
        _texts(binding for binding in live.bindings if binding_identity(binding) in bound),
        {name: ring.to_json() for name, ring in befores.items()},
        changes,
    ]
    return hashlib.sha256(_canonical_json(parts).encode()).hexdigest()


def _texts(objects: Iterable[TopologyObject]) -> list[str]:
    return sorted(map(_canonical_json, objects))


def _canonical_json(value: object) -> str:
    """Return canonical JSON text of a value. The texts of 1, 1.0 and true differ, as the values do in the broker."""

    def as_dict(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any type that JSON does not have
        if isinstance(value, Mapping):
            return dict(value)
        return {"is": type(value).__name__} | {
            part.name: getattr(value, part.name) for part in fields_of(value)
        }

    return json.dumps(value, default=as_dict, sort_keys=True, separators=(",", ":"))
