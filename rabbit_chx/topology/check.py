"""A check: what is on a broker against itself, and against a topology. A value, made without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Finding
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.topology.check_objects import object_findings
from rabbit_chx.topology.check_rings import LiveRingCheck, SlottedRingCheck, WantedRingCheck, numbered_order
from rabbit_chx.topology.check_slots import SlotCheck
from rabbit_chx.topology.findings import Cures
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, live_slots
from rabbit_chx.topology.reach import Ways, transient_destinations
from rabbit_chx.topology.shards import is_sharded
from rabbit_chx.topology.slots import lowered, slot_layouts

if TYPE_CHECKING:
    from rabbit_chx.routing import HashRing
    from rabbit_chx.topology.model import Topology

__all__ = ["TopologyCheck", "check", "live_hash_exchange"]


@dataclass(frozen=True, slots=True, repr=False)
class TopologyCheck:
    """What a check found. A value; `check` makes it.

    Attributes:
        findings: what is wrong.
        exchanges: the names of the hash exchanges whose rings were checked.
        unroutable: the exact share of keys that end in no queue, by exchange.
        misplaced: the exact share of keys that have another destination than the topology says, by exchange; without
            those of which it says nothing.
        parked: how many messages wait for want of a queue of their slot, by exchange; without exchanges that have no park.
    """

    findings: tuple[Finding, ...]
    exchanges: tuple[str, ...]
    unroutable: Mapping[str, float] = field(default_factory=dict)
    misplaced: Mapping[str, float] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<TopologyCheck {len(self.findings)} findings, {len(self.exchanges)} exchanges>"

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def check(
    live: Topology, wanted: Topology | None = None, *, exchange: str | None = None, file: str | None = None
) -> TopologyCheck:
    """Return what is wrong with what is on a broker.

    Only rings that were read are checked, because a guess would prove nothing.

    Args:
        live: what is there, with the rings that were read.
        wanted: what should be there: its hash exchanges are checked, and all of its objects. None: what is there is
            checked by itself, with all hash exchanges.
        exchange: check only this hash exchange; None for all.
        file: the name of the topology's file, which the cures then name.

    Raises:
        InputError: the ring of an exchange was not read.
        NotFoundError: there is no exchange of that name.
        MismatchError: the exchange is of another type.
    """
    rings = _Rings(live, wanted, file)
    findings: list[Finding] = [] if wanted is None else list(_cluster(wanted, live))
    names = rings.named() if exchange is None else [live_hash_exchange(live, exchange).name]
    for name in names:
        findings += rings.findings(name)
    if wanted is not None and exchange is None:
        findings += object_findings(*_without_slots(wanted, live), file)
    found = tuple(dict.fromkeys(findings))
    return TopologyCheck(found, tuple(names), rings.unroutable, rings.misplaced, rings.parked)


def live_hash_exchange(live: Topology, name: str) -> ExchangeDefinition:
    """Return a hash exchange that is there.

    Args:
        live: what is there.
        name: its name.

    Raises:
        NotFoundError: there is none of that name.
        MismatchError: it is of another type.
    """
    found = live.exchange(name)
    if found is None:
        raise NotFoundError(
            f"there is no exchange {name!r}: check its name and the vhost of the URL", exchange=name
        )
    if found.type != HASH_EXCHANGE:
        raise MismatchError(
            f"exchange {name!r} is of type {found.type}, not {HASH_EXCHANGE}: give another one", exchange=name
        )
    return found


class _Rings:
    def __init__(self, live: Topology, wanted: Topology | None, file: str | None) -> None:
        self._live, self._wanted, self._file = live, wanted, file
        self._layouts = {} if wanted is None else slot_layouts(wanted, live)
        self._ways = Ways(live)
        self._transient = transient_destinations(live)
        self.unroutable: dict[str, float] = {}
        self.misplaced: dict[str, float] = {}
        self.parked: dict[str, int] = {}

    def named(self) -> list[str]:
        """Return the hash exchanges that are there, of those that are wanted, or of all."""
        there = [one.name for one in self._live.exchanges if one.type == HASH_EXCHANGE]
        if self._wanted is None:
            return there
        wanted = {one.name for one in self._wanted.exchanges if one.type == HASH_EXCHANGE}
        return [name for name in there if name in wanted]

    def findings(self, name: str) -> Iterator[Finding]:
        there = live_hash_exchange(self._live, name)
        ours = None if self._wanted is None else self._wanted.exchange(name)
        ring = self._read_ring(name)
        cures = Cures(
            None if ours is None else self._file, external=ours is not None and ours.owner == "external"
        )
        unroutable = self._ways.unroutable_of(there)
        self.unroutable[name] = unroutable.share
        layout = self._layouts.get(name)
        slotted = layout is not None
        yield from LiveRingCheck(there, ring, self._ways, self._transient, cures, slotted).findings(
            unroutable
        )
        slots = live_slots(name, ring, self._live.exchanges, self._live.bindings)
        checked = SlotCheck(slots, self._live, self._ways, self._transient, cures, layout)
        yield from checked.findings()
        if checked.parked:
            self.parked[name] = sum(checked.parked.values())
        if layout is not None:
            numbered = SlottedRingCheck(slots, there.ring or (), layout, cures)
            yield from numbered.findings()
            self.misplaced[name] = numbered.misplaced()
            return
        if ours is None:
            yield from numbered_order(slots, there.ring or (), cures)
        if ours is None or ours.type != HASH_EXCHANGE:
            return
        if ours.ring is None:
            if is_sharded(there, self._live):
                return  # the plugin makes its ring
            says = "the topology does not say its ring, so its order is not checked"
            yield Finding("different", says, "write its members as `ring` in the topology", exchange=name)
            return
        against = WantedRingCheck(name, ring, there.ring or (), ours.ring, cures, slots.sole_owners)
        yield from against.findings()
        if (misplaced := against.misplaced()) is not None:
            self.misplaced[name] = misplaced

    def _read_ring(self, name: str) -> HashRing:
        ring = self._live.rings.get(name)
        if ring is None or ring.provenance != "read":
            how = "is not known" if ring is None else f"was not read but is {ring.provenance}"
            raise InputError(
                f"the ring of {name!r} {how}, and a check of it would prove nothing: give --ring-via PREFIX, such as "
                "'docker exec NAME' or 'kubectl exec POD --', or ring_source= in Python",
                exchange=name,
            )
        return ring


def _without_slots(wanted: Topology, live: Topology) -> tuple[Topology, Topology]:
    """Return both without the exchanges and bindings that slots are made of, which are checked with their hash exchange."""
    layouts = slot_layouts(wanted, live)
    made = frozenset(name for layout in layouts.values() for name in layout.names.exchanges)
    return _without(lowered(wanted, layouts), made), _without(live, made)


def _without(topology: Topology, names: frozenset[str]) -> Topology:
    return replace(
        topology,
        exchanges=tuple(one for one in topology.exchanges if one.name not in names),
        bindings=tuple(one for one in topology.bindings if one.source not in names),
    )


def _cluster(wanted: Topology, live: Topology) -> Iterator[Finding]:
    if wanted.cluster is not None and wanted.cluster != live.cluster:
        there = "a cluster whose name is not known" if live.cluster is None else live.cluster
        says = f"the topology is for the cluster {wanted.cluster}, and this is {there}"
        yield Finding("different", says, f"connect to {wanted.cluster}, or correct `cluster`")
