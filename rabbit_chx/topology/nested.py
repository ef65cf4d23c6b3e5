"""Exchanges that hash behind one another: the maps from their keys to queues, and the queues that get none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.grouping import grouped
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.nested_map import NestedMap
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    ExchangeDefinition,
    ObjectSet,
    list_onward,
)
from rabbit_chx.topology.rules.policies import policy_matches
from rabbit_chx.words import listed

#: Returns the map of an exchange by itself; None if its members are not known.
MapOf: TypeAlias = Callable[[str], KeyMap | None]
#: The settings of policies by which an exchange gets the messages of another broker.
_FEDERATED = ("federation-upstream", "federation-upstream-set")
#: What an exchange passes on that a message has passed before: a broker visits no exchange twice.
_VISITED = HashRing((), NEWEST_COMPARED, Ground("replayed"))


class Starved(NamedTuple):
    """A queue that gets no key of an exchange, although it has buckets there.

    Attributes:
        exchange: the exchange, which is behind `sources`.
        queue: the queue.
        sources: the exchanges from which all messages of the exchange come.
    """

    exchange: str
    queue: str
    sources: tuple[str, ...]

    @property
    def message(self) -> str:
        """What is wrong, as a sentence."""
        return (
            f"{self.queue} gets no key of {self.exchange}: {listed(self.sources)} and {self.exchange} hash the same value, so the keys that "
            f"reach {self.exchange} have only some of its buckets"
        )

    @property
    def fix(self) -> str:
        """The remedy."""
        return (
            f"let {self.exchange} hash another value, by hash-header or hash-property, or bind its queues to {listed(self.sources)} "
            f"itself; if messages are published to {self.exchange} directly, ignore this"
        )


def unfollowed_text(names: Sequence[str]) -> str:
    """Return what `Nesting.unfollowed` returns, with what it means."""
    return f"keys through {listed(names)}: shares of queues behind do not count them, and queues without a key are not found"


class Nesting:
    """The exchanges of a topology that hash, with their links.

    Args:
        objects: the objects; bindings of ``x-consistent-hash`` exchanges may be in `bindings` or in `ring`.
        map_of: returns the map of an exchange by itself.
    """

    def __init__(self, objects: ObjectSet, map_of: MapOf) -> None:
        self._objects, self._map_of = objects, map_of
        self._hashing = {
            exchange.ref: arguments
            for exchange in objects.exchanges
            if exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE)
            and (arguments := _hash_arguments(exchange)) is not None
        }
        self._into: dict[ExchangeRef, dict[str, None]] = {}
        #: The sources of the exchanges that do not hash, through which keys are not followed.
        self._others: dict[ExchangeRef, dict[str, None]] = {}
        if not self._hashing:
            return
        for exchange in objects.exchanges:
            self._link(exchange.name, (member.destination for member in exchange.ring or ()))
        for binding in objects.bindings:
            self._link(binding.source, (binding.destination,))

    def _link(self, source: str, places: Iterable[object]) -> None:
        for place in places:
            if isinstance(place, ExchangeRef):
                links = self._into if place in self._hashing else self._others
                links.setdefault(place, {})[source] = None

    def related(self, name: str) -> list[str]:
        """Return the exchanges that hash and are linked to one, behind it or before it."""
        found, waiting = {name: None}, [name]
        while waiting:
            known = waiting.pop()
            linked = [
                source
                for source in self._into.get(ExchangeRef(known), ())
                if ExchangeRef(source) in self._hashing
            ]
            linked += [ref.name for ref, sources in self._into.items() if known in sources]
            waiting += [each for each in linked if each not in found]
            found |= dict.fromkeys(linked)
        return list(found)

    def unfollowed(self, names: Iterable[str]) -> list[str]:
        """Return the exchanges that do not hash, but pass keys on: between some exchanges and others that hash, or behind another one."""
        hashing, found = {ref.name for ref in self._hashing}, {*names}

        def passes(link: str, ends: Mapping[str, Collection[str]]) -> set[str]:
            """Return the exchanges that hash at one side of another one, through others that do not."""
            seen, waiting = {link}, [link]
            while waiting:
                new = {*ends.get(waiting.pop(), ())} - seen
                seen |= new
                waiting += new - hashing
            return seen & hashing

        into = {ref.name: sources for ref, sources in (*self._into.items(), *self._others.items())}
        onward = grouped((source, name) for name, sources in into.items() for source in sources)
        both = {ref.name: (passes(ref.name, into), passes(ref.name, onward)) for ref in self._others}
        return [
            name
            for name, (before, behind) in both.items()
            if before and (behind or into[name].keys() - hashing) and found & (before | behind)
        ]

    def follow(self, name: str, own: KeyMap) -> KeyMap:
        """Return the map of an exchange to the queues; its own map if no exchange that hashes is behind it or before it."""
        ref = ExchangeRef(name)
        if ref not in self._hashing:
            return own
        # If the order of a source is not known, the keys that come are not, and the map is assumed.
        behind, sources = self._behind(own, frozenset({ref})), self._sources(ref)
        return NestedMap(ref, own, self._hashing[ref], behind, sources) if behind or sources else own

    def starved(self, names: Iterable[str]) -> Iterator[Starved]:
        """Yield the queues of exchanges, and of those behind them, that certainly get no key."""
        waiting, seen = list(names) if self._into else [], set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            waiting += [ref.name for ref, sources in self._into.items() if name in sources]
            own = self._map_of(name) if ExchangeRef(name) in self._hashing else None
            reached = None if own is None else self._reached(name, own)
            if own is None or reached is None:
                continue
            got, sources = reached.shares(), tuple(source.name for source in reached.sources)
            exchanges = {name, *(slot.name for slot in own.slots or ())}
            for queue, share in own.shares().items():
                if (
                    isinstance(queue, str)
                    and share
                    and not got.get(queue)
                    and self._sources_of(queue) <= exchanges
                ):
                    yield Starved(name, queue, sources)

    def _reached(self, name: str, own: KeyMap) -> NestedMap | None:
        """Return the map of an exchange by itself, for the keys that reach it; None if these are not known."""
        ref = ExchangeRef(name)
        sources = self._sources(ref)
        reached = NestedMap(ref, own, self._hashing[ref], None, sources)
        has_any = any(source.outer.shares().get(ref) for source in sources)
        return reached if has_any and reached.ground.is_known else None

    def _sources_of(self, queue: str) -> set[str]:
        """Return the exchanges to which a queue is bound."""
        objects = self._objects
        rings = {
            one.name for one in objects.exchanges if any(end.destination == queue for end in one.ring or ())
        }
        return rings | {binding.source for binding in objects.bindings if binding.destination == queue}

    def _behind(self, own: KeyMap, seen: frozenset[ExchangeRef]) -> Mapping[ExchangeRef, NestedMap]:
        found = {}
        for place in own.destinations:
            if isinstance(place, ExchangeRef) and place in self._hashing:
                map_ = _VISITED if place in seen else self._map_of(place.name)
                if map_ is not None:
                    behind = self._behind(map_, seen | {place})
                    found[place] = NestedMap(place, map_, self._hashing[place], behind)
        return found

    def _sources(self, ref: ExchangeRef) -> Sequence[NestedMap]:
        """Return the maps of the exchanges from which all messages of one come; none if others may come."""
        refs = [ExchangeRef(source) for source in self._into.get(ref, ())]
        if (
            not refs
            or not {*refs} <= self._hashing.keys()
            or self._has_others(ref)
            or ref in self._before(ref)
        ):
            return ()
        maps = {each: self._map_of(each.name) for each in refs}
        return [
            NestedMap(each, own, self._hashing[each], None, self._sources(each))
            for each, own in maps.items()
            if own is not None and None not in maps.values()
        ]

    def _before(self, ref: ExchangeRef) -> set[ExchangeRef]:
        """Return all exchanges before one; it is among them in a cycle, into which a message may come anywhere."""
        found: set[ExchangeRef] = set()
        waiting = [ref]
        while waiting:
            sources = {ExchangeRef(source) for source in self._into.get(waiting.pop(), ())} - found
            found |= sources
            waiting += sources
        return found

    def _has_others(self, ref: ExchangeRef) -> bool:
        """Return True if messages may reach an exchange that is an alternate or dead-letter exchange, or is federated."""
        return ref in self._onward or any(
            policy_matches(policy, ref) is not False and any(name in policy.definition for name in _FEDERATED)
            for policy in self._objects.policies
        )

    @cached_property
    def _onward(self) -> frozenset[ExchangeRef]:
        """The exchanges to which arguments or policies send messages on."""
        objects = self._objects
        tables = [
            *(exchange.arguments for exchange in objects.exchanges),
            *(queue.arguments for queue in objects.queues),
            *(policy.definition for policy in objects.policies),
        ]
        return frozenset(ref for table in tables for ref in list_onward(table))


def _hash_arguments(exchange: ExchangeDefinition) -> Mapping[str, str] | None:
    try:
        return exchange.hash_arguments if exchange.type == HASH_EXCHANGE else {}
    except InputError:  # of another type, which the broker refuses
        return None
