"""A broker made of values, to which the changes of a plan are applied one by one, by the ring rules of its release.

It refuses what a real one refuses: a binding of something that does not exist, a second declaration, the deletion of what
is still bound. It is only for tests of plans, which have to end as they say on any topology that hypothesis finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rabbit_chx.routing import Destination, ExchangeRef, HashRing, OrderKnowledge, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
)
from rabbit_chx.topology.schema import NamedObject, PlannedChange

_CHX = "x-consistent-hash"


class ModelBroker:
    """A broker that holds exchanges, queues, bindings, policies and rings.

    Args:
        release: the release whose rules it follows.

    Attributes:
        mark: the queue that marks the start of the broker, and proves records.
        mark_messages: the number of its messages; a restart takes the transient one away.
        persistent: how many of them are persistent, as statistics count them; None: there are none.
    """

    def __init__(self, release: Release) -> None:
        self.release = release
        self.exchanges: dict[str, ExchangeDefinition] = {}
        self.queues: dict[str, QueueDefinition] = {}
        self.policies: dict[str, PolicyDefinition] = {}
        self.bindings: dict[BindingDefinition, None] = {}
        self.rings: dict[str, HashRing] = {}
        self.mark: QueueDefinition | None = None
        self.mark_messages = 0
        self.persistent: int | None = None

    @classmethod
    def holding(cls, topology: Topology | LiveTopology, release: Release) -> ModelBroker:
        """Return a broker on which a topology was declared, each ring in order."""
        broker = cls(release)
        objects: tuple[NamedObject, ...] = (*topology.exchanges, *topology.queues, *topology.policies)
        for object_ in objects:
            broker.create(object_)
        for binding in topology.bindings:
            broker.bind(binding)
        for exchange in topology.exchanges:
            for member in exchange.ring or ():
                broker.bind(
                    BindingDefinition(exchange.name, member.destination, member.key, member.arguments)
                )
        return broker

    def topology(self) -> LiveTopology:
        """Return what is there, with rings that were read."""
        exchanges = [
            replace(exchange, ring=self._members(exchange.name)) if exchange.type == _CHX else exchange
            for exchange in self.exchanges.values()
        ]
        plain = [binding for binding in self.bindings if self.exchanges[binding.source].type != _CHX]
        rings = {
            name: HashRing.from_buckets(ring.buckets, self.release, next_bucket=len(ring.buckets))
            for name, ring in self.rings.items()
        }
        live = LiveTopology(
            tuple(exchanges), tuple(self.queues.values()), tuple(plain), tuple(self.policies.values()),
            release=self.release,
        )  # fmt: skip
        return live.with_rings(rings)

    def _members(self, name: str) -> tuple[RingMember, ...]:
        return tuple(
            RingMember(binding.destination, binding.routing_key, binding.arguments)
            for binding in self.bindings
            if binding.source == name
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

    def create(self, object_: NamedObject) -> None:
        """Declare what is not there."""
        if isinstance(object_, PolicyDefinition):
            assert object_.name not in self.policies
            self.policies[object_.name] = object_
        elif isinstance(object_, QueueDefinition):
            assert object_.name not in self.queues
            self.queues[object_.name] = object_
        else:
            assert object_.name not in self.exchanges
            self.exchanges[object_.name] = replace(object_, ring=None, max_share_moved=None)
            if object_.type == _CHX:
                self.rings[object_.name] = HashRing.from_bindings([], self.release)

    def delete(self, object_: NamedObject) -> None:
        """Delete what is there and not bound."""
        if isinstance(object_, PolicyDefinition):
            del self.policies[object_.name]
            return
        ref: Destination = (
            ExchangeRef(object_.name) if isinstance(object_, ExchangeDefinition) else object_.name
        )
        bound = [b for b in self.bindings if ref in (b.destination, ExchangeRef(b.source))]
        assert not bound, f"{ref} is deleted while it is bound: {bound}"
        if isinstance(object_, QueueDefinition):
            del self.queues[object_.name]
        else:
            del self.exchanges[object_.name]
            self.rings.pop(object_.name, None)

    def bind(self, binding: BindingDefinition) -> None:
        """Bind what exists and is not bound so."""
        assert binding.source in self.exchanges, f"{binding.source} is bound before it exists"
        place = binding.destination
        there = place.name in self.exchanges if isinstance(place, ExchangeRef) else place in self.queues
        assert there, f"{place} is bound before it exists"
        binding = replace(binding, owner="ours")
        assert binding not in self.bindings
        self.bindings[binding] = None
        if binding.source in self.rings:
            self.rings[binding.source] = self.rings[binding.source].bind(place, binding.routing_key)

    def unbind(self, binding: BindingDefinition) -> None:
        """Unbind what is bound."""
        binding = replace(binding, owner="ours")
        del self.bindings[binding]
        if binding.source in self.rings:
            self.rings[binding.source] = self.rings[binding.source].unbind(
                binding.destination, binding.routing_key, missing_ok=True
            )

    def lose(self, queue: str) -> None:
        """Lose a queue and its bindings as 4.3 does in a restart, when the queue is exclusive: its buckets stay."""
        del self.queues[queue]
        self.bindings = {binding: None for binding in self.bindings if binding.destination != queue}
        for name, ring in self.rings.items():
            bindings = tuple(binding for binding in ring.bindings or () if binding[0] != queue)
            self.rings[name] = HashRing(ring.buckets, self.release, OrderKnowledge("replayed"), bindings)
