"""Routing by a hash modulo the number of destinations: ``x-modulus-hash`` exchanges and super streams."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from rabbit_chx.analysis.matrix import MovementMatrix, matrix_of, movement_matrix
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release, SuperStream
from rabbit_chx.routing.bindings import Place, ascending_bindings
from rabbit_chx.routing.ring_changes import Provenance
from rabbit_chx.routing.slot_table import KeyMap, check_key_map

ModuloKind: TypeAlias = Literal["x-modulus-hash", "super-stream"]
StreamClient: TypeAlias = Literal["java", "rstream"]

_PHASH2 = 1 << 27
#: The client for Python has 128 bits. With 128 bits every share is the ideal share, to all digits of a float.
_MURMUR = {"java": 1 << 32, "rstream": 1 << 128}
_AT_ONCE = 1 << 20


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
    assert isinstance(before, ModuloMap)  # two that can be compared are of one kind
    assert isinstance(after, ModuloMap)
    import numpy as np

    places: list[tuple[Place, ...]] = [side.numbered or (None,) for side in (before, after)]
    names: list[dict[Place, int]] = [
        {place: n for n, place in enumerate(dict.fromkeys(side))} for side in places
    ]
    columns = [np.array([names[n][place] for place in side]) for n, side in enumerate(places)]
    sizes = [len(side) for side in places]
    period, hashes = math.lcm(*sizes), before.hashes
    whole, rest = divmod(hashes, period)
    amounts = np.zeros(len(names[0]) * len(names[1]))
    for start in range(0, min(period, hashes), _AT_ONCE):
        numbers = np.arange(start, min(start + _AT_ONCE, period, hashes))
        pairs = columns[0][numbers % sizes[0]] * len(names[1]) + columns[1][numbers % sizes[1]]
        weights = whole / hashes + (numbers < min(rest, 1 << 62)) / hashes
        amounts += np.bincount(pairs, weights, len(amounts))
    cells = amounts.reshape(len(names[0]), len(names[1]))
    return matrix_of(
        {
            (source, target): float(cells[row, column])
            for source, row in names[0].items()
            for target, column in names[1].items()
            if cells[row, column]
        },
        before,
        after,
    )
