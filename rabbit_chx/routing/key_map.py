"""The protocol of values that map keys to destinations: rings, slot tables, ``x-modulus-hash`` exchanges and super streams.

Commands, plans, groups and Spark call its methods and do not test the type. A hash of a key is reduced to the number of a bucket, and each
bucket has a destination. A bucket is a bucket of a ring, a binding of an ``x-modulus-hash`` exchange, or a partition of a super stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypeGuard, runtime_checkable

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE, MODULUS_EXCHANGE
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
#: The document of ``rabbit-chx show`` about an exchange, which has the fields of its map.
SHOW_FORMAT = "rabbit-chx/show"
#: The type of an exchange that hashes. A super stream, whose exchange is a direct one, counts as a type.
ExchangeType: TypeAlias = Literal["x-consistent-hash", "x-modulus-hash", "super-stream"]
#: The kinds whose keys are hashed to the 2^21 seeds of jump consistent hashing.
_OF_SEEDS: tuple[KeyMapKind, ...] = (HASH_EXCHANGE, "slots")


@dataclass(frozen=True, slots=True)
class MapTraits:
    """What is true of all key maps of a kind, and what reports call them, so that no caller tests the kind.

    Attributes:
        exchange_type: the type of the exchange.
        title: what a report calls the map: a ring, or an exchange without one.
        json_field: the field of the map in a JSON document.
        part: what a report calls a bucket.
        hashes: what a report calls all hashes together.
        how_to_read: how to get the map of a broker, as a remedy.
        has_order: True if the map depends on the order in which the members were bound. Then it may be wrong although its bindings are
            right, and a restart may change it.
        changes_unseen: True if a destination changes without the ring, so without anything that a publisher notices.
    """

    exchange_type: ExchangeType
    title: str
    json_field: str
    part: str
    hashes: str
    how_to_read: str
    has_order: bool = False
    changes_unseen: bool = False


_READ_RING = "pass Broker a ring_source, which reads it"
#: The traits of each kind.
TRAITS: Mapping[KeyMapKind, MapTraits] = {
    HASH_EXCHANGE: MapTraits(
        HASH_EXCHANGE, "ring", "ring", "bucket", "2^21 seeds", _READ_RING, has_order=True
    ),
    "slots": MapTraits(
        HASH_EXCHANGE,
        "ring",
        "ring",
        "bucket",
        "2^21 seeds",
        _READ_RING,
        has_order=True,
        changes_unseen=True,
    ),
    MODULUS_EXCHANGE: MapTraits(
        MODULUS_EXCHANGE,
        "exchange",
        "modulus",
        "binding",
        "hashes",
        "pass the value of Broker.exchange, on a release that orders its bindings",
    ),
    "super-stream": MapTraits(
        "super-stream",
        "exchange",
        "super_stream",
        "binding",
        "hashes",
        "pass the value of Broker.exchange",
    ),
}


@runtime_checkable
class KeyMap(Protocol):
    """A value that maps keys to destinations.

    Two maps can be compared if they have the same `hashing`: a key has the same hash in both.
    """

    @property
    def kind(self) -> KeyMapKind:
        """The kind; ``slots`` is a ring of type ``x-consistent-hash`` with slots."""

    @property
    def traits(self) -> MapTraits:
        """What is true of all maps of this kind."""

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

    @property
    def beneath(self) -> KeyMap:
        """The map as the broker has it: the ring of a slot table, otherwise the map itself."""

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

    def bind(self, destination: Destination, weight: int | str) -> KeyMap:
        """Return the map after a bind.

        Args:
            destination: the queue or exchange.
            weight: the binding key, as text or a whole number.

        Raises:
            InputError: the broker would refuse the binding, or it does not determine the map, as with slots.
        """

    def unbind(self, destination: Destination, weight: int | str | None = None) -> KeyMap:
        """Return the map after an unbind.

        Args:
            destination: the queue or exchange.
            weight: the binding key; None for all bindings of the destination.

        Raises:
            InputError: it is not bound, or the unbind does not determine the map, as with slots.
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


def is_routed_by_broker(given: object) -> TypeGuard[KeyMap]:
    """Return True for a key map by which a broker routes; False for a super stream, whose clients route, and for anything else."""
    return isinstance(given, KeyMap) and given.release is not None


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
