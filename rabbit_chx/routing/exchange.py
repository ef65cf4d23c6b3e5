"""The hashing exchanges ``x-consistent-hash`` and ``x-modulus-hash``.

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``, ``route/3``, v3.7.8 to
v4.3.6; ``deps/rabbitmq_sharding/src/rabbit_sharding_exchange_type_modulus_hash.erl``, ``route/3`` (until 4.2), and
``deps/rabbit/src/rabbit_exchange_type_modulus_hash.erl``, ``route/3`` (v4.3.0 to v4.3.6).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from rabbit_chx.amqp.client_fields import Headers, Sender
from rabbit_chx.amqp.fields import AmqpField, FieldType, too_deep
from rabbit_chx.checks import MAX_SHORTSTR, short_string
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.terms import Term, erlang_text
from rabbit_chx.errors import ChannelClosedError, EmptyRingError, InputError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    Destination,
    Place,
    ascending_bindings,
    binding_key,
    check_destination,
    order_of_binding,
    order_of_destination,
    tuples_of,
)
from rabbit_chx.routing.jump import seed_of, walk_of_seed
from rabbit_chx.routing.message import (
    AMQP_1_0,
    NO_KEYS,
    HashedOn,
    HashedTerm,
    Message091,
    Message10,
    SentMessage,
    field_term,
)
from rabbit_chx.routing.release import NEWEST, Release, check_release
from rabbit_chx.routing.ring import HashRing, destination_from_json, place_to_json
from rabbit_chx.routing.ring_changes import PROVENANCES, Provenance
from rabbit_chx.routing.rules import (
    EMPTY_LIST_CRASHES,
    EMPTY_LIST_IS_HASHED,
    HASHED_ROUTING_KEY,
    MODULUS_BY_BINDING_KEY,
    MODULUS_BY_NAME,
    MODULUS_UNORDERED,
)
from rabbit_chx.routing.slot_table import KeyMap, SlotTable, check_key_map, ring_beneath

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    class ColumnOptions(TypedDict, total=False):
        """Options of a column of values; `ConsistentHashExchange.indices` documents them."""

        field_type: FieldType | None
        client: Sender
        fill_null: Any
        missing_nulls: bool


#: The range of ``erlang:phash2/1``.
_HASHES = 1 << 27
_FORMAT = "rabbit-chx/modulus"
#: A message as the broker receives it.
ReceivedMessage: TypeAlias = Message091 | Message10


def received(sent: SentMessage, release: Release) -> ReceivedMessage:
    """Return a message as the broker of a release receives it."""
    if sent.client == AMQP_1_0:
        return Message10.of(sent, release)
    return Message091.of(sent, release)


class HashExchange(ABC):
    """An exchange that routes each message to at most one destination, by a hash."""

    __slots__ = ()

    def route(
        self,
        routing_key: str | bytes = "",
        headers: Headers | None = None,
        properties: object = None,
        *,
        cc: Iterable[str | bytes] = NO_KEYS,
        bcc: Iterable[str | bytes] = NO_KEYS,
        client: Sender = "pika",
    ) -> Place:
        """Return the destination of a message; None if it is unroutable, for example without bindings.

        Args:
            routing_key: text or bytes, at most 255 bytes.
            headers: a mapping, or pairs; values are AmqpField or bare Python values. None is void; only an absent name is missing.
            properties: a mapping of property names, or an object with these attributes, such as a ``pika.BasicProperties``; its headers
                count as headers.
            cc: the routing keys of the header CC. An ``x-consistent-hash`` exchange ignores them. An ``x-modulus-hash`` exchange hashes
                them together with the routing key, and still routes to one destination.
            bcc: the routing keys of the header BCC, with the same effect.
            client: the client that encodes bare values: ``pika`` or ``aio-pika``; or ``amqp-1.0``.

        ``amqp-1.0`` is any publisher of AMQP 1.0 to a broker from 4.0 on. `routing_key` is then the key of the target address
        ``/exchanges/EXCHANGE/KEY``, or of `to` if the link has no target, percent-decoded. `headers` are the application properties; their
        values are :class:`~rabbit_chx.amqp.Amqp10Value`, or bare values as Qpid Proton sends them. `properties` is a mapping of
        ``message_id``, ``correlation_id``, ``creation_time`` (milliseconds, hashed by ``hash-property: timestamp``) and
        ``message_annotations``, which override headers. `cc` is the annotation ``x-cc``.

        Raises:
            InputError: the client cannot send such a message, or an item is given twice.
            NotDeterminedError: aio-pika generates the hashed message_id; or the client is ``amqp-1.0`` and the release is before 4.0, where
                a plugin converts the message; or the release orders bindings unpredictably (``x-modulus-hash``).
            ChannelClosedError: the broker of that release closes the channel on such a message.
        """
        return self._destination(SentMessage(routing_key, headers, properties, cc, bcc, client))

    @abstractmethod
    def _destination(self, sent: SentMessage) -> Place:
        """Return the destination of a message, as `route` does."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps from a message to its destination.

    Attributes:
        destination: the queue or exchange; None if the message is unroutable.
        hashed_on: the hashed part of the message.
        buckets: the number of buckets for routing, without holes.
        release: the release whose rules apply.
        provenance: the origin of the ring: ``read``, ``replayed`` or ``assumed``.
        reason: the reason why the message is unroutable; None if it is routed.
        term: the hashed term in Erlang's syntax; None on an empty ring, as are all the following.
        phash2: the term's hash; None if an integer is the seed itself, or if there is one bucket.
        seed: 0 to 2^21 - 1; None if there is one bucket, because the broker then hashes nothing.
        walk: the buckets that the jump hash visited; the last is the result.
        bucket: the resulting bucket.
        rule: the behaviour of the release, in words.
        source: the server's file and function, and the change that introduced the rule.
    """

    destination: Place
    hashed_on: HashedOn
    buckets: int
    release: Release
    provenance: Provenance
    reason: str | None = None
    term: str | None = None
    phash2: int | None = None
    seed: int | None = None
    walk: tuple[int, ...] = ()
    bucket: int | None = None
    rule: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class ConsistentHashExchange(HashExchange):
    """An exchange of type ``x-consistent-hash``, by the rules of its ring's release.

    Attributes:
        name: the exchange's name.
        ring: the ring.
        hashed_on: the hashed part of a message, by the exchange's arguments.
        slots: the slot table; destinations are then queues. None without one.
    """

    name: str
    ring: HashRing
    hashed_on: HashedOn
    slots: SlotTable | None

    def __init__(self, name: str, ring: KeyMap, arguments: Headers | None = None) -> None:
        """Create an exchange with a ring.

        Args:
            name: the exchange's name.
            ring: the ring, or a slot table.
            arguments: the arguments of its declaration, as a mapping or pairs: ``hash-header``, ``hash-property`` or neither, as text or
                AmqpField.

        Raises:
            InputError: the broker would refuse the arguments, or an argument of this call is invalid.
        """
        short_string(name, "the exchange's name")
        check_key_map(ring)
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ring", ring_beneath(ring))
        object.__setattr__(self, "slots", ring if isinstance(ring, SlotTable) else None)
        object.__setattr__(self, "hashed_on", HashedOn.from_arguments(arguments))

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The destinations in ring order; with slots, the queues."""
        return (self.ring if self.slots is None else self.slots).destinations

    def indices(
        self,
        values: Iterable[Any],
        *,
        field_type: FieldType | None = None,
        client: Sender = "pika",
        fill_null: Any = None,
        missing_nulls: bool = False,
    ) -> NDArray[np.int32]:
        """Return the destination of each message, as an index into `destinations`; -1 if there is none.

        Do not use -1 as an index: in Python it is the last element. Use `destinations_for` for names and `counts` for counts.

        Args:
            values: the hashed part of each message: routing keys, or the values of the header or property. A list, a NumPy array or a
                pyarrow array. Text, bytes and integers of 64 bits are hashed as arrays. A list may mix all types of header values,
                including AmqpField, which is slower.
            field_type: the wire type of bare header values, such as ``long`` for a client that sends all integers as long; None for the
                type that `client` chooses. pika sends bytes as binary: use ``longstr`` for text given as bytes.
            client: the client that encodes bare values.
            fill_null: the value that replaces a null, in the form of `values`; ``AmqpField("void")`` for a void header. None, NaN and
                pandas' NA and NaT are nulls.
            missing_nulls: whether a null means that the message lacks the header or property. Without it and `fill_null`, nulls are
                refused.

        Memory in addition to the values: as in :meth:`HashRing.indices`, and 8 bytes for each integer in a header if it is in a list, has
        fewer than 64 bits, or is next to nulls.

        Raises:
            EmptyRingError: the ring has no buckets.
            RowError: a value is null, or the client cannot send it, such as a routing key or id of more than 255 bytes; the error contains
                its position.
            ChannelClosedError: the broker of that release closes the channel on such a message.
            InputError: `values` is not a sequence of values; `field_type` is given and the exchange does not hash a header; `missing_nulls`
                is given and the exchange hashes the routing key, which every message has; nulls are both filled and missing; or aio-pika
                cannot send a header of that name.
        """
        from rabbit_chx.routing import arrays

        seeds = arrays.ExchangeSeeds(
            self.hashed_on,
            self.ring.release,
            field_type=field_type,
            client=client,
            seed_of_message=self._seed_of_message,
            seed_of_field=self._seed_of_field,
        )
        if not self.ring.bucket_count:
            return self.ring.indices(())  # raises an EmptyRingError
        indices = self.ring.indices_of_seeds(
            seeds.of_values(values, fill_null=fill_null, missing_nulls=missing_nulls)
        )
        return indices if self.slots is None else self.slots.indices_behind(indices)

    def destinations_for(self, values: Iterable[Any], **how: Unpack[ColumnOptions]) -> NDArray[np.object_]:
        """Return the destination of each message, as an array of objects, None for a hole; otherwise as `indices`.

        Args:
            values: the hashed part of each message, as in `indices`.
            **how: the keyword arguments of `indices`.
        """
        from rabbit_chx.routing import arrays

        return arrays.destinations_at(self.indices(values, **how), self.destinations)

    def counts(self, values: Iterable[Any], **how: Unpack[ColumnOptions]) -> dict[Place, int]:
        """Return the number of messages of each destination; holes, if any, under None; otherwise as `indices`.

        Args:
            values: the hashed part of each message, as in `indices`.
            **how: the keyword arguments of `indices`.
        """
        from rabbit_chx.routing import arrays

        return arrays.counts_at(self.indices(values, **how), self.destinations)

    def explain(
        self,
        routing_key: str | bytes = "",
        headers: Headers | None = None,
        properties: object = None,
        *,
        cc: Iterable[str | bytes] = NO_KEYS,
        bcc: Iterable[str | bytes] = NO_KEYS,
        client: Sender = "pika",
    ) -> Explanation:
        """Return the steps from a message to its destination.

        `routing_key`, `headers`, `properties`, `cc`, `bcc`, `client` and the errors are those of `route`.
        """
        message = received(SentMessage(routing_key, headers, properties, cc, bcc, client), self.ring.release)
        buckets = self.ring.bucket_count
        about = partial(
            Explanation,
            hashed_on=self.hashed_on,
            buckets=buckets,
            release=self.ring.release,
            provenance=self.ring.provenance,
        )
        if not buckets:
            return about(None, reason="the ring has no buckets: nothing is bound to the exchange")
        term, rule = self._hashed(message)
        try:
            text = erlang_text(term)
        except RecursionError:
            raise too_deep() from None
        seed = seed_of(term) if buckets > 1 else None
        walk = (0,) if seed is None else walk_of_seed(seed, buckets)
        place = self.ring.buckets[walk[-1]]
        destination = place if self.slots is None else self.slots.queue_of(place)
        reason = f"{place!s} has no queue" if place is not None and destination is None else None
        return about(
            destination,
            reason=f"bucket {walk[-1]} is a hole in the ring" if place is None else reason,
            term=text,
            phash2=None if seed is None else _phash2(term),
            seed=seed,
            walk=walk,
            bucket=walk[-1],
            rule=f"{rule.about}: {rule.says}",
            source=rule.source,
        )

    def _destination(self, sent: SentMessage) -> Place:
        message = received(sent, self.ring.release)
        if not self.ring.destinations:
            return None
        if self.hashed_on.kind == "routing-key":
            place = self.ring.destination_for(message.routing_keys[0])
        else:
            place = self.ring.destination_for_term(self._hashed(message).term)
        return place if self.slots is None else self.slots.queue_of(place)

    def _hashed(self, message: ReceivedMessage) -> HashedTerm:
        if self.hashed_on.kind == "routing-key":
            return HashedTerm(message.routing_keys[0], HASHED_ROUTING_KEY)
        if self.hashed_on.kind == "property":
            return message.property_term(self.hashed_on.name.decode())
        return self._checked(message.header_term(self.hashed_on.name))

    def _checked(self, hashed: HashedTerm) -> HashedTerm:
        """Return the term of a header; raise an error if the broker crashes on it."""
        if hashed.term != [] or self.ring.bucket_count == 1:
            return hashed
        if self.ring.release.follows(EMPTY_LIST_CRASHES):
            raise ChannelClosedError(
                f"the {self.hashed_on} is an empty array or table: RabbitMQ {self.ring.release.version} crashes on such "
                "a message and closes the connection; put something into it, or update to 4.3.5",
                exchange=self.name,
                reply_code=541,
            )
        return HashedTerm(hashed.term, EMPTY_LIST_IS_HASHED)

    def _seed_of_message(self, sent: SentMessage) -> int:
        return seed_of(self._hashed(received(sent, self.ring.release)).term)

    def _seed_of_field(self, field: AmqpField) -> int:
        return seed_of(self._checked(field_term(field, self.ring.release)).term)


def _phash2(term: Term) -> int | None:
    while isinstance(term, list) and term:
        term = term[0]
    return None if isinstance(term, int) and not isinstance(term, bool) else phash2(term)


@dataclass(frozen=True, slots=True, init=False)
class ModulusHashExchange(HashExchange):
    """An exchange of type ``x-modulus-hash``, by the rules of a release.

    Every binding counts: a destination that is bound with two keys counts twice.

    Attributes:
        name: the exchange's name.
        destinations: the destination of each binding, in the order of the release; in the given order if the release has none.
        release: the release whose rules apply.
        provenance: the origin of the bindings, which determine the destinations: ``read``, ``replayed`` or ``assumed``; ``assumed`` if the
            release has no order. It does not count in comparisons.
    """

    name: str
    destinations: tuple[Destination, ...]
    release: Release
    provenance: Provenance = field(compare=False)

    def __init__(
        self,
        name: str,
        bindings: Iterable[tuple[Destination, int | str]],
        release: Release | None = None,
        provenance: Provenance = "replayed",
    ) -> None:
        """Create an exchange with its bindings.

        Args:
            name: the exchange's name.
            bindings: ``(destination, binding key)`` in any order, without arguments; duplicates are ignored.
            release: the release whose rules apply; None for the newest.
            provenance: ``read`` if a broker listed the bindings; `Broker.exchange` and `Topology.modulus` set it.

        Raises:
            InputError: an argument is invalid.
        """
        short_string(name, "the exchange's name")
        if provenance not in PROVENANCES:
            raise InputError(f"the provenance is {provenance!r:.60}: give one of {', '.join(PROVENANCES)}")
        release = NEWEST if release is None else check_release(release)
        distinct = dict.fromkeys(
            _checked(*pair) for pair in tuples_of(bindings, 2, "(destination, binding key) pairs")
        )
        if release.follows(MODULUS_BY_BINDING_KEY):
            ordered = sorted(distinct, key=order_of_binding)
        elif release.follows(MODULUS_BY_NAME):
            ordered = sorted(distinct, key=lambda binding: order_of_destination(binding[0]))
        else:
            ordered = list(distinct)  # MODULUS_UNORDERED: `route` raises an error
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "destinations", tuple(destination for destination, _ in ordered))
        object.__setattr__(self, "release", release)
        object.__setattr__(self, "provenance", "assumed" if self._is_unordered else provenance)

    def indices(self, keys: Iterable[Any]) -> NDArray[np.int32]:
        """Return the destination of each message with a routing key, without CC and BCC, as an index into `destinations`.

        A destination that is bound several times has the index of its first binding.

        Args:
            keys: a list of str or bytes; a NumPy array of them; a pyarrow Array or ChunkedArray of strings or binaries.

        Raises:
            EmptyRingError: the exchange has no bindings.
            NotDeterminedError: the release orders bindings unpredictably.
            RowError: a key is null, neither text nor bytes, or longer than 255 bytes; the error contains its position.
            InputError: `keys` is not a sequence of keys.
        """
        import numpy as np

        from rabbit_chx.routing import arrays

        self._refuse_empty()
        self._refuse_unordered()
        first = np.array([self.destinations.index(place) for place in self.destinations], np.int32)
        hashes = arrays.list_hashes(keys, MAX_SHORTSTR)
        indices: NDArray[np.int32] = first[hashes % np.uint32(_HASHES) % np.uint32(len(first))]
        return indices

    def shares(self) -> dict[Destination, float]:
        """Return the exact share of the 2^27 hashes of each destination; {} without bindings."""
        shares: dict[Destination, float] = {}
        for number, place in enumerate(self.destinations):
            count = len(range(number, _HASHES, len(self.destinations)))
            shares[place] = shares.get(place, 0.0) + count / _HASHES
        return shares

    def destination_for(self, key: str | bytes) -> Destination:
        """Return the destination of a message with this routing key, without CC and BCC.

        Args:
            key: the routing key, at most 255 bytes.

        Raises:
            EmptyRingError: the exchange has no bindings.
            NotDeterminedError: the release orders bindings unpredictably.
            InputError: the key is invalid.
        """
        place = self.route(routing_key=key)
        if place is None:
            self._refuse_empty()
        assert place is not None  # it has bindings
        return place

    def to_json(self) -> str:
        """Return the exchange as JSON text on one line: the format ``rabbit-chx/modulus`` with its name, release, provenance and destinations."""
        return json.dumps(
            {
                "format": _FORMAT,
                "format_version": 1,
                "name": self.name,
                "release": {"version": self.release.version, "store": self.release.store},
                "provenance": self.provenance,
                "destinations": [place_to_json(place) for place in self.destinations],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> ModulusHashExchange:
        """Parse the text of `to_json`.

        Args:
            text: the JSON text; bytes are UTF-8.

        Raises:
            InputError: the text is not such an exchange.
        """
        try:
            read = json.loads(text)
            if (read["format"], read["format_version"]) != (_FORMAT, 1):
                raise InputError(f"its format is not {_FORMAT!r}, version 1")
            places = [destination_from_json(place) for place in read["destinations"]]
            release = Release(read["release"]["version"], read["release"]["store"])
            return cls(read["name"], ascending_bindings(places), release, read["provenance"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"this is not an x-modulus-hash exchange ({error}): write it again with to_json"
            ) from None

    @property
    def _is_unordered(self) -> bool:
        return self.release.follows(MODULUS_UNORDERED) and len(set(self.destinations)) > 1

    def _refuse_empty(self) -> None:
        if not self.destinations:
            raise EmptyRingError(f"exchange {self.name!r} has no bindings: bind a queue", exchange=self.name)

    def _refuse_unordered(self) -> None:
        if self._is_unordered:
            raise NotDeterminedError(
                f"{MODULUS_UNORDERED.about} {self.name!r} on RabbitMQ {self.release}: "
                f"{MODULUS_UNORDERED.says}; use 4.3 or x-consistent-hash, or send probes",
                exchange=self.name,
            )

    def _destination(self, sent: SentMessage) -> Place:
        message = received(sent, self.release)
        if not self.destinations:
            return None
        self._refuse_unordered()
        return self.destinations[phash2(list(message.routing_keys)) % len(self.destinations)]


def _checked(destination: object, key: int | str) -> tuple[Destination, str]:
    short_string(binding_key(key), "the binding key")
    return check_destination(destination), binding_key(key)
