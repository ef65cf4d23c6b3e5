"""The value that maps keys to destinations: a ring, a ring with slots, an ``x-modulus-hash`` exchange or a super stream.

A hash of a key is reduced to the number of a bucket, and each bucket has a destination. A bucket is a bucket of a ring, a binding of an
``x-modulus-hash`` exchange, or a partition of a super stream. Commands, plans, groups and Spark do not test which of them they have.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeGuard

from rabbit_chx.errors import EmptyRingError, InputError, RowError, UnknownOrderError
from rabbit_chx.lazy_names import shown_by
from rabbit_chx.result_fields import json_fields
from rabbit_chx.routing.bindings import (
    LISTED_CONDITION,
    Binding,
    Destination,
    ExchangeRef,
    Flows,
    OrderKnowledge,
    OriginJson,
    Place,
    Provenance,
    binding_key,
    destination_from_json,
    place_to_json,
    without_binding,
)
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import DUPLICATES_APPEND
from rabbit_chx.text import ShareByWeight, plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The document of ``rabbit-chx show`` about an exchange, which has the fields of its map.
SHOW_FORMAT = "rabbit-chx/show"
_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyHash(ABC):
    """How the keys of a map are hashed to its buckets, and what reports call such a map.

    Attributes:
        exchange_type: the type of the exchange. A super stream, whose exchange is a direct one, counts as a type.
        title: what a report calls the map: a ring, or an exchange without one.
        article: the same with its article, for an error.
        json_field: the field of the map in a JSON document.
        json_buckets: the field of the buckets in the JSON of the map.
        part: what a report calls a bucket.
        hashes: what a report calls all hashes together.
        how_to_read: how to get the map of a broker, as a remedy.
        has_order: True if the map depends on the order in which the members were bound. Then it may be wrong although its bindings are
            right, and a restart may change it.
    """

    exchange_type: ClassVar[str]
    title: ClassVar[str] = "exchange"
    article: ClassVar[str]
    json_field: ClassVar[str]
    json_buckets: ClassVar[str]
    part: ClassVar[str] = "binding"
    hashes: ClassVar[str] = "hashes"
    how_to_read: ClassVar[str] = "pass the value of Broker.exchange"
    has_order: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The name: a key has the same hash in maps whose hashes have the same name."""
        return self.exchange_type

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def bucket_of(self, key: str | bytes, buckets: int) -> int:
        """Return the bucket of a key, of so many; -1 for none."""

    @abstractmethod
    def flows(self, before: KeyMap, after: KeyMap) -> Flows:
        """Return the flows between two maps of this hash."""

    def hashes_of(self, keys: Iterable[Any], *, is_filled: bool) -> NDArray[np.uint32] | None:  # noqa: ARG002
        """Return the hash of each key, of which the bucket is the remainder; None if keys are hashed one by one, or nulls are filled."""
        return None

    def indices(
        self, keys: Iterable[Any], index_of_bucket: array[int], buckets: int, fill_null: str | bytes | None
    ) -> NDArray[np.int32]:
        """Return the index of the bucket of each key: by arrays, or one by one, each distinct key once."""
        import numpy as np

        from rabbit_chx.routing.arrays.keys import is_null, pieces

        hashes = self.hashes_of(keys, is_filled=fill_null is not None)
        if hashes is not None:
            found: NDArray[np.int32] = np.frombuffer(index_of_bucket, np.int32)[hashes % np.uint32(buckets)]
            return found
        known: dict[Any, int] = {}
        indices = []
        for first, piece in pieces(keys):
            for position, given in enumerate(piece, first):
                key = fill_null if fill_null is not None and is_null(given) else given
                if not isinstance(key, (str, bytes)) or key not in known:
                    try:
                        bucket = self.bucket_of(key, buckets)
                    except InputError as error:
                        raise RowError(f"the key at position {position}: {error}") from None
                    known[key] = -1 if bucket < 0 else index_of_bucket[bucket]
                indices.append(known[key])
        return np.array(indices, np.int32)

    def destinations_of(self, buckets: tuple[Place, ...]) -> tuple[Destination, ...]:
        """Return the destinations of a map: that of each bucket."""
        return tuple(place for place in buckets if place is not None)

    def empty_error(self) -> EmptyRingError:
        """Return the error for a key of a map without buckets."""
        return EmptyRingError("the ring has no buckets: bind a queue to the exchange, or read its ring again")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class KeyMap:
    """A value that maps keys to destinations. It is immutable.

    `HashRing`, `SlotTable`, `ModulusHashExchange` and `SuperStream` make one of what a broker or a client has. Two maps can be compared if
    a key has the same hash in both.

    Attributes:
        buckets: the destination of each bucket; None at a hole. With slots, the queue of each bucket; None also for a slot without one.
        hashing: how keys are hashed.
        order: what is known about the map: its origin, or why its order is not known.
        slots: the slots through which keys reach queues, in ring order; None without slots. Then a destination may change without the
            ring, so without anything that a publisher notices.
        destinations: the destinations of the indices that `indices` returns.
        bucket_count: the number of buckets without holes, to which a hash is reduced.
        index_of_bucket: the index into `destinations` of each bucket; -1 for none.
    """

    buckets: tuple[Place, ...] = field(init=False)
    hashing: KeyHash = field(init=False)
    order: OrderKnowledge = field(init=False, compare=False)
    slots: tuple[ExchangeRef, ...] | None = field(init=False)
    destinations: tuple[Destination, ...] = field(init=False, compare=False)
    bucket_count: int = field(init=False, compare=False)
    index_of_bucket: array[int] = field(init=False, compare=False)
    _repr_html_ = shown_by("rabbit_chx.analysis.reports", "map_report")

    def __init__(
        self,
        buckets: Iterable[Place],
        hashing: KeyHash,
        order: OrderKnowledge,
        slots: Mapping[ExchangeRef, str | None] | None = None,
    ) -> None:
        """Create a map of buckets.

        Args:
            buckets: the destination of each bucket, which may be a slot; None at a hole.
            hashing: how keys are hashed.
            order: what is known about the map.
            slots: the queue of each slot; None for a slot without one. None: the map has no slots.
        """
        bound = tuple(buckets)
        queues: Mapping[Any, str | None] = slots or {}
        places = tuple(queues.get(place, place) for place in bound) if queues else bound
        destinations = hashing.destinations_of(places)
        numbers: dict[Place, int] = {None: -1}
        for number, place in enumerate(destinations):
            numbers.setdefault(place, number)
        set_fields(
            self,
            buckets=places,
            hashing=hashing,
            order=order,
            slots=None if slots is None else tuple(slots),
            destinations=destinations,
            bucket_count=len(bound) - bound.count(None),
            index_of_bucket=array("i", map(numbers.__getitem__, places)),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.provenance or 'of unknown order'}, {self.hashing}, {len(self.buckets)} buckets>"

    @property
    def kind(self) -> str:
        """The kind; ``slots`` is a ring of type ``x-consistent-hash`` with slots."""
        return self.hashing.exchange_type if self.slots is None else "slots"

    @property
    def name(self) -> str:
        """The name of the exchange; empty if it is not known."""
        return ""

    @property
    def release(self) -> Release | None:
        """The release whose rules apply; None if the client chooses, as for a super stream."""
        return None

    @property
    def bindings(self) -> tuple[Binding, ...] | None:
        """The bindings, each a destination and a binding key, in the order that the map depends on; None if they are not known."""
        return None

    @property
    def routes_by_key(self) -> bool | None:
        """True if clients send a key to the destination that is bound with it; None if some clients may. A hash routes otherwise."""
        return False

    @property
    def owners_assumed(self) -> bool:
        """True if the queues of the slots are those of a new broker, because a topology file does not contain them."""
        return False

    @property
    def provenance(self) -> Provenance | None:
        """The origin: ``read``, ``recorded``, ``observed`` or ``replayed``, as :class:`OrderKnowledge` explains them; None: not known."""
        return self.order.origin

    @property
    def condition(self) -> str | None:
        """What must be true for what is said of the map: of a recorded ring, and of the members of one whose order is not known; else None."""
        if self.hashing.has_order and not self.order.is_known and self.underlying.destinations:
            return LISTED_CONDITION
        return self.order.condition

    @property
    def is_determined(self) -> bool:
        """True if all its answers hold in every order in which its members may have been bound: that is known, or there is no member."""
        return self.order.is_known or (self.hashing.has_order and not self.underlying.destinations)

    @property
    def is_sole(self) -> bool:
        """True if its order is not known, and its only destination gets each key that reaches a queue, in whatever order."""
        return not self.order.is_known and self.hashing.has_order and len(self.underlying.destinations) == 1

    @property
    def has_key_destinations(self) -> bool:
        """True if a key that reaches a destination reaches the same one in every order."""
        return self.is_determined or self.is_sole

    @property
    def has_shares(self) -> bool:
        """True if `shares` holds in every order: there is one destination, or each has as many buckets in every order."""
        if self.is_determined or not self.hashing.has_order:
            return True
        return self.is_sole or self.has_bucket_counts

    @property
    def has_bucket_counts(self) -> bool:
        """True if each destination has as many buckets in every order: which of two bindings of a queue makes its buckets may depend on the order."""
        if self.is_determined or not self.hashing.has_order:
            return True
        bound = [place for place, _ in self.underlying.bindings or ()]
        appends = self.release is not None and self.release.follows(DUPLICATES_APPEND)
        return appends or len(bound) == len({*bound})

    def check_order(self) -> None:
        """Raise an UnknownOrderError unless the destination of a key is the same in every order in which the members may have been bound."""
        if not self.has_key_destinations:
            raise unknown_order(self)

    @property
    def underlying(self) -> KeyMap:
        """The map as the broker has it: the ring of a slot table, otherwise the map itself."""
        return self

    def queue_of(self, place: Place) -> Place:
        """Return the queue of a slot, None if it has none; any other destination is returned unchanged.

        Args:
            place: a destination of `underlying`, or None for a hole.
        """
        return place

    def ideals(self) -> dict[Place, tuple[int, float]]:
        """Return the number of buckets of each destination, and its share by that number."""
        counts = Counter(self.buckets)
        return {
            place: (count, count / self.bucket_count) for place, count in counts.items() if place is not None
        }

    def destination_for(self, key: str | bytes) -> Place:
        """Return the destination of a routing key; None if it is a hole, or if no partition is bound with the key.

        Args:
            key: text (its UTF-8 bytes) or bytes. In a ring and a super stream of any length: a `message_id` or the value of a header may
                be longer than the 255 bytes of a routing key. `ConsistentHashExchange.route` routes whole messages within AMQP's limits.

        Raises:
            EmptyRingError: the map has no buckets.
            NotDeterminedError: the release orders the bindings of an ``x-modulus-hash`` exchange unpredictably.
            InputError: the key is neither text nor bytes.
        """
        if not self.bucket_count:
            raise self.hashing.empty_error()
        self.check_order()
        bucket = self.hashing.bucket_of(key, self.bucket_count)
        return self.buckets[bucket] if bucket >= 0 else None

    def indices(self, keys: Iterable[Any], *, fill_null: str | bytes | None = None) -> NDArray[np.int32]:
        """Return the destination of each key, as an index into `destinations`; -1 where `destination_for` returns None.

        Do not use -1 as an index: in Python it is the last element. Use `destinations_for` for names and `counts` for counts. Keys of more
        than 255 bytes are hashed too, although AMQP cannot carry them, except those of an ``x-modulus-hash`` exchange. A destination that
        is bound several times to such an exchange has the index of its first binding.

        Memory of a ring in addition to the keys: 8 bytes for each key (half of them are the result), the table of the bucket count (2 to 8
        MiB, shared), and a few MiB for 32,768 keys at a time, with a copy of their bytes. Each value of an Arrow dictionary costs 16 bytes
        once. A dictionary that contains a null is decoded as a whole.

        A pyarrow array of more than a million plain keys is hashed on all available cores by a ring. Lists, NumPy arrays and smaller
        arrays, such as the batches of a Spark executor, use one thread.

        Args:
            keys: a list of str or bytes; a NumPy array of them (S, U, T or object); a pyarrow Array or ChunkedArray of strings or binaries,
                plain, large, view, fixed-size or dictionary.
            fill_null: the key that replaces a null; without it, nulls are refused. None, NaN and pandas' NA and NaT are nulls.

        Raises:
            EmptyRingError: the map has no buckets.
            NotDeterminedError: the release orders the bindings of an ``x-modulus-hash`` exchange unpredictably.
            RowError: a key is null, neither text nor bytes, too long, or bound to several partitions; the error contains its position.
            InputError: `keys` is not a sequence of keys, or `fill_null` is not a key.
        """
        if not self.bucket_count:
            raise self.hashing.empty_error()
        self.check_order()
        return self.hashing.indices(keys, self.index_of_bucket, self.bucket_count, fill_null)

    def destinations_for(
        self, keys: Iterable[Any], *, fill_null: str | bytes | None = None
    ) -> NDArray[np.object_]:
        """Return the destination of each key, as an array of objects; None for a hole.

        `keys`, `fill_null` and the errors are those of `indices`.
        """
        from rabbit_chx.routing.arrays.seeds import destinations_at

        return destinations_at(self.indices(keys, fill_null=fill_null), self.destinations)

    def counts(self, keys: Iterable[Any], *, fill_null: str | bytes | None = None) -> dict[Place, int]:
        """Return the number of keys of each destination, in ring order; holes, if keys reach any, under None.

        `keys`, `fill_null` and the errors are those of `indices`.
        """
        from rabbit_chx.routing.arrays.seeds import counts_at

        return counts_at(self.indices(keys, fill_null=fill_null), self.destinations)

    def flows(self, after: KeyMap) -> Flows:
        """Return the exact share of the hashes of each ``(destination here, destination there)``, only those above 0.

        A hole and a map without buckets are the destination None. What holds for the hashes of routing keys holds for all that has the same
        hash on both: message ids, and headers as long as both releases hash them alike.

        Args:
            after: the map after a change.

        Raises:
            InputError: keys are hashed differently there, or clients route by binding key.
            NotDeterminedError: one of the releases orders the bindings of an ``x-modulus-hash`` exchange unpredictably.
        """
        check_comparable(self, after)
        self.check_order()
        after.check_order()
        return self.hashing.flows(self, after)

    def shares(self) -> dict[Any, float]:
        """Return the exact share of the hashes of each destination, in ring order; holes, if keys reach any, under None. {} without buckets.

        The shares of a ring whose order is not known are by weight, to one decimal of a percent: `ShareByWeight`.

        Raises:
            UnknownOrderError: they depend on an order that is not known, as `has_shares` says.
            InputError: clients route by binding key.
        """
        if not self.has_shares:
            raise unknown_order(self)
        if self.hashing.has_order and not self.is_determined:
            return {place: ShareByWeight(round(ideal, 3)) for place, (_, ideal) in self.ideals().items()}
        totals = self.hashing.flows(self, self).before_totals() if self.bucket_count else {}
        return {place: float(share) for place, share in totals.items()}

    def share_moved(self, other: KeyMap) -> float:
        """Return the exact share of the hashes whose destination differs in another map; the errors are those of `flows`.

        Args:
            other: the map to compare with.
        """
        return float(self.flows(other).moved)

    def bind(self, destination: Destination, weight: int | str) -> Self:
        """Return the map after a bind.

        Args:
            destination: the queue or exchange.
            weight: the binding key, as text or a whole number.

        Raises:
            InputError: the broker would refuse the binding, or it does not determine the map, as with slots.
        """
        return self._with_bindings((*(self.bindings or ()), (destination, binding_key(weight))))

    def unbind(self, destination: Destination, weight: int | str | None = None) -> Self:
        """Return the map after an unbind.

        Args:
            destination: the queue or exchange.
            weight: the binding key; None for all bindings of the destination.

        Raises:
            InputError: it is not bound, or the unbind does not determine the map, as with slots.
        """
        return self._with_bindings(without_binding(self.name, self.bindings or (), destination, weight))

    def with_release(self, release: Release) -> Self:
        """Return the map under the rules of another release.

        Args:
            release: the release whose rules apply.

        Raises:
            InputError: the client chooses the destination, on all releases alike.
        """
        raise InputError(
            f"exchange {self.name!r} is {self.hashing.article}, and the client chooses its partitions, on all releases alike, so also on "
            f"{release}: leave the release out"
        )

    def _with_bindings(self, bindings: tuple[Binding, ...]) -> Self:
        """Return the map with other bindings, whose order is the caller's."""
        raise NotImplementedError

    def facts(self) -> tuple[str, ...]:
        """Return what a report says about the map: its origin, its rules, its size."""
        return self.order.text, plural(len(self.buckets), self.hashing.part)

    def summary(self) -> Mapping[str, Any]:
        """Return the fields of the map in a JSON document, as values; `to_json` returns all of the map."""
        return self.order_fields()

    def order_fields(self) -> OriginJson:
        """Return the fields of a JSON document that say how the map is known, and on which condition."""
        fields: OriginJson = {"provenance": self.order.origin, "condition": self.condition}
        if self.order.doubt:
            fields["doubt"] = self.order.doubt
        return fields

    def to_json(self) -> str:
        """Return the map as JSON text on one line.

        ::

            {
              "format": "rabbit-chx/ring",                               or rabbit-chx/modulus, rabbit-chx/super-stream
              "format_version": 1,
              "release": {"version": "4.3.6", "store": "khepri", "store_known": true},
              "provenance": "read",                                      read, recorded, observed or replayed; null: not known
              "condition": null,                                         what must be true for it, as text; null: nothing
              "doubt": "its bindings are listed without their order",    why the order is not known
              "buckets": ["q1", {"exchange": "slot-7"}, null],           text is a queue, null a hole; null: not known
              "bindings": [["q1", "1"], [{"exchange": "slot-7"}, "1"]],  in bind order; null if unknown
              "next_bucket": 3,                                          if it was read with the ring; null if holes
                                                                         at the end may be missing
              "slots": {"slot-7": "q2"}                                  with slots: the queue of each; null if it has none
            }

        An ``x-modulus-hash`` exchange has ``name``, and ``destinations`` in place of ``buckets``, without ``bindings``. A super stream has
        ``name``, ``client``, ``partitions``, ``binding_keys`` and, if it is known, ``routing``, without ``release``.
        """
        hashing = self.hashing
        release = self.release
        slots = None if self.slots is None else {slot.name: self.queue_of(slot) for slot in self.slots}
        return json.dumps(
            {
                "format": _format_of(hashing),
                "format_version": _FORMAT_VERSION,
                **({} if release is None else {"release": json_fields(release)}),
                **self.order_fields(),
                hashing.json_buckets: [place_to_json(place) for place in self.underlying.buckets]
                if self.is_determined
                else None,
                **self.underlying.other_fields(),
                **({} if slots is None else {"slots": slots}),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse the text of `to_json`, or of ``rabbit-chx show -o json`` about the exchange.

        Args:
            text: the JSON text; bytes are UTF-8.

        Raises:
            InputError: the text is not a map of this kind, or has a later format.
        """
        what = cls._hash.article
        expected = _format_of(cls._hash)
        try:
            read = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(
                f"this is not {what}: {error}; pass the text that to_json made, or SuperStream([...])"
            ) from None

        if not isinstance(read, dict) or read.get("format") not in (expected, SHOW_FORMAT):
            raise InputError(
                f"this JSON is not {what}: it lacks the format {expected!r}; pass what to_json made"
            )
        if read.get("format_version") != _FORMAT_VERSION:
            raise InputError(
                f"this JSON is not {what} that can be read here: it has format version {read.get('format_version')!r}, this library reads "
                f"{_FORMAT_VERSION}: use the library that wrote it, or a newer one"
            )

        try:
            places = read[cls._hash.json_buckets]
            order = OrderKnowledge(read["provenance"], read.get("doubt", ""))
            if places is None and not order.is_known:
                return cls._of_unknown_order(read, order)
            if not isinstance(places, list):
                raise InputError(
                    f"the {cls._hash.json_buckets} are not a list: write the JSON again with to_json"
                )
            buckets = [None if place is None else destination_from_json(place) for place in places]
            return cls._of_json(read, buckets, order)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"the JSON of {what} is damaged ({error!r}): write it again with to_json"
            ) from None

    #: The hash of the maps that `from_json` reads.
    _hash: ClassVar[type[KeyHash]]

    def other_fields(self) -> dict[str, Any]:
        """Return the fields of `to_json` that only maps of this kind have."""
        return {}

    @classmethod
    def _of_unknown_order(cls, read: Mapping[str, Any], order: OrderKnowledge) -> Self:  # noqa: ARG003  # for rings
        """Return the map of a JSON document that does not have the order."""
        raise InputError(
            f"the order of {cls._hash.article} is not known ({order.doubt}): read it again, and write it with to_json"
        )

    @classmethod
    def _of_json(cls, read: Mapping[str, Any], buckets: list[Place], order: OrderKnowledge) -> Self:
        """Return the map of a JSON document; its buckets, and how its order is known, are read."""
        raise NotImplementedError


def unknown_order(key_map: KeyMap, exchange: str = "", how_to_learn: str = "") -> UnknownOrderError:
    """Return the error for a question that depends on an order which is not known; `how_to_learn` is a sentence."""
    of = exchange or key_map.name or f"the {key_map.hashing.title}"
    doubt = f" ({key_map.order.doubt})" if key_map.order.doubt else ""
    remedy = how_to_learn or f"{key_map.hashing.how_to_read}, or learn the order with the command record"
    error = UnknownOrderError(f"the order of {of} is unknown{doubt}: {remedy}", exchange=exchange or None)
    error.members = key_map.underlying.bindings or ()
    return error


def set_fields(made: object, **fields: object) -> None:
    """Set the fields of a map or an exchange that is being made."""
    for name, value in fields.items():
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(made, name, value)


def release_of_json(read: Mapping[str, Any]) -> Release:
    """Return the release in the JSON of a map."""
    release = read["release"]
    return Release(release["version"], release["store"] if release.get("store_known", True) else None)


def check_key_map(key_map: object) -> None:
    """Raise an InputError unless the argument is a key map."""
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
    check_key_map(before)
    check_key_map(after)
    if before.hashing.name != after.hashing.name:
        raise InputError(
            f"{before.hashing} and {after.hashing} hash keys differently: compare two maps of one type"
        )


def _format_of(hashing: KeyHash | type[KeyHash]) -> str:
    return f"rabbit-chx/{hashing.json_field.replace('_', '-')}"
