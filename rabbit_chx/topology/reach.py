"""The objects that messages of an exchange can reach, and the keys of a hash exchange that reach no queue.

A bucket may have no destination, or one that does not exist, or an exchange from which no path leads to a queue. An alternate exchange gets
only messages for which its exchange has no destination: those of a hole, and not those of a ghost bucket (rabbitmq-server
``deps/rabbit/src/rabbit_exchange.erl``, ``route/3``; tested on 3.10.8 and 4.3.6).

Only certain losses are counted: whether an exchange behind a ring passes a message on may depend on the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import grouped
from rabbit_chx.topology.arguments import alternate_of, policy_matches
from rabbit_chx.topology.model import AnyTopology, LiveTopology
from rabbit_chx.topology.objects import (
    BROKERS_EXCHANGES,
    BROKERS_OWN,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    list_onward,
)

MADE_BY_BROKER = "amq.gen-"
#: From 4.4 on an argument of a queue without a name sets another prefix.
_NAME_PREFIX = "x-name-prefix"


@dataclass(frozen=True, slots=True)
class UnroutableKeys:
    """The keys of a hash exchange that reach no queue.

    Attributes:
        share: their exact share of all keys.
        by_place: the share at each destination that has any; that of keys without a destination is under None.
    """

    share: float
    by_place: dict[Place, float]


class Reach:
    """The queues and exchanges that messages of a live topology, with its rings, can reach."""

    def __init__(self, live: LiveTopology) -> None:
        self._live = live
        self._exchanges = {exchange.name: exchange for exchange in live.exchanges}
        self._bound = bound_places(live)
        # A bound queue exists, even if no list shows it.
        bound = (place for places in self._bound.values() for place in places)
        self._queues = {queue.name for queue in live.queues} | {
            place for place in bound if isinstance(place, str)
        }

    def exists(self, destination: Destination) -> bool:
        """Return True if a queue or an exchange exists."""
        if isinstance(destination, ExchangeRef):
            return destination.name in self._exchanges or destination.name.startswith(BROKERS_OWN)
        return destination in self._queues

    def has_bindings(self, name: str) -> bool:
        """Return True if anything is bound to an exchange, or may be: bindings that no client can name are not listed."""
        return bool(self._bound.get(name)) or name in self._live.sources_left_out

    def leads_nowhere(self, name: str) -> bool:
        """Return True if an exchange does not exist or none of its messages reaches a queue."""
        return not self._leads_to_queue(ExchangeRef(name), frozenset())

    def alternate_of(self, exchange: ExchangeDefinition) -> str | None:
        """Return the alternate exchange, by argument or policy; None if it has none."""
        return alternate_of(exchange, self._live.policies)

    def unroutable_of(self, exchange: ExchangeDefinition, key_map: KeyMap) -> UnroutableKeys:
        """Return the keys of an exchange that hashes, with this key map, that reach no queue."""
        if not key_map.bucket_count:
            is_lost = not self._leads_without_destination(exchange, frozenset({exchange.name}))
            return UnroutableKeys(1.0, {None: 1.0}) if is_lost else UnroutableKeys(0.0, {})
        visited = frozenset({exchange.name})
        lost: list[Place] = [
            place for place in key_map.destinations if not self._leads_to_queue(place, visited)
        ]
        if None in key_map.buckets and not self._leads_without_destination(exchange, visited):
            lost.append(None)
        if not lost:
            return UnroutableKeys(0.0, {})
        shares = key_map.shares()
        by_place = {place: shares[place] for place in lost if shares.get(place)}
        return UnroutableKeys(sum(by_place.values()), by_place)

    def _leads_to_queue(self, place: Destination, seen: frozenset[str]) -> bool:
        if isinstance(place, str):
            return place in self._queues
        if place.name in seen or not self.exists(place):  # a broker visits no exchange twice
            return False
        if place.name in self._live.sources_left_out:
            return True
        visited = seen | {place.name}
        bound = self._bound.get(place.name, ())
        if any(self._leads_to_queue(end, visited) for end in bound):
            return True
        exchange = self._exchanges.get(place.name)
        # Each message of a fanout exchange has a destination if it has bindings.
        is_fanout = exchange is not None and exchange.type == "fanout"
        if exchange is None or (bound and is_fanout):
            return False
        return self._leads_without_destination(exchange, visited)

    def _leads_without_destination(self, exchange: ExchangeDefinition, seen: frozenset[str]) -> bool:
        name = self.alternate_of(exchange)
        return bool(name) and self._leads_to_queue(ExchangeRef(str(name)), seen)


def bound_places(topology: AnyTopology) -> dict[str, list[Destination]]:
    """Return the destinations of each exchange that has any; those of a ring are among the bindings or the members, or in both."""
    bindings = [(binding.source, binding.destination) for binding in topology.bindings]
    members = [
        (exchange.name, member.destination)
        for exchange in topology.exchanges
        for member in exchange.ring or exchange.members or ()
    ]
    return grouped([*bindings, *members])


def transient_destinations(live: AnyTopology) -> dict[Destination, str]:
    """Return the queues and exchanges that the broker deletes automatically, with the reason."""
    prefixed = {queue.name for queue in live.queues if _has_broker_prefix(queue)}
    reasons: dict[Destination, str] = {
        member.destination: "has a name that the broker made: the next such queue has another"
        for exchange in live.exchanges
        for member in exchange.ring or ()
        if isinstance(member.destination, str)
        and (member.destination.startswith(MADE_BY_BROKER) or member.destination in prefixed)
    }
    objects: tuple[QueueDefinition | ExchangeDefinition, ...] = (*live.queues, *live.exchanges)
    return {**reasons, **{named.ref: named.why_transient for named in objects if named.why_transient}}


def _has_broker_prefix(queue: QueueDefinition) -> bool:
    prefix = queue.arguments.get(_NAME_PREFIX)
    return isinstance(prefix, str) and prefix != "" and queue.name.startswith(prefix)


def select_reached(topology: LiveTopology, names: Iterable[str]) -> LiveTopology:
    """Return these exchanges, the objects that their messages reach, and the policies that match one of those.

    Messages follow rings, bindings, alternate exchanges and dead-letter exchanges.

    Raises:
        InputError: an exchange does not exist, or it is predeclared and has no bindings.
    """
    exchanges = {exchange.name: exchange for exchange in topology.exchanges}
    sources = {binding.source for binding in topology.bindings}
    places: dict[Destination, None] = {}
    for name in names:
        if name not in exchanges and name not in sources:
            raise InputError(_not_listed(name, exchanges))
        places[ExchangeRef(name)] = None

    onwards = _links(topology)
    waiting = list(places)
    while waiting:
        for place in onwards.get(waiting.pop(), ()):
            if place not in places:
                places[place] = None
                waiting.append(place)

    reached = {place.name for place in places if isinstance(place, ExchangeRef)}
    return replace(
        topology,
        exchanges=tuple(exchange for exchange in topology.exchanges if exchange.name in reached),
        queues=tuple(queue for queue in topology.queues if queue.name in places),
        bindings=tuple(binding for binding in topology.bindings if binding.source in reached),
        policies=tuple(
            policy for policy in topology.policies if any(_may_match(policy, place) for place in places)
        ),
        rings={name: ring for name, ring in topology.rings.items() if name in reached},
    )


def _not_listed(name: str, exchanges: Iterable[str]) -> str:
    if (type_ := BROKERS_EXCHANGES.get(name)) is not None:
        return (
            f"exchange {name!r} is a {type_} exchange that each broker has, so no file declares it, and nothing is bound to "
            "it here: pass another one"
        )
    meant = similar(name, exchanges)
    return f"there is no exchange {name}: {'correct the name' if meant is None else f'did you mean {meant}?'}"


def _links(topology: AnyTopology) -> dict[Destination, list[Destination]]:
    links: dict[Destination, list[Destination]] = {}
    for exchange in topology.exchanges:
        places = links.setdefault(ExchangeRef(exchange.name), [])
        places += [member.destination for member in exchange.ring or exchange.members or ()]
        places += list_onward(exchange.arguments)
    for queue in topology.queues:
        links.setdefault(queue.name, []).extend(list_onward(queue.arguments))
    for binding in topology.bindings:
        links.setdefault(ExchangeRef(binding.source), []).append(binding.destination)
    for policy in topology.policies:
        if targets := list_onward(policy.definition):
            listed: list[Destination] = [ExchangeRef(exchange.name) for exchange in topology.exchanges]
            listed += [queue.name for queue in topology.queues]
            for place in listed:
                if _may_match(policy, place):
                    links[place] += targets
    return links


def _may_match(policy: PolicyDefinition, place: Destination) -> bool:
    """Return True if a policy may match an exchange or a queue. It may if Python cannot compile its pattern."""
    return policy_matches(policy, place) is not False


def destinations_of_queues(
    live: LiveTopology, name: str, destinations: Iterable[Destination]
) -> Mapping[str, Destination]:
    """Return the destination of a ring that leads to each queue, directly or over one exchange.

    Raises:
        NotDeterminedError: a queue is behind several of them.
    """
    found: dict[str, Destination] = {}
    for place in destinations:
        behind = (end.destination for end in live.bindings if ExchangeRef(end.source) == place)
        for queue in (end for end in (place, *behind) if isinstance(end, str)):
            if found.setdefault(queue, place) != place:
                raise NotDeterminedError(
                    f"the queue {queue} is behind {found[queue]!s} and {place!s}, so its messages do not show the order of the ring of {name}: bind a queue "
                    "of its own behind each, or read the ring",
                    exchange=name,
                )
    return found
