"""A plan: the operations that turn a live topology into the wanted one. Computed without I/O.

`plan` makes it in these steps:

1. Exchanges with slots are expanded to plain objects (`slots`).
2. Both sides are compared (`differences`), and the steps of each ring are computed (`ring_plan`).
3. All changes are put into a safe order (`ordered_changes`).
4. The share of keys that moves is counted at each moment (`movement`, `modulus_plan`).
5. Alternatives that move fewer keys are searched (`proposals`).
6. Reasons to refuse the plan (`refusals`) and warnings are collected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import listed, percent
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.topology.changes import NamedObject, PlannedChange, reference_to
from rabbit_chx.topology.differences import (
    BindingDifferences,
    ObjectDifferences,
    binding_differences,
    object_differences,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.modulus_plan import ModulusPlan, modulus_plans
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.plan_output import checksum_of, plan_as_json, text_of_plan
from rabbit_chx.topology.policies import SHARDS_PER_NODE
from rabbit_chx.topology.refusals import (
    absent_destinations,
    bound_ends,
    cluster_refusals,
    deletions,
    impossible_ring,
    is_allowed,
    last_binding_refusals,
    replacement,
    sharded_declarations,
)
from rabbit_chx.topology.ring_plan import RingPlan, RingWork, plan_rings, too_much_moved
from rabbit_chx.topology.slots import expand_slots, parking_queues

_MOST_NAMES = 10
#: The arguments of a stand-in queue, which rejects messages: see `_with_stand_ins`.
_TAKES_NOTHING = {"x-max-length": 0, "x-overflow": "reject-publish"}


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The operations that turn a live topology into the wanted one. A value; `plan` makes it.

    Attributes:
        changes: the operations, in order.
        rings: the plan of the ring of each ``x-consistent-hash`` exchange, by its name.
        refusals: the reasons to refuse the plan, each with the flag that permits it.
        unmanaged: live objects that are neither in the topology nor owned by it. They stay.
        checksum: the SHA-256, in hexadecimal digits, of the wanted topology, of the live state of its objects, and of the changes. Other
            objects do not count: they may change before the plan is applied.
        wanted: the wanted topology.
        moduli: the movement of the keys of each ``x-modulus-hash`` exchange, by its name.
        warnings: effects on messages or consumers without a limit, as sentences.
        parks: the parking queue of each exchange with slots, by the name of the exchange. Applying the plan empties it.
        parked: the number of messages in each of those parking queues that is not empty.
    """

    changes: tuple[PlannedChange, ...]
    rings: Mapping[str, RingPlan]
    refusals: tuple[Finding, ...]
    unmanaged: tuple[NamedObject | BindingDefinition, ...] = field(hash=False)
    checksum: str
    wanted: Topology = field(hash=False)
    moduli: Mapping[str, ModulusPlan] = field(default_factory=dict, hash=False)
    warnings: tuple[str, ...] = ()
    parks: Mapping[str, str] = field(default_factory=dict, hash=False)
    parked: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"<Plan {len(self.changes)} changes, {len(self.refusals)} refusals, {self.checksum[:12]}>"

    def __str__(self) -> str:
        return text_of_plan(self)

    def refused(self, *, allow_moved: float | None = None, allow_delete: bool = False) -> tuple[Finding, ...]:
        """Return the refusals that remain.

        Args:
            allow_moved: the share of keys that may move in each ring, 0 to 1; None: the limit of the topology.
            allow_delete: permits deleting and replacing objects.
        """
        return tuple(
            refusal
            for refusal in self.refusals
            if not is_allowed(refusal, allow_moved, allow_delete=allow_delete)
        )

    def to_json(self) -> str:
        """Return the plan as JSON text of the format ``rabbit-chx/plan``. Equal plans have equal texts."""
        return plan_as_json(self)


def plan(wanted: Topology, live: Topology, *, propose: bool = True) -> Plan:
    """Return the operations that turn the live topology into the wanted one.

    Args:
        wanted: the wanted topology.
        live: the live topology, with the rings that were read. It may be a file too.
        propose: True: search alternatives that move fewer keys. Otherwise only rings over their limit have proposals.

    Raises:
        InputError: an argument is not a topology; or a member would get no slot, or lists of slots do not contain each slot once, which a
            topology file does not permit.
    """
    for name, side in (("wanted", wanted), ("live", live)):
        if not isinstance(side, Topology):
            raise InputError(
                f"{name} is a {type(side).__name__}: give a Topology, of Topology.from_toml(text) or broker.topology()"
            )
    plain, live, layouts = expand_slots(wanted, live)
    slots = {slot: name for name, layout in layouts.items() for slot in layout.names.slots}
    own_exchanges = {exchange.name for exchange in plain.exchanges if exchange.owner == "ours"}
    slot_exchanges = {
        name for layout in layouts.values() if layout.is_ours for name in layout.names.exchanges
    }
    replaced: set[str] = set()
    # A ring that no unbind can restore needs its exchange replaced. That changes the differences of what is bound to it: compute them
    # again until no such ring is left.
    while True:
        objects = object_differences(plain, live, replaced)
        bindings = binding_differences(plain, live, objects, slot_exchanges)
        rings = plan_rings(plain, live, objects, (*bindings.early, *bindings.bound))
        impossible = {name for name, work in rings.items() if work.impossible}
        if not impossible & own_exchanges - replaced:
            break
        replaced |= impossible & own_exchanges

    existing = _existing(live, objects)
    changes = ordered_changes(objects, bindings, rings, existing | objects.gone)

    moduli = modulus_plans(plain, live, objects, changes)
    for name, work in rings.items():
        sharing: tuple[RingMember, ...] = ()
        if ExchangeRef(name) not in objects.again:
            rings[name] = work.with_hand_overs(changes, plain, live)
            sharing = layouts[name].exchange.members or () if name in layouts else ()
        if propose or rings[name].is_over_limit:
            rings[name] = rings[name].with_proposals(sharing)

    refusals = (
        *cluster_refusals(wanted, live, changes),
        *objects.refusals,
        *(refusal for work in rings.values() for refusal in _ring_refusals(work)),
        *(refusal for modulus in moduli.values() for refusal in modulus.refusals),
        *(impossible_ring(name, None) for name in dict.fromkeys([*sorted(replaced), *sorted(impossible)])),
        *absent_destinations(changes, existing, slots),
        *(
            replacement(old, new)
            for old, new in objects.replaced
            if not isinstance(new, ExchangeDefinition) or new.name not in replaced
        ),
        *deletions(live, objects.deleted),
        *bindings.refusals,
        *last_binding_refusals(live, changes),
        *sharded_declarations(live, changes),
    )
    plans = {name: work.plan for name, work in rings.items()}
    parks = {name: park for name, park in parking_queues(live, plain).items() if name in own_exchanges}
    return Plan(
        changes,
        plans,
        tuple(dict.fromkeys(refusals)),
        (*objects.unmanaged, *bindings.unmanaged),
        checksum_of(plain, live, changes, plans),
        wanted,
        moduli,
        tuple(_warnings(plain, live, objects, plans, moduli)),
        parks,
        {queue: live.messages[queue] for queue in parks.values() if live.messages.get(queue)},
    )


def arranged(wanted: Topology, live: Topology) -> Topology:
    """Return the wanted topology with each ring in the order that moves the fewest keys away from the live ring.

    A ring that is new, or whose exchange is declared again, keeps its order.

    Args:
        wanted: the wanted topology.
        live: the live topology, with the rings that were read.
    """
    orders = {
        name: proposal.ring
        for name, ring in plan(wanted, live).rings.items()
        for proposal in ring.proposals
        if proposal.strategy == "least-moving-order"
    }
    return replace(
        wanted,
        exchanges=tuple(
            replace(exchange, ring=orders[exchange.name]) if exchange.name in orders else exchange
            for exchange in wanted.exchanges
        ),
    )


def _existing(live: Topology, objects: ObjectDifferences) -> frozenset[Destination]:
    """Return the queues and exchanges that exist before the changes, by lists or by bindings, or that are created."""
    existing: set[Destination] = {ExchangeRef(exchange.name) for exchange in live.exchanges}
    existing.update(queue.name for queue in live.queues)
    existing.update(bound_ends(live))
    existing.update(ref for created in objects.created if (ref := reference_to(created)) is not None)
    return frozenset(existing - objects.gone)


def ordered_changes(
    objects: ObjectDifferences,
    bindings: BindingDifferences,
    rings: Mapping[str, RingWork],
    existing: Collection[Destination],
) -> tuple[PlannedChange, ...]:
    """Return the changes in an order that a broker accepts and that leaves as few messages unroutable as possible.

    1. Policies, so that they apply to new objects. Policies that shard exchanges follow the next step.
    2. New exchanges and queues.
    3. Replacements: the bindings are removed, the object is deleted and declared again.
    4. Binds, and the steps of rings. An exchange is bound before the exchanges that route to it: a message that reaches an exchange is
       routed further only if that exchange is already bound.
    5. Bindings that are removed.
    6. Deletions of objects that then have no bindings.

    `existing` are the queues and exchanges that exist before the last step, or are created.
    """
    deleted = {named.name for named in objects.deleted if isinstance(named, ExchangeDefinition)}
    kept = {name: work for name, work in rings.items() if name not in deleted}
    created = [PlannedChange("create", None, named) for named in objects.created]
    policies = [change for change in created if change.kind == "policy"]
    policies += [PlannedChange("update", live, wanted) for live, wanted in objects.updated]
    return (
        *(change for change in policies if not _shards_exchanges(change)),
        *(change for change in created if change.kind == "exchange"),
        *(change for change in created if change.kind == "queue"),
        *(change for change in policies if _shards_exchanges(change)),
        *(step for work in rings.values() for step in work.plan.steps[: work.first]),
        *bindings.early,
        *(PlannedChange("replace", live, wanted) for live, wanted in objects.replaced),
        *_ordered_binds(bindings.bound, kept, existing),
        *bindings.late,
        *(step for name, work in rings.items() if name in deleted for step in work.plan.steps[work.first :]),
        *(
            PlannedChange("delete", named, None)
            for kind in (QueueDefinition, ExchangeDefinition, PolicyDefinition)
            for named in objects.deleted
            if isinstance(named, kind)
        ),
    )


def _shards_exchanges(change: PlannedChange) -> bool:
    """Return True if a policy shards exchanges. RabbitMQ 4.3.6 fails to declare an x-consistent-hash exchange under it."""
    return isinstance(change.wanted, PolicyDefinition) and SHARDS_PER_NODE in change.wanted.definition


def _ordered_binds(
    plain: Sequence[PlannedChange], rings: Mapping[str, RingWork], existing: Collection[Destination]
) -> Iterator[PlannedChange]:
    by_source: dict[str, list[PlannedChange]] = {}
    unbound = {change.binding.source for change in plain if change.action == "unbind"}
    # Exchanges without a queue get one before slots are handed over.
    for change in sorted(plain, key=lambda change: change.binding.source in unbound):
        by_source.setdefault(change.binding.source, []).append(change)
    for name, work in rings.items():
        by_source.setdefault(name, []).extend(_with_stand_ins(work, existing))
    targets = {
        source: [
            destination.name
            for change in changes
            if change.kind == "binding" and isinstance(destination := change.binding.destination, ExchangeRef)
        ]
        for source, changes in by_source.items()
    }
    for source in downstream_first(by_source, targets):
        yield from by_source[source]


def _with_stand_ins(work: RingWork, existing: Collection[Destination]) -> list[PlannedChange]:
    """Return the late steps of a ring, with stand-ins for ghosts, which are buckets of a queue or exchange that does not exist.

    A queue or exchange of that name is declared, bound, unbound and deleted. Meanwhile its buckets get messages. A queue with a message
    could not be deleted, so the stand-in rejects all: publishers get a nack.
    """
    steps = work.plan.steps[work.first :]
    ghosts: dict[Destination, NamedObject] = {}
    for place in (step.binding.destination for step in steps if step.action == "bind"):
        is_ghost = place not in existing and place in work.plan.before.destinations
        if is_ghost and place not in work.plan.after.destinations:
            ghosts[place] = (
                ExchangeDefinition(place.name, "fanout")
                if isinstance(place, ExchangeRef)
                else QueueDefinition(place, arguments=_TAKES_NOTHING)
            )
    return [
        *(PlannedChange("create", None, ghost) for ghost in ghosts.values()),
        *steps,
        *(PlannedChange("delete", ghost, None) for ghost in ghosts.values()),
    ]


def downstream_first(exchanges: Iterable[str], targets: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the exchanges in depth-first order: each follows those that it routes to (`targets`). A cycle is cut at any of its bindings."""
    done: dict[str, None] = {}
    wanted = list(exchanges)
    for start in wanted:
        path = [(start, iter(targets.get(start, ())))]
        seen = {start}
        while path:
            name, following = path[-1]
            step = next((target for target in following if target not in done and target not in seen), None)
            if step is None:
                done[name] = None
                path.pop()
            else:
                seen.add(step)
                path.append((step, iter(targets.get(step, ()))))
    known = set(wanted)
    return [name for name in done if name in known]


def _ring_refusals(work: RingWork) -> Iterator[Finding]:
    yield from work.refusals
    if work.limit is not None and work.is_over_limit:
        yield too_much_moved(work.plan, work.limit)


def _warnings(
    plain: Topology,
    live: Topology,
    objects: ObjectDifferences,
    rings: Mapping[str, RingPlan],
    moduli: Mapping[str, ModulusPlan],
) -> Iterator[str]:
    queues = {queue.name for queue in live.queues}

    def is_published_to(name: str, places: Iterable[Destination]) -> bool:
        # The queues of a deleted exchange still exist.
        return live.exchange(name) is not None or any(place in queues for place in places)

    unsettled = {
        name: modulus.unsettled for name, modulus in moduli.items() if is_published_to(name, modulus.after)
    }
    for name, ring in rings.items():
        if not ring.before.bucket_count or ExchangeRef(name) in objects.again:
            owners = _queues_of(ring.after.destinations, plain)
            if len({*owners.values()}) > 1 and is_published_to(name, owners.values()):
                unsettled[name] = _unsettled_share(ring.after, owners)
    for name, share in unsettled.items():
        if share:
            yield (
                f"while the bindings of {name} are made, up to {percent(share)} of its keys go to another queue than afterwards: stop "
                "its publishers until the plan is applied, if the messages of a key have to stay in order"
            )
    for queue in objects.deleted:
        if isinstance(queue, QueueDefinition) and (tags := live.consumers.get(queue.name)):
            consumers = "consumer" if len(tags) == 1 else "consumers"
            yield f"queue {queue.name} is deleted with its {consumers} {listed(tags, _MOST_NAMES)}"


def _queues_of(destinations: Iterable[Destination], plain: Topology) -> dict[Destination, Destination]:
    bound: dict[str, list[Destination]] = {}
    for binding in plain.bindings:
        bound.setdefault(binding.source, []).append(binding.destination)
    owners = {}
    for place in destinations:
        behind = bound.get(place.name, []) if isinstance(place, ExchangeRef) else []
        owners[place] = behind[0] if len(behind) == 1 else place
    return owners


def _unsettled_share(ring: HashRing, owners: Mapping[Destination, Destination]) -> float:
    """Return the share of keys whose queue after the first bind of a new ring differs from the final queue.

    A later bind moves keys to the new buckets only, so no later moment has a larger share if each destination has a different queue.
    """
    places = [None if place is None else owners[place] for place in ring.buckets]
    first = next((place for place in places if place is not None), None)
    return 1 - HashRing.from_buckets(places, ring.release).shares().get(first, 0.0)
