"""An exchange that hashes, with those behind it and before it: keys are followed to queues.

Exchanges that hash the same value of a message by the same hash are correlated: the keys that reach the second one are a part of all, and
may miss some of its queues. Values that differ, and the hashes of the two types, are independent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.routing.bindings import Binding, Destination, ExchangeRef, Place
from rabbit_chx.routing.exchange import ConsistentHashExchange, HashExchange
from rabbit_chx.routing.flows import Flows
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.key_map import KeyMap, set_fields
from rabbit_chx.routing.message import HashedOn
from rabbit_chx.routing.release import Release
from rabbit_chx.words import listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, init=False, repr=False)
class NestedMap(KeyMap):
    """The map of an exchange whose destinations, or whose sources, hash as well. It is a key map from keys to queues.

    A key has a destination as far as the value that it is determines it: an exchange that hashes another value is the destination of its
    keys. Shares count the keys that reach the exchange, and are always those of the queues.

    Attributes:
        ref: the exchange.
        outer: its map, without what is behind it.
        arguments: its arguments that determine the hashed value.
        behind: the maps of the exchanges among its destinations that hash, too.
        sources: the maps of the exchanges from which all its messages come; empty if any message may come.
        hashed_on: the value that it hashes.
    """

    ref: ExchangeRef
    outer: KeyMap = field()
    arguments: Mapping[str, str]
    behind: Mapping[ExchangeRef, NestedMap] = field()
    sources: tuple[NestedMap, ...] = field()
    hashed_on: HashedOn = field(init=False, compare=False)
    is_nested = True

    def __init__(
        self,
        ref: ExchangeRef,
        outer: KeyMap,
        arguments: Mapping[str, str],
        behind: Mapping[ExchangeRef, NestedMap] | None = None,
        sources: Iterable[NestedMap] = (),
    ) -> None:
        """Create the map; the arguments are the attributes of the class."""
        hashed_on, behind, sources = HashedOn.from_arguments(arguments), dict(behind or {}), tuple(sources)
        set_fields(self, ref=ref, outer=outer, arguments=arguments, behind=behind, sources=sources)
        ground = outer.ground
        if ground.is_known and (guesses := self.guesses):
            ground = Ground(None, f"the order of {listed(list(guesses))} is not known")
        ends: dict[Destination, None] = {}
        for place in outer.destinations:
            hop = behind.get(place) if isinstance(place, ExchangeRef) else None
            if hop is None or hop.hashed_on != hashed_on:
                ends[place] = None
            ends.update(dict.fromkeys(() if hop is None else hop.destinations))
        set_fields(
            self,
            buckets=outer.buckets,
            hashing=outer.hashing,
            ground=ground,
            slots=outer.slots,
            destinations=tuple(ends),
            bucket_count=outer.bucket_count,
            index_of_bucket=outer.index_of_bucket,
            hashed_on=hashed_on,
        )

    @property
    def name(self) -> str:
        """The name of the exchange."""
        return self.ref.name

    @property
    def release(self) -> Release | None:
        """The release of the broker."""
        return self.outer.release

    @property
    def bindings(self) -> tuple[Binding, ...] | None:
        """The bindings of the exchange itself."""
        return self.outer.bindings

    @property
    def beneath(self) -> KeyMap:
        """The map of the exchange as the broker has it."""
        return self.outer.beneath

    @property
    def guesses(self) -> Mapping[str, KeyMap]:
        """The assumed maps on the way of its keys, by the names of their exchanges."""
        own = {self.name: self.outer} if not self.outer.ground.is_known else {}
        return own | {
            name: guess
            for node in (*self.behind.values(), *self.sources)
            for name, guess in node.guesses.items()
        }

    @property
    def open_ends(self) -> Mapping[ExchangeRef, NestedMap]:
        """The maps of the exchanges behind it at which single keys end, because these hash another value."""
        nodes = (self, *self.nodes())
        return {
            ref: hop for node in nodes for ref, hop in node.behind.items() if hop.hashed_on != node.hashed_on
        }

    @property
    def members(self) -> KeyMap:
        """The map to the destinations of the bindings."""
        own = self.outer.beneath
        return NestedMap(self.ref, own, self.arguments, None, self.sources) if self.sources else own

    @property
    def direct(self) -> KeyMap:
        """The map of messages that are published to the exchange itself."""
        if not self.sources:
            return self
        return NestedMap(self.ref, self.outer, self.arguments, self.behind) if self.behind else self.outer

    @property
    def exchange(self) -> HashExchange:
        """The exchange, which routes whole messages to its own destinations."""
        if isinstance(self.outer, HashExchange):
            return self.outer
        return ConsistentHashExchange(self.name, self.outer, self.arguments)  # type: ignore[arg-type]

    @property
    def ends(self) -> tuple[Destination, ...]:
        """The queues, and the exchanges that do not hash."""
        passed = {hop.ref for node in (self, *self.nodes()) for hop in node.behind.values()}
        return tuple(place for place in self.destinations if place not in passed)

    def nodes(self) -> Iterator[NestedMap]:
        """Yield the maps behind this one."""
        for hop in self.behind.values():
            yield hop
            yield from hop.nodes()

    def queue_of(self, place: Place) -> Place:
        """Return the queue of a slot, None if it has none; any other destination is returned unchanged.

        Args:
            place: a destination of `beneath`, or None for a hole.
        """
        return self.outer.queue_of(place)

    def end_of(self, place: Place, message: Mapping[str, Any], *, is_whole: bool) -> Place:
        """Return where a message ends that the exchange sends to a place; the arguments are those of `KeyMap.end_of`."""
        hop = self._hop(place, is_whole=is_whole)
        if hop is None:
            return self.queue_of(place)
        return hop.end_of(hop.exchange.route(**message), message, is_whole=is_whole)

    def destination_for(self, key: str | bytes) -> Place:
        """Return where a key ends, as `KeyMap.destination_for` does.

        Args:
            key: the hashed value, as text or bytes.
        """
        place = self.outer.destination_for(key)
        hop = self._hop(place)
        if hop is None:
            return place
        return hop.destination_for(key) if hop.bucket_count else None

    def indices(self, keys: Any, *, fill_null: str | bytes | None = None) -> NDArray[np.int32]:
        """Return where each key ends, as an index into `destinations`; the arguments are those of `KeyMap.indices`."""
        import numpy as np

        numbers = {place: number for number, place in enumerate(self.destinations)}
        numbers |= {ref: -1 for ref in self.behind if ref not in numbers}
        passed = self.outer.indices(keys, fill_null=fill_null)
        found = np.array([*(numbers[place] for place in self.outer.destinations), -1], np.int32)[passed]
        for number, place in enumerate(self.outer.destinations):
            if (hop := self._hop(place)) is not None and hop.bucket_count:
                at = np.flatnonzero(passed == number)
                part = keys.take(at) if hasattr(keys, "take") else [keys[index] for index in at]
                then = np.array([*(numbers[end] for end in hop.destinations), -1], np.int32)
                found[at] = then[hop.indices(part, fill_null=fill_null)]
        return found

    def ideals(self) -> dict[Place, tuple[int, float]]:
        """Return the number of buckets of each end, and its share by the numbers of buckets on its way."""
        found: dict[Place, tuple[int, float]] = {}
        for place, (buckets, ideal) in self.outer.ideals().items():
            hop = self._hop(place, is_whole=True)
            ends = {place: (buckets, 1.0)} if hop is None else hop.ideals()
            for end, (own, part) in ends.items():
                known = found.get(end, (0, 0.0))
                found[end] = known[0] + own, known[1] + ideal * part
        return found

    def bind(self, destination: Destination, weight: int | str) -> NestedMap:
        """Return the map after a bind to the exchange itself; the arguments are those of `KeyMap.bind`."""
        return self._with_outer(self.outer.bind(destination, weight))

    def unbind(self, destination: Destination, weight: int | str | None = None) -> NestedMap:
        """Return the map after an unbind from the exchange itself; the arguments are those of `KeyMap.unbind`."""
        return self._with_outer(self.outer.unbind(destination, weight))

    def with_release(self, release: Release) -> NestedMap:
        """Return all maps under the rules of another release.

        Args:
            release: the release whose rules apply.
        """
        behind = {ref: hop.with_release(release) for ref, hop in self.behind.items()}
        sources = [source.with_release(release) for source in self.sources]
        return NestedMap(self.ref, self.outer.with_release(release), self.arguments, behind, sources)

    def to_json(self) -> str:
        """Return the map as JSON text on one line: that of `KeyMap.to_json` about the exchange itself, with the maps of the others.

        ::

            "nested": {
              "name": "orders",
              "arguments": {"hash-header": "tenant"},                    those that determine the hashed value
              "behind": [...],                                           the maps of the attribute, each as such a text
              "sources": [...]
            }
        """
        others = {"behind": self.behind.values(), "sources": self.sources}
        nested = {"name": self.name, "arguments": dict(self.arguments)} | {
            part: [json.loads(each.to_json()) for each in maps] for part, maps in others.items()
        }
        return json.dumps({**json.loads(self.outer.to_json()), "nested": nested})

    def facts(self) -> tuple[str, ...]:
        """Return what a report says about the exchange itself, with the doubt about the others."""
        own = self.outer.facts()
        return own if self.ground == self.outer.ground else (self.ground.text, *own[1:])

    def summary(self) -> dict[str, Any]:
        """Return the fields of the exchange itself in a JSON document, with the doubt about the others."""
        return {**self.outer.summary(), **KeyMap.summary(self)}

    def flows_between(self, before: KeyMap, after: KeyMap) -> Flows:
        """Return the flows of two maps, of which this is one; the arguments are those of `KeyMap.flows_between`."""
        from rabbit_chx.routing import arrays

        sides = [
            side if isinstance(side, NestedMap) else self._with_outer(side, {}) for side in (before, after)
        ]
        return Flows(sides[0].ends, sides[1].ends, arrays.nested_flows(*sides))

    @property
    def followed(self) -> Mapping[ExchangeRef, NestedMap]:
        """The maps of the exchanges among its destinations that hash the same value."""
        return {ref: hop for ref, hop in self.behind.items() if self._hop(ref) is not None}

    def _hop(self, place: Place, *, is_whole: bool = False) -> NestedMap | None:
        """Return the map behind a place that hashes the same value, or, of a whole message, any."""
        hop = self.behind.get(place) if isinstance(place, ExchangeRef) else None
        return hop if hop is None or is_whole or hop.hashed_on == self.hashed_on else None

    def _with_outer(self, outer: KeyMap, behind: Mapping[ExchangeRef, NestedMap] | None = None) -> NestedMap:
        hops = self.behind if behind is None else behind
        return NestedMap(self.ref, outer, self.arguments, hops, self.sources)
