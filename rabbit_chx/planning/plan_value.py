"""A plan as a value: its JSON text, and a few lines for people.

::

    {
      "format": "rabbit-chx/plan",
      "format_version": 2,
      "changes": [{"action": "bind", "kind": "binding", "name": "orders -> orders.1 (key 1)",
                   "fields": [{"field": "routing_key", "old": null, "new": "1"}]}],
      "rings": [{"exchange": "orders", "moved": 0.1, "moved_at_worst": 0.2,
                 "proposals": [{"strategy": "as-written", "moved": 0.1, "moved_at_worst": 0.2,
                                "ring": [{"queue": "orders.1", "weight": "1"}]}],
                 "before": {"format": "rabbit-chx/ring", ...}, "after": {"format": "rabbit-chx/ring", ...},
                 "matrix": {"moved": 0.1, "least": 0.1, "cells": [{"from": "orders.2", "to": "orders.1", "amount": 0.1}]},
                 "handed_over": [{"slot": "orders.slot.07", "old": "orders.1", "new": "orders.5"}]}],   only with slots
      "refusals": [{"message": "...", "fix": "...", "allow_with": "--allow moved=0.2"}],   null: no option permits it
      "checksum": "...",
      "unmanaged": [{"kind": "queue", "name": "other"}],          neither in the topology nor owned; it stays
      "resumes": "the apply of 2026-07-01T12:00:00Z by ...",    only if it repeats an apply that has not ended
      "warnings": [{"message": "..."}],                           only if there are warnings
      "parked": [{"queue": "events.park", "messages": 12}]        only if messages are parked
    }

`rings` also has an entry for each ``x-modulus-hash`` exchange. Its ``before`` and ``after`` are
``{"exchange": "bills", "release": ..., "destinations": ["bills.1", ...]}``: one destination for each binding, in the order of the broker's
numbers. If the order of a ring or of these numbers is not known, the entry has ``"determined": false``, the matrix and both shares are null,
and ``at_most`` has the largest possible shares. The buckets of a map whose order is not known are null.

A member of a ring is written as in a topology file, its weight as the text of the binding key. ``before`` and ``after`` have the format of
`HashRing.to_json`, or with slots of `SlotTable.to_json`. Of more than 100 cells a matrix has the largest 100, those that change the
destination first, and ``"more_cells"``, the number of the others. The matrix is null if the exchange hashes something else afterwards, because no
ring determines the destinations then. In its cells text is a queue, and null is no destination. The old queue of a slot is null if it has
no queue or several queues; the new one likewise. The proposal ``slots`` also has the field ``slots``, the number of slots.

The checksum depends only on the contents of the two sides, not on the order of their parts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import Any, TypeAlias, TypedDict, cast

from rabbit_chx.amqp.exchange_types import MODULUS_EXCHANGE
from rabbit_chx.analysis.findings import Finding, RefusalFields
from rabbit_chx.checks import check_share
from rabbit_chx.lazy_names import shown_by
from rabbit_chx.planning.ring_plan import KeyMapPlan, RingProposal, SlotHandOver
from rabbit_chx.result_fields import ABSENT, Absent, document, shown, to_json
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import RECORD_CONDITION, FlowCell, Flows, FlowsJson, OrderKnowledge, Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import RingJson
from rabbit_chx.routing.super_stream import SuperStreamJson
from rabbit_chx.text import listed, percent, plural
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import BindingDefinition, ObjectKind
from rabbit_chx.topology.schema import NamedObject, PlannedChange

#: The text for a slot that does not have exactly one queue.
NOT_ONE_QUEUE = "no queue, or several"
_MOST_SLOTS = 10
#: The most cells of a matrix in JSON.
_MOST_FLOWS = 100
_DONE = {
    "create": "created", "update": "updated", "replace": "replaced", "delete": "deleted", "bind": "made", "unbind": "removed",
}  # fmt: skip
_PLANNED = {action: f"to {action}" for action in _DONE} | {"bind": "to add", "unbind": "to remove"}
#: The time in seconds in which consumers must empty the queues that a plan deletes or replaces, by default.
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The operations that turn a live topology into the wanted one. A value; `plan` makes it.

    Attributes:
        changes: the operations, in order.
        rings: the change of the key map of each exchange that hashes, by its name: those of type ``x-consistent-hash``, then those of type
            ``x-modulus-hash``.
        refusals: the reasons to refuse the plan, each with the flag that permits it.
        unmanaged: live objects that are neither in the topology nor owned by it. They stay.
        checksum: the SHA-256, in hexadecimal digits, of the wanted topology, of the live state of its objects, of the cluster and
            the vhost, and of the changes. Other objects do not count: they may change before the plan is applied.
        wanted: the wanted topology.
        warnings: effects on messages or consumers without a limit, as sentences.
        parking_queues: the parking queue of each exchange with slots, by the name of the exchange. Applying the plan empties it.
        parked_messages: the number of messages in each parking queue that is not empty.
        resumes: the apply that has not ended and that this one repeats, in words: the steps of rings are all made again, from the first, and the
            shares of keys count from before that; empty if there is none.
    """

    changes: tuple[PlannedChange, ...]
    rings: Mapping[str, KeyMapPlan]
    refusals: tuple[Finding, ...]
    unmanaged: tuple[NamedObject | BindingDefinition, ...] = field(hash=False)
    checksum: str
    wanted: Topology = field(hash=False)
    warnings: tuple[str, ...] = ()
    parking_queues: Mapping[str, str] = field(default_factory=dict, hash=False)
    parked_messages: Mapping[str, int] = field(default_factory=dict, compare=False)
    resumes: str = ""
    _repr_html_ = shown_by("rabbit_chx.planning.plan_report", "shown_plan")

    def __repr__(self) -> str:
        return f"<Plan {len(self.changes)} changes, {len(self.refusals)} refusals, {self.checksum[:12]}>"

    def __str__(self) -> str:
        return text_of_plan(self)

    def refused(
        self,
        *,
        allow_moved: float | None = None,
        allow_delete: bool = False,
        allow_loss: bool = False,
        allow_vhost: bool = False,
        allow_unlink: bool = False,
        records: bool = True,
    ) -> tuple[Finding, ...]:
        """Return the refusals that remain.

        Args:
            allow_moved: the share of keys that may move in each ring, 0 to 1; None: the limit of the topology.
            allow_delete: permits deleting and replacing objects.
            allow_loss: permits deleting queues whose messages nobody can count, as they are down.
            allow_vhost: permits another vhost than the wanted topology names.
            allow_unlink: permits cutting federation links.
            records: False: the order of rings is not stored on the broker, which takes a queue.

        Raises:
            InputError: `allow_moved` is not a share.
        """
        if allow_moved is not None:
            check_share("allow_moved", allow_moved)
        allowed = {
            "--allow delete": allow_delete,
            "--allow loss": allow_loss,
            "--allow vhost": allow_vhost,
            "--allow unlink": allow_unlink,
            "--no-record": not records,
        }

        def is_allowed(refusal: Finding) -> bool:
            if refusal.share is not None:
                return allow_moved is not None and refusal.share <= allow_moved
            return allowed.get(refusal.allow_with or "", False)

        return tuple(refusal for refusal in self.refusals if not is_allowed(refusal))

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The warnings, with what keeps an append from being in order."""
        obstacles = (obstacle for ring in self.rings.values() for obstacle in ring.obstacles)
        return (*self.warnings, *obstacles)

    @property
    def unknown_orders(self) -> Mapping[str, OrderKnowledge]:
        """The exchanges whose rings have the wanted bindings, in an order that is not known, with what is known about it."""
        return {
            name: change.before.order
            for name, change in self.rings.items()
            if change.is_ring
            and not change.steps
            and not change.before.order.is_certain
            and len(change.before.destinations) > 1
        }

    def reaches_others(self, queue: str) -> bool:
        """Return True if other queues, or parking queues, get the messages of a queue between its unbinds and its binds.

        A queue that is bound to no exchange gets its messages by its name only: nothing keeps them away from it.

        Args:
            queue: the name of a queue that the plan replaces.
        """
        sources = {
            change.binding.source
            for change in self.changes
            if change.action == "bind" and change.binding.destination == queue
        }
        parked = {
            place.name
            for name in self.parking_queues
            if name in self.rings
            for place in self.rings[name].before.destinations
            if isinstance(place, ExchangeRef)
        }
        return (
            bool(sources)
            and sources <= self.rings.keys() | parked
            and not any(change.lost_at_worst for change in self.rings.values())
        )

    def to_json(self) -> str:
        """Return the plan as JSON text of the format ``rabbit-chx/plan``. Equal plans have equal texts."""
        return plan_as_json(self)


@dataclass(frozen=True, slots=True)
class SharesMoved:
    """Shares of keys that move.

    Attributes:
        moved: The share of keys with another destination afterwards.
        moved_at_worst: The peak of `moved` between two steps.
    """

    moved: float
    moved_at_worst: float


class PlannedModulus(TypedDict):
    """An ``x-modulus-hash`` exchange in a plan."""

    exchange: str
    release: Release
    destinations: Sequence[Place]


PlannedMap: TypeAlias = RingJson | PlannedModulus | SuperStreamJson


@dataclass(frozen=True, slots=True)
class PlannedRing:
    """The change of one exchange that hashes, in JSON.

    Attributes:
        determined: False if the exact shares are not known; they are null.
        moved: The share of keys with another destination afterwards.
        moved_at_worst: The peak of `moved` between two steps.
        at_most: The largest possible shares, where the exact ones are not known.
        handed_over: The slots that change hands.
    """

    exchange: str
    determined: bool | None = field(metadata=shown(optional=True))
    moved: float | None
    moved_at_worst: float | None
    at_most: SharesMoved | None = field(metadata=shown(optional=True))
    proposals: Sequence[RingProposal]
    before: PlannedMap
    after: PlannedMap
    matrix: FlowsJson | None
    handed_over: Sequence[SlotHandOver] | Absent

    @classmethod
    def of(cls, change: KeyMapPlan) -> PlannedRing:
        """Return the fields of a change."""
        shares = SharesMoved(change.moved, change.moved_at_worst)
        is_unknown = bool(change.movement.unknown)
        matrix = change.matrix()
        before, after = ({}, {}) if change.slots is None else (view.owners for view in change.slots)
        return cls(
            exchange=change.exchange,
            determined=False if is_unknown else None,
            moved=None if is_unknown else shares.moved,
            moved_at_worst=None if is_unknown else shares.moved_at_worst,
            at_most=shares if is_unknown else None,
            proposals=change.proposals,
            before=_map_as_json(change.before, before),
            after=_map_as_json(change.after, after),
            matrix=None if matrix is None else _matrix_as_json(matrix),
            handed_over=change.handed_over if change.slots else ABSENT,
        )


@dataclass(frozen=True, slots=True)
class UnmanagedObject:
    """An object that a plan leaves alone."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """A warning of a plan."""

    message: str


@dataclass(frozen=True, slots=True)
class ParkedQueue:
    """The messages in a parking queue of slots."""

    queue: str
    messages: int


@dataclass(frozen=True, slots=True)
class PlanFields:
    """A plan, in JSON.

    Attributes:
        changes: All changes, in order.
        checksum: SHA-256 over both sides and the changes.
        unmanaged: Objects of the broker that the file neither has nor owns.
        resumes: The apply that has not ended and that this one repeats.
        parked: The messages in parking queues of slots.
    """

    changes: Sequence[PlannedChange]
    rings: Sequence[PlannedRing]
    refusals: Sequence[RefusalFields]
    checksum: str
    unmanaged: Sequence[UnmanagedObject]
    resumes: str | None = field(metadata=shown(optional=True))
    warnings: Sequence[PlanWarning] = field(metadata=shown(optional=True))
    parked: Sequence[ParkedQueue] = field(metadata=shown(optional=True))

    @classmethod
    def of(cls, plan: Plan) -> PlanFields:
        """Return the fields of a plan."""
        return cls(
            changes=plan.changes,
            rings=[PlannedRing.of(change) for change in plan.rings.values()],
            refusals=RefusalFields.of(plan.refusals),
            checksum=plan.checksum,
            unmanaged=[UnmanagedObject(subject.kind, subject.name) for subject in plan.unmanaged],
            resumes=plan.resumes or None,
            warnings=[PlanWarning(warning) for warning in plan.all_warnings],
            parked=[ParkedQueue(queue, count) for queue, count in plan.parked_messages.items()],
        )


def plan_as_json(plan: Plan) -> str:
    """Return the JSON text of a plan, on one line."""
    return json.dumps(document("plan", PlanFields.of(plan)), ensure_ascii=False)


def _map_as_json(key_map: KeyMap, owners: Mapping[Place, Place]) -> PlannedMap:
    if key_map.kind == MODULUS_EXCHANGE:
        assert key_map.release is not None  # only a super stream has none
        return PlannedModulus(
            exchange=key_map.name, release=key_map.release, destinations=key_map.destinations
        )
    slots: dict[str, str | None] = {}
    for place in key_map.destinations:
        if isinstance(place, ExchangeRef) and place in owners:
            queue = owners[place]
            slots[place.name] = queue if isinstance(queue, str) else None
    fields: Any = to_json(key_map)
    return cast("PlannedMap", fields | ({"slots": slots} if slots else {}))


def _matrix_as_json(matrix: Flows) -> FlowsJson:
    """Return a matrix; of more than `_MOST_FLOWS` flows those that change the destination come first, the largest first."""
    count = len(matrix)
    if count <= _MOST_FLOWS:
        return matrix.as_json()
    flows = matrix.largest_moves(_MOST_FLOWS)
    if missing := _MOST_FLOWS - len(flows):
        staying = [(place, place, matrix.get((place, place), 0.0)) for place in matrix.before]
        flows += nlargest(missing, staying, key=itemgetter(2))
    cells: list[FlowCell] = [{"from": source, "to": to, "amount": amount} for source, to, amount in flows]
    return {"moved": matrix.moved, "least": matrix.least, "cells": cells, "more_cells": count - len(cells)}


def text_of_plan(plan: Plan) -> str:
    """Return a plan in a few lines."""
    facts = [
        *plan_facts(plan),
        *(
            ("unroutable", f"{ring.exchange}: {percent(ring.lost_at_worst)} of the keys at the peak")
            for ring in plan.rings.values()
            if ring.lost_at_worst
        ),
        *(("slot", line) for change in plan.rings.values() for line in _list_hand_overs(change)),
        *(("refused", str(refusal)) for refusal in plan.refusals),
        ("checksum", plan.checksum),
    ]
    return "\n".join(f"{name:<12}{value}" for name, value in facts)


def plan_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the changes of a plan, of what they move, and of its warnings."""
    if plan.resumes:
        yield "resumes", f"{plan.resumes}, from its first step"
    if plan.changes:
        yield "changes", count_changes(plan.changes, _PLANNED)
    else:
        yield "changes", "none" if plan.refusals else f"none: {no_change(plan)}"
    yield from order_facts(plan)
    for change in plan.rings.values():
        if change.before.buckets and change.is_moving:
            yield "moves", f"{change.exchange}: {change.moves}"
    for warning in plan.all_warnings:
        yield "warning", warning
    for queue, count in plan.parked_messages.items():
        yield "parked", f"{queue}: {plural(count, 'message')}, which apply publishes again"


def order_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield a name and a value for the rings whose order is not known, or known on a condition. That of a ring that moves stands beside it."""
    for name, order in plan.unknown_orders.items():
        yield "order", f"of the ring of {name}: {order.text}"
    kept = {name: change.before for name, change in plan.rings.items() if not change.is_moving}
    recorded = [name for name, before in kept.items() if before.provenance == "recorded"]
    if recorded:
        yield "order", f"of {listed(recorded)}: {RECORD_CONDITION}"


def no_change(plan: Plan) -> str:
    """Return the result of a plan without changes."""
    return "the bindings match the topology" if plan.unknown_orders else "the broker matches the topology"


def _list_hand_overs(change: KeyMapPlan) -> list[str]:
    lines = [
        f"{slot}: {old or NOT_ONE_QUEUE} -> {new or NOT_ONE_QUEUE}" for slot, old, new in change.handed_over
    ]
    rest = len(lines) - _MOST_SLOTS
    return lines if rest <= 1 else [*lines[:_MOST_SLOTS], f"{rest:,} more"]


def count_changes(changes: Iterable[PlannedChange], words: Mapping[str, str] = _DONE) -> str:
    """Return the number of changes of each kind, such as ``2 queues created, 3 bindings made``; `words` has the word of each action."""
    counts = Counter((change.kind, change.action) for change in changes)
    return ", ".join(f"{count_kind(count, kind)} {words[action]}" for (kind, action), count in counts.items())


def count_kind(count: int, kind: str) -> str:
    """Return a count of objects of a kind, such as ``2 policies``."""
    return f"{count:,} policies" if kind == "policy" and count != 1 else plural(count, kind)
