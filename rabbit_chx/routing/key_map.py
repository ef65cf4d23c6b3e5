"""The protocol of values that map keys to destinations: rings, slot tables, ``x-modulus-hash`` exchanges and super streams.

Commands, plans, groups and Spark call its methods and do not test the type. A hash of a key is reduced to the number of a bucket, and each
bucket has a destination. A bucket is a bucket of a ring, a binding of an ``x-modulus-hash`` exchange, or a partition of a super stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import Destination, Place
from rabbit_chx.routing.ground import Ground, Provenance
from rabbit_chx.routing.release import Release

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The share of all hashes, 0 to 1, of each ``(from, to)``; pairs without a share are absent.
Flows: TypeAlias = Mapping[tuple[Place, Place], float]
KeyMapKind: TypeAlias = Literal["x-consistent-hash", "slots", "x-modulus-hash", "super-stream"]
#: The kinds whose keys are hashed to the 2^21 seeds of jump consistent hashing.
_OF_SEEDS: tuple[KeyMapKind, ...] = ("x-consistent-hash", "slots")


@runtime_checkable
class KeyMap(Protocol):
    """A value that maps keys to destinations.

    Two maps can be compared if they have the same `hashing`: a key has the same hash in both.
    """

    @property
    def kind(self) -> KeyMapKind:
        """The kind; ``slots`` is a ring of type ``x-consistent-hash`` with slots."""

    @property
    def hashing(self) -> str:
        """The name of the hash, such as ``x-modulus-hash`` or ``super-stream/java``."""

    @property
    def release(self) -> Release | None:
        """The release whose rules apply; None if the client chooses, as for a super stream."""

    @property
    def ground(self) -> Ground:
        """What is known about the map: its origin, and the doubt of a guess."""

    @property
    def provenance(self) -> Provenance:
        """The origin: ``read``, ``recorded``, ``observed``, ``replayed`` or ``assumed``."""

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The destinations of the indices that `indices` returns."""

    @property
    def buckets(self) -> tuple[Place, ...]:
        """The destination of each bucket; None at a hole."""

    @property
    def bucket_count(self) -> int:
        """The number of buckets without holes, to which a hash is reduced."""

    def destination_for(self, key: str | bytes) -> Place:
        """Return the destination of a routing key; None if it is a hole.

        Args:
            key: text (its UTF-8 bytes) or bytes.
        """

    def indices(self, keys: Iterable[Any]) -> NDArray[np.int32]:
        """Return the destination of each key as an index into `destinations`; -1 for a hole.

        Args:
            keys: a list of str or bytes; a NumPy array of them; a pyarrow Array or ChunkedArray of strings or binaries.
        """

    def shares(self) -> Mapping[Any, float]:
        """Return the exact share of the hashes of each destination, holes under None."""

    def share_moved(self, other: KeyMap) -> float:
        """Return the exact share of the hashes whose destination differs in another map. A map without buckets has the destination None.

        Args:
            other: the map to compare with.

        Raises:
            InputError: keys are hashed differently there, or are not hashed.
        """

    def flows(self, after: KeyMap) -> Flows:
        """Return the exact share of the hashes of each ``(destination here, destination there)``, only those above 0.

        Args:
            after: the map after a change.

        Raises:
            InputError: keys are hashed differently there, or are not hashed.
        """

    def with_release(self, release: Release) -> Self:
        """Return the map under the rules of another release.

        Args:
            release: the release whose rules apply.
        """

    def to_json(self) -> str:
        """Return the map as JSON text on one line."""

    def facts(self) -> tuple[str, ...]:
        """Return what a report says about the map: its origin, its rules, its size."""

    def summary(self) -> dict[str, Any]:
        """Return the fields of the map in a JSON document, as values."""


def check_key_map(*key_maps: object) -> None:
    """Raise an InputError unless each argument is a key map."""
    for key_map in key_maps:
        if not isinstance(key_map, KeyMap):
            raise InputError(
                f"{key_map!r:.60} is not a ring: pass a HashRing, a SlotTable, a ModulusHashExchange or a SuperStream"
            )


def check_comparable(before: KeyMap, after: KeyMap) -> None:
    """Raise an InputError unless a key has the same hash in both maps.

    Args:
        before: the map before the change.
        after: the map after it.
    """
    check_key_map(before, after)
    if before.hashing != after.hashing:
        raise InputError(
            f"{before.hashing} and {after.hashing} hash keys differently: compare two maps of one type"
        )


def seed_flows(before: KeyMap, after: KeyMap) -> Flows:
    """Return the exact share of the 2^21 seeds of each pair of destinations of two rings or slot tables, only those above 0.

    A hole and an empty ring are the destination None.

    Raises:
        InputError: keys are hashed differently in the two, or not to seeds.
    """
    from rabbit_chx.routing import arrays

    _check_seeds(before, after)
    return arrays.flows(before, after)


def share_of_seeds_moved(before: KeyMap, after: KeyMap) -> float:
    """Return the exact share of the 2^21 seeds whose destination differs; the arguments and errors are those of `seed_flows`."""
    from rabbit_chx.routing import arrays

    _check_seeds(before, after)
    return arrays.share_moved(before, after)


def _check_seeds(before: KeyMap, after: KeyMap) -> None:
    """Raise an InputError unless both maps hash keys to the 2^21 seeds."""
    check_comparable(before, after)
    if before.kind not in _OF_SEEDS:
        raise InputError(
            f"a map of the kind {before.kind} does not hash keys to seeds: call its methods flows and share_moved, which are exact for its hash"
        )


# -- the kinds that take a hash modulo the number of destinations


def modulo_shares(buckets: Sequence[Place], hashes: int) -> dict[Any, float]:
    """Return the exact share of each destination, if a hash goes to the bucket ``hash % len(buckets)``.

    Args:
        buckets: the destination of each remainder.
        hashes: the number of values of the hash.
    """
    counts: dict[Any, int] = {}
    whole, rest = divmod(hashes, len(buckets)) if buckets else (0, 0)
    for number, place in enumerate(buckets):
        counts[place] = counts.get(place, 0) + whole + (number < rest)
    return {place: count / hashes for place, count in counts.items()}


def modulo_flows(before: Sequence[Place], after: Sequence[Place], hashes: int) -> Flows:
    """Return the exact share of the hashes of each pair of destinations, as `modulo_shares`; computed when it is read.

    Without buckets all hashes are in the place None.
    """
    from rabbit_chx.routing.arrays import ModuloFlows

    return ModuloFlows(before, after, hashes)


def modulo_share_moved(before: Sequence[Place], after: Sequence[Place], hashes: int) -> float:
    """Return the exact share of the hashes whose destination differs, as `modulo_flows`."""
    from rabbit_chx.routing.arrays import ModuloFlows

    return 1 - ModuloFlows(before, after, hashes).staying
