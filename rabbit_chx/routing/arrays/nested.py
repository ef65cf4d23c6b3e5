"""The flows between two maps of exchanges that hash one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rabbit_chx.routing.arrays.keys import UInt32s
from rabbit_chx.routing.bindings import Destination, ExchangeRef, Place
from rabbit_chx.routing.message import HashedOn

if TYPE_CHECKING:
    from array import array

    from numpy.typing import NDArray

#: A hash and the value that it is of. Two of them are independent.
HashOf: TypeAlias = tuple[str, HashedOn]
#: The values of some hashes that messages have; of others, any.
_Values: TypeAlias = Mapping[HashOf, UInt32s]


class HashNode(NamedTuple):
    """An exchange that hashes, with those behind it and before it.

    Attributes:
        ref: the exchange.
        hash: its hash.
        destinations: its destinations.
        index_of_bucket: the index of each bucket into them; -1 for none.
        buckets: the number of its buckets without holes.
        behind: the exchanges among its destinations that hash, too.
        sources: the exchanges from which all its messages come; empty if any message may come.
        values: returns the values of its hash that numbers of buckets tell apart, and how many the hash has.
        buckets_of: returns the bucket of each value, of a number of buckets.
    """

    ref: ExchangeRef
    hash: HashOf
    destinations: Sequence[Destination]
    index_of_bucket: array[int]
    buckets: int
    behind: Mapping[ExchangeRef, HashNode]
    sources: Sequence[HashNode]
    values: Callable[[Iterable[int]], tuple[UInt32s, int]]
    buckets_of: Callable[[UInt32s, int], NDArray[np.unsignedinteger[Any]]]

    def all_nodes(self) -> Iterator[HashNode]:
        """Yield the exchange, and those behind it and before it."""
        yield self
        for node in (*self.behind.values(), *self.sources):
            yield from node.all_nodes()


def nested_flows(before: HashNode, after: HashNode) -> dict[tuple[Place, Place], float]:
    """Return the share of the messages of each pair of ends of two maps, only those above 0; nothing if no message comes."""
    return _Spread(before, after).flows(before, after)


class _Spread:
    """Divides the values of hashes between the ends of maps."""

    def __init__(self, *maps: HashNode) -> None:
        counts: dict[HashOf, list[int]] = {}
        nodes = [node for each in maps for node in each.all_nodes()]
        for node in nodes:
            counts.setdefault(node.hash, []).append(node.buckets or 1)
        #: The values of each hash that the maps tell apart, and the number of all.
        self._all = {
            name: values(counts[name]) for name, values in {node.hash: node.values for node in nodes}.items()
        }

    def flows(self, before: HashNode, after: HashNode) -> dict[tuple[Place, Place], float]:
        total, amounts = 0.0, dict[tuple[Place, Place], float]()
        for start in self._arriving(before):
            total += self._measure(start)
            for source, reached in self._ends(before, start):
                for target, both in self._ends(after, reached):
                    amounts[source, target] = amounts.get((source, target), 0.0) + self._measure(both)
        return {pair: amount / total for pair, amount in amounts.items()}

    def _arriving(self, node: HashNode) -> list[_Values]:
        """Return the values with which messages come to an exchange, by source."""
        if not node.sources:
            return [{}]
        return [
            values
            for source in node.sources
            for start in self._arriving(source)
            for place, values in self._ends(source, start)
            if place == node.ref
        ]

    def _ends(self, node: HashNode, reached: _Values) -> Iterator[tuple[Place, _Values]]:
        """Yield the ends of messages, each with the values of those that reach it."""
        if not node.buckets:
            yield None, reached
            return
        values = reached.get(node.hash, self._all[node.hash][0])
        places = (*node.destinations, None)
        table = np.frombuffer(node.index_of_bucket, np.int32).astype(np.min_scalar_type(-len(places)))
        index = table[node.buckets_of(values, node.buckets)]
        order = index.argsort(kind="stable")
        index = index[order]
        starts = np.flatnonzero(np.diff(index, prepend=-2))
        for number, part in zip(index[starts].tolist(), np.split(values[order], starts[1:]), strict=False):
            place, then = places[number], {**reached, node.hash: part}
            hop = node.behind.get(place) if isinstance(place, ExchangeRef) else None
            if hop is None:
                yield place, then
            else:
                yield from self._ends(hop, then)

    def _measure(self, values: _Values) -> float:
        """Return the part of all messages that have these values."""
        part = 1.0
        for name, some in values.items():
            different, every = self._all[name]
            whole, rest = divmod(every, len(different))
            part *= (whole * len(some) + int(np.count_nonzero(some < rest))) / every
        return part
