"""Rings by the topology file that was applied last: its order is that of the buckets, if the broker has exactly its bindings.

RabbitMQ on Khepri keeps the order of a ring in a restart (rule `RESTART_KEEPS`), and only binds and unbinds change it. So a file that was
applied tells the ring without ``rabbitmqctl``.

**After an apply that ended early**, the file before and the wanted file determine the ring. Every plan keeps the first members of the
wanted ring that are in order, unbinds others in any order, and binds the rest of the wanted ring in its order. So at any moment, also after
several such applies, the ring consists of members of the old ring in their old order, and then of members of the wanted ring: those from the
first that does not stay up to the one that was bound last. Only that last one is unknown, and the bindings show it, unless a member was
unbound and bound again with the same key. Then several rings fit, and none is taken for the true one.

An apply of several binds and unbinds declares the exchange `APPLY_MARK` before its first change, and deletes it after its last one. It
names the rings that change, and has a digest of each wanted one. While it is there, the bindings of the file before do not prove its order,
and another wanted file does not either.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rabbit_chx.analysis.wording import listed
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Binding, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import order_of_binding
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember
from rabbit_chx.topology.planning.comparison import Comparison, compare
from rabbit_chx.topology.planning.ring_steps import LiveRing, count_kept_members, make_members, make_ring
from rabbit_chx.topology.slots import expanded

#: The exchange that exists while an apply changes rings.
APPLY_MARK = "rabbit-chx.apply"
#: Its argument, a table: the mark of each ring by its exchange.
_MARKS = "rings"
#: The mark of a ring that two applies with different wanted rings have changed.
UNCLEAR = "unclear"
_NEW, _CHANGED = "new", "changed"


@dataclass(frozen=True, repr=False)
class RecordedRings:
    """A ring source for brokers without ``rabbitmqctl``: the topology that was applied last.

    If the management API lists exactly the bindings of the topology (destinations and binding keys), the ring of an exchange is that of the
    topology, with the provenance ``recorded``. Otherwise it is ``assumed``, and the doubt of its `ground` names the bindings that differ. Only plans may
    bind and unbind members of the ring. The broker's store must be Khepri.

    Args:
        applied: the topology that was applied last.
        wanted: the topology that is applied next, if an apply of it may have ended early.
        name: the name of the record, for messages.

    Raises:
        InputError: `applied` is not a topology, or is that of a definitions file, whose order is not that of a ring.
    """

    applied: Topology
    wanted: Topology | None = None
    name: str = "the recorded topology"

    def __post_init__(self) -> None:
        if not isinstance(self.applied, Topology):
            raise InputError(f"{self.applied!r:.60} is not a record: give the Topology that was applied last")
        if self.applied.is_import:
            raise InputError(
                f"{self.name} is a definitions file, whose order of bindings is not that of a ring: give the topology file that was applied "
                "last, or what ring show --output json printed"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @classmethod
    def of_ring(cls, exchange: str, ring: HashRing, name: str = "the recorded ring") -> RecordedRings:
        """Return the record of one ring that was read or recorded.

        Args:
            exchange: the name of its exchange.
            ring: the ring.
            name: the name of the record, for messages.

        Raises:
            InputError: the ring is replayed or assumed.
        """
        if not ring.ground.is_certain:
            raise InputError(
                f"{name} is {ring.provenance}, so it is not a record: give a ring that was read from the broker"
            )
        definition = ExchangeDefinition(exchange, HASH_EXCHANGE, ring=_members(_bindings_of(ring)))
        return cls(Topology((definition,), rings={exchange: ring}), name=name)

    def after(self, rings: Mapping[str, HashRing]) -> RecordedRings:
        """Return the record after a plan was applied.

        Args:
            rings: the rings that it made, by exchange.
        """
        others = [exchange for exchange in self.applied.exchanges if exchange.name not in rings]
        changed = [
            ExchangeDefinition(name, HASH_EXCHANGE, ring=_members(_bindings_of(ring)))
            for name, ring in rings.items()
        ]
        live = {name: ring for name, ring in self.applied.rings.items() if name not in rings}
        return replace(
            self, applied=replace(self.applied, exchanges=(*others, *changed), rings=live), wanted=None
        )

    def ring(
        self, exchange: str, bindings: Iterable[Binding], assumed: HashRing, *, mark: str | None
    ) -> HashRing:
        """Return the recorded ring of an exchange; or the assumed one, with a doubt.

        Args:
            exchange: the exchange's name.
            bindings: its live bindings, in any order.
            assumed: the ring that the listed bindings make, under the rules of the broker.
            mark: the mark of an apply that changes this ring and has not ended; None without one.

        Raises:
            InputError: the broker's store changes the order of rings at a restart.
        """
        _check_store(assumed.release)
        found = self._find(exchange, Counter(bindings), assumed.release, mark)
        if isinstance(found, str):
            return replace(assumed, ground=Ground("assumed", found))
        return (
            found
            if found.ground.doubt
            else replace(found, release=assumed.release, ground=Ground("recorded"))
        )

    def _find(
        self, exchange: str, bound: Counter[Binding], release: Release, mark: str | None
    ) -> HashRing | str:
        """Return the true ring, or an assumed one with a doubt, or only a doubt."""
        recorded = self._recorded(exchange, release)
        if isinstance(recorded, str):
            if mark is None or not mark.startswith(_NEW):
                return recorded
            recorded = make_ring((), release)
        old = _bindings_of(recorded)
        is_equal = Counter(old) == bound
        if is_equal and mark is None:
            return recorded
        states = self._states(exchange, recorded)
        if states is None:
            ended = f"an apply that changes it has not ended: exchange {APPLY_MARK!r} stays until the apply is repeated"
            return ended if is_equal else self._difference(old, bound)
        return _ring_during(exchange, states, bound, mark) or self._difference(old, bound)

    def _recorded(self, exchange: str, release: Release) -> HashRing | str:
        """Return the ring of the record, or why it has none."""
        ring = self.applied.rings.get(exchange)
        if ring is not None:
            return ring if ring.ground.is_certain else f"{self.name} has a ring that is {ring.provenance}"
        definition = self._expanded.exchange(exchange)
        if definition is None or definition.type != HASH_EXCHANGE or definition.ring is None:
            return f"{self.name} does not contain its ring"
        if definition.owner == "external":
            return f"it is external in {self.name}, so an apply of that does not make its ring"
        return make_ring(definition.ring, release)

    @cached_property
    def _expanded(self) -> Topology:
        return expanded(self.applied, self.applied)

    @cached_property
    def _compared(self) -> Comparison | None:
        return None if self.wanted is None else compare(self.wanted, self.applied)

    def _states(self, exchange: str, recorded: HashRing) -> _States | None:
        """Return the rings during an apply of the wanted topology; None if they are not known."""
        compared, old = self._compared, _bindings_of(recorded)
        if compared is None or make_ring(_members(old), recorded.release).buckets != recorded.buckets:
            return None
        wanted = compared.wanted.exchange(exchange)
        if wanted is not None and wanted.owner == "external":
            return None
        definition = compared.live.exchange(exchange)
        bound = (definition and definition.ring) or ()
        members = _wanted_members(exchange, wanted, bound, compared)
        new = tuple(member.binding for member in members)
        if any(len(dict(bindings)) < len(bindings) for bindings in (old, new)):
            return None  # an unbind of one binding of a destination takes the buckets of the others
        replaced = compared.replaced_refs
        if ExchangeRef(exchange) in replaced:
            return _States(old, new, (0,), recorded.release)
        live = LiveRing(exchange, recorded, bound)
        end = next((n for n, member in enumerate(members) if member.destination in replaced), len(members))
        kept = {count_kept_members(live, members[:end]), count_kept_members(live, members)}
        return _States(old, new, tuple(sorted(kept)), recorded.release)

    def _difference(self, old: tuple[Binding, ...], bound: Counter[Binding]) -> str:
        parts = [
            f"{side} has {listed([f'{place!s}={key}' for place, key in only.elements()])}"
            for side, only in ((self.name, Counter(old) - bound), ("the broker", bound - Counter(old)))
            if only
        ]
        return f"the bindings are not those of {self.name}: only {', and only '.join(parts)}"


def _wanted_members(
    name: str, exchange: ExchangeDefinition | None, bound: tuple[RingMember, ...], compared: Comparison
) -> tuple[RingMember, ...]:
    """Return the members to which a plan brings a ring. One that the topology does not have only loses what is deleted."""
    if ExchangeRef(name) in compared.deleted_refs or (exchange and exchange.type != HASH_EXCHANGE):
        return ()
    if exchange is not None and exchange.ring is not None:
        return exchange.ring
    if ExchangeRef(name) in compared.replaced_refs:
        return bound
    return tuple(member for member in bound if member.destination not in compared.deleted_refs)


@dataclass(frozen=True, slots=True)
class _States:
    """The rings between two plans: `old` members in their order, then `new` ones from the first that does not stay, which `kept` counts."""

    old: tuple[Binding, ...]
    new: tuple[Binding, ...]
    kept: tuple[int, ...]
    release: Release

    def ring(self, bindings: Iterable[Binding]) -> HashRing:
        """Return the ring of bindings in an order."""
        return HashRing.from_bindings(bindings, self.release)

    def rings(self, bound: Counter[Binding]) -> dict[HashRing, frozenset[Binding]]:
        """Return the rings that have the live bindings, each with the members that are bound again."""
        rings: dict[HashRing, frozenset[Binding]] = {}
        for kept in self.kept:
            for end in range(kept, len(self.new) + 1):
                rebound = self.new[kept:end]
                rest = bound - Counter(rebound)
                is_possible = (
                    rest.total() + len(rebound) == bound.total()
                    and rest.keys() <= {*self.old}
                    and rest.keys() >= {*self.new[:kept]}
                    and len(dict([*rest, *rebound])) == bound.total()
                )
                if is_possible:
                    ring = self.ring((*(binding for binding in self.old if binding in rest), *rebound))
                    rings.setdefault(ring, frozenset(rebound))
        return rings


def _ring_during(
    exchange: str, states: _States, bound: Counter[Binding], mark: str | None
) -> HashRing | str | None:
    """Return the ring that one or several applies of the wanted topology have made, or a doubt; None if none has these bindings."""
    wanted = states.ring(states.new)
    if mark is None and Counter(states.new) == bound:
        return wanted
    if mark is not None and not is_same_ring(mark, mark_of(wanted)):
        return f"an apply of another file changed it and ended early: repeat that apply, or delete exchange {APPLY_MARK!r} after you read the ring"
    rings = states.rings(bound)
    if len(rings) > 1:
        # Not the wanted ring, so that a plan does not end here.
        other = next(ring for ring in rings if ring.bindings != states.new)
        return replace(other, ground=Ground("assumed", _ambiguity(exchange, rings)))
    return next(iter(rings), None)


def mark_of(wanted: HashRing, *, is_new: bool = False) -> str:
    """Return the mark of a ring while an apply makes the wanted one. `is_new`: it has no bindings before."""
    buckets = json.dumps([str(place) for place in wanted.buckets])
    return f"{_NEW if is_new else _CHANGED} {hashlib.sha256(buckets.encode()).hexdigest()[:16]}"


def is_same_ring(mark: str, other: str) -> bool:
    """Return True if two marks have the same wanted ring."""
    return mark.partition(" ")[2] == other.partition(" ")[2] != ""


def arguments_of(marks: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the arguments of the exchange with these marks."""
    return {_MARKS: dict(marks)}


def marks_in(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the marks in the arguments of the exchange."""
    marks = arguments.get(_MARKS)
    return {str(name): str(mark) for name, mark in marks.items()} if isinstance(marks, Mapping) else {}


def _ambiguity(exchange: str, rings: Mapping[HashRing, frozenset[Binding]]) -> str:
    """Return the bindings without which all rings are equal, and what to do with them."""
    again = list(rings.values())
    moved = sorted(frozenset.union(*again) - frozenset.intersection(*again), key=order_of_binding)
    names = [f"{place!s}={key}" for place, key in moved]
    return (
        f"an apply ended early, and its bindings fit {len(rings)} orders of the ring: unbind {listed(names, len(names))} from "
        f"{exchange} by hand, and run the command again, which binds what is missing"
    )


def _check_store(release: Release) -> None:
    """Refuse a store that changes the order of rings at a restart.

    Raises:
        InputError: it does, or it is not known.
    """
    if release.follows(RESTART_KEEPS) and release.store_known:
        return
    why = "its store Mnesia does not keep the order of a ring when the broker restarts"
    if not release.store_known:
        why = "its store is not known, because the user may not list feature flags, and Mnesia does not keep the order at a restart"
    raise InputError(
        f"a record does not tell the rings of RabbitMQ {release}: {why}; read them, with --ring-via or ring_source="
    )


def _bindings_of(ring: HashRing) -> tuple[Binding, ...]:
    return ring.bindings or tuple(member.binding for member in make_members(ring.buckets))


def _members(bindings: Iterable[Binding]) -> tuple[RingMember, ...]:
    return tuple(RingMember(*binding) for binding in bindings)
