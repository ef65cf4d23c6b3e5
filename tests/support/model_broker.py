"""A broker made of values, to which the changes of a plan are applied one by one, by the ring rules of its release.

It refuses what a real one refuses: a binding of something that does not exist, a second declaration, the deletion of what
is still bound. It is only for tests of plans, which have to end as they say on any topology that hypothesis finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PlannedChange,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
)
from rabbit_chx.topology.diff import NamedObject

_CHX = "x-consistent-hash"


class ModelBroker:
    """A broker that holds exchanges, queues, bindings, policies and rings.

    Args:
        release: the release whose rules it follows.
    """

    def __init__(self, release: Release) -> None:
        self.release = release
        self.exchanges: dict[str, ExchangeDefinition] = {}
        self.queues: dict[str, QueueDefinition] = {}
        self.policies: dict[str, PolicyDefinition] = {}
        self.bindings: dict[BindingDefinition, None] = {}
        self.rings: dict[str, HashRing] = {}

    @classmethod
    def holding(cls, topology: Topology, release: Release) -> ModelBroker:
        """Return a broker on which a topology was declared, each ring in order."""
        broker = cls(release)
        objects: tuple[NamedObject, ...] = (*topology.exchanges, *topology.queues, *topology.policies)
        for one in objects:
            broker.create(one)
        for binding in topology.bindings:
            broker.bind(binding)
        for exchange in topology.exchanges:
            for member in exchange.ring or ():
                broker.bind(
                    BindingDefinition(exchange.name, member.destination, member.key, member.arguments)
                )
        return broker

    def topology(self) -> Topology:
        """Return what is there, with rings that were read."""
        exchanges = [
            replace(one, ring=self._members(one.name)) if one.type == _CHX else one
            for one in self.exchanges.values()
        ]
        plain = [one for one in self.bindings if self.exchanges[one.source].type != _CHX]
        rings = {
            name: HashRing.from_buckets(ring.buckets, self.release, next_bucket=len(ring.buckets))
            for name, ring in self.rings.items()
        }
        live = Topology(
            tuple(exchanges), tuple(self.queues.values()), tuple(plain), tuple(self.policies.values()),
            release=self.release,
        )  # fmt: skip
        return live.with_rings(rings)

    def _members(self, name: str) -> tuple[RingMember, ...]:
        return tuple(
            RingMember(one.destination, one.routing_key, one.arguments)
            for one in self.bindings
            if one.source == name
        )

    def apply(self, changes: Iterable[PlannedChange]) -> None:
        """Do the changes of a plan, in order."""
        for change in changes:
            subject = change.subject
            if isinstance(subject, BindingDefinition):
                (self.bind if change.action == "bind" else self.unbind)(subject)
            elif change.action == "create":
                self.create(subject)
            elif change.action == "delete":
                self.delete(subject)
            elif change.action == "update":
                assert isinstance(subject, PolicyDefinition)
                self.policies[subject.name] = subject
            else:
                assert change.live is not None
                assert not isinstance(change.live, BindingDefinition)
                self.delete(change.live)
                self.create(subject)

    def create(self, one: NamedObject) -> None:
        """Declare what is not there."""
        if isinstance(one, PolicyDefinition):
            assert one.name not in self.policies
            self.policies[one.name] = one
        elif isinstance(one, QueueDefinition):
            assert one.name not in self.queues
            self.queues[one.name] = one
        else:
            assert one.name not in self.exchanges
            self.exchanges[one.name] = replace(one, ring=None, max_share_moved=None)
            if one.type == _CHX:
                self.rings[one.name] = HashRing.from_bindings([], self.release)

    def delete(self, one: NamedObject) -> None:
        """Delete what is there and not bound."""
        if isinstance(one, PolicyDefinition):
            del self.policies[one.name]
            return
        ref: Destination = ExchangeRef(one.name) if isinstance(one, ExchangeDefinition) else one.name
        bound = [b for b in self.bindings if ref in (b.destination, ExchangeRef(b.source))]
        assert not bound, f"{ref} is deleted while it is bound: {bound}"
        if isinstance(one, QueueDefinition):
            del self.queues[one.name]
        else:
            del self.exchanges[one.name]
            self.rings.pop(one.name, None)

    def bind(self, one: BindingDefinition) -> None:
        """Bind what exists and is not bound so."""
        assert one.source in self.exchanges, f"{one.source} is bound before it exists"
        place = one.destination
        there = place.name in self.exchanges if isinstance(place, ExchangeRef) else place in self.queues
        assert there, f"{place} is bound before it exists"
        one = replace(one, owner="ours")
        assert one not in self.bindings
        self.bindings[one] = None
        if one.source in self.rings:
            self.rings[one.source] = self.rings[one.source].bind(place, one.routing_key)

    def unbind(self, one: BindingDefinition) -> None:
        """Unbind what is bound."""
        one = replace(one, owner="ours")
        del self.bindings[one]
        if one.source in self.rings:
            self.rings[one.source] = self.rings[one.source].unbind(
                one.destination, one.routing_key, missing_ok=True
            )

    def lose(self, queue: str) -> None:
        """Lose a queue and its bindings as 4.3 does in a restart, when the queue is exclusive: its buckets stay."""
        del self.queues[queue]
        self.bindings = {one: None for one in self.bindings if one.destination != queue}
        for name, ring in self.rings.items():
            bindings = tuple(one for one in ring.bindings or () if one[0] != queue)
            self.rings[name] = HashRing(ring.buckets, self.release, "replayed", bindings)
