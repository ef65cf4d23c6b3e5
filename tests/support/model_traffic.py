"""Messages on a broker made of values: each destination of each ring gets one before every operation of whoever applies a plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

from model_broker import ModelBroker
from model_client import ModelClient

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.broker.applying import Applied, Permission
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import Plan, QueueDefinition, plan

_WITH_RING_LIMIT = Permission(1.0)


class Traffic:
    """Messages on a model.

    Attributes:
        queues: the messages of each queue, as the exchange that each was published to, its destination there, and its number.
        sent: how many were published.
        lost: how many found no queue, by exchange.
        deleted: the numbers of those that went with their queue.
        deleted_parked: how many of those were in a parking queue, by exchange.
    """

    def __init__(self, model: ModelBroker) -> None:
        self.model = model
        self.queues: dict[str, list[tuple[str, Place, int]]] = {}
        self.sent = 0
        self.lost: Counter[str] = Counter()
        self.deleted: list[int] = []
        self.deleted_parked: Counter[str] = Counter()

    def publish(self) -> None:
        """Publish a message to each destination of each ring."""
        for name, ring in self.model.rings.items():
            for place in ring.destinations:
                self.sent += 1
                self.route(name, place, self.sent)

    def route(self, exchange: str, place: Place, number: int) -> None:
        """Bring a message to all queues that its place leads to, or to the park."""
        queues = self.queues_behind(exchange, place)
        self.lost[exchange] += not queues
        for queue in queues:
            self.queues.setdefault(queue, []).append((exchange, place, number))

    def route_again(self, exchange: str, place: Place, number: int) -> None:
        """Bring a message to where it would be today. If its place is gone, the ring has another one for it."""
        places = self.model.rings[exchange].destinations
        self.route(exchange, place if place in places else places[number % len(places)], number)

    def queues_behind(self, exchange: str, place: Place) -> list[str]:
        """Return the queues that get a message for a place in the ring of an exchange. Only slots are followed to their queues."""
        if not isinstance(place, ExchangeRef):
            return [place] if place in self.model.queues else []
        if not place.name.startswith(f"{exchange}.slot."):
            return [f"behind exchange {place.name}"]
        slot = self.model.exchanges.get(place.name)
        alternate = None if slot is None else slot.arguments.get("alternate-exchange")
        return self._bound_to(place.name) or self._bound_to(alternate)

    def _bound_to(self, exchange: Any) -> list[str]:
        return [str(binding.destination) for binding in self.model.bindings if binding.source == exchange]

    def delete(self, queue: str) -> None:
        """Delete the messages of a queue that is deleted."""
        for exchange, _, number in self.queues.pop(queue, ()):
            self.deleted.append(number)
            self.deleted_parked[exchange] += queue == f"{exchange}.park"

    def losing(self) -> set[str]:
        """Return the exchanges that lose messages as they are now."""
        return {
            name
            for name, ring in self.model.rings.items()
            for place in (*ring.destinations, *((None,) if None in ring.buckets else ()))
            if not self.queues_behind(name, place)
        }

    def parked(self) -> int:
        """Return how many messages are in parking queues."""
        return sum(len(messages) for queue, messages in self.queues.items() if queue.endswith(".park"))

    def check(self) -> None:
        """Each message that found a queue is in one, or went with it; none is there twice."""
        found = Counter(number for queue in self.queues.values() for _, _, number in queue)
        found.update(self.deleted)
        assert found.total() == self.sent - self.lost.total()
        assert set(found.values()) <= {1}


class Mover(ModelClient):
    """A client that carries messages too, and dies before an operation or a message if it is told to."""

    def __init__(self, traffic: Traffic, dies_before: int | None = None) -> None:
        super().__init__(traffic.model, dies_before)
        self.traffic = traffic
        self.operations = 0

    def messages_in(self, queue: str) -> int:
        """Count the messages of a queue."""
        return len(self.traffic.queues.get(queue, ()))

    def perform(self, operation: Operation) -> None:
        """Perform an operation; what is in a queue goes with it."""
        super().perform(operation)
        if operation.action == "delete" and isinstance(operation.subject, QueueDefinition):
            self.traffic.delete(operation.subject.name)

    def _count(self) -> None:
        super()._count()
        self.operations += 1
        self.traffic.publish()

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:  # noqa: ARG002  # as they came from
        """Bring parked messages on, and die before any of them. Others come while the first is on its way."""
        parked = self.traffic.queues.get(queue, [])
        count = min(limit, len(parked))
        for number in range(count):
            if number == 0:
                self._count()
            else:
                super()._count()
            self.traffic.route_again(*parked.pop(0))
        return count

    def apply(self, wanted: Topology | Plan, permission: Permission = _WITH_RING_LIMIT) -> Applied:
        """Plan, if that is not done, and apply."""
        made = plan(wanted, self.live()) if isinstance(wanted, Topology) else wanted
        return self.applied(made, permission)
