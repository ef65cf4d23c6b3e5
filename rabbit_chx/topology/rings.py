"""The rings of hash exchanges: those that are there, and those that members make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from rabbit_chx.errors import InputError
from rabbit_chx.routing import NEWEST, HashRing, Place, Release
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember


class LiveRing(NamedTuple):
    """The ring of an exchange as it is there.

    Attributes:
        exchange: the exchange's name.
        ring: its buckets.
        bound: all its bindings, in the order of the ring as far as that is known.
    """

    exchange: str
    ring: HashRing
    bound: tuple[RingMember, ...]

    def is_made_by(self, members: tuple[RingMember, ...]) -> bool:
        """Return whether the ring and its bindings are as these members make them."""
        if Counter(self.bound) != Counter(members):
            return False
        try:
            return ring_of(members, self.ring.release).buckets == self.ring.buckets
        except InputError:  # a weight that this release refuses, on a binding that is older than the rule
            return self.bound == members


def live_ring_of(live: Topology, exchange: ExchangeDefinition | None, name: str) -> LiveRing:
    """Return the ring of an exchange as it is there: empty if there is none.

    Args:
        live: what is there.
        exchange: the exchange in it, if it is there.
        name: its name.
    """
    release = live.release or NEWEST
    if exchange is None or exchange.type != HASH_EXCHANGE:
        return LiveRing(name, ring_of((), release), ())
    ring = live.rings.get(name)
    if exchange.ring is not None:
        bound = exchange.ring
    elif ring is None:
        bound = ()
    elif ring.bindings is not None:
        bound = tuple(RingMember(*binding) for binding in ring.bindings)
    else:
        bound = members_of(ring.buckets)
    return LiveRing(name, _assumed(bound, release) if ring is None else ring, bound)


def _assumed(bound: tuple[RingMember, ...], release: Release) -> HashRing:
    bindings = [member.binding for member in bound]
    try:
        return HashRing.from_bindings(bindings, release, "assumed")
    except InputError:  # a weight that this release refuses, on a binding that is older than the rule
        buckets = tuple(place for place, key in bindings for _ in range(weight_of(place, key)))
        return HashRing(buckets, release, "assumed", tuple(bindings))


def ring_of(members: Sequence[RingMember], release: Release) -> HashRing:
    """Return the ring that members make on an exchange without bindings.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.from_bindings([member.binding for member in members], release)


def members_of(buckets: Sequence[Place]) -> tuple[RingMember, ...]:
    """Return the members that a ring shows by its buckets: one for each run, holes left out."""
    return tuple(
        RingMember(place, str(len(list(run)))) for place, run in groupby(buckets) if place is not None
    )
