"""A plan: what it takes to turn what is on a broker into what a topology says. A value, made without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from rabbit_chx.analysis.wording import listed, percent
from rabbit_chx.errors import InputError
from rabbit_chx.routing import NEWEST, Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.changes import NamedObject, PlannedChange, reference_to
from rabbit_chx.topology.differences import (
    ObjectDifferences,
    binding_differences,
    object_differences,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.modulus_plan import ModulusPlan, modulus_plans
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.order import ordered_changes
from rabbit_chx.topology.plan_output import checksum_of, plan_as_json, text_of_plan
from rabbit_chx.topology.policies import SHARDS_PER_NODE, applying_policy
from rabbit_chx.topology.refusals import (
    PlanRefusal,
    absent_destination,
    deleted_by_itself,
    deletion,
    impossible_ring,
    other_cluster,
    replacement,
    sharded_declaration,
    unknown_cluster,
)
from rabbit_chx.topology.ring_plan import RingPlan, RingWork, planned_rings, too_much_moved
from rabbit_chx.topology.slots import expanded, expanded_by, parking_queues, slot_layouts

_BROKERS_OWN = "amq."
_MOST_NAMES = 10


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """What it takes to turn what is on a broker into what a topology says. A value; `plan` makes it.

    Attributes:
        changes: the operations, in the order in which they are done.
        rings: what happens to the ring of each ``x-consistent-hash`` exchange, by its name.
        refusals: why the plan is not applied as it is, each with the flag that allows it.
        unmanaged: what is on the broker, not in the topology, and not owned by it. It is left as it is.
        checksum: the sha256, in hexadecimal digits, of what is wanted, of what is there of it, and of the changes. Objects
            of others do not count, so that they may come and go before the plan is applied.
        wanted: the topology that is wanted.
        moduli: what happens to the keys of each ``x-modulus-hash`` exchange, by its name.
        warnings: what the plan does to messages or consumers, and no limit stops, as sentences.
        parks: the parking queue of each exchange with slots, by the name of the exchange. Applying the plan empties it.
        parked: how many messages are in those parking queues that are not empty.
    """

    changes: tuple[PlannedChange, ...]
    rings: Mapping[str, RingPlan]
    refusals: tuple[PlanRefusal, ...]
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
        return text_of_plan(
            self.changes,
            self.rings,
            self.refusals,
            self.checksum,
            moduli=self.moduli.values(),
            warnings=self.warnings,
        )

    def refused(
        self, *, allow_moved: float | None = None, allow_delete: bool = False
    ) -> tuple[PlanRefusal, ...]:
        """Return the refusals that remain.

        Args:
            allow_moved: the share of keys that may move in each ring, 0 to 1; None: what the topology says.
            allow_delete: whether objects may be deleted and replaced.
        """
        return tuple(
            refusal for refusal in self.refusals if not refusal.lifted(allow_moved, allow_delete=allow_delete)
        )

    def to_json(self) -> str:
        """Return the plan as JSON text, of the format ``rabbit-chx/plan``. The same plan has the same text."""
        return plan_as_json(
            self.changes,
            self.rings,
            self.refusals,
            self.unmanaged,
            moduli=self.moduli.values(),
            warnings=self.warnings,
            parked=self.parked,
            checksum=self.checksum,
        )


def plan(wanted: Topology, live: Topology) -> Plan:
    """Return what it takes to turn what is there into what is wanted.

    Args:
        wanted: what should be there.
        live: what is there, with the rings that were read.

    Raises:
        InputError: one of them is no topology; or a member would get no slot, or lists of slots do not have each slot once,
            which no file says.
    """
    for name, side in (("wanted", wanted), ("live", live)):
        if not isinstance(side, Topology):
            raise InputError(
                f"{name} is a {type(side).__name__}: give a Topology, of Topology.from_toml(text) or broker.topology()"
            )
    impossible: dict[str, RingWork] = {}
    live = expanded(live, live)  # it may be a file too
    layouts = slot_layouts(wanted, live)
    plain = expanded_by(wanted, layouts)
    slots = frozenset(
        name for layout in layouts.values() if layout.is_ours for name in layout.names.exchanges
    )
    while True:  # an exchange whose ring cannot be mended is replaced, which changes what depends on it
        objects = object_differences(plain, live, impossible)
        bindings = binding_differences(plain, live, objects, slots)
        rings = planned_rings(plain, live, objects, (*bindings.early, *bindings.bound))
        unmendable = {name: work for name, work in rings.items() if work.impossible}
        replaceable = {exchange.name for exchange in plain.exchanges if exchange.owner == "ours"} - set(
            impossible
        )
        if not unmendable.keys() & replaceable:
            break
        impossible |= {name: work for name, work in unmendable.items() if name in replaceable}
    known = _known(live, objects)
    changes = ordered_changes(objects, bindings, rings, known | objects.gone)
    for name, work in rings.items():
        if work.plan.hands is not None and ExchangeRef(name) not in objects.again:
            done = work.as_done(changes, plain, live)
            members = layouts[name].exchange.members if name in layouts else None
            rings[name] = done if members is None else done.into_slots(members, live)
    moduli = modulus_plans(plain, live, objects, changes)
    refusals = (
        *_cluster_refusals(wanted, live, changes),
        *objects.refusals,
        *(refusal for work in rings.values() for refusal in (*work.refusals, *_too_much(work))),
        *(refusal for modulus in moduli.values() for refusal in modulus.refusals),
        *(impossible_ring(name, None) for name in {**impossible, **unmendable}),
        *_absent(
            changes, known, {slot: name for name, layout in layouts.items() for slot in layout.names.slots}
        ),
        *(
            replacement(*pair)
            for pair in objects.replaced
            if getattr(pair[1], "name", None) not in impossible
        ),
        *_deletions(live, objects),
        *bindings.refusals,
        *last_binding_refusals(live, changes),
        *(
            sharded_declaration(exchange.name, policy.name)
            for exchange, policy in policies_in_the_way(changes, live)
        ),
    )
    plans = {name: work.plan for name, work in rings.items()}
    parks = _parks(plain, live)
    return Plan(
        changes,
        plans,
        tuple(dict.fromkeys(refusals)),
        (*objects.unmanaged, *bindings.unmanaged),
        checksum_of(plain, live, changes, plans),
        wanted,
        moduli,
        tuple(_warnings(plain, live, objects, rings, moduli)),
        parks,
        {queue: live.messages[queue] for queue in parks.values() if live.messages.get(queue)},
    )


def _too_much(work: RingWork) -> Iterator[PlanRefusal]:
    """Yield the refusal of a ring that moves more keys than it may. Where no key had a destination, none moves."""
    if work.limit is not None and work.plan.moved_at_worst > work.limit and work.plan.before.bucket_count:
        yield too_much_moved(work.plan, work.limit)


def _warnings(
    plain: Topology,
    live: Topology,
    objects: ObjectDifferences,
    rings: Mapping[str, RingWork],
    moduli: Mapping[str, ModulusPlan],
) -> Iterator[str]:
    """Yield what the plan does to messages or consumers, and no limit stops."""
    queues = {queue.name for queue in live.queues}

    def is_published_to(name: str, places: Iterable[Destination]) -> bool:
        # The queues of an exchange that was deleted are still there.
        return live.exchange(name) is not None or any(place in queues for place in places)

    unsettled = {
        name: modulus.unsettled for name, modulus in moduli.items() if is_published_to(name, modulus.after)
    }
    for name, work in rings.items():
        after = work.plan.after
        begins_empty = not work.plan.before.bucket_count or ExchangeRef(name) in objects.again
        owners = _owners(after.destinations, plain)
        if begins_empty and len({*owners.values()}) > 1 and is_published_to(name, owners.values()):
            unsettled[name] = unsettled_share(after, owners)
    for name, share in unsettled.items():
        if share:
            yield (
                f"while the bindings of {name} are made, up to {percent(share)} of its keys go to another queue than afterwards: stop "
                "its publishers until the plan is applied, if the messages of a key have to stay in order"
            )
    for queue in objects.deleted:
        if isinstance(queue, QueueDefinition) and (tags := live.consumers.get(queue.name)):
            what = "consumer" if len(tags) == 1 else "consumers"
            yield f"queue {queue.name} is deleted with its {what} {listed(tags, _MOST_NAMES)}"


def _owners(destinations: Iterable[Destination], plain: Topology) -> dict[Destination, Destination]:
    """Return the queue of each slot, and any other destination as it is."""
    bound: dict[str, list[Destination]] = {}
    for binding in plain.bindings:
        bound.setdefault(binding.source, []).append(binding.destination)
    owners = {}
    for place in destinations:
        behind = bound.get(place.name, []) if isinstance(place, ExchangeRef) else []
        owners[place] = behind[0] if len(behind) == 1 else place
    return owners


def unsettled_share(ring: HashRing, owners: Mapping[Destination, Destination]) -> float:
    """Return the share of keys that have another queue after the first bind of a new ring than in the end.

    A later bind moves keys to the new buckets only, so no later moment has a larger share where each destination has a queue of its own.

    Args:
        ring: the ring in the end.
        owners: what gets the messages of each destination.
    """
    places = [None if place is None else owners[place] for place in ring.buckets]
    first = next((place for place in places if place is not None), None)
    return 1 - HashRing.from_buckets(places, ring.release).shares().get(first, 0.0)


def _parks(plain: Topology, live: Topology) -> dict[str, str]:
    """Return the parking queues of the exchanges of the topology, leftover ones too."""
    ours = {exchange.name for exchange in plain.exchanges if exchange.owner == "ours"}
    parks = {**parking_queues(live), **parking_queues(plain)}
    return {exchange: park for exchange, park in sorted(parks.items()) if exchange in ours}


def arranged(wanted: Topology, live: Topology) -> Topology:
    """Return the wanted topology with each ring in the order that moves the fewest keys away from the live one.

    A ring that is new, or whose exchange is declared again, stays as written.

    Args:
        wanted: what should be there.
        live: what is there, with the rings that were read.
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


def _known(live: Topology, objects: ObjectDifferences) -> frozenset[Destination]:
    """Return the queues and exchanges that are there: those that are listed, and those that something is bound to."""
    known: set[Destination] = {ExchangeRef(exchange.name) for exchange in live.exchanges}
    known.update(queue.name for queue in live.queues)
    known.update(end for ends in _bound(live) for end in ends)
    known.update(ref for created in objects.created if (ref := reference_to(created)) is not None)
    return frozenset(known - objects.gone)


def _bound(live: Topology) -> Iterator[tuple[Destination, Destination]]:
    """Yield both ends of each binding, those of rings too."""
    for exchange in live.exchanges:
        yield from ((ExchangeRef(exchange.name), member.destination) for member in exchange.ring or ())
    yield from ((ExchangeRef(binding.source), binding.destination) for binding in live.bindings)


def _cluster_refusals(
    wanted: Topology, live: Topology, changes: tuple[PlannedChange, ...]
) -> Iterator[PlanRefusal]:
    if wanted.cluster is None or wanted.cluster == live.cluster:
        return
    if live.cluster is not None:
        yield other_cluster(wanted.cluster, live.cluster)
    elif changes:
        yield unknown_cluster(wanted.cluster)


def _absent(
    changes: tuple[PlannedChange, ...], known: frozenset[Destination], slots: Mapping[str, str]
) -> Iterator[PlanRefusal]:
    """Yield a refusal for each end of a binding that does not exist; of a queue of slots, one for their exchange.

    Args:
        changes: the changes, in order.
        known: what is there before them.
        slots: the exchange of each slot.
    """
    existing = set(known)
    for change, following in zip_longest(changes, changes[1:]):
        # Ghost buckets go by a bind that is undone at once. Their queue may be one that is deleted in the end.
        undone = following.binding if following is not None and following.action == "unbind" else None
        if change.action == "create" and not isinstance(change.subject, BindingDefinition):
            ref = reference_to(change.subject)
            existing.update(() if ref is None else (ref,))
        elif change.action == "bind" and change.binding != undone:
            binding, source = change.binding, ExchangeRef(change.binding.source)
            if source not in existing and not _is_brokers_own(source):
                yield absent_destination(source, "bindings of it are wanted")
            if binding.destination not in existing and not _is_brokers_own(binding.destination):
                exchange = slots.get(binding.source)
                yield absent_destination(
                    binding.destination,
                    f"{binding.source} is to be bound to it"
                    if exchange is None
                    else f"it is to have slots of {exchange}",
                )


def _is_brokers_own(destination: Destination) -> bool:
    return isinstance(destination, ExchangeRef) and destination.name.startswith(_BROKERS_OWN)


def _deletions(live: Topology, objects: ObjectDifferences) -> Iterator[PlanRefusal]:
    uses = Counter(end for ends in _bound(live) for end in ends)
    for deleted in objects.deleted:
        ref = reference_to(deleted)
        count = 0 if ref is None else uses[ref]
        about = f", and {count} binding{'' if count == 1 else 's'} with it" if count else ""
        yield deletion(deleted, deleted.name, about)


def last_binding_refusals(live: Topology, changes: tuple[PlannedChange, ...]) -> Iterator[PlanRefusal]:
    """Yield a refusal for each exchange that goes by a step of the plan, and that the plan neither deletes nor replaces.

    Args:
        live: what is there.
        changes: the changes, in order.
    """
    deleted = {
        change.name
        for change in changes
        if change.kind == "exchange" and change.action in ("delete", "replace")
    }
    counts = {
        exchange.name: len(exchange.ring or ())
        for exchange in live.exchanges
        if exchange.auto_delete and exchange.name not in deleted | live.sources_left_out
    }
    bound = Counter(binding.source for binding in live.bindings)
    for name in counts:
        counts[name] += bound[name]
    for change in changes:
        if change.kind == "binding" and (source := change.binding.source) in counts:
            counts[source] += 1 if change.action == "bind" else -1
            if counts[source] == 0:
                yield deleted_by_itself(source)


def policy_in_the_way(
    exchange: ExchangeDefinition, policies: Iterable[PolicyDefinition], release: Release
) -> PolicyDefinition | None:
    """Return the policy under which the broker cannot declare an exchange; None if there is none.

    Args:
        exchange: the exchange.
        policies: the policies that are there.
        release: the broker's release.
    """
    if exchange.type != HASH_EXCHANGE or release.store != "khepri":
        return None
    policy = applying_policy(exchange, policies)
    if policy is None or not policy.definition.get(SHARDS_PER_NODE):
        return None
    try:
        weight_of("a shard", policy.definition.get("routing-key", ""), release)
    except InputError:  # the broker does not bind the shards
        return None
    return policy


def policies_in_the_way(
    changes: Sequence[PlannedChange], live: Topology
) -> Iterator[tuple[ExchangeDefinition, PolicyDefinition]]:
    """Yield the exchanges that the broker cannot declare when their turn comes, each with the policy that is then there.

    Where the store is Khepri, rabbitmq_sharding binds the first shard before the exchange has a ring. The broker then closes
    the connection with 541, and leaves an exchange whose ring is empty (``rabbit_exchange_type_consistent_hash.erl``
    add_binding/3; tried on 4.0.5 with Khepri and on 4.3.6. On Mnesia 3.8.9, 3.10.8 and 4.0.5 take it.) A policy that comes
    after the exchange does no harm.

    Args:
        changes: the changes, in order.
        live: what is there before them.
    """
    policies = {policy.name: policy for policy in live.policies}
    for change in changes:
        subject = change.subject
        if isinstance(subject, PolicyDefinition):
            if change.wanted is None:
                policies.pop(subject.name, None)
            else:
                policies[subject.name] = subject
        elif isinstance(subject, ExchangeDefinition) and change.action in ("create", "replace"):
            policy = policy_in_the_way(subject, policies.values(), live.release or NEWEST)
            if policy is not None:
                yield subject, policy
