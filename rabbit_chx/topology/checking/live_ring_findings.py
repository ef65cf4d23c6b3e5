"""What is wrong with the ring of a live exchange by itself, beside its bindings and its destinations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.analysis.soundness import ring_findings
from rabbit_chx.analysis.wording import percent
from rabbit_chx.topology.checking.check_finding import CheckFinding
from rabbit_chx.topology.ring_figures import Movement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rabbit_chx.analysis.soundness import RingFinding
    from rabbit_chx.routing import Destination, HashRing, Place
    from rabbit_chx.topology.checking.cures import Cures
    from rabbit_chx.topology.checking.unroutable_keys import UnroutableKeys, Ways
    from rabbit_chx.topology.objects import ExchangeDefinition

__all__ = ["LiveRingCheck"]

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

    def findings(self, unroutable: UnroutableKeys) -> Iterator[CheckFinding]:
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

    def _of_ring(self, found: RingFinding, alternate: str | None, *, bound: bool) -> CheckFinding:
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
            says = f"{place!s} has {buckets} and no binding: {percent(found.share)} of all keys {ends}"
        cure = self.cures.repaired(name)
        if found.kind == "hole" and not bound:
            cure = f"bind a queue to {name}: {self.cures.applied()}"
        return CheckFinding(found.kind, name, place, found.share, says, cure)

    def _unroutable(self, unroutable: UnroutableKeys) -> CheckFinding:
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
        return CheckFinding("unroutable-share", self.exchange.name, None, unroutable.share, says, cure)

    def _why(self, place: Place) -> str:
        if place is None:
            alternate = self.ways.alternate_of(self.exchange)
            without = "without buckets" if not self.ring.bucket_count else "at holes"
            return without if alternate is None else f"{without}, and {alternate} leads to no queue"
        return f"at {place!s}, which {'leads to no queue' if self.ways.exists(place) else 'does not exist'}"

    def _transient(self) -> Iterator[CheckFinding]:
        movement: Movement | None = None
        for place in self.ring.destinations:
            why = self.transient.get(place)
            if why is None:
                continue
            movement = movement or Movement(self.ring)
            left = tuple(one for one in self.ring.buckets if one != place)
            share = movement.moved(left)
            says = f"{place!s} {why}; {percent(share)} of all keys move then"
            if self._leaves_ghosts and ("exclusive" in why or "not durable" in why):
                lost = self.ring.shares()[place]
                says += f", and after a restart of the broker its buckets stay, so that {percent(lost)} are unroutable"
            cure = f"let a durable queue take the place of {place!s}, in a ring of durable queues"
            yield CheckFinding("transient-destination", self.exchange.name, place, share, says, cure)

    @property
    def _leaves_ghosts(self) -> bool:
        version = self.ring.release.version.split(".")
        return tuple(int(part) for part in version[:2]) >= _GHOSTS_SINCE
