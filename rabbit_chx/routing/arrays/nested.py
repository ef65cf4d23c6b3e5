"""The flows between two maps of exchanges that hash one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from rabbit_chx.routing.arrays.keys import UInt32s
from rabbit_chx.routing.bindings import ExchangeRef, Place
from rabbit_chx.routing.message import HashedOn

#: A hash and the value that it is of. Two of them are independent.
_Hash: TypeAlias = tuple[str, HashedOn]
#: The values of some hashes that messages have; of others, any.
_Values: TypeAlias = Mapping[_Hash, UInt32s]


#: A `NestedMap`, whose module calls this one.
Node: TypeAlias = Any


def nested_flows(before: Node, after: Node) -> dict[tuple[Place, Place], float]:
    """Return the share of the messages of each pair of ends of two maps, only those above 0; nothing if no message comes."""
    return _Spread(before, after).flows(before, after)


class _Spread:
    """Divides the values of hashes between the ends of maps."""

    def __init__(self, *maps: Node) -> None:
        counts: dict[_Hash, list[int]] = {}
        hashings = {}
        for node in (node for each in maps for node in _all_nodes(each)):
            hashings[_hash_of(node)] = node.hashing
            counts.setdefault(_hash_of(node), []).append(node.bucket_count or 1)
        #: The values of each hash that the maps tell apart, and the number of all.
        self._all = {name: hashing.values(counts[name]) for name, hashing in hashings.items()}

    def flows(self, before: Node, after: Node) -> dict[tuple[Place, Place], float]:
        total, amounts = 0.0, dict[tuple[Place, Place], float]()
        for start in self._arriving(before):
            total += self._measure(start)
            for source, reached in self._ends(before, start):
                for target, both in self._ends(after, reached):
                    amounts[source, target] = amounts.get((source, target), 0.0) + self._measure(both)
        return {pair: amount / total for pair, amount in amounts.items()}

    def _arriving(self, node: Node) -> list[_Values]:
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

    def _ends(self, node: Node, reached: _Values) -> Iterator[tuple[Place, _Values]]:
        """Yield the ends of messages, each with the values of those that reach it."""
        if not node.bucket_count:
            yield None, reached
            return
        name = _hash_of(node)
        values = reached.get(name, self._all[name][0])
        places = (*node.outer.destinations, None)
        table = np.frombuffer(node.index_of_bucket, np.int32).astype(np.min_scalar_type(-len(places)))
        index = table[node.hashing.buckets_of(values, node.bucket_count)]
        order = index.argsort(kind="stable")
        index = index[order]
        starts = np.flatnonzero(np.diff(index, prepend=-2))
        for number, part in zip(index[starts].tolist(), np.split(values[order], starts[1:]), strict=False):
            place, then = places[number], {**reached, name: part}
            hop = node.behind.get(place) if isinstance(place, ExchangeRef) else None
            if hop is None:
                yield place, then
            else:
                yield from self._ends(hop, then)

    def _measure(self, values: _Values) -> float:
        """Return the share of the messages that have these values."""
        share = 1.0
        for name, part in values.items():
            different, every = self._all[name]
            whole, rest = divmod(every, len(different))
            share *= (whole * len(part) + int(np.count_nonzero(part < rest))) / every
        return share


def _hash_of(node: Node) -> _Hash:
    return node.hashing.name, node.hashed_on


def _all_nodes(node: Node) -> Iterator[Node]:
    yield node
    yield from node.nodes()
    for source in node.sources:
        yield from _all_nodes(source)
