"""A check of the live topology by itself and against a wanted topology. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from rabbit_chx.amqp.exchange_types import exchange_type_remedy, why_not_routed
from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.reports import hashes_text
from rabbit_chx.checking.check_queues import (
    CheckedQueues,
    finding_about,
    ignored_argument_findings,
    object_finding,
    partition_finding,
    queue_findings,
    ring_findings_of,
    slot_findings_of,
)
from rabbit_chx.checking.check_rings import (
    CheckContext,
    CheckedExchange,
    absent_member_findings,
    live_ring_findings,
    modulus_unroutable_findings,
    other_binding_findings,
    passing_findings,
    record_findings,
    slot_findings,
    why_order_unknown,
)
from rabbit_chx.checking.group_status import unbound_queue_findings, usage_findings
from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import (
    Comparison,
    RingDifference,
    as_live,
    check_wanted,
    compare,
    diff_ring,
    find_super_streams,
    list_partitions,
)
from rabbit_chx.planning.refusals import check_certain, vhost_refusals
from rabbit_chx.records.live_rings import WaysToLearn, evidence_of, find_live_ring, live_hash_exchange
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import OrderKnowledge, ascending_bindings
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.text import percent
from rabbit_chx.topology.arguments import find_applying_policy, find_ignored, limit_faults
from rabbit_chx.topology.model import AnyTopology, LiveTopology, Topology
from rabbit_chx.topology.modulus import is_super_stream, number_bindings
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.plugin_objects import is_sharded
from rabbit_chx.topology.reach import bound_places
from rabbit_chx.topology.slots import number_slots

#: The kinds of findings that are about the order, if they are about no destination.
_OF_ORDER = ("order", "different")
#: Why the order of partitions is not known.
UNNUMBERED = "its partitions do not have a number each"
#: The types of exchanges that send a message to each queue that matches.
_COPYING = ("direct", "fanout", "topic", "headers")


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, repr=False)
class TopologyCheck:
    """The result of a check. A value; `check` makes it.

    Attributes:
        findings: the faults, of the kinds that the command `check` lists.
        exchanges: the names of the hash exchanges whose rings were checked.
        unroutable: the exact share of keys that reach no queue, by exchange.
        misplaced: the exact share of keys whose destination differs from that of the topology, by exchange; only exchanges that the
            topology contains.
        parked: the number of messages in the parking queue, by exchange; only exchanges with a parking queue.
        without_ring: the existing ``x-modulus-hash`` exchanges. They have no ring: their bindings are checked, and compared with the
            topology, if there is one.
        rings: the rings that were checked, by exchange.
        unordered: the reason why the order of a ring was not checked, by exchange.
        objects: the number of objects of the topology that were compared.
        present: by each hash exchange of the topology, also of type ``x-modulus-hash``: True if it exists.
        ways_to_learn: how the user may learn the order of a ring.
        consumers_not_checked: why consumers and traffic were not checked; empty if they were.
        queues: the queues of each checked exchange, and of its slots.
    """

    findings: tuple[Finding, ...]
    exchanges: tuple[str, ...]
    unroutable: Mapping[str, float] = field(default_factory=dict)
    misplaced: Mapping[str, float] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)
    present: Mapping[str, bool] = field(default_factory=dict)
    without_ring: tuple[str, ...] = ()
    rings: Mapping[str, KeyMap] = field(default_factory=dict)
    unordered: Mapping[str, str] = field(default_factory=dict)
    objects: int = 0
    ways_to_learn: WaysToLearn = field(default_factory=WaysToLearn)
    consumers_not_checked: str = ""
    queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<TopologyCheck {len(self.findings)} findings, {len(self.exchanges)} exchanges>"

    @property
    def not_determined(self) -> tuple[str, ...]:
        """The exchanges whose rings have an order that is not known, so that what depends on it was not checked."""
        return tuple(name for name, ring in self.rings.items() if not ring.is_determined)

    def of_exchange(self, name: str) -> TopologyCheck:
        """Return what was checked and found of one exchange.

        Args:
            name: the exchange.
        """

        def only(values: Mapping[str, _T]) -> dict[str, _T]:
            return {exchange: value for exchange, value in values.items() if exchange == name}

        return replace(
            self,
            findings=tuple(finding for finding in self.findings if finding.exchange == name),
            exchanges=tuple(exchange for exchange in self.exchanges if exchange == name),
            without_ring=tuple(exchange for exchange in self.without_ring if exchange == name),
            unroutable=only(self.unroutable),
            misplaced=only(self.misplaced),
            parked=only(self.parked),
            present=only(self.present),
            rings=only(self.rings),
            unordered=only(self.unordered),
            queues=only(self.queues),
            objects=0,
        )

    def with_others(self, whole: TopologyCheck) -> TopologyCheck:
        """Return this check with what another one found of the exchanges that this one does not contain.

        Args:
            whole: the check of all exchanges of the same vhost.
        """
        own = {*self.exchanges, *self.without_ring}
        found = {(one.kind, one.exchange, one.destination, one.message) for one in self.findings}
        more = [
            one
            for one in whole.findings
            if one.exchange not in own and (one.kind, one.exchange, one.destination, one.message) not in found
        ]
        names = [name for name in (*whole.exchanges, *whole.without_ring) if name not in own]
        merged = replace(self, findings=(*self.findings, *more))
        for other in map(whole.of_exchange, names):
            merged = replace(
                merged,
                exchanges=(*merged.exchanges, *other.exchanges),
                without_ring=(*merged.without_ring, *other.without_ring),
                unroutable={**merged.unroutable, **other.unroutable},
                parked={**merged.parked, **other.parked},
                rings={**merged.rings, **other.rings},
                unordered={**merged.unordered, **other.unordered},
                queues={**merged.queues, **other.queues},
            )
        return merged

    @property
    def is_of_something(self) -> bool:
        """True if there was anything to check."""
        return bool(self.exchanges or self.without_ring or self.objects or self.findings)

    @property
    def sound(self) -> bool:
        """True if there are no findings."""
        return not self.findings


def check(
    live: LiveTopology,
    wanted: Topology | None = None,
    *,
    exchange: str | Sequence[str] | None = None,
    file: str | None = None,
) -> TopologyCheck:
    """Return the findings of a check of the live topology.

    A ring whose order is not known is checked for what does not depend on the order. A ring of one destination has one order.

    Args:
        live: the live topology, with the rings that were read.
        wanted: the wanted topology: its hash exchanges and all its objects are checked. None: all hash exchanges of the live topology are
            checked by themselves.
        exchange: check only this exchange of type ``x-consistent-hash`` or ``x-modulus-hash``, or these; None for all.
        file: the name of the topology's file, for the commands in the fixes.

    Raises:
        InputError: an argument is of another type.
        NotFoundError: an exchange of that name does not exist.
        MismatchError: the exchange is of a type that does not hash.
    """
    live = as_live(live)
    if wanted is not None:
        check_wanted(wanted)
    names, moduli = _hash_exchanges(live, wanted, exchange)
    unread = [name for name in names if name not in live.rings]
    unreadable = [name for name in unread if name in live.sources_left_out]
    guessed = {*unread} - {*unreadable}
    live = live.with_rings({name: find_live_ring(live, live.exchange(name), name).ring for name in guessed})
    compared = None if wanted is None else compare(wanted, live)
    context = CheckContext(live, compared, file, is_selected=exchange is not None)
    rings = [
        CheckedExchange(live_hash_exchange(live, name), _known_ring(live, name), context)
        for name in names
        if name not in unreadable
    ]
    findings = (
        *(() if wanted is None else _find_wrong_place(wanted, live)),
        *(_unreadable_finding(name, wanted) for name in unreadable),
        *_find_all(context, rings, moduli),
    )
    certain = [ring for ring in rings if ring.ring.is_determined]
    unroutable = _unroutable_of_all(context, certain, moduli)
    unroutable |= {ring.name: 1.0 for ring in rings if _why_not_routed(ring.name, live)}
    return TopologyCheck(
        tuple(dict.fromkeys(findings)),
        tuple(names),
        unroutable,
        _find_misplaced(context, certain),
        {ring.name: sum(parked.values()) for ring in rings if (parked := ring.parked)},
        _find_present(wanted, live),
        tuple(moduli),
        {ring.name: ring.ring for ring in rings},
        _why_all_unordered(context, rings),
        0 if wanted is None else len(wanted.by_name) + len(wanted.bindings),
        evidence_of(live).ways_to_learn,
        _why_consumers_unchecked(live),
        {ring.name: tuple(ring.queues) for ring in rings}
        | {name: _queues_of_modulus(name, live) for name in moduli},
    )


def _why_consumers_unchecked(live: LiveTopology) -> str:
    """Return why consumers and traffic are not checked; empty if they are."""
    usage = live.facts.usage
    if usage is None:
        return "left out"
    # A queue that was declared some seconds ago has no counts yet, but its consumers are listed.
    is_blind = usage.consumers is None and not any(
        each.consumers is not None for each in usage.queues.values()
    )
    return "the broker collects no statistics" if usage.queues and is_blind else ""


def _find_all(
    context: CheckContext, rings: Sequence[CheckedExchange], moduli: Sequence[str]
) -> Iterator[Finding]:
    """Yield the faults of the exchanges by themselves, and the differences from the topology."""
    live = context.live
    wanted = context.wanted
    for ring in rings:
        is_determined = ring.ring.is_determined
        yield from (_ring_findings if is_determined else _unordered_findings)(ring)
        yield from absent_member_findings(ring)
        yield from usage_findings(
            ring.name,
            ring.queues,
            live,
            context.release,
            is_known=is_determined,
            has_shares=ring.ring.has_shares,
        )
        yield from unbound_queue_findings(ring.name, ring.queues, live, context.listed_queues)
        yield from context.dead_letters.findings(ring.exchange, ring.queues)
        if ring.wanted is None:
            yield from other_binding_findings(ring)
    if context.compared is not None and not context.is_selected:
        covered: set[Destination] = {ring.exchange.ref for ring in rings}
        covered.update(queue for ring in rings for queue in ring.queues)
        yield from _object_findings(context.compared, context)
        yield from _argument_findings(context.compared, covered, moduli)
    for name in moduli:
        yield from _modulus_findings(name, context)
    for name in (*(ring.name for ring in rings), *moduli):
        yield from _find_plugin_off(name, live)
        yield from _find_transience(name, live, wanted)
    yield from polarized_findings(live, [*(ring.name for ring in rings), *moduli])
    if not context.is_selected:
        yield from _find_copies_in_shards(live, wanted)
        yield from live.facts.oddities if wanted is not None else ()


def polarized_findings(topology: AnyTopology, names: Iterable[str]) -> Iterator[Finding]:
    """Yield the exchanges that hash behind another one that hashes the same value; the definitions of the two tell.

    Which keys the first one sends on is not looked at, so what it does to the shares is only possible. If one of the two has a single
    destination, it does nothing.

    Args:
        topology: the file, or what a broker has.
        names: the exchanges of which one is one of the two.
    """
    hashes = {exchange.name: _hash_of(exchange) for exchange in topology.exchanges}
    bound = {source: dict.fromkeys(places) for source, places in bound_places(topology).items()}
    checked = {*names}
    for front, places in bound.items():
        hash_ = hashes.get(front)
        if hash_ is None or len(places) == 1:
            continue
        for place in places:
            if not isinstance(place, ExchangeRef) or place.name == front or hashes.get(place.name) != hash_:
                continue
            is_split = len(bound.get(place.name, ())) > 1
            if is_split and {front, place.name} & checked:
                yield _polarized_finding(front, place.name, hash_.value)


def _polarized_finding(front: str, behind: str, value: str) -> Finding:
    message = (
        f"{behind} is behind {front}, and both hash the same value ({value}): of the keys that {front} sends to {behind}, its queues may "
        "get other shares than their weights, and some may get none"
    )
    fix = (
        f"let {behind} hash another value, by hash-header or hash-property, or bind its queues to {front} itself; if few messages reach "
        f"{behind} through {front}, ignore this"
    )
    return Finding("polarized", message, fix, exchange=behind, destination=ExchangeRef(front))


class _Hash(NamedTuple):
    """What an exchange hashes, in words, and its type: the hashes of one value by two types are independent."""

    type: str
    value: str


def _hash_of(exchange: ExchangeDefinition) -> _Hash | None:
    """Return the hash of an exchange; None if it does not hash."""
    if exchange.type == MODULUS_EXCHANGE:
        return _Hash(exchange.type, hashes_text({}))
    if exchange.type != HASH_EXCHANGE:
        return None
    try:
        return _Hash(exchange.type, hashes_text(exchange.hash_arguments))
    except InputError:  # arguments that the broker refuses
        return None


def _find_misplaced(context: CheckContext, certain: Sequence[CheckedExchange]) -> dict[str, float]:
    """Return the share of keys that each exchange sends elsewhere than the topology. Of a selection only its rings count."""
    if context.compared is None:
        return {}
    counted = {ring.name for ring in certain if ring.is_listed}
    return {
        name: ring.moved
        for name, ring in context.compared.rings.items()
        if ring.moved is not None
        and (name in counted or not (context.is_selected or name in context.live.rings))
    }


def _find_present(wanted: Topology | None, live: LiveTopology) -> dict[str, bool]:
    """Return whether each hash exchange of a topology exists."""
    exchanges = () if wanted is None else wanted.exchanges
    hashing = [one.name for one in exchanges if one.type in (HASH_EXCHANGE, MODULUS_EXCHANGE)]
    return {name: live.exchange(name) is not None for name in hashing}


def _why_all_unordered(context: CheckContext, rings: Sequence[CheckedExchange]) -> dict[str, str]:
    """Return why the order of a ring, or of the partitions of a super stream, is compared with nothing."""
    reasons = {ring.name: reason for ring in rings if (reason := _why_unordered(ring))}
    if context.compared is not None and not context.is_selected:
        streams = find_super_streams(context.compared.wanted) & find_super_streams(context.live)
        reasons |= {name: UNNUMBERED for name in sorted(streams) if not list_partitions(context.live, name)}
    return reasons


def _why_unordered(checked: CheckedExchange) -> str:
    """Return why the order of a ring is compared with nothing; empty if it is compared, or if there is only one order."""
    if not checked.ring.is_determined:
        return checked.ring.order.doubt or "the order of the ring is not known"
    if len(checked.ring.destinations) < 2 or (
        checked.listed is None and number_slots(checked.name, checked.bound)
    ):
        return ""
    if checked.listed is None:
        return why_order_unknown(checked.live, checked.name)
    if checked.is_unordered:
        return "the file has no order"
    if checked.listed.ring is None:
        return (
            "the plugin makes the ring"
            if is_sharded(checked.exchange, checked.live)
            else "the file has no ring"
        )
    return ""


def _hash_exchanges(
    live: LiveTopology, wanted: Topology | None, exchange: str | Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Return the names of the ``x-consistent-hash`` and of the ``x-modulus-hash`` exchanges to check. Errors are those of `check`."""
    if exchange is None:
        return _of_type(HASH_EXCHANGE, live, wanted), _of_type(MODULUS_EXCHANGE, live, wanted)
    given = dict.fromkeys([exchange] if isinstance(exchange, str) else exchange)
    of_modulus = _of_type(MODULUS_EXCHANGE, live, None)
    names = [live_hash_exchange(live, name).name for name in given if name not in of_modulus]
    return names, [name for name in given if name in of_modulus]


def _why_not_routed(name: str, live: LiveTopology) -> str:
    """Return why a live exchange that hashes routes nothing, as a sentence; empty if it routes."""
    exchange = live.exchange(name)
    return "" if exchange is None else why_not_routed(name, exchange.type, live.facts.limits.exchange_types)


def _find_plugin_off(name: str, live: LiveTopology) -> Iterator[Finding]:
    """Yield a finding if the plugin of an exchange that hashes is not enabled."""
    exchange = live.exchange(name)
    message = _why_not_routed(name, live)
    if exchange is not None and message:
        yield Finding("plugin-off", message, exchange_type_remedy(exchange.type), exchange=name, share=1.0)


def _find_transience(name: str, live: LiveTopology, wanted: Topology | None) -> Iterator[Finding]:
    """Yield a finding if the broker deletes an exchange that hashes by itself. A topology that contains it compares that."""
    exchange = live.exchange(name)
    if exchange is None or (wanted is not None and wanted.exchange(name) is not None):
        return
    whats = []
    ends = []
    if not exchange.durable:
        whats.append("not durable")
        ends.append("a restart of the broker")
    if exchange.auto_delete:
        whats.append("auto-delete")
        ends.append("the unbind of its last member")
    if whats:
        message = (
            f"{name} is {' and '.join(whats)}: {' or '.join(ends)} deletes it with its bindings, and then a publish to it closes the "
            "channel"
        )
        fix = "declare a durable exchange without auto-delete under another name, bind its members in order, and publish to it"
        yield Finding("transient-exchange", message, fix, exchange=name, share=1.0)


def _find_copies_in_shards(live: LiveTopology, wanted: Topology | None) -> Iterator[Finding]:
    """Yield the exchanges that a policy shards although they do not hash: each of their shards gets a copy of a message.

    The plugin binds all shards with the routing key of the policy (``rabbit_sharding_shard.erl``, ``bind_queues/1``, v4.3.6).
    """
    for exchange in live.exchanges:
        is_ours = wanted is None or wanted.exchange(exchange.name) is not None
        if exchange.type not in _COPYING or not is_ours or not is_sharded(exchange, live):
            continue
        policy = find_applying_policy(exchange, live.policies)
        by = "its argument" if policy is None else f"the policy {policy.name}"
        message = (
            f"{by} shards {exchange.name}, which is of type {exchange.type} and does not hash: all its shards get a copy of each message "
            "that matches their binding"
        )
        fix = f"let the policy match exchanges of type {MODULUS_EXCHANGE} only, and delete the shards of {exchange.name}"
        yield Finding("sharding-policy", message, fix, exchange=exchange.name)


def _unreadable_finding(name: str, wanted: Topology | None) -> Finding:
    """Return the finding of a ring with a member that no client can name. It differs from a file only if the order counts there."""
    kind = "odd-object" if wanted is not None and wanted.is_unordered(name) else "different"
    message = "the ring has a member that no client can name, so it is not checked"
    return Finding(kind, message, "delete that queue or exchange", exchange=name)


def _ring_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of an ``x-consistent-hash`` exchange by itself, and its differences from the topology."""
    own = list(live_ring_findings(checked))
    yield from own
    yield from slot_findings(checked)
    # The queues of other exchanges in the ring depend on the message.
    queues = CheckedQueues(checked.name, checked.live, checked.ring.release, checked.queues, checked.ring)
    yield from queue_findings(queues)
    yield from ignored_argument_findings(checked.name, checked.queues, checked.live)
    if checked.is_listed and checked.context.compared is not None:
        found = checked.context.compared.rings.get(checked.name, RingDifference())
        yield from ring_findings_of(checked, found.differences)
        if checked.layout is not None:
            yield from slot_findings_of(checked, checked.layout)
    if checked.wanted is None:
        recorded = list(record_findings(checked))
        yield from recorded
        is_found = bool(recorded) or any(map(checked.is_fixed_by_repair, own))
        yield from _find_own_order(checked, is_found=is_found)


def _find_own_order(checked: CheckedExchange, *, is_found: bool) -> Iterator[Finding]:
    """Yield a finding if a ring needs a repair by itself: slots that are not in the order of their numbers, or other buckets than its
    bindings make, if no finding shows that yet (`is_found`).
    """
    is_of_slots = number_slots(checked.name, checked.repaired) is not None
    if is_of_slots or not is_found:
        healed = diff_ring(replace(checked.exchange, ring=checked.repaired), checked.live)
        source = "the numbers of its slots" if is_of_slots else "its bindings"
        whole = (one for one in healed.differences if one.subject.kind == "exchange")
        yield from ring_findings_of(checked, whole, source)


def _object_findings(compared: Comparison, context: CheckContext) -> Iterator[Finding]:
    """Yield a finding for each difference, except those of rings and of slots, which are findings of their ring."""
    parts = {name for layout in compared.layouts.values() for name in layout.names.exchanges}
    for difference in compared.counted:
        subject = difference.subject
        source = subject.source if isinstance(subject, BindingDefinition) else subject.name
        if source not in parts or subject.kind in ("queue", "policy"):
            yield object_finding(difference, context)
    for ring in compared.rings.values():
        yield from (
            partition_finding(one, context)
            for one in ring.differences
            if isinstance(one.subject, ExchangeDefinition) and is_super_stream(one.subject)
        )
    for binding, unwanted in compared.bindings:
        if unwanted == "unmanaged" and compared.wanted.owned(binding.source):
            message = (
                f"the binding {binding.name} is not in the topology, and {binding.source} is owned: {binding.destination!s} gets its "
                "messages, and is not owned, so that a plan leaves it"
            )
            fix = f"add it to the topology, add {binding.destination!s} to `owns`, or unbind it"
            yield finding_about("unexpected", binding, message, fix)


def _of_type(type_: str, live: LiveTopology, wanted: Topology | None) -> list[str]:
    """Return the live exchanges of a type. Those that `wanted` does not have with this type are omitted."""
    names = [
        {exchange.name: None for exchange in side.exchanges if exchange.type == type_}
        for side in (live, wanted or live)
    ]
    return [name for name in names[0] if name in names[1]]


def _known_ring(live: LiveTopology, name: str) -> HashRing:
    """Return the ring of a live exchange; the order of one that was neither read, recorded nor observed is not known."""
    ring = live.rings[name]
    if ring.order.is_certain:
        return ring
    return replace(ring, order=OrderKnowledge(None, ring.order.text)) if ring.order.is_known else ring


def _unordered_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of a ring that do not depend on its order, which is not known."""
    has_shares = checked.ring.has_shares
    for finding in _ring_findings(checked):
        is_of_ring = finding.kind in _OF_ORDER and finding.destination is None and not finding.names
        is_of_ring |= finding.kind in ("ghost-bucket", "hole", "unroutable-share")
        if is_of_ring:
            continue
        yield finding if has_shares else replace(finding, share=None)


def certain_ring(live: LiveTopology, name: str, remedy: str | None = None) -> HashRing:
    """Return the ring of a live exchange.

    Raises:
        InputError: its order is not known; `remedy` says what the caller can do.
    """
    ring = find_live_ring(live, live.exchange(name), name).ring
    check_certain(name, ring, evidence_of(live).ways_to_learn, remedy)
    return ring


def _find_wrong_place(wanted: Topology, live: LiveTopology) -> Iterator[Finding]:
    if wanted.cluster is not None and not live.is_cluster(wanted.cluster):
        cluster = "a cluster whose name is not known" if live.cluster is None else live.cluster
        message = f"the topology is for the cluster {wanted.cluster}, and this is {cluster}"
        yield Finding("different", message, f"connect to {wanted.cluster}, or correct `cluster`")
    for refusal in vhost_refusals(wanted, live):
        fix = f"pass the vhost {wanted.vhost}, or correct `vhost`"
        yield Finding("different", refusal.message, fix)


def _modulus_findings(name: str, context: CheckContext) -> Iterator[Finding]:
    """Yield the faults of an ``x-modulus-hash`` exchange by itself: those of its bindings and of its queues."""
    live = context.live
    release = context.release
    bound = [binding for binding in live.bindings if binding.source == name]
    yield from _modulus_binding_findings(name, bound, release)
    key_map = _modulus_map(name, context)
    exchange = live.exchange(name)
    if exchange is not None:
        lost = context.reach.unroutable_of(exchange, key_map)
        yield from modulus_unroutable_findings(exchange, lost, key_map, context)
        yield from passing_findings(exchange, key_map, context)
    queues = {place: share for place, share in key_map.shares().items() if isinstance(place, str)}
    yield from queue_findings(CheckedQueues(name, live, release, queues, key_map))
    if exchange is not None:
        yield from context.dead_letters.findings(exchange, queues)
    yield from usage_findings(name, queues, live, release, is_known=key_map.order.is_known)
    if exchange is None or not is_sharded(exchange, live):  # the plugin names and binds the shards
        yield from unbound_queue_findings(name, queues, live, context.listed_queues)
    yield from ignored_argument_findings(name, queues, live)


def _modulus_map(name: str, context: CheckContext) -> ModulusHashExchange:
    """Return the key map of an ``x-modulus-hash`` exchange, by its bindings."""
    bound = [binding for binding in context.live.bindings if binding.source == name]
    numbered = ascending_bindings(number_bindings(bound, context.release))
    return ModulusHashExchange(name, numbered, context.release, "read")


def _unroutable_of_all(
    context: CheckContext, certain: Sequence[CheckedExchange], moduli: Sequence[str]
) -> dict[str, float]:
    """Return the share of the keys of each exchange that reach no queue, where that is known."""
    live = context.live
    shares = {ring.name: ring.unroutable.share for ring in certain}
    for name in moduli:
        exchange = live.exchange(name)
        if exchange is not None:
            shares[name] = context.reach.unroutable_of(exchange, _modulus_map(name, context)).share
    return shares


def _queues_of_modulus(name: str, live: LiveTopology) -> tuple[str, ...]:
    bound = (binding.destination for binding in live.bindings if binding.source == name)
    return tuple(dict.fromkeys(place for place in bound if isinstance(place, str)))


def _modulus_binding_findings(
    name: str, bound: Sequence[BindingDefinition], release: Release
) -> Iterator[Finding]:
    counts = Counter(binding.destination for binding in bound)
    weights = "for weights use an x-consistent-hash exchange with a ring or slots"
    for place, count in counts.items():
        if count > 1:
            texts = " and ".join(
                repr(binding.routing_key) for binding in bound if binding.destination == place
            )
            share = count / len(bound)
            message = f"{place!s} is bound {count} times (keys {texts}), and each binding counts: it gets {percent(share)} of all keys"
            fix = f"unbind all but one by a plan, which shows what moves; {weights}"
            yield Finding("second-binding", message, fix, exchange=name, destination=place, share=share)
    keys = {binding.routing_key for binding in bound}
    numbers = sorted(int(key) for key in keys if key.isdecimal())
    # Keys that number the bindings order them before 4.3.
    if len(numbers) == len(keys) > 1 and not len(keys) == len(bound) == numbers[-1] - numbers[0] + 1:
        message = f"the binding keys of {name} look like weights, and have no weight: each binding gets {percent(1 / len(bound))} of all keys"
        yield Finding("different", message, f"bind all with one key; {weights}", exchange=name)
    if len(counts) > 1 and release.follows(MODULUS_UNORDERED):
        message = (
            f"on RabbitMQ {release} {MODULUS_UNORDERED.says}: the queue of a key is not known, and may change"
        )
        fix = "update to 4.3, which sorts the destinations by name, or use an x-consistent-hash exchange"
        yield Finding("order", message, fix, exchange=name, share=1.0)


def _argument_findings(
    compared: Comparison, covered: Collection[Destination], moduli: Collection[str]
) -> Iterator[Finding]:
    """Yield the arguments of the topology's live objects that lose messages, or that the broker ignores, except those of checked rings."""
    release = compared.release
    kept: tuple[ExchangeDefinition | QueueDefinition, ...] = (*compared.live.exchanges, *compared.live.queues)
    listed = compared.wanted.by_name
    there = [
        one
        for one in kept
        if (one.kind, one.name) in listed and one.ref not in covered and one.name not in moduli
    ]
    for queue in there:
        if isinstance(queue, QueueDefinition):
            for found in limit_faults(queue, release):
                yield finding_about(
                    "dropping-destination", queue, f"queue {queue.name}: {found.message}", found.fix
                )
    for names, message, fix in find_ignored(there, release):
        exchange = next((one.name for one in there if one.kind == "exchange" and one.name in names), None)
        alone = None if exchange is not None or len(names) > 1 else names[0]
        yield Finding("ignored-argument", message, fix, exchange=exchange, destination=alone)
