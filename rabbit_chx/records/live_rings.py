"""The rings of a live topology, with their bindings and their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from rabbit_chx.checks import similar
from rabbit_chx.command_texts import apply_text, command_text, exchange_argument
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.records.evidence import Means, evidence_of
from rabbit_chx.records.mark import why_foreign
from rabbit_chx.records.ring_records import RingRecord, changes_since
from rabbit_chx.routing import Destination, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.ground import AS_LISTED
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import DUPLICATES_APPEND, RESTART_KEEPS
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.objects import (
    BROKERS_EXCHANGES,
    HASH_EXCHANGE,
    ExchangeDefinition,
    RingMember,
)
from rabbit_chx.topology.objects.own_names import MARK
from rabbit_chx.words import listed


class LiveRing(NamedTuple):
    """The live ring of an exchange; `bound` are all its bindings, in ring order as far as that is known."""

    exchange: str
    ring: HashRing
    bound: tuple[RingMember, ...]

    def is_made_by(self, members: tuple[RingMember, ...]) -> bool:
        """Return True if these members make the same buckets and bindings."""
        if self.bound != members and Counter(self.bound) != Counter(members):
            return False
        try:
            return make_ring(members, self.ring.release).buckets == self.ring.buckets
        except InputError:  # this release refuses the weight of a binding that is older than the rule
            return self.bound == members

    @property
    def is_unknown(self) -> bool:
        """True if a broker has it, and its order was neither read nor recorded."""
        return not self.ring.ground.is_known

    @property
    def is_unordered(self) -> bool:
        """True if a broker has it, and its order is not known. Not even one binding determines it: others may have left buckets."""
        return self.is_unknown and not self.ring.is_determined

    def is_wanted(
        self, members: tuple[RingMember, ...], *, any_order: bool, is_external: bool = False
    ) -> bool:
        """Return True if these members need no change.

        In `any_order`, as of a definitions file, and of an external ring whose order is not known, the bindings count, and not the buckets.
        """
        if self.is_unordered and not any_order:
            return is_external and Counter(self.bound) == Counter(members)
        return self.is_made_by(members) or (any_order and self.bound == members)

    @property
    def with_bound(self) -> HashRing:
        """The ring with all its bindings, also if it was read without them."""
        return replace(self.ring, bindings=tuple(dict.fromkeys(member.binding for member in self.bound)))


def find_live_ring(live: LiveTopology, exchange: ExchangeDefinition | None, name: str) -> LiveRing:
    """Return the live ring of an exchange. It is empty if the exchange does not exist (`exchange` is None) or is of another type."""
    release = live.release or NEWEST_COMPARED
    if exchange is None or exchange.type != HASH_EXCHANGE:
        return LiveRing(name, make_ring((), release), ())
    ring = live.rings.get(name)
    if exchange.ring is not None:
        bound = exchange.ring
    elif ring is None:
        bound = ()
    elif ring.bindings is not None:
        bound = tuple(RingMember(*binding) for binding in ring.bindings)
    else:
        bound = make_members(ring.buckets)
    return LiveRing(name, _ring_as_listed(bound, release) if ring is None else ring, bound)


def record_here(live: LiveTopology, name: str) -> RingRecord | None:
    """Return the record of a ring if it was written on this broker, also if that has restarted since."""
    evidence = evidence_of(live)
    record = evidence.records.get(name)
    return None if record is None or why_foreign(record.stamp, evidence.mark) else record


def find_recorded(live: LiveTopology, name: str) -> RingRecord | None:
    """Return the record of a ring with exactly the live bindings, also if the broker has restarted since; None without one."""
    record = record_here(live, name)
    bound = find_live_ring(live, live.exchange(name), name).bound
    return None if record is None or changes_since(record, bound) else record


def read_without_record(live: LiveTopology) -> list[str]:
    """Return the exchanges whose rings were read, and that no record on the broker fits."""
    read = {name: ring for name, ring in live.rings.items() if ring.provenance == "read"}
    bound = {name: find_live_ring(live, live.exchange(name), name).bound for name in read}
    proves = evidence_of(live).proves
    return [name for name, ring in read.items() if bound[name] and not proves(name, ring, bound[name])]


def record_command(*names: str) -> str:
    """Return the command that stores the order of rings on the broker."""
    command = command_text("record", *map(exchange_argument, names))
    return f"{command} (`Broker.record(live.rings)`)"


def none_lasts(means: Means) -> str:
    """Return why no record would last."""
    return f"none would last: {means.voids} takes messages of the queue {MARK} away"


def how_to_record(names: Sequence[str], means: Means) -> str:
    """Return a sentence that names rings without a record that fits them, and the command that stores one, if it may last."""
    about = f"no record on the broker fits the order of {listed(list(names))}"
    if means.voids:
        return f"{about}, and {none_lasts(means)}"
    return f"{about}: if this order is right, store it with {record_command(*names)}"


def _ring_as_listed(bound: tuple[RingMember, ...], release: Release) -> HashRing:
    try:
        return make_ring(bound, release)
    except InputError:  # this release refuses the weight of a binding that is older than the rule
        buckets = tuple(member.destination for member in bound for _ in range(member.weight))
        return HashRing(buckets, release, AS_LISTED, tuple(member.binding for member in bound))


def may_have_publishers(name: str, queues: Iterable[Destination], live: LiveTopology) -> bool:
    """Return True if an exchange may have publishers. If it was deleted and is declared again, its queues exist, and its publishers may."""
    return live.exchange(name) is not None or not {queue.name for queue in live.queues}.isdisjoint(queues)


def may_keep_buckets(release: Release) -> bool:
    """Return True if a ring may have buckets after all its bindings are removed.

    A restart keeps those of queues that end with it, and second bindings that append leave holes.
    """
    keeps = release.follows(RESTART_KEEPS) or not release.store_known
    return keeps or release.follows(DUPLICATES_APPEND)


def make_ring(members: Sequence[RingMember], release: Release) -> HashRing:
    """Return the ring that members make on an exchange without bindings.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.from_bindings([member.binding for member in members], release)


def make_members(buckets: Sequence[Place]) -> tuple[RingMember, ...]:
    """Return one member for each run of equal buckets, without holes."""
    return tuple(
        RingMember(destination, str(len(list(run))))
        for destination, run in groupby(buckets)
        if destination is not None
    )


def live_hash_exchange(live: LiveTopology, name: str) -> ExchangeDefinition:
    """Return a live hash exchange.

    Raises:
        NotFoundError: it does not exist.
        MismatchError: it is of another type.
    """
    exchange = live.exchange(name)
    if exchange is not None and exchange.type == HASH_EXCHANGE:
        return exchange
    type_ = BROKERS_EXCHANGES.get(name) if exchange is None else exchange.type
    if type_ is None:
        if meant := similar(name, (known.name for known in live.exchanges)):
            raise NotFoundError(f"there is no exchange {name!r}: did you mean {meant}?", exchange=name)
        raise NotFoundError(
            f"there is no exchange {name!r}: check its name and the vhost of the URL; if it was deleted, declare it again with {apply_text()}",
            exchange=name,
        )
    raise MismatchError(
        f"exchange {name!r} is of type {type_}, not {HASH_EXCHANGE}: pass another one", exchange=name
    )
