"""The exchanges that hash a message: ``x-consistent-hash`` and ``x-modulus-hash``.

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``, ``route/3``, v3.7.8 to
v4.3.6; ``deps/rabbitmq_sharding/src/rabbit_sharding_exchange_type_modulus_hash.erl``, ``route/3`` (until 4.2), and
``deps/rabbit/src/rabbit_exchange_type_modulus_hash.erl``, ``route/3`` (v4.3.0 to v4.3.6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from rabbit_chx.amqp.client_fields import Headers, Sender
from rabbit_chx.amqp.fields import AmqpField, FieldType, too_deep
from rabbit_chx.amqp.names import short_string
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.terms import Term, erlang_text
from rabbit_chx.errors import ChannelClosedError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    Destination,
    Place,
    binding_key,
    check_destination,
    order_of_binding,
    order_of_destination,
    tuples_of,
)
from rabbit_chx.routing.jump import seed_of, walk_of_seed
from rabbit_chx.routing.message import NO_KEYS, HashedOn, HashedTerm, SentMessage
from rabbit_chx.routing.received_message import AMQP_1_0, Message091, Message10, field_term
from rabbit_chx.routing.release import NEWEST, Release, check_release
from rabbit_chx.routing.ring import HashRing
from rabbit_chx.routing.ring_changes import Provenance
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


#: A message as the broker sees it before it routes.
ReceivedMessage: TypeAlias = Message091 | Message10


def received(sent: SentMessage, release: Release) -> ReceivedMessage:
    """Return a message as the broker of a release sees it."""
    if sent.client == AMQP_1_0:
        return Message10.of(sent, release)
    return Message091.of(sent, release)


class HashExchange(ABC):
    """An exchange that gives each message to at most one destination, by a hash."""

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
        """Return the destination of a message; None if it is unroutable, for example because nothing is bound.

        Args:
            routing_key: text or bytes, of at most 255 bytes: AMQP carries no more.
            headers: a mapping, or pairs; values are AmqpField or bare Python values. None is void; only a name that is absent is missing.
            properties: a mapping of property names, or an object that has them, such as a ``pika.BasicProperties``; headers in it count as
                headers.
            cc: the routing keys of the header CC. An ``x-consistent-hash`` exchange ignores them; an ``x-modulus-hash`` exchange hashes
                them together with the routing key, and still gives the message to one destination.
            bcc: the routing keys of the header BCC, with the same effect.
            client: the client whose encoding bare values take: ``pika`` or ``aio-pika``; or ``amqp-1.0``.

        ``amqp-1.0`` is any publisher of AMQP 1.0 to a broker from 4.0 on. `routing_key` is then the key of the target address
        ``/exchanges/EXCHANGE/KEY``, or of `to` where the link has no target, percent-decoded. `headers` are the application properties;
        their values are :class:`~rabbit_chx.amqp.Amqp10Value`, or bare ones as Qpid Proton sends them. `properties` is a mapping of
        ``message_id``, ``correlation_id``, ``creation_time`` (milliseconds, and what ``hash-property: timestamp`` hashes) and
        ``message_annotations``, which win over headers. `cc` is the annotation ``x-cc``.

        Raises:
            InputError: the client cannot send such a message, or something is given twice.
            NotDeterminedError: aio-pika makes up the message_id that is hashed; or the client is ``amqp-1.0`` and the release is before
                4.0, where a plugin converts the message; or the release counts bindings in an order that cannot be known
                (``x-modulus-hash``).
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
        hashed_on: what the exchange hashes.
        buckets: how many buckets routing counts; holes do not count.
        release: the release whose rules apply.
        provenance: the origin of the ring: ``read``, ``replayed`` or ``assumed``.
        reason: why the message is unroutable; None if it is routed.
        term: what is hashed, as Erlang writes it; None on an empty ring, like all that follows.
        phash2: the term's hash; None where an integer is the seed itself, or where there is one bucket.
        seed: 0 to 2^21 - 1; None where there is one bucket, as nothing is hashed then.
        walk: the buckets that the jump hash went through, the last being the answer.
        bucket: the last of them.
        rule: what the release does, in words.
        source: the server's file and function, and the change that brought the rule.
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
        hashed_on: what the exchange hashes, by its arguments.
        slots: the slot table, if one was given: destinations are queues then. Else None.
    """

    name: str
    ring: HashRing
    hashed_on: HashedOn
    slots: SlotTable | None

    def __init__(self, name: str, ring: KeyMap, arguments: Headers | None = None) -> None:
        """Return an exchange with a ring.

        Args:
            name: the exchange's name.
            ring: the ring, or a slot table.
            arguments: the arguments of its declaration, as a mapping or as pairs: ``hash-header`` or ``hash-property`` or neither, as text
                or AmqpField.
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
        """The destinations in ring order: those of the ring, or with slots their queues."""
        return (self.ring if self.slots is None else self.slots).destinations

    def indices(
        self,
        values: Iterable[Any],
        *,
        field_type: FieldType | None = None,
        client: Sender = "pika",
        fill_null: Any = None,  # noqa: ANN401
        missing_nulls: bool = False,
    ) -> NDArray[np.int32]:
        """Return the destination of each message, as an index into `destinations`; -1 where there is none.

        Beware of -1 as an index: it is the last element in Python. Use `destinations_for` for names and `counts` for counts.

        Args:
            values: what the exchange hashes: routing keys, or the values of the header or property. A list, a NumPy array or a pyarrow
                array. Text, bytes and integers of 64 bits are hashed as arrays; a list may mix what a header can hold, AmqpField too, which
                takes its time.
            field_type: the wire type of bare header values, as ``long`` for a client that sends all integers so; None for that which
                `client` gives each. Bytes are binary in pika: give ``longstr`` for text as bytes.
            client: the client whose encoding bare values take.
            fill_null: the value that a null counts as, as `values` hold it; ``AmqpField("void")`` for a void header. None, NaN and pandas'
                NA and NaT are nulls.
            missing_nulls: whether a null means that its message lacks the header or property. Without it, and without `fill_null`, nulls
                are refused.

        Memory beyond the values: as in :meth:`HashRing.indices`, and another 8 bytes for each integer in a header that is in a list, or has
        fewer than 64 bits, or is beside nulls.

        Raises:
            EmptyRingError: the ring has no buckets.
            RowError: a value is null, or the client cannot send it, as a routing key or id of more than 255 bytes; the message has its
                position.
            ChannelClosedError: the broker of that release closes the channel on such a message.
            InputError: `values` holds no values in a row; `field_type` is given and no header is hashed; `missing_nulls` is given and the
                routing key is hashed, which no message lacks; nulls are both filled and missing; or aio-pika cannot send a header of that
                name.
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
            return self.ring.indices(())  # raises EmptyRingError
        indices = self.ring.indices_of_seeds(
            seeds.of_values(values, fill_null=fill_null, missing_nulls=missing_nulls)
        )
        return indices if self.slots is None else self.slots.indices_behind(indices)

    def destinations_for(self, values: Iterable[Any], **how: Unpack[ColumnOptions]) -> NDArray[np.object_]:
        """Return the destination of each message, as an array of objects, None for a hole; else as `indices`.

        Args:
            values: what the exchange hashes, as for `indices`.
            **how: the keyword arguments of `indices`.
        """
        from rabbit_chx.routing import arrays

        return arrays.destinations_at(self.indices(values, **how), self.destinations)

    def counts(self, values: Iterable[Any], **how: Unpack[ColumnOptions]) -> dict[Place, int]:
        """Return how many messages each destination gets; holes, if any, under None; else as `indices`.

        Args:
            values: what the exchange hashes, as for `indices`.
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

        Args:
            routing_key: the routing key.
            headers: a mapping or pairs, as in `route`.
            properties: a mapping by name, or a ``pika.BasicProperties``.
            cc: routing keys of the header CC.
            bcc: routing keys of the header BCC.
            client: whose wire types bare values get.

        Raises:
            RabbitChxError: as in `route`.
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
        """Return the term of a header, unless the broker crashes on it."""
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

    Every binding counts, so a destination that is bound with two keys counts twice.

    Attributes:
        name: the exchange's name.
        destinations: the destination of each binding, in the order in which the release counts them; if that order cannot be known, in the
            order given.
        release: the release whose rules apply.
    """

    name: str
    destinations: tuple[Destination, ...]
    release: Release

    def __init__(
        self, name: str, bindings: Iterable[tuple[Destination, int | str]], release: Release | None = None
    ) -> None:
        """Make an exchange with its bindings.

        Args:
            name: the exchange's name.
            bindings: ``(destination, binding key)`` in any order; the same pair again is the same binding. Bindings have no arguments.
            release: the release whose rules apply; None for the newest.
        """
        short_string(name, "the exchange's name")
        release = NEWEST if release is None else check_release(release)
        distinct = dict.fromkeys(
            _checked(*pair) for pair in tuples_of(bindings, 2, "(destination, binding key) pairs")
        )
        if release.follows(MODULUS_BY_BINDING_KEY):
            ordered = sorted(distinct, key=order_of_binding)
        elif release.follows(MODULUS_BY_NAME):
            ordered = sorted(distinct, key=lambda binding: order_of_destination(binding[0]))
        else:
            ordered = list(distinct)  # MODULUS_UNORDERED, which `route` refuses
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "destinations", tuple(destination for destination, _ in ordered))
        object.__setattr__(self, "release", release)

    def _destination(self, sent: SentMessage) -> Place:
        message = received(sent, self.release)
        if not self.destinations:
            return None
        if self.release.follows(MODULUS_UNORDERED) and len(set(self.destinations)) > 1:
            raise NotDeterminedError(
                f"{MODULUS_UNORDERED.about} {self.name!r} on RabbitMQ {self.release}: "
                f"{MODULUS_UNORDERED.says}; use 4.3 or x-consistent-hash, or send probes",
                exchange=self.name,
            )
        return self.destinations[phash2(list(message.routing_keys)) % len(self.destinations)]


def _checked(destination: object, key: int | str) -> tuple[Destination, str]:
    short_string(binding_key(key), "the binding key")
    return check_destination(destination), binding_key(key)
