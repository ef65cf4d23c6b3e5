"""A plan: the operations that turn a live topology into the wanted one. Computed without I/O.

`plan` makes it in these steps:

1. Both sides are compared once (`compare`). Exchanges with slots are expanded before to the objects that they consist of.
2. It is decided what happens to each binding, and which steps each ring takes (`_decide`).
3. All changes are put into a safe order (`order_changes`).
4. What depends on this order is counted: the keys of slots and of ``x-modulus-hash`` exchanges that move (`count_shares`).
5. Reasons to refuse the plan (`refusals_of`) and warnings are collected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import Comparison, Unwanted, as_live, compare, complete
from rabbit_chx.planning.key_map_plans import count_shares, plan_rings
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.refusals import possibly_denied_features, refusals_of, verify_by_trace
from rabbit_chx.planning.ring_plan import KeyMapPlan, RingSteps, covers, find_pending, what_is_given_up
from rabbit_chx.planning.slot_layout import expand_slots
from rabbit_chx.records.live_rings import evidence_of, find_recorded, live_hash_exchange
from rabbit_chx.records.ring_records import why_suspect
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import grouped, listed, percent
from rabbit_chx.topology.argument_table import canonical_json, canonical_texts
from rabbit_chx.topology.arguments import SHARDS_PER_NODE, find_ignored, policies_of_mark
from rabbit_chx.topology.model import AnyTopology, LiveTopology, Topology
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MARK,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    FileFacts,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.schema import NamedObject, PlannedChange
from rabbit_chx.topology.slots import SlotNames, repair_members

#: The arguments of a stand-in queue, which rejects all messages: see `_add_stand_ins`.
_REJECT_ALL = {"x-max-length": 0, "x-overflow": "reject-publish"}


def plan(wanted: Topology, live: LiveTopology, *, propose: bool = True) -> Plan:
    """Return the operations that turn the live topology into the wanted one.

    Args:
        wanted: the wanted topology.
        live: the live topology, with the rings that were read. A file is one as `LiveTopology.of_file`.
        propose: True: search alternatives that move fewer keys. Otherwise only rings over their limit have proposals.

    Raises:
        InputError: an argument is of another type; or a member would get no slot, or lists of slots do not contain each slot once, which a
            topology file does not permit.
    """
    compared = compare(wanted, live)
    if (pending := find_pending(wanted, compared.live)) is not None:
        made = _plan(wanted, replace(compared, pending=pending), propose=propose)
        if made.checksum == pending.checksum:
            return made
    made = _plan(wanted, compared, propose=propose)
    if made.changes and (given_up := what_is_given_up(compared)):
        made = replace(made, warnings=(given_up, *made.warnings))
    return made


def _plan(wanted: Topology, compared: Comparison, *, propose: bool) -> Plan:
    """Return the plan, which repeats the pending apply if all its changes are of that."""
    compared, bindings, steps = _decide(compared)
    changes = order_changes(compared, bindings, steps)
    checksum = _checksum_of(compared, changes, steps)
    pending = compared.pending
    repeated = None
    resumes = ""
    if pending is not None and covers(pending, changes, steps):
        has_ended = pending.has_ended(evidence_of(compared.live).records)
        if not (changes and has_ended):
            checksum = pending.checksum
            resumes = "" if has_ended else str(pending)
            repeated = pending if changes else None
    rings = count_shares(compared, changes, steps, repeated, propose=propose)
    refusals = refusals_of(compared, changes, rings.values(), bindings.owned)
    unclear = tuple(possibly_denied_features(compared.live, changes))
    parks = _find_parking_queues(compared)
    messages = compared.live.facts.queues.messages
    return Plan(
        changes,
        rings,
        refusals,
        (*compared.unmanaged, *bindings.unmanaged),
        checksum,
        wanted,
        (*_warnings(compared, rings), *unclear),
        parks,
        {queue: messages[queue] for queue in parks.values() if messages.get(queue)},
        resumes,
    )


def _find_parking_queues(compared: Comparison) -> dict[str, str]:
    """Return the parking queue of each exchange of ours, by the name of the exchange, sorted."""
    own = _own_exchanges(compared.wanted)
    parks = {}
    for side in (compared.live, compared.wanted):
        parking = {exchange.name for exchange in side.exchanges} & {queue.name for queue in side.queues}
        for exchange in side.exchanges if parking else ():
            park = SlotNames(exchange.name, 1).park
            is_ours = exchange.owner == "ours" and exchange.name in own
            if exchange.type == HASH_EXCHANGE and is_ours and park in parking:
                parks[exchange.name] = park
    return dict(sorted(parks.items()))


class _BindingChanges(NamedTuple):
    """The changes of bindings, without those of rings.

    Attributes:
        first_unbinds: the unbinds before objects are replaced.
        binds: the binds, including those of replaced objects. The unbind of a slot precedes its bind here.
        last_unbinds: the unbinds at the end.
        unmanaged: live bindings that are neither owned nor wanted; they stay.
        owned: live bindings that are owned, not wanted, and removed although neither end is deleted.
    """

    first_unbinds: tuple[PlannedChange, ...]
    binds: tuple[PlannedChange, ...]
    last_unbinds: tuple[PlannedChange, ...]
    unmanaged: tuple[BindingDefinition, ...]
    owned: tuple[BindingDefinition, ...]


def _decide(compared: Comparison) -> tuple[Comparison, _BindingChanges, dict[str, RingSteps]]:
    """Return the comparison with the exchanges that must be replaced, the changes of bindings, and the steps of rings.

    If no binds and unbinds make a wanted ring, its exchange is replaced. A replacement changes other parts: its bindings are removed and
    made again, also in the rings of other exchanges. So the parts are planned until no further exchange must be replaced.

    The loop ends: each turn adds at least one exchange of the topology to `redeclared`, and none is ever taken out. An exchange that was
    replaced stays so even if a later turn could keep it, since what was planned for the others depends on its replacement.
    """
    own_exchanges = _own_exchanges(compared.wanted)
    while True:
        bindings = _binding_changes(compared)
        rings = plan_rings(compared, (*bindings.first_unbinds, *bindings.binds))
        impossible = {name for name, ring in rings.items() if ring.needs_new_exchange} & own_exchanges
        if impossible <= compared.redeclared:
            return compared, bindings, rings
        compared = replace(compared, redeclared=compared.redeclared | impossible)


#: What a plan does with a live binding: it stays; it is unbound before objects are replaced (``first``), with the binds, or at the end
#: (``last``); or it is unbound first and bound again (``again``).
_Fate: TypeAlias = Literal["stays", "first", "with-binds", "last", "again"]
#: The fate of each sort of live binding: if both ends stay, if one is replaced, and if one is deleted. If one is replaced and the other is
#: deleted, the binding is unbound first. A slot and a super stream keep only wanted bindings: the others are unbound just before the new ones
#: are made. So no client sees a partition twice, or two of one number.
_FATES: Mapping[Unwanted | None, tuple[_Fate, _Fate, _Fate]] = {
    # what it is   stays    replaced  deleted
    None:        ("stays", "again", "last"),
    "plugin":    ("stays", "again", "last"),
    "unmanaged": ("stays", "again", "last"),
    "ring":      ("stays", "first", "last"),
    "unlisted":  ("last",  "first", "last"),
    "owned":     ("last",  "first", "last"),
    "slot":      ("with-binds", "first", "with-binds"),
    "partition": ("with-binds", "first", "with-binds"),
}  # fmt: skip


def _binding_changes(compared: Comparison) -> _BindingChanges:
    """Return the changes of bindings."""
    deleted = compared.deleted_refs
    replaced = compared.replaced_refs
    changes: dict[_Fate, list[PlannedChange]] = {"first": [], "with-binds": [], "last": []}
    named: dict[Unwanted | None, list[BindingDefinition]] = {"unmanaged": [], "owned": []}
    for binding, unwanted in compared.bindings:
        ends = {ExchangeRef(binding.source), binding.destination}
        if_stays, if_replaced, if_deleted = _FATES[unwanted]
        if ends & replaced:
            fate = "first" if ends & deleted else if_replaced
        else:
            fate = if_deleted if ends & deleted else if_stays
        if fate != "stays":
            changes["first" if fate == "again" else fate].append(PlannedChange("unbind", binding, None))
        if fate == "again":
            changes["with-binds"].append(PlannedChange("bind", None, binding))
        if unwanted in named and not ends & deleted:
            named[unwanted].append(binding)
    changes["with-binds"] += [
        PlannedChange("bind", None, one.subject)
        for one in compared.objects
        if one.kind == "missing" and one.subject.kind == "binding" and one.is_ours
    ]
    first, binds, last = map(tuple, changes.values())
    return _BindingChanges(first, binds, last, tuple(named["unmanaged"]), tuple(named["owned"]))


def _own_exchanges(topology: AnyTopology) -> set[str]:
    return {exchange.name for exchange in topology.exchanges if exchange.owner == "ours"}


def order_changes(
    compared: Comparison,
    bindings: _BindingChanges,
    rings: Mapping[str, RingSteps],
) -> tuple[PlannedChange, ...]:
    """Return the changes in an order that a broker accepts and that leaves as few messages unroutable as possible.

    Declarations come before the first step of a ring: if the broker refuses one, each ring is as it was.

    1. Policies, so that they apply to new objects. Policies that shard exchanges follow the next step.
    2. New exchanges and queues, and stand-ins.
    3. Replacements: the bindings are removed, the object is deleted and declared again.
    4. Binds, and the steps of rings. An exchange is bound before the exchanges that route to it: a message that reaches an exchange is
       routed further only if that exchange is already bound.
    5. Bindings that are removed.
    6. Deletions of objects that then have no bindings.
    """
    existing = compared.existing | compared.deleted_refs
    deleted = {named.name for named in compared.deleted if isinstance(named, ExchangeDefinition)}
    kept = {name: ring for name, ring in rings.items() if name not in deleted}
    created = [PlannedChange("create", None, named) for named in compared.created]
    policies = [change for change in created if change.kind == "policy"]
    policies += [
        PlannedChange("update", one.before, one.after)
        for one in compared.objects
        if isinstance(one.before, PolicyDefinition)
        and isinstance(one.after, PolicyDefinition)
        and one.is_ours
    ]
    binds = [*_order_binds(bindings.binds, kept, existing)]
    return (
        *(change for change in policies if not _shards_exchanges(change)),
        *(change for change in created if change.kind == "exchange"),
        *(change for change in created if change.kind == "queue"),
        *(change for change in binds if change.action == "create"),
        *(change for change in policies if _shards_exchanges(change)),
        *(step for ring in rings.values() for step in ring.early),
        *bindings.first_unbinds,
        *(PlannedChange("replace", live, wanted) for live, wanted in compared.replaced),
        *(change for change in binds if change.action != "create"),
        *bindings.last_unbinds,
        *(step for name, ring in rings.items() if name in deleted for step in ring.late),
        *(
            PlannedChange("delete", named, None)
            for kind in (QueueDefinition, ExchangeDefinition, PolicyDefinition)
            for named in compared.deleted
            if isinstance(named, kind)
        ),
    )


def _shards_exchanges(change: PlannedChange) -> bool:
    """Return True if a policy shards exchanges. RabbitMQ 4.3.6 fails to declare an x-consistent-hash exchange under it."""
    return isinstance(change.wanted, PolicyDefinition) and SHARDS_PER_NODE in change.wanted.definition


def _order_binds(
    changes_without_ring: Sequence[PlannedChange],
    rings: Mapping[str, RingSteps],
    existing: Collection[Destination],
) -> Iterator[PlannedChange]:
    """Yield the changes of bindings and the late steps of rings. `changes_without_ring` are those of exchanges without a ring.

    The changes of one exchange stay together. An exchange follows those that it routes to.
    """
    sources_with_unbinds = {
        change.binding.source for change in changes_without_ring if change.action == "unbind"
    }
    # Exchanges that only get bindings are first, so that exchanges without a queue get one before slots are handed over.
    first = sorted(changes_without_ring, key=lambda change: change.binding.source in sources_with_unbinds)
    changes = [(change.binding.source, change) for change in first]
    changes += [(name, step) for name, ring in rings.items() for step in _add_stand_ins(ring, existing)]
    by_source = grouped(changes)
    targets = {
        source: [
            destination.name
            for change in of_source
            if change.kind == "binding" and isinstance(destination := change.binding.destination, ExchangeRef)
        ]
        for source, of_source in by_source.items()
    }
    for source in order_downstream_first(by_source, targets):
        yield from by_source[source]


def _add_stand_ins(ring: RingSteps, existing: Collection[Destination]) -> list[PlannedChange]:
    """Return the late steps of a ring, with stand-ins for destinations that have buckets and do not exist.

    Such buckets are removed by a bind and an unbind, and for these a queue or exchange of that name must exist. So a stand-in is declared
    before the first step of a ring and deleted after those of its own. In between, messages are routed to it. The broker does not delete a queue with messages, so a
    stand-in queue rejects all messages, and publishers get a nack.
    """
    steps = ring.late
    stand_ins: dict[Destination, NamedObject] = {}
    for destination in (step.binding.destination for step in steps if step.action == "bind"):
        is_missing = destination not in existing and destination in ring.before.destinations
        if is_missing and destination not in ring.after.destinations:
            stand_ins[destination] = (
                ExchangeDefinition(destination.name, "fanout")
                if isinstance(destination, ExchangeRef)
                else QueueDefinition(destination, arguments=_REJECT_ALL)
            )
    return [
        *(PlannedChange("create", None, stand_in) for stand_in in stand_ins.values()),
        *steps,
        *(PlannedChange("delete", stand_in, None) for stand_in in stand_ins.values()),
    ]


def order_downstream_first(exchanges: Iterable[str], targets: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the exchanges in depth-first order: each follows those that it routes to (`targets`). A cycle is cut at any of its bindings."""
    ordered: dict[str, None] = {}
    requested = dict.fromkeys(exchanges)
    for start in requested:
        path = [(start, iter(targets.get(start, ())))]
        visited = {start}
        while path:
            name, remaining = path[-1]
            following = next(
                (target for target in remaining if target not in ordered and target not in visited), None
            )
            if following is None:
                ordered[name] = None
                path.pop()
            else:
                visited.add(following)
                path.append((following, iter(targets.get(following, ()))))
    return [name for name in ordered if name in requested]


# -- warnings


def _warnings(compared: Comparison, rings: Mapping[str, KeyMapPlan]) -> Iterator[str]:
    """Yield the effects of a plan on messages and consumers for which there is no limit."""
    for queue in compared.deleted:
        if isinstance(queue, QueueDefinition) and (use := compared.live.use_of(queue.name)):
            tags = compared.live.facts.queues.consumer_tags.get(queue.name)
            named = f": {listed(tags)}" if tags and not isinstance(tags, int) else ""
            yield f"queue {queue.name} is deleted, and has {use}{named}"
    for name, ring in rings.items():
        if share := ring.movement.transient_share:
            yield (
                f"while the bindings of {name} are made, up to {percent(share)} of its keys go to another queue than afterwards: stop "
                "its publishers until the plan is applied, if the messages of a key have to stay in order"
            )
    yield from _unseen_warnings(compared, rings)
    for policy in compared.wanted.policies:
        if policy not in compared.live.policies and (found := policies_of_mark([policy])):
            yield (
                f"{found} matches the queue {MARK}: without its messages nothing proves the recorded order of rings, and only rabbitmqctl "
                "reads it; use a pattern that does not match it"
            )
    yield from _import_warnings(compared)
    wanted: tuple[ExchangeDefinition | QueueDefinition, ...]
    wanted = (*compared.wanted.exchanges, *compared.wanted.queues)
    declared = [named for named in wanted if named.owner == "ours"]
    yield from (f"{message}: {fix}" for _, message, fix in find_ignored(declared, compared.release))


def _unseen_warnings(compared: Comparison, rings: Mapping[str, KeyMapPlan]) -> Iterator[str]:
    """Yield the rings that are changed in steps from a record, and may have buckets that no list shows."""
    evidence = evidence_of(compared.live)
    nodes = compared.live.facts.nodes
    for name, ring in rings.items():
        record = evidence.records.get(name)
        if record is None or not ring.steps:
            continue
        if ring.change == "remake" or ring.before.provenance != "recorded":
            continue
        if why := why_suspect(record, evidence.mark, nodes):
            yield (
                f"{why} the record of {name}: a queue that another program had bound, and that ended then, may have left buckets in the ring, "
                f"which no list shows; after the apply compare the ring with {verify_by_trace(name)}"
            )


def _import_warnings(compared: Comparison) -> Iterator[str]:
    """Yield what depends on defaults of the vhost, and the operator policies of a definitions file, which no plan sets."""
    wanted = compared.wanted
    live = compared.live
    if not wanted.file.is_import:
        declared = (*compared.created, *(queue for _, queue in compared.replaced))
        untyped = [
            f"queue {queue.name}"
            for queue in declared
            if isinstance(queue, QueueDefinition) and queue.name in wanted.file.untyped_queues
        ]
        default = live.facts.limits.default_queue_type
        if untyped and default not in (None, "classic", "undefined"):
            yield (
                f"no type is written for {listed(untyped)}, so that they are classic, and the default queue type of the vhost "
                f'is {default}: write type = "{default}" or type = "classic"'
            )
        return
    there = {policy.name: policy for policy in live.facts.operator_policies}
    for policy in wanted.file.operator_policies:
        if there.get(policy.name) != policy:
            state = "differs on the broker" if policy.name in there else "is not on the broker"
            yield f"operator policy {policy.name} of the file {state}: no plan sets it, rabbitmqctl set_operator_policy does"


# -- checksum


def _checksum_of(
    compared: Comparison, changes: tuple[PlannedChange, ...], rings: Mapping[str, RingSteps]
) -> str:
    """Return the SHA-256 of the wanted topology, of the live state of its objects, and of the changes, in hexadecimal digits.

    It includes the cluster and the vhost: a plan that was reviewed for one is not applied to another.

    Live objects that are neither wanted nor changed do not count.
    """
    wanted = compared.wanted
    live = compared.live
    objects = wanted.by_name
    live_objects = live.by_name
    bound = {binding.identity for binding in wanted.bindings}
    befores: dict[str, KeyMap] = {
        exchange.name: live.rings[exchange.name]
        for exchange in wanted.exchanges
        if exchange.name in live.rings
    }
    befores |= {name: ring.before for name, ring in rings.items()}
    parts = [
        [
            wanted.cluster,
            wanted.max_share_moved,
            sorted(set(wanted.owns)),
            *([wanted.vhost] if wanted.vhost else []),
        ],
        canonical_texts([*objects.values(), *wanted.bindings]),
        [live.cluster, live.release, *([] if live.vhost is None else [live.vhost])],
        canonical_texts(live_objects[key] for key in objects if key in live_objects),
        canonical_texts(binding for binding in live.bindings if binding.identity in bound),
        {name: ring.to_json() for name, ring in befores.items()},
        changes,
    ]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


# -- What a command wants instead of what is there: topologies for `plan`, which is the only way to reach them


def arrange(wanted: Topology, live: LiveTopology) -> Topology:
    """Return the wanted topology with each ring in the order that moves the fewest keys away from the live ring.

    A ring that is new, or whose exchange is declared again, keeps its order. Of a definitions file, the live order is kept. The members of
    an exchange with slots list their slots instead of a weight: those that they have on the broker, as far as the weights permit.

    Args:
        wanted: the wanted topology.
        live: the live topology, with the rings that were read.

    Raises:
        InputError: as in `plan`.
    """
    return reordered(plan(wanted, live), live)


def reordered(made: Plan, live: LiveTopology) -> Topology:
    """Return the wanted topology of a plan that was made for a live topology, as `arrange` does."""
    live = as_live(live)
    wanted = complete(made.wanted, live)
    layouts = expand_slots(wanted, live)[2]
    members = {name: layout.pin_members() for name, layout in layouts.items() if not layout.is_pinned}
    orders = {
        name: proposal.ring
        for name, ring in made.rings.items()
        for proposal in ring.proposals
        if proposal.strategy == "least-moving-order" and name not in layouts
    }
    exchanges = (
        replace(
            exchange,
            ring=orders.get(exchange.name, exchange.ring),
            members=members.get(exchange.name, exchange.members),
        )
        for exchange in wanted.exchanges
    )
    return replace(wanted, exchanges=tuple(exchanges))


def declared(live: LiveTopology, exchange: ExchangeDefinition, queues: Iterable[QueueDefinition]) -> Topology:
    """Return one exchange and its queues, where a binding that exists keeps its arguments.

    Args:
        live: the live topology.
        exchange: the exchange, with its members in order.
        queues: the queues. An empty type is the default of the vhost, or that of a queue that exists if the default is not known.
    """
    found = live.exchange(exchange.name)
    bound = {member.binding: member for member in (found and found.ring) or ()}
    ring = tuple(bound.get(member.binding, member) for member in exchange.ring or ())
    return Topology((replace(exchange, ring=ring),), tuple(_with_type(queue, live) for queue in queues))


def _with_type(queue: QueueDefinition, live: LiveTopology) -> QueueDefinition:
    if queue.type:
        return queue
    if live.facts.limits.default_queue_type is not None:
        return queue.with_default_type(live.facts.limits.default_queue_type)
    known = live.queue(queue.name)
    return queue if known is None else replace(queue, type=known.type)


def healed(live: LiveTopology, exchange: str) -> Topology:
    """Return one exchange as it is, with its ring repaired: its members as `repair_members` orders them, in the order of its record.

    Without a record they keep their order.

    Args:
        live: the live topology, with the rings that were read.
        exchange: the name of the exchange.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: the exchange is of another type.
        InputError: `live` is of another type.
    """
    live = as_live(live)
    definition = live_hash_exchange(live, exchange)
    ring = live.rings.get(exchange)
    if ring is not None and (recorded := find_recorded(live, exchange)) is not None:
        ring = recorded.ring
    members = repair_members(exchange, definition.ring or (), ring)
    return Topology((replace(definition, ring=members, owner="ours"),))


def with_release(topology: Topology | LiveTopology, release: Release) -> LiveTopology:
    """Return what a broker of a release has: the same objects, and each ring as its members make it in their order.

    An order that is not known stays so.

    A ring of a live topology keeps its buckets if the release refuses a weight: the binding is older than the rule.

    Raises:
        InputError: the release refuses a weight of a topology of a file.
    """
    objects = topology.as_wanted() if isinstance(topology, LiveTopology) else topology
    unordered = objects.file.unordered
    objects = replace(objects, file=FileFacts())
    rings = {}
    for exchange in objects.exchanges:
        if exchange.type == HASH_EXCHANGE:
            try:
                rings[exchange.name] = objects.ring(exchange.name, release)
            except InputError:
                if not isinstance(topology, LiveTopology):
                    raise
                rings[exchange.name] = topology.rings[exchange.name].with_release(release)
    rings |= {
        name: HashRing.unordered(ring.bindings or (), release)
        for name, ring in rings.items()
        if name in unordered
    }
    return replace(LiveTopology.of_file(objects, release), rings=rings)


def without_exclusive(topology: LiveTopology) -> LiveTopology:
    """Return the topology without exclusive queues, which are deleted with the connection of a client, and their bindings.

    A ring keeps them as members, because its other members would move without them.
    """
    exclusive = {queue.name for queue in topology.queues if queue.exclusive}
    left_out = [
        f"queue {name}: it is exclusive, and deleted with its connection" for name in sorted(exclusive)
    ]
    left_out += [
        f"queue {member.destination} is still a member of {exchange.name}, because the ring would change without it"
        for exchange in topology.exchanges
        for member in exchange.ring or ()
        if member.destination in exclusive
    ]
    return replace(
        topology,
        queues=tuple(queue for queue in topology.queues if not queue.exclusive),
        bindings=tuple(binding for binding in topology.bindings if binding.destination not in exclusive),
        facts=replace(
            topology.facts.leaving_out(left_out),
            sources_left_out=topology.sources_left_out
            | {binding.source for binding in topology.bindings if binding.destination in exclusive},
        ),
    )


def with_queues(topology: Topology) -> Topology:
    """Return the topology with `queues` instead of the bindings of each ``x-modulus-hash`` exchange whose bindings are those of queues."""
    exchanges = []
    for exchange in topology.exchanges:
        bound = [binding for binding in topology.bindings if binding.source == exchange.name]
        queues = [binding.destination for binding in bound if isinstance(binding.destination, str)]
        listed = replace(exchange, queues=tuple(queues))
        is_whole = (
            bound and exchange.type == MODULUS_EXCHANGE and exchange.name not in topology.sources_left_out
        )
        same = is_whole and replace(topology, exchanges=(listed,), bindings=()).bindings == tuple(bound)
        exchanges.append(listed if same else exchange)
    return replace(topology, exchanges=tuple(exchanges))
