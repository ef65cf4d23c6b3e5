"""Exchanges that route a message by a hash (`HashExchange`), and those of type ``x-consistent-hash``.

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``, ``route/3``, v3.10.0 to
v4.3.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from rabbit_chx.amqp.fields import AmqpField, FieldType, Headers, Sender, too_deep
from rabbit_chx.checks import short_string
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.hashing import Term, erlang_text
from rabbit_chx.errors import ChannelClosedError
from rabbit_chx.routing.bindings import Destination, Place, Provenance
from rabbit_chx.routing.jump import seed_of, walk_of_seed
from rabbit_chx.routing.key_map import check_key_map, set_fields
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
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring import HashRing, check_ring
from rabbit_chx.routing.rules import EMPTY_LIST_CRASHES, EMPTY_LIST_IS_HASHED, HASHED_ROUTING_KEY
from rabbit_chx.routing.slot_table import SlotTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    class ColumnOptions(TypedDict, total=False):
        """Options of a column of values; `ConsistentHashExchange.indices` documents them."""

        field_type: FieldType | None
        client: Sender
        fill_null: Any
        missing_nulls: bool


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
        client: Sender = "rabbit-chx",
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
            client: the client that encodes bare values: ``pika``, ``aio-pika`` or a publisher of this library; or ``amqp-1.0``.

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
        provenance: the origin of the ring: ``read``, ``recorded``, ``observed`` or ``replayed``; None: its order is not known.
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
    provenance: Provenance | None
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

    def __init__(self, name: str, ring: HashRing | SlotTable, arguments: Headers | None = None) -> None:
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
        underlying = ring.underlying
        check_ring(underlying)
        slots = None if underlying is ring else ring
        hashed_on = HashedOn.from_arguments(arguments)
        set_fields(self, name=name, ring=underlying, slots=slots, hashed_on=hashed_on)

    @property
    def key_map(self) -> HashRing | SlotTable:
        """The slot table; without one, the ring."""
        return self.ring if self.slots is None else self.slots

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """The destinations in ring order; with slots, the queues."""
        return self.key_map.destinations

    def indices(
        self,
        values: Iterable[Any],
        *,
        field_type: FieldType | None = None,
        client: Sender = "rabbit-chx",
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
        from rabbit_chx.routing.arrays.exchange_seeds import ExchangeSeeds
        from rabbit_chx.routing.arrays.seeds import indices_of_seeds

        seeds = ExchangeSeeds(
            hashed_on=self.hashed_on,
            release=self.ring.release,
            field_type=field_type,
            client=client,
            seed_of_message=self._seed_of_message,
            seed_of_field=self._seed_of_field,
        )
        if not self.ring.bucket_count:
            return self.ring.indices(())  # raises an EmptyRingError
        self.ring.check_order()
        key_map = self.key_map
        found = seeds.of_values(values, fill_null=fill_null, missing_nulls=missing_nulls)
        return indices_of_seeds(found, key_map.index_of_bucket, key_map.bucket_count)

    def destinations_for(self, values: Iterable[Any], **how: Unpack[ColumnOptions]) -> NDArray[np.object_]:
        """Return the destination of each message, as an array of objects, None for a hole; otherwise as `indices`.

        Args:
            values: the hashed part of each message, as in `indices`.
            **how: the keyword arguments of `indices`.
        """
        from rabbit_chx.routing.arrays.seeds import destinations_at

        return destinations_at(self.indices(values, **how), self.destinations)

    def counts(self, values: Iterable[Any], **how: Unpack[ColumnOptions]) -> dict[Place, int]:
        """Return the number of messages of each destination; holes, if any, under None; otherwise as `indices`.

        Args:
            values: the hashed part of each message, as in `indices`.
            **how: the keyword arguments of `indices`.
        """
        from rabbit_chx.routing.arrays.seeds import counts_at

        return counts_at(self.indices(values, **how), self.destinations)

    def explain(
        self,
        routing_key: str | bytes = "",
        headers: Headers | None = None,
        properties: object = None,
        *,
        cc: Iterable[str | bytes] = NO_KEYS,
        bcc: Iterable[str | bytes] = NO_KEYS,
        client: Sender = "rabbit-chx",
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

        self.ring.check_order()
        term, rule = self._term_of(message)
        try:
            text = erlang_text(term)
        except RecursionError:
            raise too_deep() from None

        seed = seed_of(term) if buckets > 1 else None
        walk = (0,) if seed is None else walk_of_seed(seed, buckets)
        place = self.ring.buckets[walk[-1]]
        destination = self.key_map.queue_of(place)

        reason = None
        if place is None:
            reason = f"bucket {walk[-1]} is a hole in the ring"
        elif destination is None:
            reason = f"{place!s} has no queue"

        return about(
            destination,
            reason=reason,
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
            return self.key_map.destination_for(message.routing_keys[0])
        return self.key_map.queue_of(self.ring.destination_for_term(self._term_of(message).term))

    def _term_of(self, message: ReceivedMessage) -> HashedTerm:
        """Return the term of the hashed part of a message; raise an error if the broker crashes on it."""
        if self.hashed_on.kind == "routing-key":
            return HashedTerm(message.routing_keys[0], HASHED_ROUTING_KEY)
        if self.hashed_on.kind == "property":
            return message.property_term(self.hashed_on.name.decode())
        return self._check_term(message.header_term(self.hashed_on.name))

    def _check_term(self, hashed: HashedTerm) -> HashedTerm:
        """Return the term of a header, with the rule of an empty list; raise an error if the broker crashes on that."""
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
        return seed_of(self._term_of(received(sent, self.ring.release)).term)

    def _seed_of_field(self, field: AmqpField) -> int:
        return seed_of(self._check_term(field_term(field, self.ring.release)).term)


def _phash2(term: Term) -> int | None:
    """Return the hash of a term, as the server does it; None for an integer, which is the seed itself."""
    while isinstance(term, list) and term:
        term = term[0]
    return None if isinstance(term, int) and not isinstance(term, bool) else phash2(term)
