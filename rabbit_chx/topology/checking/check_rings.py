"""Findings about the ring of a live exchange, by itself and compared with the members of a topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.observations import Contradiction, comparable
from rabbit_chx.erlang.terms import Term
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.fixes import Argument, CommandLine, Fix
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.ground import ORIGINS
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.observations import Observation
from rabbit_chx.topology.live_rings import LiveRing, find_recorded_ring
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.changes import FieldChange
from rabbit_chx.topology.objects.objects import ExchangeDefinition, RingMember
from rabbit_chx.topology.planning.movement import MovementCounter, bucket_count
from rabbit_chx.topology.planning.refusals import READ_RINGS
from rabbit_chx.topology.rules.reach import Reach, UnroutableKeys
from rabbit_chx.topology.slots.layout import SlotLayout
from rabbit_chx.topology.slots.live_slots import LiveSlots, live_slots
from rabbit_chx.topology.slots.owners import number_slots, queues_of_slots, repair_members
from rabbit_chx.words import percent, plural

_ASK_OWNER = "it is external: ask its owner, or correct the topology"
_MOST_PLACES = 5
#: Of fewer messages the share of one key says little.
_FEWEST_MESSAGES = 100
#: The remedy for a ring that observed keys contradict.
LATER_KEYS = Fix(
    "if the ring changed after these messages were published, observe later ones, or read the ring with ",
    READ_RINGS,
    "; otherwise check that the keys are those that the exchange hashes, and came to their queues by no other way",
)
FEDERATION_LINK = "federation-link"
#: From this release on the buckets of an exclusive queue outlive it in a restart (tested on 4.3.6).
GHOSTS_SINCE = (4, 3, 0)


def apply_fix(file: str | None, *options: Argument, external: bool = False) -> str:
    """Return the command that applies the whole topology with some options, with the file's name if it is known."""
    if external:
        return _ASK_OWNER
    name = "FILE" if file is None else file
    permitted = "".join(f", {option}" for option in options)
    return Fix(
        "run: ",
        CommandLine("topology plan", "plan(wanted, live)", (name,)),
        ", and then: ",
        CommandLine("topology apply", f"Broker.apply(plan{permitted})", (name,), options),
    )


def repair_fix(exchange: str, file: str | None, *, external: bool = False) -> str:
    """Return the command that repairs the ring: in the order of a file, or without a file by itself."""
    if external:
        return _ASK_OWNER
    return Fix(
        "run: ",
        repair_command(exchange, file),
        "; it shows the steps, and does them with ",
        Argument("apply", call="Broker.apply"),
    )


def repair_command(exchange: str, file: str | None, *, does_it: bool = False) -> CommandLine:
    """Return the command that repairs the ring of an exchange in the order of a file: it shows the steps, or does them."""
    target = f"healed(live, {exchange!r})" if file is None else f"restricted(wanted, live, {exchange!r})"
    ordered = () if file is None else (Argument("file", file),)
    call = f"plan({target}, live)"
    if does_it:
        return CommandLine("ring repair", f"Broker.apply({call})", (exchange,), (*ordered, Argument("apply")))
    return CommandLine("ring repair", call, (exchange,), ordered)


@dataclass(frozen=True)
class CheckedExchange:
    """A hash exchange that is checked, with its context.

    Attributes:
        transient: the destinations that the broker deletes automatically, with the reason.
        links: the exchanges and queues of federation links.
        listed: the exchange in the topology, with plain objects instead of slots; None if the topology does not contain it.
        layout: its slots in the topology; None without slots.
        file: the name of the topology's file; None if the topology does not contain the exchange.
        is_assumed: True if the order of its ring in the topology is assumed.
    """

    exchange: ExchangeDefinition
    ring: HashRing
    live: LiveTopology
    reach: Reach
    transient: Mapping[Destination, str]
    links: Collection[Destination]
    listed: ExchangeDefinition | None = None
    layout: SlotLayout | None = None
    file: str | None = None
    is_assumed: bool = False

    @property
    def name(self) -> str:
        """The exchange's name."""
        return self.exchange.name

    @property
    def bound(self) -> tuple[RingMember, ...]:
        """The exchange's bindings."""
        return self.exchange.ring or ()

    @property
    def external(self) -> bool:
        """True if the topology marks the exchange as external."""
        return self.listed is not None and self.listed.owner == "external"

    @cached_property
    def shares(self) -> dict[Place, float]:
        """The exact share of the keys at each destination."""
        return self.ring.shares()

    @cached_property
    def queues(self) -> dict[str, float]:
        """The queues of the ring and of its slots, with the exact share of the keys at each."""
        queues: dict[str, float] = {}
        for place in self.ring.destinations:
            for queue in (place,) if isinstance(place, str) else self.slots.queues.get(place, ()):
                queues[queue] = queues.get(queue, 0.0) + self.shares.get(place, 0.0)
        return queues

    @cached_property
    def unroutable(self) -> UnroutableKeys:
        """The keys that reach no queue."""
        return self.reach.unroutable_of(self.exchange)

    @cached_property
    def slots(self) -> LiveSlots:
        """The slots in the ring, with their bindings."""
        return live_slots(self.name, self.ring, self.live.exchanges, self.live.bindings)

    @cached_property
    def parks(self) -> dict[str, list[ExchangeRef]]:
        """The alternate exchanges of slots, with their slots."""
        exchanges = {exchange.name: exchange for exchange in self.live.exchanges}
        parks: dict[str, list[ExchangeRef]] = {}
        for slot in self.slots.queues:
            exchange = exchanges.get(slot.name)
            if exchange is not None and (park := self.reach.alternate_of(exchange)):
                parks.setdefault(park, []).append(slot)
        return parks

    @property
    def parked(self) -> dict[str, int]:
        """The number of messages in each parking queue."""
        queues = dict.fromkeys(
            binding.destination
            for binding in self.live.bindings
            if binding.source in self.parks and isinstance(binding.destination, str)
        )
        return {queue: self.live.facts.messages.get(queue, 0) for queue in queues}

    @property
    def apply_command(self) -> str:
        """The command that applies the topology."""
        return apply_fix(self.file, external=self.external)

    @cached_property
    def wanted(self) -> tuple[RingMember, ...] | None:
        """The members of the topology; None if it does not have them in an order."""
        return None if self.listed is None or self.is_assumed else self.listed.ring

    @cached_property
    def repaired(self) -> tuple[RingMember, ...]:
        """The members that the ring has after a repair."""
        if self.wanted is not None:
            return self.wanted
        recorded = find_recorded_ring(self.live, self.name)
        return repair_members(self.name, self.bound, self.ring if recorded is None else recorded[1])

    @cached_property
    def needs_repair(self) -> bool:
        """True if a repair has steps."""
        return not LiveRing(self.name, self.ring, self.bound).is_made_by(self.repaired)

    @property
    def repair_command(self) -> str:
        """The command that repairs the ring; the one that applies the topology if a repair has no steps, or a wanted member does not exist."""
        has_members = all(self.reach.exists(member.destination) for member in self.wanted or ())
        if not (has_members and self.needs_repair):
            return self.apply_command
        file = None if self.wanted is None else self.file
        return repair_fix(self.name, file, external=self.external)

    def is_fixed_by_repair(self, finding: Finding) -> bool:
        """Return True if a repair of the ring is the fix of a finding."""
        return self.needs_repair and finding.fix.startswith(self.repair_command)

    def moved_without(self, places: Iterable[Destination]) -> dict[Destination, float]:
        """Return the exact share of keys that move when a member is removed, for each of some members."""
        remaining = {
            place: tuple(bucket for bucket in self.ring.buckets if bucket != place) for place in places
        }
        figures = MovementCounter(self.ring.buckets)
        figures.prepare(map(bucket_count, remaining.values()))
        return {place: figures.count_moved(buckets) for place, buckets in remaining.items()}

    def finding(
        self, kind: str, message: str, fix: str, place: Place = None, share: float | None = None
    ) -> Finding:
        """Return a finding about the exchange."""
        return Finding(kind, message, fix, exchange=self.name, destination=place, share=share)


def live_ring_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of a ring by itself."""
    if checked.unroutable.share:
        yield _unroutable(checked)
    yield from _find_filters(checked)
    alternate = checked.reach.alternate_of(checked.exchange)
    for finding in ring_findings(checked.ring, [member.binding for member in checked.bound], alternate):
        message, fix, place = finding.message, checked.repair_command, finding.destination
        if finding.kind == "ghost-bucket" and place is not None:
            ends = "go there"
            if not checked.reach.exists(place):
                ends = "are unroutable, since it does not exist"
                if alternate is not None:
                    ends += f", and the alternate exchange {alternate!r} does not get them"
            buckets = plural(checked.ring.buckets.count(place), "bucket")
            message = (
                f"{place!s} has {buckets} and no binding: {percent(checked.shares[place])} of all keys {ends}"
            )
            if isinstance(place, ExchangeRef):
                fix = Fix(
                    fix,
                    "; unbind an exchange before you delete it: 4.3 before 4.3.6 leaves its buckets (rabbitmq-server #17255)",
                )
        if finding.kind == "hole" and not checked.bound:
            fix = Fix(f"bind a queue to {checked.name}: ", checked.apply_command)
        elif finding.kind == "second-binding" and not checked.needs_repair:
            fix = Fix(f"list {place!s} once, and ", checked.apply_command)
        yield replace(finding, message=message, fix=fix, exchange=checked.name)
    if checked.exchange.durable:
        yield from _find_transient_places(checked)
    yield from link_findings(
        checked.name, {place: share for place, share in checked.shares.items() if place in checked.links}
    )


def link_findings(exchange: str, links: Mapping[Place, float]) -> Iterator[Finding]:
    """Yield the federation links among the destinations of an exchange that hashes, each with its share of the keys."""
    for place, share in links.items():
        message = (
            f"a federation link takes {percent(share)} of the keys: {place!s} sends them to its downstream, so that no queue here gets "
            "them, and the downstream gets no others"
        )
        fix = Fix(
            f"for all messages on both sides, publish to a fanout exchange that is bound to {exchange}, federate that one, and take {exchange} "
            "out of the federation policy of the downstream; if this share is intended, ",
            Argument("ignore", FEDERATION_LINK, call="leave this finding out"),
        )
        yield Finding(FEDERATION_LINK, message, fix, exchange=exchange, destination=place, share=share)


def _unroutable(checked: CheckedExchange) -> Finding:
    places = sorted(checked.unroutable.by_place.items(), key=lambda place: -place[1])
    parts = [f"{percent(share)} {_why_unroutable(checked, place)}" for place, share in places[:_MOST_PLACES]]
    if len(places) > _MOST_PLACES:
        parts.append(f"{len(places) - _MOST_PLACES:,} more destinations")
    share = checked.unroutable.share
    message = (
        f"{percent(share)} of all keys end in no queue ({', '.join(parts)}): a broker acks and drops such messages, or returns "
        "those that are mandatory"
    )
    leading = [place for place, _ in places if place is not None and checked.reach.exists(place)]
    if checked.layout is not None:
        fix = checked.apply_command
    elif leading:
        fix = f"bind a queue to {leading[0]!s}, or take it out of the ring"
    elif checked.bound:
        fix = checked.repair_command
    else:
        fix = Fix(f"bind a queue to {checked.name}: ", checked.apply_command)
    return checked.finding("unroutable-share", message, fix, share=share)


def _why_unroutable(checked: CheckedExchange, place: Place) -> str:
    if place is None:
        alternate = checked.reach.alternate_of(checked.exchange)
        without = "at holes" if checked.ring.bucket_count else "without buckets"
        return without if alternate is None else f"{without}, and {alternate} leads to no queue"
    if not checked.reach.exists(place):
        return f"at {place!s}, which does not exist"
    if checked.reach.leads_nowhere(str(getattr(place, "name", place))):
        return f"at {place!s}, which leads to no queue"
    return f"at {place!s}, where a direct exchange passes only the keys of its bindings on"


def _find_filters(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the exchanges behind the ring that pass only some messages on, unless their loss is counted."""
    for found in checked.reach.filters_of(checked.exchange):
        share = checked.shares.get(found.place, 0.0)
        if checked.unroutable.by_place.get(found.place) == share:
            continue
        name, type_ = found.exchange.name, found.exchange.type
        rest = "is lost" if found.alternate is None else f"goes to its alternate exchange {found.alternate}"
        what = "headers" if type_ == "headers" else "routing key"
        message = (
            f"{percent(share)} of all keys go to {found.place!s}, where the {type_} exchange {name} passes only messages with a matching "
            f"{what} on: any other {rest}"
        )
        fix = f"bind a queue to {name} that gets all messages, or use a fanout exchange"
        is_counted = found.alternate is not None and not checked.reach.leads_nowhere(found.alternate)
        yield checked.finding("unroutable-share", message, fix, found.place, 0.0 if is_counted else None)


def _find_transient_places(checked: CheckedExchange) -> Iterator[Finding]:
    ring = checked.ring
    transient = [
        place for place in ring.destinations if place in checked.transient and place not in checked.links
    ]
    for place, share in checked.moved_without(transient).items():
        why = checked.transient[place]
        message = f"{place!s} {why}; {percent(share)} of all keys move then"
        if ring.release.numbers >= GHOSTS_SINCE and ("exclusive" in why or "not durable" in why):
            lost = percent(checked.shares[place])
            message += f", and after a restart of the broker its buckets stay, so that {lost} are unroutable"
        fix = f"let a durable queue take the place of {place!s}, in a ring of durable queues"
        yield checked.finding("transient-destination", message, fix, place, share)


def share_misplaced(checked: CheckedExchange, members: Sequence[RingMember]) -> float | None:
    """Return the exact share of keys whose destination differs from that of the topology; None if no ring matches the topology."""
    try:
        wanted = _ring_of(checked, members)
    except InputError:
        return None
    if checked.layout is None:
        return share_elsewhere(checked, wanted)
    owners = {ExchangeRef(slot): queue for slot, queue in checked.layout.owners.items()}
    return _by_queue(wanted, owners).share_moved(_by_queue(checked.ring, _live_owners(checked)))


def wanted_ring_findings(checked: CheckedExchange, members: Sequence[RingMember]) -> Iterator[Finding]:
    """Yield the differences between a ring and that of the topology's members, in their order."""
    fix = checked.repair_command if checked.layout is None else checked.apply_command
    places = {member.destination for member in members}
    if checked.layout is not None and not places & set(checked.ring.destinations):
        share = share_misplaced(checked, members) or 0.0
        message = (
            f"the ring has none of the {plural(len(places), 'slot')} of the topology, but "
            f"{plural(len(checked.ring.destinations), 'other destination')}: {percent(share)} of all keys have another queue than "
            "with slots"
        )
        yield checked.finding("different", message, fix, share=share)
        return
    try:
        _ring_of(checked, members)
    except InputError as error:
        yield checked.finding("different", f"no broker of this release has such a ring: {error}", fix)
        return
    yield from wanted_order_findings(checked, members)
    yield from wanted_member_findings(checked, members, fix)


def wanted_member_findings(
    checked: CheckedExchange, members: Sequence[RingMember], fix: str
) -> Iterator[Finding]:
    """Yield the members that are missing, unexpected or bound otherwise than in the topology, whatever their order."""
    try:
        wanted = _ring_of(checked, members)
    except InputError as error:
        yield checked.finding("different", f"no broker of this release has such a ring: {error}", fix)
        return
    by_place, bound = _by_destination(members), _by_destination(checked.bound)
    wanted_shares: Mapping[Place, float] = {}
    if by_place.keys() - bound.keys():
        wanted_shares = wanted.shares() if checked.layout is None else _moved_of_each(checked, wanted)
    for place, wanted_members in by_place.items():
        if place not in bound:
            share = wanted_shares.get(place, 0.0)
            keys = " and ".join(member.key for member in wanted_members)
            message = f"{place!s} is not bound (key {keys}): "
            if checked.layout is None:
                message += f"the {percent(share)} of all keys that it would have go to other destinations"
            else:
                message += f"{percent(share)} of all keys belong to it and go to another queue"
            yield checked.finding("missing", message, fix, place, share)
        elif Counter(wanted_members) != Counter(bound[place]):
            message = f"{place!s} is bound with {_keys_text(bound[place])}, and in the topology with {_keys_text(wanted_members)}"
            yield checked.finding("different", message, fix, place, checked.shares.get(place, 0.0))
    for place in (place for place in bound if place not in by_place):
        share = checked.shares.get(place, 0.0)
        message = f"{place!s} is bound and not in the topology: {percent(share)} of all keys go there"
        yield checked.finding("unexpected", message, fix, place, share)


def own_order_findings(checked: CheckedExchange, *, is_found: bool) -> Iterator[Finding]:
    """Yield a finding if a ring needs a repair by itself: slots that are not in the order of their numbers, or other buckets than its
    bindings make, if no finding shows that yet (`is_found`).
    """
    if number_slots(checked.name, checked.repaired):
        yield from wanted_order_findings(checked, checked.repaired, "the numbers of its slots")
    elif checked.needs_repair and not is_found:
        try:
            yield from wanted_order_findings(checked, checked.repaired, "its bindings")
        except InputError as error:
            message = f"no broker of this release has a ring of its bindings: {error}"
            yield checked.finding("different", message, checked.repair_command)


def wanted_order_findings(
    checked: CheckedExchange, members: Sequence[RingMember], source: str = "the topology"
) -> Iterator[Finding]:
    """Yield a finding if a ring has the members in another order, or with other buckets, than `source`."""
    ring, wanted = checked.ring, _ring_of(checked, members)
    if wanted.buckets == ring.buckets:
        return
    share = share_elsewhere(checked, wanted)
    common = set(wanted.destinations) & set(ring.destinations)
    live_order = [place for place in ring.destinations if place in common]
    wanted_order = [place for place in wanted.destinations if place in common]
    for place, belongs in zip(live_order, wanted_order, strict=True):
        if place != belongs:
            message = (
                f"the ring has another order than {source}: {place!s} is where {belongs!s} belongs; {percent(share)} of all keys "
                "go to a different queue"
            )
            yield checked.finding("order", message, checked.repair_command, share=share)
            return
    message = f"the buckets of the ring differ from {source}{_difference(ring, wanted)}: {percent(share)} of all keys go to a different queue"
    fix = checked.repair_command if checked.layout is None else checked.apply_command
    yield checked.finding("different", message, fix, share=share)


def _difference(ring: HashRing, wanted: HashRing) -> str:
    """Return the differing numbers of buckets, or else the first destination whose number of buckets differs, in brackets."""
    if len(ring.buckets) != len(wanted.buckets):
        return f" ({len(ring.buckets):,}, not {len(wanted.buckets):,})"
    live_counts, wanted_counts = Counter(ring.buckets), Counter(wanted.buckets)
    for place in [*wanted.destinations, *ring.destinations]:
        if live_counts[place] != wanted_counts[place]:
            return f" ({place!s} has {live_counts[place]:,}, not {wanted_counts[place]:,})"
    return ""


def _ring_of(checked: CheckedExchange, members: Sequence[RingMember]) -> HashRing:
    return HashRing.from_bindings([member.binding for member in members], checked.ring.release)


def share_elsewhere(checked: CheckedExchange, wanted: HashRing) -> float:
    """Return the exact share of keys that another ring sends elsewhere. Slots that stay count by their queue."""
    if wanted.buckets == checked.ring.buckets:
        return 0.0
    owners = _live_owners(checked)
    return _by_queue(checked.ring, owners).share_moved(_by_queue(wanted, owners))


def _moved_of_each(checked: CheckedExchange, wanted: HashRing) -> dict[Place, float]:
    """Return for each destination of the wanted ring the exact share of keys that belong to it and have another queue now."""
    import numpy as np

    owners = _live_owners(checked)
    numbers: dict[Place, int] = {None: -1}
    queues = []
    for key_map in (_by_queue(checked.ring, owners), _by_queue(wanted, owners)):
        for place in key_map.destinations:
            numbers.setdefault(place, len(numbers))
        of_index = np.array([*(numbers[place] for place in key_map.destinations), -1])
        queues.append(of_index[key_map.indices_of_all_seeds()])
    places = wanted.indices_of_all_seeds()
    moved = np.bincount(places[(queues[0] != queues[1]) & (places >= 0)], minlength=len(wanted.destinations))
    return {place: int(n) / len(places) for place, n in zip(wanted.destinations, moved, strict=True)}


def _live_owners(checked: CheckedExchange) -> dict[ExchangeRef, str]:
    """Return the queue of each slot that has one, also of slots that are not in the ring.

    If a slot has several queues, that of the topology counts, because it gets the keys too. A slot without bindings that is not in the ring
    has the queue of the topology.
    """
    wanted = {} if checked.layout is None else checked.layout.owners
    owners = checked.slots.sole_owners
    for slot, queues in checked.slots.queues.items():
        if len(queues) > 1 and wanted.get(slot.name) in queues:
            owners[slot] = wanted[slot.name]
    bound = queues_of_slots(checked.live)
    for name, queue in wanted.items():
        if ExchangeRef(name) not in checked.slots.queues:
            queues = bound.get(name, (queue,))
            owners[ExchangeRef(name)] = queue if queue in queues else queues[0]
    return owners


def _by_queue(ring: HashRing, owners: Mapping[ExchangeRef, str]) -> HashRing | SlotTable:
    if not owners:
        return ring
    exchanges = {place for place in ring.destinations if isinstance(place, ExchangeRef)}
    present = {slot: queue for slot, queue in owners.items() if slot in exchanges}
    return SlotTable(ring, present, frozenset(exchanges - owners.keys()))


def _by_destination(members: Iterable[RingMember]) -> dict[Destination, list[RingMember]]:
    by_destination: dict[Destination, list[RingMember]] = {}
    for member in members:
        by_destination.setdefault(member.destination, []).append(member)
    return by_destination


def _keys_text(members: Sequence[RingMember]) -> str:
    return " and ".join(
        f"key {member.key}" + (f" and the arguments {dict(member.arguments)}" if member.arguments else "")
        for member in members
    )


def describe_differences(fields: Iterable[FieldChange]) -> str:
    """Return the differences between an object and its wanted version in words."""

    def text(value: object) -> str:
        return "nothing" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)

    return ", ".join(f"{field.field} is {text(field.old)}, not {text(field.new)}" for field in fields)


def compare_observed(
    exchange: ExchangeDefinition, key_map: KeyMap, observed: Sequence[Observation]
) -> tuple[int, Finding | None]:
    """Return the number of observed keys that were compared, and a finding if one was seen in another queue than that of the key map.

    One such key shows that the key map is not that of the broker.

    Raises:
        NotDeterminedError: the key map is a guess, or no key can be compared.
    """
    if key_map.ground.is_assumed:
        raise NotDeterminedError(
            f"the queues of the exchange {exchange.name!r} are {key_map.ground}, with which keys cannot be compared: read the ring"
        )
    hashing = Hashing(exchange.arguments.get("hash-header"), exchange.arguments.get("hash-property"))
    compared = comparable(key_map, observed, hashing)
    if not compared:
        raise NotDeterminedError(
            f"no observed key of the exchange {exchange.name!r} was compared: its ring sends them to exchanges, whose queues it does not "
            "show; observe keys of its queues"
        )
    found = [Contradiction(each, place) for each, place in compared if place != each.queue]
    if not found:
        return len(compared), None
    message = (
        f"{found[0]}; {len(found):,} of {plural(len(compared), 'observed key')} contradict the ring, {ORIGINS[key_map.provenance]}: which "
        "queue a key reaches is not determined"
    )
    return len(compared), Finding("contradicted", message, LATER_KEYS, exchange=exchange.name)


def one_key_finding(exchange: str, observed: Iterable[Observation]) -> Finding | None:
    """Return a finding if most of the observed messages have one key: its queue gets all of them, whatever the ring."""
    counts: Counter[Term] = Counter()
    for each in observed:
        counts[each.key] += each.messages
    total = counts.total()
    if total < _FEWEST_MESSAGES:
        return None
    ((key, count),) = counts.most_common(1)
    share = count / total
    if share <= 0.5:
        return None
    message = f"the key {key!r:.80} has {percent(share)} of {total:,} observed messages, and its queue gets all of them"
    fix = "publish with keys that differ, or hash a header or a property that does: no ring divides the messages of one key"
    return Finding("one-key", message, fix, exchange=exchange, share=share)
