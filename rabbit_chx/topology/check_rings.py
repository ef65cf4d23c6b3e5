"""What is wrong with the ring of a live exchange: by itself, and beside the ring or the slots that a topology says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, KeyMap, Place, SlotTable, share_between
from rabbit_chx.topology.objects import ExchangeDefinition, LiveSlots, RingMember, SlotNames
from rabbit_chx.topology.ring_figures import RingFigures
from rabbit_chx.topology.ring_steps import wanted_ring_of

if TYPE_CHECKING:
    from rabbit_chx.topology.findings import Cures
    from rabbit_chx.topology.reach import UnroutableKeys, Ways
    from rabbit_chx.topology.slots import SlotLayout

__all__ = ["LiveRingCheck", "SlottedRingCheck", "WantedRingCheck", "numbered_order", "numbered_slots"]

_MOST_PLACES = 5
#: From this release on the buckets of an exclusive queue outlive it in a restart (tried on 4.3.6).
_GHOSTS_SINCE = (4, 3)


@dataclass(frozen=True, slots=True)
class LiveRingCheck:
    """The check of one ring.

    Attributes:
        exchange: the exchange.
        ring: its ring, as it was read.
        ways: the ways of messages.
        transient: the destinations that go by themselves, with the reason.
        cures: the words of cures.
        slotted: whether the topology says slots of the exchange.
    """

    exchange: ExchangeDefinition
    ring: HashRing
    ways: Ways
    transient: Mapping[Destination, str]
    cures: Cures
    slotted: bool = False

    def findings(self, unroutable: UnroutableKeys) -> Iterator[Finding]:
        """Yield what is wrong.

        Args:
            unroutable: the keys of the exchange that end in no queue.
        """
        if unroutable.share:
            yield self._unroutable(unroutable)
        members = [member.binding for member in self.exchange.ring or ()]
        alternate = self.ways.alternate_of(self.exchange)
        for found in ring_findings(self.ring, members, alternate):
            yield self._of_ring(found, alternate, bound=bool(members))
        if self.exchange.durable:
            yield from self._transient()

    def _of_ring(self, found: Finding, alternate: str | None, *, bound: bool) -> Finding:
        name = self.exchange.name
        says, place = found.says, found.destination
        if found.kind == "ghost-bucket" and place is not None:
            count = self.ring.buckets.count(place)
            buckets = f"{count:,} bucket{'' if count == 1 else 's'}"
            ends = (
                "go there, though nothing binds it"
                if self.ways.exists(place)
                else "are unroutable, since it does not exist"
            )
            if alternate is not None and not self.ways.exists(place):
                ends += f", and the alternate exchange {alternate!r} does not get them"
            says = f"{place!s} has {buckets} and no binding: {percent(found.share or 0.0)} of all keys {ends}"
        cure = self.cures.repaired(name)
        if found.kind == "hole" and not bound:
            cure = f"bind a queue to {name}: {self.cures.applied()}"
        return Finding(found.kind, says, cure, exchange=name, destination=place, share=found.share)

    def _unroutable(self, unroutable: UnroutableKeys) -> Finding:
        places = sorted(unroutable.by_place.items(), key=lambda one: -one[1])
        parts = [f"{percent(share)} {self._why(place)}" for place, share in places[:_MOST_PLACES]]
        if len(places) > _MOST_PLACES:
            parts.append(f"{len(places) - _MOST_PLACES:,} more destinations")
        says = (
            f"{percent(unroutable.share)} of all keys end in no queue ({', '.join(parts)}): a broker acks and drops such "
            "messages, or returns those that are mandatory"
        )
        leading = [place for place, _ in places if place is not None and self.ways.exists(place)]
        cure = (
            self.cures.applied()
            if self.slotted
            else f"bind a queue to {leading[0]!s}, or take it out of the ring"
            if leading
            else self.cures.repaired(self.exchange.name)
            if self.exchange.ring
            else f"bind a queue to {self.exchange.name}: {self.cures.applied()}"
        )
        return Finding("unroutable-share", says, cure, exchange=self.exchange.name, share=unroutable.share)

    def _why(self, place: Place) -> str:
        if place is None:
            alternate = self.ways.alternate_of(self.exchange)
            without = "without buckets" if not self.ring.bucket_count else "at holes"
            return without if alternate is None else f"{without}, and {alternate} leads to no queue"
        return f"at {place!s}, which {'leads to no queue' if self.ways.exists(place) else 'does not exist'}"

    def _transient(self) -> Iterator[Finding]:
        transient = [place for place in self.ring.destinations if place in self.transient]
        left = {
            place: tuple(bucket for bucket in self.ring.buckets if bucket != place) for place in transient
        }
        figures = RingFigures(self.ring)
        figures.prepare(left.values())
        for place in transient:
            why = self.transient[place]
            share = figures.moved(left[place])
            says = f"{place!s} {why}; {percent(share)} of all keys move then"
            if self._leaves_ghosts and ("exclusive" in why or "not durable" in why):
                lost = self.ring.shares()[place]
                says += f", and after a restart of the broker its buckets stay, so that {percent(lost)} are unroutable"
            cure = f"let a durable queue take the place of {place!s}, in a ring of durable queues"
            yield Finding(
                "transient-destination",
                says,
                cure,
                exchange=self.exchange.name,
                destination=place,
                share=share,
            )

    @property
    def _leaves_ghosts(self) -> bool:
        version = self.ring.release.version.split(".")
        return tuple(int(part) for part in version[:2]) >= _GHOSTS_SINCE


@dataclass(frozen=True, slots=True)
class WantedRingCheck:
    """The check of one ring against its members in a topology.

    Attributes:
        exchange: the exchange's name.
        ring: its ring, as it was read.
        bound: its bindings.
        members: the members that are wanted, in order.
        cures: the words of cures.
        owners: the queue of each slot that is there. Shares are counted by queue then.
        source: what says the members, in words.
        cure: what cures other members; None: what cures another order, a repair of the ring.
    """

    exchange: str
    ring: HashRing
    bound: Sequence[RingMember]
    members: Sequence[RingMember]
    cures: Cures
    owners: Mapping[ExchangeRef, str] = field(default_factory=dict)
    source: str = "the topology"
    cure: str | None = None

    def misplaced(self) -> float | None:
        """Return the exact share of keys that have another destination than on the wanted ring; None if there is no such."""
        try:
            return self._misplaced(self._wanted())
        except InputError:
            return None

    def _misplaced(self, wanted: HashRing) -> float:
        if wanted.buckets == self.ring.buckets:
            return 0.0
        return share_between(_by_queue(self.ring, self.owners), _by_queue(wanted, self.owners))

    def findings(self) -> Iterator[Finding]:
        """Yield how the ring differs."""
        try:
            wanted = self._wanted()
        except InputError as error:
            yield self._found("different", None, None, f"no broker of this release has such a ring: {error}")
            return
        yield from self._order(wanted)
        yield from self._members(wanted)

    def order(self) -> Iterator[Finding]:
        """Yield whether the ring has the members in another order."""
        yield from self._order(self._wanted())

    def _wanted(self) -> HashRing:
        return wanted_ring_of(self.members, self.ring.release)

    def _order(self, wanted: HashRing) -> Iterator[Finding]:
        if wanted.buckets == self.ring.buckets:
            return
        share = self._misplaced(wanted)
        common = set(wanted.destinations) & set(self.ring.destinations)
        there = [place for place in self.ring.destinations if place in common]
        ours = [place for place in wanted.destinations if place in common]
        if there != ours:
            first = next(n for n, pair in enumerate(zip(there, ours, strict=True)) if pair[0] != pair[1])
            says = (
                f"the ring has another order than {self.source}: {there[first]!s} is where {ours[first]!s} belongs; "
                f"{percent(share)} of all keys are elsewhere"
            )
            yield self._found("order", None, share, says)
        else:
            says = (
                f"the ring has other buckets than {self.source} says ({len(self.ring.buckets):,}, not "
                f"{len(wanted.buckets):,}): {percent(share)} of all keys are elsewhere"
            )
            yield self._found("different", None, share, says)

    def _members(self, wanted: HashRing) -> Iterator[Finding]:
        ours, theirs = _by_destination(self.members), _by_destination(self.bound)
        to_be = wanted.shares() if ours.keys() - theirs.keys() else {}
        shares = self.ring.shares()
        for place, members in ours.items():
            keys = " and ".join(member.key for member in members)
            bound = theirs.get(place)
            if bound is None:
                share = to_be.get(place, 0.0)
                says = f"{place!s} is not bound (key {keys}): the {percent(share)} of all keys that are its go elsewhere"
                yield self._found("missing", place, share, says)
            elif Counter(members) != Counter(bound):
                says = f"{place!s} is bound with {_said(bound)}, and the topology says {_said(members)}"
                yield self._found("different", place, shares.get(place, 0.0), says)
        for place in (one for one in theirs if one not in ours):
            share = shares.get(place, 0.0)
            says = f"{place!s} is bound and not in the topology: {percent(share)} of all keys go there"
            yield self._found("unexpected", place, share, says)

    def _found(self, kind: str, place: Destination | None, share: float | None, says: str) -> Finding:
        repair = self.cures.repaired(self.exchange)
        cure = repair if self.cure is None or kind == "order" else self.cure
        return Finding(kind, says, cure, exchange=self.exchange, destination=place, share=share)


def _by_queue(ring: HashRing, owners: Mapping[ExchangeRef, str]) -> KeyMap:
    if not owners:
        return ring
    places = set(ring.destinations)
    others = {one for one in places if isinstance(one, ExchangeRef) and one not in owners}
    there = {slot: queue for slot, queue in owners.items() if slot in places}
    return SlotTable(ring, there, frozenset(others))


def _by_destination(members: Sequence[RingMember]) -> dict[Destination, list[RingMember]]:
    found: dict[Destination, list[RingMember]] = {}
    for member in members:
        found.setdefault(member.destination, []).append(member)
    return found


def _said(members: Sequence[RingMember]) -> str:
    return " and ".join(
        f"key {member.key}" + (f" and the arguments {dict(member.arguments)}" if member.arguments else "")
        for member in members
    )


@dataclass(frozen=True, slots=True)
class SlottedRingCheck:
    """The check of a ring against the slots that a topology says.

    Attributes:
        slots: the slots that are in the ring, with all that is bound to them.
        bound: the bindings of the exchange.
        layout: the slots as the topology says them.
        cures: the words of cures.
    """

    slots: LiveSlots
    bound: Sequence[RingMember]
    layout: SlotLayout
    cures: Cures

    def misplaced(self) -> float:
        """Return the exact share of keys that have another queue than the topology says."""
        refs = self.layout.names.refs
        wanted = HashRing.from_bindings([(ref, 1) for ref in refs], self.slots.ring.release)
        queues = zip(refs, self.layout.owners.values(), strict=True)
        there = SlotTable(self.slots.ring, self.slots.sole_owners, self.slots.other_exchanges)
        return share_between(there, SlotTable(wanted, dict(queues)))

    def findings(self) -> Iterator[Finding]:
        """Yield how the ring differs."""
        refs = self.layout.names.refs
        name, ring = self.slots.exchange, self.slots.ring
        if not set(refs) & set(ring.destinations):
            share = self.misplaced()
            says = (
                f"the ring has none of the {plural(len(refs), 'slot')} that the topology says, but "
                f"{plural(len(ring.destinations), 'other destination')}: {percent(share)} of all keys have another queue than with slots"
            )
            yield Finding("different", says, self.cures.applied(), exchange=name, share=share)
            return
        members = tuple(map(RingMember, refs))
        yield from WantedRingCheck(
            name, ring, self.bound, members, self.cures, self.slots.sole_owners, cure=self.cures.applied()
        ).findings()


def numbered_order(slots: LiveSlots, bound: Sequence[RingMember], cures: Cures) -> Iterator[Finding]:
    """Yield whether the slots of a ring are in another order than that of their numbers. No topology is needed for that.

    Args:
        slots: the slots that are in the ring.
        bound: the bindings of the exchange.
        cures: the words of cures.
    """
    members = numbered_slots(slots.exchange, bound)
    if members is not None:
        owners = slots.sole_owners
        source = "the numbers of its slots"
        yield from WantedRingCheck(slots.exchange, slots.ring, bound, members, cures, owners, source).order()


def numbered_slots(exchange: str, bound: Sequence[RingMember]) -> tuple[RingMember, ...] | None:
    """Return the members of a ring of slots in the order of their numbers; None if they are not the slots of an exchange.

    Args:
        exchange: the exchange's name.
        bound: its bindings.
    """
    members = tuple(map(RingMember, SlotNames(exchange, len(bound)).refs))
    return members if bound and set(members) == set(bound) else None
