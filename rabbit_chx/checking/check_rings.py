"""Findings about the ring of a live exchange by itself, and about its slots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rabbit_chx.analysis import ring_findings
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.checks import similar
from rabbit_chx.planning.diff import Comparison, Unwanted
from rabbit_chx.planning.refusals import REMAKE_RINGS, apply_fix, know_rings, repair_fix
from rabbit_chx.planning.ring_plan import shares_moved_without
from rabbit_chx.planning.slot_layout import SlotLayout
from rabbit_chx.records.live_rings import (
    LiveRing,
    evidence_of,
    find_live_ring,
    find_recorded,
    make_ring,
    none_lasts,
    record_command,
    record_here,
)
from rabbit_chx.records.ring_records import changes_since, has_restarted, unlisted_queues, why_void
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.release import GHOSTS_SINCE, NEWEST_COMPARED
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.text import (
    FEW,
    ShareByWeight,
    apply_text,
    first_command,
    grouped,
    listed,
    percent,
    plural,
    share_text,
)
from rabbit_chx.topology.arguments import QueueSetting
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    RingMember,
)
from rabbit_chx.topology.plugin_objects import federation_links, is_sharded
from rabbit_chx.topology.reach import Reach, UnroutableKeys, transient_destinations
from rabbit_chx.topology.slots import SlotNames, SlotView, number_slots, repair_members, view_slots

# -- Findings about the dead-letter exchanges of the queues of an exchange that hashes, and about its alternate exchange
# A queue publishes a message that is rejected, that expires or that exceeds a limit to its dead-letter exchange. If that does not exist, or has
# no binding, the message is dropped without an error (rabbitmq-server ``rabbit_dead_letter.erl``, ``publish/5``, v4.3.6); with the strategy
# ``at-least-once`` it stays in the quorum queue (``rabbit_fifo_dlx_worker.erl``). Where messages go behind an exchange with bindings is not followed.

_EXCHANGE = "x-dead-letter-exchange"
_STRATEGY = "x-dead-letter-strategy"
#: The types of queues that have dead letters.
_DYING_TYPES = ("classic", "quorum")


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of the queues of a broker, or of a file as one.

    Attributes:
        is_file: True for a file: what is neither in it nor external there does not exist.
    """

    live: LiveTopology
    reach: Reach
    is_file: bool = False

    @classmethod
    def of_file(cls, topology: Topology) -> DeadLetters:
        """Return those of a file. Exchanges that others declare have bindings that it does not show."""
        unlisted = [place.name for place in topology.unlisted if isinstance(place, ExchangeRef)]
        external = [exchange.name for exchange in topology.exchanges if exchange.owner == "external"]
        live = LiveTopology.of_file(topology)
        open_ = live.sources_left_out.union(unlisted, external)
        exchanges = (*live.exchanges, *map(ExchangeDefinition, unlisted))
        live = replace(live, exchanges=exchanges, facts=replace(live.facts, sources_left_out=open_))
        return cls(live, Reach(live), is_file=True)

    def findings_of_file(self) -> Iterator[Finding]:
        """Yield the findings of each exchange of the file that hashes."""
        for exchange in self.live.exchanges:
            if exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE):
                members = (member.destination for member in exchange.ring or exchange.members or ())
                bound = (each.destination for each in self.live.bindings if each.source == exchange.name)
                queues = {place for place in (*members, *bound) if isinstance(place, str)}
                yield from self.findings(exchange, queues)

    def findings(self, exchange: ExchangeDefinition, queues: Collection[str]) -> Iterator[Finding]:
        """Yield a finding if the alternate exchange of an exchange, or the dead-letter exchange of one of its queues, gets messages and drops all.

        Args:
            exchange: the exchange.
            queues: its queues.
        """
        name = exchange.name
        alternate = self.reach.alternate_of(exchange)
        if alternate and (fault := self._fault_of(alternate)):
            message = (
                f"the alternate exchange of {name} is {alternate}, {fault}: messages that {name} routes to no queue are lost, or "
                "returned if they are mandatory"
            )
            fix = f"{self._remedy_for(alternate)}, or correct the alternate exchange of {name}"
            yield Finding("alternate", message, fix, exchange=name)
        for queue in self.live.queues:
            if queue.name not in queues or queue.type not in _DYING_TYPES:
                continue
            setting = self.live.setting(queue, _EXCHANGE)
            onwards = _text_of(setting)
            if onwards and setting is not None and (fault := self._fault_of(onwards)):
                by = f" by the {setting.policy}" if setting.policy else ""
                message = f"{queue.name} publishes dead letters to the dead-letter exchange {onwards}{by}, {fault}: "
                is_kept = (
                    queue.type == "quorum"
                    and _text_of(self.live.setting(queue, _STRATEGY)) == "at-least-once"
                )
                lost = "they are lost without an error"
                lost += ", or stay in it if its overflow is reject-publish" if is_kept else ""
                where = f"in the {setting.policy}" if setting.policy else f"of {queue.name}"
                argument = _EXCHANGE.removeprefix("x-") if setting.policy else _EXCHANGE
                fix = f"{self._remedy_for(onwards)}, or correct {argument} {where}"
                yield Finding("dead-letter", message + lost, fix, exchange=name, destination=queue.name)

    def _fault_of(self, exchange: str) -> str:
        """Return the clause about an exchange that does not exist, or has no binding; empty for others."""
        if not self.reach.exists(ExchangeRef(exchange)):
            meant = similar(exchange, [each.name for each in self.live.exchanges])
            lacks = "which the file does not have" if self.is_file else "which does not exist"
            return f"{lacks} (did you mean {meant}?)" if meant else lacks
        definition = self.live.exchange(exchange)
        has_alternate = definition is not None and self.reach.alternate_of(definition)
        return "" if self.reach.has_bindings(exchange) or has_alternate else "which has no binding"

    def _remedy_for(self, exchange: str) -> str:
        if self.reach.exists(ExchangeRef(exchange)):
            return f"bind a queue to {exchange}"
        if self.is_file:
            return f"add an exchange {exchange} to the file, external if others declare it"
        return f"declare an exchange {exchange}"


def _text_of(setting: QueueSetting | None) -> str | None:
    return setting.value if setting is not None and isinstance(setting.value, str) else None


# -- What a check knows: its context, and an exchange that it checks


@dataclass(frozen=True)
class CheckContext:
    """What is the same for all findings of a check: the two sides, its settings, and what follows from the live side.

    Attributes:
        compared: the comparison with the topology; None without one.
        file: the name of the topology's file, for the commands in the fixes; None if it is not known.
        is_selected: True if only some exchanges are checked.
    """

    live: LiveTopology
    compared: Comparison | None = None
    file: str | None = None
    is_selected: bool = False

    @property
    def wanted(self) -> Topology | None:
        """The topology, with plain objects instead of slots; None without one."""
        return None if self.compared is None else self.compared.wanted

    @property
    def release(self) -> Release:
        """The release of the broker; the newest one if it is not known."""
        return self.live.release or NEWEST_COMPARED

    @cached_property
    def listed_queues(self) -> frozenset[str]:
        """The queues of the topology."""
        return frozenset(queue.name for queue in (() if self.wanted is None else self.wanted.queues))

    @cached_property
    def unwanted_bindings(self) -> Mapping[BindingDefinition, Unwanted | None]:
        """What each live binding is that the topology does not contain."""
        return {} if self.compared is None else dict(self.compared.bindings)

    @cached_property
    def reach(self) -> Reach:
        """Where messages get to."""
        return Reach(self.live)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Where rejected and expired messages, and those without a destination, go."""
        return DeadLetters(self.live, self.reach)

    @cached_property
    def transient(self) -> Mapping[Destination, str]:
        """The destinations that the broker deletes automatically, with the reason."""
        return transient_destinations(self.live)

    @cached_property
    def links(self) -> Collection[Destination]:
        """The exchanges and queues of federation links."""
        return federation_links(self.live)


@dataclass(frozen=True)
class CheckedExchange:
    """A hash exchange that is checked. The context has what it shares with others."""

    exchange: ExchangeDefinition
    ring: HashRing
    context: CheckContext

    @property
    def name(self) -> str:
        """The exchange's name."""
        return self.exchange.name

    @property
    def live(self) -> LiveTopology:
        """The live side."""
        return self.context.live

    @property
    def bound(self) -> tuple[RingMember, ...]:
        """The exchange's bindings."""
        return self.exchange.ring or ()

    @property
    def listed(self) -> ExchangeDefinition | None:
        """The exchange in the topology, with plain objects instead of slots; None if the topology does not contain it."""
        return None if self.context.compared is None else self.context.compared.wanted.exchange(self.name)

    @property
    def layout(self) -> SlotLayout | None:
        """Its slots in the topology; None without slots."""
        return None if self.context.compared is None else self.context.compared.layouts.get(self.name)

    @property
    def file(self) -> str | None:
        """The name of the topology's file; None if the topology does not contain the exchange."""
        return None if self.listed is None else self.context.file

    @property
    def is_unordered(self) -> bool:
        """True if the topology does not have the order of its ring, as a definitions file."""
        return self.context.compared is not None and self.context.compared.wanted.is_unordered(self.name)

    @property
    def external(self) -> bool:
        """True if the topology marks the exchange as external."""
        return self.listed is not None and self.listed.owner == "external"

    @cached_property
    def shares(self) -> dict[Place, float]:
        """The exact share of the keys at each destination; by weight, if the order is not known, and empty if they depend on that."""
        return self.ring.shares() if self.ring.has_shares else {}

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
        return self.context.reach.unroutable_of(self.exchange, self.ring)

    @property
    def is_listed(self) -> bool:
        """True if the topology contains its ring."""
        return self.listed is not None and self.listed.ring is not None

    @cached_property
    def slots(self) -> SlotView:
        """The slots in the ring, with their bindings."""
        compared = self.context.compared if self.is_listed else None
        planned = None if compared is None else compared.wanted
        return view_slots(self.name, self.ring, self.live.exchanges, self.live.bindings, planned=planned)

    @cached_property
    def parks(self) -> dict[str, list[ExchangeRef]]:
        """The alternate exchanges of slots, with their slots."""
        exchanges = {exchange.name: exchange for exchange in self.live.exchanges}
        parks: dict[str, list[ExchangeRef]] = {}
        for slot in self.slots.queues:
            exchange = exchanges.get(slot.name)
            if exchange is not None and (park := self.context.reach.alternate_of(exchange)):
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
        return {queue: self.live.facts.queues.messages.get(queue, 0) for queue in queues}

    @property
    def apply_command(self) -> str:
        """The command that applies the topology."""
        return apply_fix(self.file, external=self.external)

    @cached_property
    def wanted(self) -> tuple[RingMember, ...] | None:
        """The members of the topology; None if it does not have them in an order."""
        return None if self.listed is None or self.is_unordered else self.listed.ring

    @cached_property
    def repaired(self) -> tuple[RingMember, ...]:
        """The members that the ring has after a repair."""
        if self.wanted is not None:
            return self.wanted
        recorded = find_recorded(self.live, self.name)
        return repair_members(self.name, self.bound, self.ring if recorded is None else recorded.ring)

    @cached_property
    def needs_repair(self) -> bool:
        """True if a repair has steps."""
        return not LiveRing(self.name, self.ring, self.bound).is_made_by(self.repaired)

    @property
    def repair_command(self) -> str:
        """The command that repairs the ring; the one that applies the topology if that has its order, or if a repair has no steps.

        A ring whose order is not known cannot be repaired.
        """
        if self.wanted is not None or not self.needs_repair:
            return self.apply_command
        if not self.ring.order.is_certain:
            return REMAKE_RINGS
        return repair_fix(self.name, external=self.external)

    def is_fixed_by_repair(self, finding: Finding) -> bool:
        """Return True if a repair of the ring is the fix of a finding."""
        return self.needs_repair and first_command(finding.fix) == first_command(self.repair_command)

    def finding(
        self, kind: str, message: str, fix: str, place: Place = None, share: float | None = None
    ) -> Finding:
        """Return a finding about the exchange."""
        return Finding(kind, message, fix, exchange=self.name, destination=place, share=share)

    def finding_about_slots(
        self, kind: str, message: str, fix: str, slots: Sequence[ExchangeRef], share: float | None = None
    ) -> Finding:
        """Return a finding about one slot or several."""
        found = self.finding(kind, message, fix, slots[0] if len(slots) == 1 else None, share)
        return replace(found, names=tuple(slot.name for slot in slots))


_MOST_PLACES = 5


def live_ring_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of a ring by itself."""
    if checked.unroutable.share:
        yield _unroutable_finding(checked)
    alternate = checked.context.reach.alternate_of(checked.exchange)
    for finding in ring_findings(checked.ring, [member.binding for member in checked.bound], alternate):
        message = finding.message
        fix = checked.repair_command
        place = finding.destination
        if finding.kind == "ghost-bucket" and place is not None:
            ends = "go there"
            if not checked.context.reach.exists(place):
                ends = "are unroutable, since it does not exist"
                if alternate is not None:
                    ends += f", and the alternate exchange {alternate!r} does not get them"
            buckets = plural(checked.ring.buckets.count(place), "bucket")
            message = (
                f"{place!s} has {buckets} and no binding: {percent(checked.shares[place])} of all keys {ends}"
            )
            if isinstance(place, ExchangeRef):
                fix += "; unbind an exchange before you delete it: 4.3 before 4.3.6 leaves its buckets (rabbitmq-server #17255)"
        if finding.kind == "hole" and not checked.bound:
            fix = f"bind a queue to {checked.name}: {checked.apply_command}"
        elif finding.kind == "second-binding" and not checked.needs_repair:
            fix = f"list {place!s} once, and {checked.apply_command}"
        yield replace(finding, message=message, fix=fix, exchange=checked.name)
    yield from passing_findings(checked.exchange, checked.ring, checked.context)


def passing_findings(
    exchange: ExchangeDefinition, key_map: KeyMap, context: CheckContext
) -> Iterator[Finding]:
    """Yield the destinations of a durable exchange that hashes which the broker deletes by itself; federation links are none of them."""
    name = exchange.name
    links = context.links
    transient = context.transient
    shares = key_map.shares() if key_map.has_shares else {}
    places = dict.fromkeys(key_map.destinations) if exchange.durable else ()
    passing = [place for place in places if place in transient and place not in links]
    moved: Mapping[Destination, float | None] = dict.fromkeys(passing)
    if key_map.is_determined or not key_map.hashing.has_order:
        moved = shares_moved_without(key_map, passing)
    for place, share in moved.items():
        why = transient[place]
        fix = f"replace {place!s} by a durable queue"
        message = f"{place!s} {why}; {share_text(share)} of all keys move then"
        if key_map.hashing.has_order:
            fix += ", in a ring of durable queues"
            if context.release.numbers >= GHOSTS_SINCE and ("exclusive" in why or "not durable" in why):
                lost = percent(shares.get(place, 0.0))
                message += (
                    f", and after a restart of the broker its buckets stay, so that {lost} are unroutable"
                )
        yield Finding("transient-destination", message, fix, exchange=name, destination=place, share=share)


def _unroutable_finding(checked: CheckedExchange) -> Finding:
    lost, reach = checked.unroutable, checked.context.reach
    by_share = sorted(lost.by_place, key=lambda place: -lost.by_place[place])
    leading = [place for place in by_share if place is not None and reach.exists(place)]
    if checked.layout is not None:
        fix = checked.apply_command
    elif leading:
        fix = f"bind a queue to {leading[0]!s}, or take it out of the ring"
    elif checked.bound:
        fix = checked.repair_command
    else:
        fix = f"bind a queue to {checked.name}: {checked.apply_command}"
    message = _unroutable_text(checked.exchange, checked.ring, lost, reach)
    return checked.finding("unroutable-share", message, fix, share=lost.share)


def modulus_unroutable_findings(
    exchange: ExchangeDefinition, lost: UnroutableKeys, key_map: KeyMap, context: CheckContext
) -> Iterator[Finding]:
    """Yield the findings about keys of an ``x-modulus-hash`` exchange that reach no queue."""
    if not lost.share:
        return
    name = exchange.name
    if not key_map.destinations:
        fix = f"bind a queue to {name}"
        message = "nothing is bound: every message is unroutable"
        yield Finding("hole", message, fix, exchange=name, share=lost.share)
    else:
        fix = f"bind a queue to {listed([str(place) for place in lost.by_place])}, or unbind it from {name}"
    message = _unroutable_text(exchange, key_map, lost, context.reach)
    yield Finding("unroutable-share", message, fix, exchange=name, share=lost.share)


def _unroutable_text(
    exchange: ExchangeDefinition, key_map: KeyMap, lost: UnroutableKeys, reach: Reach
) -> str:
    places = sorted(lost.by_place.items(), key=lambda place: -place[1])
    parts = [
        f"{percent(share)} {_why_unroutable(exchange, key_map, place, reach)}"
        for place, share in places[:_MOST_PLACES]
    ]
    if len(places) > _MOST_PLACES:
        parts.append(f"{len(places) - _MOST_PLACES:,} more destinations")
    return (
        f"{percent(lost.share)} of all keys end in no queue ({', '.join(parts)}): a broker acks and drops such messages, or returns "
        "those that are mandatory"
    )


def _why_unroutable(exchange: ExchangeDefinition, key_map: KeyMap, place: Place, reach: Reach) -> str:
    if place is None:
        alternate = reach.alternate_of(exchange)
        without = "without buckets" if key_map.hashing.has_order else "without bindings"
        if key_map.bucket_count:
            without = "at holes"
        return without if alternate is None else f"{without}, and {alternate} leads to no queue"
    if not reach.exists(place):
        return f"at {place!s}, which does not exist"
    return f"at {place!s}, which leads to no queue"


# -- slots


def slot_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the faults of an exchange's slots by themselves."""
    yield from _find_slots_without_queue(checked)
    yield from _find_slots_with_several_queues(checked)
    yield from _find_slots_without_alternate(checked)
    yield from _find_parks_without_queue(checked)
    yield from _find_parked_messages(checked)
    yield from _find_transient_queues(checked)


def _share(checked: CheckedExchange, slots: Iterable[ExchangeRef]) -> float:
    return sum(checked.shares.get(slot, 0.0) for slot in slots)


def _fix(checked: CheckedExchange, by_hand: str) -> str:
    """Return the command that applies the topology, or without a topology the manual fix."""
    return checked.apply_command if checked.external or checked.file is not None else by_hand


def _find_slots_without_queue(checked: CheckedExchange) -> Iterator[Finding]:
    park_of = {slot: park for park, slots in checked.parks.items() for slot in slots}
    bare = [
        slot
        for slot, queues in checked.slots.queues.items()
        if not queues and checked.context.reach.exists(slot)
    ]
    for slots in ([slot for slot in bare if slot in park_of], [slot for slot in bare if slot not in park_of]):
        if slots:
            share = _share(checked, slots)
            park = park_of.get(slots[0])
            ends = "end in no queue" if park is None else f"wait in {park}"
            message = f"{_slots_are(slots)} bound to no queue: {percent(share)} of all keys {ends}"
            fix = _fix(checked, f"bind a queue to {slots[0].name}")
            yield checked.finding_about_slots("missing", message, fix, slots, share)


def _find_slots_with_several_queues(checked: CheckedExchange) -> Iterator[Finding]:
    for slot, queues in checked.slots.queues.items():
        if len(queues) > 1:
            share = _share(checked, [slot])
            message = (
                f"slot {slot.name} is bound to {len(queues)} queues, {' and '.join(queues)}: each message of {percent(share)} of "
                "all keys is in all of them"
            )
            fix = _fix(checked, f"unbind all but one of them from {slot.name}")
            yield checked.finding("second-binding", message, fix, slot, share)


def list_slots_without_alternate(checked: CheckedExchange) -> list[ExchangeRef]:
    """Return the slots whose messages are lost while they have no queue."""
    with_alternate = {slot for slots in checked.parks.values() for slot in slots}
    prefix = SlotNames(checked.name, 1).prefix
    return [
        slot
        for slot in checked.slots.queues
        if slot not in with_alternate and slot.name.startswith(prefix) and checked.context.reach.exists(slot)
    ]


def _find_slots_without_alternate(checked: CheckedExchange) -> Iterator[Finding]:
    name = checked.name
    bare = list_slots_without_alternate(checked)
    if not bare:
        return
    share = _share(checked, bare)
    message = (
        f"{_slots_are(bare)} without an alternate exchange: while one has no queue, as when it moves to another, its messages are "
        f"dropped or returned; that concerns {percent(share)} of all keys"
    )
    definition = """'{"alternate-exchange": "EXCHANGE"}'"""
    by_policy = f"rabbitmqctl set_policy {name}-slots '^{name}\\.slot\\.' {definition} --apply-to exchanges"
    fix = f"set one by a policy: {by_policy}"
    if checked.layout is not None:
        fix = apply_fix(checked.file, deletes=True, external=checked.external)
    yield checked.finding_about_slots("different", message, fix, bare, share)


def _find_parks_without_queue(checked: CheckedExchange) -> Iterator[Finding]:
    for park, slots in checked.parks.items():
        if checked.context.reach.leads_nowhere(park):
            message = (
                f"{park}, the alternate exchange of {plural(len(slots), 'slot')}, leads to no queue: a message that arrives while a slot has no "
                "queue is dropped or returned"
            )
            fix = _fix(checked, f"bind a queue to {park}")
            yield checked.finding("missing", message, fix, ExchangeRef(park), _share(checked, slots))


def _find_parked_messages(checked: CheckedExchange) -> Iterator[Finding]:
    for queue, count in checked.parked.items():
        if count:
            wait = "message waits" if count == 1 else "messages wait"
            message = f"{count:,} {wait} in {queue}: they arrived while their slot had no queue"
            fix = f"write the exchange with `slots` in a topology file, and run: {apply_text()}"
            yield checked.finding("unexpected", message, _fix(checked, fix), queue)


def _find_transient_queues(checked: CheckedExchange) -> Iterator[Finding]:
    slots_of = grouped((queue, slot) for slot, queues in checked.slots.queues.items() for queue in queues)
    for queue, slots in slots_of.items():
        if (why := checked.context.transient.get(queue)) is not None:
            share = _share(checked, slots)
            are = "is" if len(slots) == 1 else "are"
            message = f"{queue} {why}; its {plural(len(slots), 'slot')} with {percent(share)} of all keys {are} without a queue then"
            fix = f"replace {queue} by a durable queue"
            yield checked.finding("transient-destination", message, fix, queue, share)


def _slots_are(slots: Sequence[ExchangeRef]) -> str:
    return f"{name_or_count([slot.name for slot in slots], 'slot', 'slots')} {'is' if len(slots) == 1 else 'are'}"


def name_or_count(names: Sequence[str], single: str, several: str) -> str:
    """Return the only name, or the number of names and the first of them."""
    if len(names) == 1:
        return f"{single} {names[0]}"
    return f"{len(names):,} {several} ({listed(names, FEW)})"


# -- Findings about a ring and its record on the broker: what other programs bound and unbound, and another order


def record_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield a finding if a ring that was read has another order than its record. Of a ring whose order is not known nothing can be said."""
    record = find_recorded(checked.live, checked.name)
    if record is None or number_slots(checked.name, checked.bound):
        return
    if checked.ring.provenance in (None, "recorded"):
        return
    before = record.ring
    bound = {member.destination for member in checked.bound}
    if _only(checked.ring, bound) == _only(before, bound):
        return
    by_queue = checked.slots.map_of
    share = by_queue(checked.ring).share_moved(by_queue(before))
    keeps = checked.ring.release.follows(RESTART_KEEPS)
    if not keeps and has_restarted(record.recorded_start, evidence_of(checked.live).mark):
        message = f"the broker restarted: {percent(share)} of the keys moved; record of {record.about}"
    else:
        message = (
            f"the ring has another order than the record of {record.about}: another program bound its members again; {percent(share)} of all "
            "keys go to a different queue"
        )
    yield checked.finding("order", message, checked.repair_command, share=share)


def other_binding_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield a finding if other programs bound or unbound members since the record of a ring was written."""
    record = record_here(checked.live, checked.name)
    # The plugin binds and unbinds the shards of a sharded exchange.
    if record is None or is_sharded(checked.exchange, checked.live):
        return
    evidence = evidence_of(checked.live)
    changes = changes_since(record, checked.bound, evidence.mark.absent)
    if not changes:
        return
    message = f"since the record of {record.about} another program {changes}"
    share = None
    ways_to_learn = evidence.ways_to_learn
    if not checked.ring.is_determined:
        kept = know_rings({checked.name: checked.ring}, ways_to_learn)
    else:
        share = record.ring.share_moved(checked.ring)
        message += f": {percent(share)} of all keys moved"
        kept = f"store the ring as it is with {record_command(checked.name)}"
    if ways_to_learn.voids:
        kept = f"know that of the records {none_lasts(ways_to_learn)}"
    # To bind a member again would make it the last one, and the bindings those of the record.
    fix = f"if this is intended, {kept}; otherwise {checked.apply_command}"
    yield checked.finding("different", message, fix, share=share)


def absent_member_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the queues of the file, or else of the record, of which the broker lists no bindings as their node is down."""
    mark = evidence_of(checked.live).mark
    record = record_here(checked.live, checked.name)
    members: tuple[RingMember, ...] = ()
    source = ""
    if checked.listed is not None:
        members = checked.listed.ring or ()
        source = "the file"
    elif record is not None:
        members = record.members
        source = f"the record of {record.about}"
    for queue in unlisted_queues(members, checked.bound, mark):
        share = ShareByWeight(round(make_ring(members, checked.ring.release).shares().get(queue, 0.0), 3))
        message = (
            f"the broker reports {queue} as down, and lists no bindings of a queue whose node is down, so that nobody knows whether it is still "
            f"bound; {source} gives it {percent(share)} of all keys"
        )
        fix = f"start {listed(sorted(mark.nodes.get(queue, ()))) or 'its node'} again, and then check again"
        yield checked.finding("down-destination", message, fix, queue)


def why_order_unknown(live: LiveTopology, name: str) -> str:
    """Return why the order of a ring is compared with nothing; empty if its record is compared with it, or is its source."""
    live_ring = find_live_ring(live, live.exchange(name), name)
    ring = live_ring.ring
    if ring.provenance == "recorded" or find_recorded(live, name) is not None:
        return ""
    if not ring.order.is_certain:
        return "no record to compare it with"
    if (record := evidence_of(live).records.get(name)) is not None:
        why = why_void(record, live_ring.bound, ring.release, evidence_of(live).mark)
        return f"its record does not prove it ({why}), so it is compared with nothing; the command record replaces it"
    if ring.release.follows(RESTART_KEEPS):
        return "no record to compare it with"
    return (
        "no record of the order before the last start, so whether the restart moved keys is not known; the command record keeps it from "
        "now on"
    )


def _only(ring: HashRing, places: Collection[Place]) -> list[Place]:
    return [place for place in ring.buckets if place in places]
