"""Routing by a hash modulo the number of destinations: ``x-modulus-hash`` exchanges and super streams."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rabbit_chx.analysis.matrix import MovementMatrix, matrix_of, movement_matrix
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release, SuperStream
from rabbit_chx.routing.bindings import Place, ascending_bindings
from rabbit_chx.routing.ring_changes import Provenance
from rabbit_chx.routing.slot_table import KeyMap, check_key_map

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ModuloKind: TypeAlias = Literal["x-modulus-hash", "super-stream"]
StreamClient: TypeAlias = Literal["java", "rstream"]

_PHASH2 = 1 << 27
#: The client for Python has 128 bits. With 128 bits every share is the ideal share, to all digits of a float.
_MURMUR = {"java": 1 << 32, "rstream": 1 << 128}
#: Up to this number of pairs, all flows of a movement are computed at once.
_FEW = 1 << 14


@dataclass(frozen=True, slots=True)
class ModuloMap:
    """An ``x-modulus-hash`` exchange, or a super stream. A value.

    Attributes:
        name: the exchange's name.
        kind: ``x-modulus-hash`` or ``super-stream``.
        bindings: ``(destination, binding key)`` pairs; for a super stream in the order of its partitions.
        release: the release whose rules apply; None for the newest. The partition of a super stream is chosen by the client.
        client: the client that publishes to a super stream: ``java``, which hashes as those for .NET and Go do, or ``rstream``.
        provenance: the origin of the bindings; it does not count in comparisons.
    """

    name: str
    kind: ModuloKind
    bindings: tuple[tuple[Destination, str], ...]
    release: Release | None = None
    client: StreamClient = "java"
    provenance: Provenance = field(default="replayed", compare=False)

    @classmethod
    def of(cls, exchange: ModulusHashExchange) -> ModuloMap:
        """Return the map of an ``x-modulus-hash`` exchange. Keys that ascend keep the order under the rules of each release."""
        bindings = ascending_bindings(exchange.destinations)
        return cls(
            exchange.name, "x-modulus-hash", bindings, exchange.release, provenance=exchange.provenance
        )

    @property
    def mirror(self) -> ModulusHashExchange | SuperStream:
        """What routes."""
        if self.kind == "x-modulus-hash":
            return ModulusHashExchange(self.name, self.bindings, self.release, self.provenance)
        streams = [place for place, _ in self.bindings]
        if exchanges := [place.name for place in streams if isinstance(place, ExchangeRef)]:
            raise InputError(
                f"a partition of a super stream is a stream, and {exchanges[0]!r} is an exchange"
            )
        return SuperStream(map(str, streams), [key for _, key in self.bindings])

    @property
    def numbered(self) -> tuple[Destination, ...]:
        """The destination of each number, from 0."""
        mirror = self.mirror
        return mirror.destinations if isinstance(mirror, ModulusHashExchange) else mirror.partitions

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The destinations, each once."""
        return tuple(dict.fromkeys(self.numbered))

    @property
    def hashes(self) -> int:
        """How many values the hash has."""
        return _PHASH2 if self.kind == "x-modulus-hash" else _MURMUR[self.client]

    def shares(self) -> dict[Place, float]:
        """Return the exact share of the hashes of each destination; nothing without bindings."""
        numbered, shares = self.numbered, Counter[Any]()
        whole, rest = divmod(self.hashes, len(numbered)) if numbered else (0, 0)
        for number, place in enumerate(numbered):
            shares[place] += whole + (number < rest)
        return {place: count / self.hashes for place, count in shares.items()}

    def route_all(self, messages: Sequence[Mapping[str, Any]]) -> list[Place]:
        """Return the destination of each message; None if nothing is bound.

        Args:
            messages: the arguments of `ModulusHashExchange.route`; for a super stream a ``routing_key``, and no more.
        """
        mirror = self.mirror
        if isinstance(mirror, ModulusHashExchange):
            return [mirror.route(**message) for message in messages]
        if any(message.keys() != {"routing_key"} for message in messages):
            raise InputError(
                f"the client hashes the routing key alone for the super stream {self.name!r}: leave the rest out"
            )
        return [mirror.partition_for(message["routing_key"], self.client) for message in messages]

    def bind(self, destination: Destination, key: str) -> ModuloMap:
        """Return the map with one binding more; a super stream gets a partition at its end.

        Args:
            destination: the bound destination.
            key: the binding key.
        """
        return replace(self, bindings=(*self.bindings, (destination, key)), provenance="replayed")

    def unbind(self, destination: Destination, key: str | None = None) -> ModuloMap:
        """Return the map without the bindings of a destination.

        Args:
            destination: the unbound destination.
            key: the binding key; None for all.
        """
        remaining = tuple(
            (place, bound)
            for place, bound in self.bindings
            if place != destination or key not in (None, bound)
        )
        if len(remaining) == len(self.bindings):
            which = f"{destination!s}" if key is None else f"{destination!s} with the key {key!r}"
            raise InputError(f"{which} is not bound to {self.name}: give one that is")
        return replace(self, bindings=remaining, provenance="replayed")


def check_comparable(before: KeyMap | ModuloMap, after: KeyMap | ModuloMap) -> None:
    """Raise an error unless a key has the same hash in both, and a known place.

    Args:
        before: the map before the change.
        after: the map after it.
    """
    if isinstance(before, KeyMap) or isinstance(after, KeyMap):
        check_key_map(before, after)
        return
    if before.kind != after.kind:
        raise InputError(
            f"{before.name!r} is of type {before.kind} and {after.name!r} of type {after.kind}, which hash otherwise: give two of one type"
        )
    if before.kind == "super-stream" and before.client != after.client:
        raise InputError(f"the clients {before.client} and {after.client} hash otherwise: give one for both")
    for exchange in (before, after):
        exchange.route_all([{"routing_key": ""}])


def movement(before: KeyMap | ModuloMap, after: KeyMap | ModuloMap) -> MovementMatrix:
    """Return the exact movement between two rings or two exchanges. For rings it is that of `movement_matrix`.

    Args:
        before: the map before the change.
        after: the map after it, of the same kind.

    Returns:
        Shares of all seeds, or of all hashes. Without bindings all of them are in the place None.

    Raises:
        InputError: the two are of two kinds.
    """
    check_comparable(before, after)
    if isinstance(before, KeyMap) and isinstance(after, KeyMap):
        return movement_matrix(before, after)
    assert isinstance(before, ModuloMap)
    assert isinstance(after, ModuloMap)
    flows = ModuloFlows(before.numbered, after.numbered, before.hashes)
    if flows.pairs_of_numbers <= _FEW:
        return matrix_of(dict(flows), before, after)
    return _LargeMovement(before.destinations or (None,), after.destinations or (None,), flows)


class ModuloFlows(Mapping[tuple[Place, Place], float]):
    """The share of the hashes of each pair of destinations before and after, of two sequences of numbered destinations.

    A hash h has the number h modulo the length of each sequence. Shares are computed when they are read, because two sequences without a
    common divisor have a flow for each pair. Without numbers all hashes are in the place None.

    Args:
        before: the destination of each number before the change.
        after: the same after it.
        hashes: how many values the hash has.
    """

    def __init__(self, before: Sequence[Place], after: Sequence[Place], hashes: int) -> None:
        self._sides = before, after = tuple(before) or (None,), tuple(after) or (None,)
        sizes = len(before), len(after)
        self._hashes, self._common, self._period = hashes, math.gcd(*sizes), math.lcm(*sizes)
        self._inverse = pow(sizes[0] // self._common, -1, sizes[1] // self._common)
        self._numbers: tuple[dict[Place, list[int]], ...] = ({}, {})
        for side, numbers in zip(self._sides, self._numbers, strict=True):
            for number, place in enumerate(side):
                numbers.setdefault(place, []).append(number)
        self._targets = tuple(self._numbers[1])
        #: How many pairs of numbers have a hash.
        self.pairs_of_numbers = min(self._period, hashes)
        self._is_one_to_one = all(
            len(side) == len(numbers) for side, numbers in zip(self._sides, self._numbers, strict=True)
        )

    def _count(self, source: Place, target: Place) -> int:
        """Return the number of hashes of a pair of destinations."""
        by_rest: dict[int, list[int]] = {}
        for new in self._numbers[1].get(target, ()):
            by_rest.setdefault(new % self._common, []).append(new)
        size, other = map(len, self._sides)
        count = 0
        for old in self._numbers[0].get(source, ()):
            for new in by_rest.get(old % self._common, ()):
                # The first hash with these two remainders, by the Chinese remainder theorem.
                first = old + size * ((new - old) // self._common * self._inverse % (other // self._common))
                count += max((self._hashes - first + self._period - 1) // self._period, 0)
        return count

    def __getitem__(self, pair: tuple[Place, Place]) -> float:
        if count := self._count(*pair):
            return count / self._hashes
        raise KeyError(pair)

    def __iter__(self) -> Iterator[tuple[Place, Place]]:
        for source in self._numbers[0]:
            for target in self._row(source).nonzero()[0].tolist():
                yield source, self._targets[target]

    def __len__(self) -> int:
        if self._is_one_to_one:
            return self.pairs_of_numbers
        return sum(len(self._row(source).nonzero()[0]) for source in self._numbers[0])

    @property
    def staying(self) -> float:
        """The share of the hashes that keep their destination."""
        return sum(self._count(place, place) for place in self._numbers[0]) / self._hashes

    def totals(self, side: int) -> dict[Place, float]:
        """Return the share of the hashes of each destination, before (0) or after (1)."""
        whole, rest = divmod(self._hashes, len(self._sides[side]))
        return {
            place: sum(whole + (number < rest) for number in numbers) / self._hashes
            for place, numbers in self._numbers[side].items()
        }

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        """Return the largest flows to another destination, with their shares, the largest first."""
        if self._is_one_to_one:
            # The pairs of the first hashes have one hash more than the others.
            pairs = ((h % len(self._sides[0]), h % len(self._sides[1])) for h in range(self.pairs_of_numbers))
            places = ((self._sides[0][old], self._sides[1][new]) for old, new in pairs)
            different = islice(((source, to) for source, to in places if source != to), most)
            return [(source, to, self[source, to]) for source, to in different]
        largest: list[tuple[Place, Place, float]] = []
        indices = {place: n for n, place in enumerate(self._targets)}
        for source in self._numbers[0]:
            row = self._row(source)
            if source in indices:
                row[indices[source]] = 0
            if largest and len(largest) == most and row.max() <= largest[-1][2]:
                continue
            first = (-row).argsort(kind="stable")[:most].tolist()
            moves = [(source, self._targets[index], float(row[index])) for index in first if row[index]]
            largest = heapq.nlargest(most, [*largest, *moves], key=itemgetter(2))
        return [(source, to, self[source, to]) for source, to, _ in largest]

    def _row(self, source: Place) -> NDArray[np.float64]:
        """Return the number of hashes of a destination by their destination after the change, in the order of `_targets`."""
        import numpy as np

        size, other = map(len, self._sides)
        whole, rest = divmod(self._hashes, self._period)
        row = np.zeros(len(self._targets))
        for old in self._numbers[0][source]:
            first = np.arange(old, self.pairs_of_numbers, size)
            targets = self._column[first % other]
            row += np.bincount(targets, float(whole) + (first < rest), len(row))
        return row

    @cached_property
    def _column(self) -> NDArray[np.int64]:
        """The index in `_targets` of each number after the change."""
        import numpy as np

        indices = {place: n for n, place in enumerate(self._targets)}
        return np.array([indices[place] for place in self._sides[1]])


class _LargeMovement(MovementMatrix):
    """The movement between two exchanges with many flows, which are not held in memory."""

    amounts: ModuloFlows

    @property
    def moved(self) -> float:
        return 1 - self.amounts.staying

    @property
    def move_count(self) -> int:
        return len(self.amounts) - sum((place, place) in self.amounts for place in self.before)

    def before_totals(self) -> dict[Place, float]:
        return self.amounts.totals(0)

    def after_totals(self) -> dict[Place, float]:
        return self.amounts.totals(1)

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        return self.amounts.largest_moves(most)
