"""The objects that messages of an exchange can reach, and the keys of a hash exchange that reach no queue.

A bucket may have no destination, or one that does not exist, or an exchange from which no path leads to a queue. An alternate exchange gets
only messages for which its exchange has no destination: those of a hole, and not those of a ghost bucket (rabbitmq-server
``deps/rabbit/src/rabbit_exchange.erl``, ``route/3``; tested on 3.10.8 and 4.3.6).

`Reach.ends_of` says the same of messages that are published anew, as dead letters are: by a routing key, or by what is known of it.

Only certain losses are counted. Behind an exchange that hashes routing keys, a direct exchange passes only the few keys of its bindings on:
all others are lost there, or go to its alternate exchange. A topic or headers exchange counts as a path to a queue, because its routing
depends on the message; `Reach.filters_of` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.grouping import grouped
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.message import HashedOn
from rabbit_chx.topology.model import AnyTopology, LiveTopology
from rabbit_chx.topology.objects.objects import (
    BROKERS_EXCHANGES,
    BROKERS_OWN,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    list_onward,
)
from rabbit_chx.topology.rules.policies import alternate_of, policy_matches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Nowhere: TypeAlias = bool | NDArray[np.bool_]

#: The types of exchanges that may drop a message although they have bindings.
_FILTERING = ("direct", "topic", "headers")
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


class KeyKnowledge(Enum):
    """What is known of the routing keys of messages that have no single one.

    MANY are those of an exchange that hashes them: a binding with one key gets almost none of them.
    """

    MANY = "many"
    UNKNOWN = "unknown"


#: The routing key of messages, or what is known of it.
Keys: TypeAlias = str | KeyKnowledge


@dataclass(frozen=True, slots=True)
class Ends:
    """What messages that are published to an exchange reach at most.

    Attributes:
        queues: the queues; empty if the messages certainly reach none; None if any queue may be among them.
        hashing: the exchanges on the way that divide messages by their routing key.
    """

    queues: frozenset[str] | None
    hashing: frozenset[str] = frozenset()


class Reach:
    """The queues and exchanges that messages of a live topology, with its rings, can reach."""

    def __init__(self, live: LiveTopology) -> None:
        self._live = live
        self._exchanges = {exchange.name: exchange for exchange in live.exchanges}
        bindings = (*live.bindings, *_bindings_of_members(live))
        self._bindings = grouped((binding.source, binding) for binding in bindings)
        self._bound = grouped((binding.source, binding.destination) for binding in bindings)
        self._into = grouped((binding.destination, binding) for binding in bindings)
        self._to_all = grouped(
            (binding.source, binding.destination)
            for binding in bindings
            if (source := self._exchange(binding.source)) is not None and _passes_all(source.type, binding)
        )
        # A bound queue exists, even if no list shows it.
        self._queues = {queue.name for queue in live.queues} | {
            place for place in self._into if isinstance(place, str)
        }

    def exists(self, destination: Destination) -> bool:
        """Return True if a queue or an exchange exists."""
        if isinstance(destination, ExchangeRef):
            return destination.name in self._exchanges or destination.name.startswith(BROKERS_OWN)
        return destination in self._queues

    def leads_nowhere(self, name: str) -> bool:
        """Return True if an exchange does not exist or none of its messages reaches a queue."""
        return self._nowhere(ExchangeRef(name), None, frozenset()) is True

    def alternate_of(self, exchange: ExchangeDefinition) -> str | None:
        """Return the alternate exchange, by argument or policy; None if it has none."""
        return alternate_of(exchange, self._live.policies)

    def unroutable_of(self, exchange: ExchangeDefinition) -> UnroutableKeys:
        """Return the keys of a hash exchange that reach no queue."""
        import numpy as np

        ring = self._live.rings[exchange.name]
        seeds = self._nowhere_of_ring(exchange, ring, frozenset())
        if seeds is False:
            return UnroutableKeys(0.0, {})
        index = ring.indices_of_all_seeds()
        counts = np.bincount(index[seeds] + 1, minlength=len(ring.destinations) + 1)
        places: tuple[Place, ...] = (None, *ring.destinations)
        by_place = {
            place: int(count) / len(index) for place, count in zip(places, counts, strict=True) if count
        }
        return UnroutableKeys(int(np.count_nonzero(seeds)) / len(index), by_place)

    def filters_of(self, exchange: ExchangeDefinition) -> Iterator[tuple[Destination, ExchangeDefinition]]:
        """Yield each destination of a hash exchange behind which an exchange passes only some messages on, and the first such exchange."""
        for place in self._live.rings[exchange.name].destinations:
            if isinstance(place, ExchangeRef) and self._nowhere(place, None, frozenset()) is not True:
                found = self._filter_at(place, frozenset({exchange.name}))
                if found is not None:
                    yield place, found

    def ends_of(self, exchange: str, keys: Keys, *, after: str | None = None) -> Ends:
        """Return the queues that messages with some routing keys reach at most, if they are published to an exchange.

        Args:
            exchange: the name of the exchange, empty for the default exchange.
            keys: the routing key, or what is known of it.
            after: the exchange that they have passed. A broker visits no exchange twice.
        """
        queues: set[str] = set()
        hashing: set[str] = set()
        seen = set() if after is None else {after}
        waiting: list[Destination | None] = [None if exchange == "" else ExchangeRef(exchange)]
        while waiting:
            place = waiting.pop()
            if place is None:  # the default exchange
                if keys is KeyKnowledge.UNKNOWN:
                    return Ends(None)
                queues.update(name for name in (keys,) if isinstance(name, str) and name in self._queues)
            elif isinstance(place, str):
                queues.update(self._queues & {place})
            elif place.name not in seen and (found := self._exchange(place.name)) is not None:
                seen.add(place.name)
                if place.name in self._live.sources_left_out:
                    return Ends(None)
                bound = [(end, _passes(found.type, end, keys)) for end in self._bindings.get(place.name, ())]
                if hashes_keys(found) and len({end.destination for end, _ in bound}) > 1:
                    hashing.add(place.name)
                waiting += [end.destination for end, passes in bound if passes is not False]
                alternate = self.alternate_of(found)
                if alternate is not None and not any(passes for _, passes in bound):
                    waiting.append(ExchangeRef(alternate) if alternate else None)
        return Ends(frozenset(queues), frozenset(hashing))

    def keys_at(self, place: Destination, seen: frozenset[Destination] = frozenset()) -> set[Keys]:
        """Return what is known of the routing keys of the messages that reach a queue or an exchange by its bindings.

        Those of a queue without bindings have come by the default exchange, with its name as the key.
        """
        keys: set[Keys] = set()
        for binding in self._into.get(place, ()):
            if ExchangeRef(binding.source) not in seen:
                keys |= self._keys_by(binding, seen | {place})
        return {place} if not keys and isinstance(place, str) else keys

    def _keys_by(self, binding: BindingDefinition, seen: frozenset[Destination]) -> set[Keys]:
        exchange = self._exchange(binding.source)
        if exchange is None:
            return {KeyKnowledge.UNKNOWN}
        if exchange.type == "direct" or (exchange.type == "topic" and not _has_wildcard(binding)):
            return {binding.routing_key}
        if hashes_keys(exchange):
            return {KeyKnowledge.MANY}
        if exchange.internal and exchange.type == "fanout":
            return self.keys_at(exchange.ref, seen)
        return {KeyKnowledge.UNKNOWN}

    def _filter_at(self, place: Destination, seen: frozenset[str]) -> ExchangeDefinition | None:
        """Return an exchange at which some messages end, or leave for an alternate exchange; None if all reach a queue by bindings."""
        exchange = self._exchange(place.name) if isinstance(place, ExchangeRef) else None
        if exchange is None or exchange.name in seen or exchange.name in self._live.sources_left_out:
            return None
        visited = seen | {exchange.name}
        if exchange.type in _FILTERING and not self._to_all.get(exchange.name):
            return exchange if self._bound.get(exchange.name) else None
        if exchange.type in (*_FILTERING, "fanout"):  # each of these bindings gets every message
            ends = [self._filter_at(end, visited) for end in self._to_all.get(exchange.name, ())]
            return None if None in ends else next(iter(ends), None)
        ends = [self._filter_at(end, visited) for end in self._bound.get(exchange.name, ())]
        return next(filter(None, ends), None)

    def _exchange(self, name: str) -> ExchangeDefinition | None:
        # No list shows the broker's own exchanges.
        if name not in self._exchanges and name.startswith(BROKERS_OWN):
            return ExchangeDefinition(name, BROKERS_EXCHANGES.get(name, "topic"))
        return self._exchanges.get(name)

    def _nowhere_of_ring(self, exchange: ExchangeDefinition, ring: HashRing, seen: frozenset[str]) -> Nowhere:
        """Return for each of the 2^21 seeds whether it reaches no queue; False if all do, which most rings show at once."""
        import numpy as np

        hashed, visited = _find_hashed(exchange), seen | {exchange.name}
        ends = [self._nowhere(place, hashed, visited) for place in ring.destinations]
        if ring.bucket_count and None not in ring.buckets and all(end is False for end in ends):
            return False
        # -1, a hole, is the last place.
        ends.append(self._nowhere_without_destination(exchange, hashed, visited))
        index = ring.indices_of_all_seeds()
        seeds: NDArray[np.bool_] = np.array([end is True for end in ends])[index]
        for number, end in enumerate(ends):
            if not isinstance(end, bool):
                seeds |= end & (index == (number if number < len(ring.destinations) else -1))
        return seeds

    def _nowhere(self, place: Destination, hashed: HashedOn | None, seen: frozenset[str]) -> Nowhere:
        if not isinstance(place, ExchangeRef):
            return place not in self._queues
        exchange = self._exchange(place.name)
        if exchange is None or place.name in seen:  # a broker visits no exchange twice
            return True
        return self._nowhere_after(exchange, hashed, seen)

    def _nowhere_after(
        self, exchange: ExchangeDefinition, hashed: HashedOn | None, seen: frozenset[str]
    ) -> Nowhere:
        import numpy as np

        ring = self._live.rings.get(exchange.name)
        if exchange.type == HASH_EXCHANGE and ring is not None:
            if hashed is not None and _find_hashed(exchange) == hashed:
                return self._nowhere_of_ring(exchange, ring, seen)
            # An exchange that hashes something else has other seeds: only a result for all of them is certain.
            return bool(np.all(self._nowhere_of_ring(exchange, ring, seen)))
        if exchange.name in self._live.sources_left_out:
            return False
        visited = seen | {exchange.name}
        bound = self._bound.get(exchange.name, ())
        passes_few = exchange.type == "direct" and hashed is not None and hashed.kind == "routing-key"
        ends = [] if passes_few else [self._nowhere(place, hashed, visited) for place in bound]
        if passes_few or not bound or exchange.type != "fanout":
            ends.append(self._nowhere_without_destination(exchange, hashed, visited))
        return _all_of(ends)

    def _nowhere_without_destination(
        self, exchange: ExchangeDefinition, hashed: HashedOn | None, seen: frozenset[str]
    ) -> Nowhere:
        name = self.alternate_of(exchange)
        return True if not name else self._nowhere(ExchangeRef(name), hashed, seen)


def _passes_all(type_: str, binding: BindingDefinition) -> bool:
    """Return True if a binding of an exchange of this type gets every message."""
    if type_ == "topic":
        return set(binding.routing_key.split(".")) == {"#"}
    if type_ == "headers":
        match = binding.arguments.get("x-match", "all")
        counted = [name for name in binding.arguments if match == "all-with-x" or not name.startswith("x-")]
        return match in ("all", "all-with-x") and not [name for name in counted if name != "x-match"]
    return type_ != "direct"


def _bindings_of_members(live: LiveTopology) -> Iterator[BindingDefinition]:
    for exchange in live.exchanges:
        for member in exchange.ring or exchange.members or ():
            yield BindingDefinition(exchange.name, member.destination, member.key)


def _passes(type_: str, binding: BindingDefinition, keys: Keys) -> bool | None:
    """Return True if an exchange of this type passes messages with these keys on by a binding, None if it may."""
    if type_ in ("direct", "topic") and isinstance(keys, str):
        return _matches(binding.routing_key, keys) if type_ == "topic" else binding.routing_key == keys
    if type_ == "direct" or (type_ == "topic" and not _has_wildcard(binding)):
        return False if keys is KeyKnowledge.MANY else None
    return True if type_ in ("fanout", "topic", "headers") and _passes_all(type_, binding) else None


def _has_wildcard(binding: BindingDefinition) -> bool:
    return not {"*", "#"}.isdisjoint(binding.routing_key.split("."))


def _matches(pattern: str, key: str) -> bool:
    """Return True if the binding key of a topic exchange matches a routing key: ``*`` is a word, ``#`` any number of words."""
    words = pattern.split(".") if pattern else []
    rest = {0}  # the numbers of words of the pattern that may be matched so far
    for word in [*(key.split(".") if key else ()), None]:
        for number, expected in enumerate(words):
            if number in rest and expected == "#":
                rest.add(number + 1)
        if word is None:
            return len(words) in rest
        rest = {
            number + (words[number] != "#")
            for number in rest
            if number < len(words) and words[number] in ("#", "*", word)
        }
    return False


def hashes_keys(exchange: ExchangeDefinition) -> bool:
    """Return True if an exchange hashes the routing key."""
    hashed = _find_hashed(exchange) if exchange.type == HASH_EXCHANGE else None
    return exchange.type == MODULUS_EXCHANGE or (hashed is not None and hashed.kind == "routing-key")


def _find_hashed(exchange: ExchangeDefinition) -> HashedOn | None:
    named = {name: value for name, value in exchange.arguments.items() if name.startswith("hash-")}
    try:
        return HashedOn.from_arguments(
            {name: value for name, value in named.items() if isinstance(value, str)}
        )
    except InputError:
        return None


def _all_of(ends: Iterable[Nowhere]) -> Nowhere:
    result: Nowhere = True
    for end in ends:
        if end is False or result is False:
            return False
        result = end if result is True else result if end is True else result & end
    return result


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
