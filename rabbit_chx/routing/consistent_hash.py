"""The ``x-consistent-hash`` exchange: which destination it gives a message, and why.

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``,
``route/3``, v3.7.8 to v4.3.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.client_fields import PAMQP_NAME_BYTES, check_client, field_of_type
from rabbit_chx.amqp.fields import shortstr, too_deep
from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.term_text import erlang_text
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.routing.hash_input import HashedOn
from rabbit_chx.routing.header_terms import HashedTerm, field_term
from rabbit_chx.routing.jump import jump_consistent_hash, seed_of, walk_of_seed
from rabbit_chx.routing.message import hashed_header, hashed_property, message_of
from rabbit_chx.routing.message_091 import Message
from rabbit_chx.routing.message_10 import AMQP_1_0, hashed_term, refuse_converted
from rabbit_chx.routing.ring import HashRing
from rabbit_chx.routing.rules import EMPTY_LIST_CRASHES, EMPTY_LIST_IS_HASHED, HASHED_ROUTING_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypedDict, Unpack

    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.amqp.client_fields import Client, Headers, Sender
    from rabbit_chx.amqp.fields import AmqpField, FieldType
    from rabbit_chx.erlang import Term
    from rabbit_chx.routing.bindings import Destination
    from rabbit_chx.routing.message_10 import Amqp10Message
    from rabbit_chx.routing.release import Release
    from rabbit_chx.routing.ring_state import Provenance

    class Columns(TypedDict, total=False):
        """How columns are read, as `ConsistentHashExchange.indices` says."""

        field_type: FieldType | None
        client: Sender
        fill_null: Any
        missing_nulls: bool


__all__ = ["ConsistentHashExchange", "Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a message comes to its destination.

    Attributes:
        destination: the queue or exchange; None if the message is unroutable.
        hashed_on: what the exchange hashes.
        buckets: how many buckets routing counts; holes do not count.
        release: whose rules apply.
        provenance: of the ring: ``read``, ``replayed`` or ``assumed``.
        reason: why it is unroutable; None if it is not.
        term: what is hashed, as Erlang writes it; None on an empty ring, as all that follows.
        phash2: the term's hash; None where an integer is the seed itself, or where there is one bucket.
        seed: 0 to 2^21 - 1; None where there is one bucket, as nothing is hashed then.
        walk: the buckets that the jump hash went through, the last one being the answer.
        bucket: the last of them.
        rule: what the release does, in words.
        source: the server's file and function, and the change that brought the rule.
    """

    destination: Destination | None
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
class ConsistentHashExchange:
    """An exchange of type ``x-consistent-hash``, by the rules of its ring's release.

    Attributes:
        name: the exchange's name.
        ring: who has which bucket.
        hashed_on: what it hashes, by its arguments.
    """

    name: str
    ring: HashRing
    hashed_on: HashedOn

    def __init__(self, name: str, ring: HashRing, arguments: Headers | None = None) -> None:
        """An exchange with a ring.

        Args:
            name: the exchange's name.
            ring: who has which bucket.
            arguments: those of its declaration, as a mapping or as pairs: ``hash-header`` or ``hash-property`` or
                neither, as text or AmqpField.

        Raises:
            InputError: the broker would refuse to declare it, or the ring is none.
        """
        shortstr(name, "the exchange's name")
        if not isinstance(ring, HashRing):
            raise InputError(f"{ring!r:.60} is no ring: give a HashRing")
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ring", ring)
        object.__setattr__(self, "hashed_on", HashedOn.from_arguments(arguments))

    def route(
        self,
        routing_key: str | bytes = "",
        headers: Headers | None = None,
        properties: object = None,
        *,
        cc: Iterable[str | bytes] = (),
        bcc: Iterable[str | bytes] = (),
        client: Sender = "pika",
    ) -> Destination | None:
        """The destination of a message; None where it is unroutable, as it is on an empty ring.

        Args:
            routing_key: text or bytes.
            headers: a mapping, or pairs; values are AmqpField or bare Python values. None is void; only a name that
                is not there is missing.
            properties: a mapping of property names, or an object that has them, as a ``pika.BasicProperties``;
                headers in it count as headers.
            cc: the routing keys of the header CC; they change nothing here.
            bcc: likewise of BCC.
            client: whose encoding bare values take: ``pika`` or ``aio-pika``; or ``amqp-1.0``.

        For ``amqp-1.0``, any publisher of AMQP 1.0 to a broker from 4.0 on, `routing_key` is that of the target address
        ``/exchanges/EXCHANGE/KEY``, or of `to` where the link has no target, percent-decoded; `headers` are the
        application properties, their values :class:`~rabbit_chx.amqp.Amqp10Value` or bare ones as Qpid Proton sends them;
        `properties` are a mapping of ``message_id``, ``correlation_id``, ``creation_time`` (milliseconds, and what
        ``hash-property: timestamp`` hashes) and ``message_annotations``, which win over headers; `cc` is the annotation
        ``x-cc``.

        Raises:
            InputError: the client cannot send such a message, or something is given twice.
            NotDeterminedError: aio-pika makes up a message_id; or AMQP 1.0 before 4.0, where a plugin converts it.
            ChannelClosedError: the broker of that release closes the channel on such a message.
        """
        return self._route(self._message(routing_key, headers, properties, cc=cc, bcc=bcc, client=client))

    def indices(
        self,
        values: Iterable[Any],
        *,
        field_type: FieldType | None = None,
        client: Sender = "pika",
        fill_null: Any = None,  # noqa: ANN401
        missing_nulls: bool = False,
    ) -> NDArray[np.int32]:
        """The destination of each of many messages, as an index into ``ring.destinations``; -1 for a hole.

        Beware of -1 as an index: it is the last element in Python. For names take `destinations_for`, for counts `counts`.

        Args:
            values: what the exchange hashes: routing keys, or the values of the header or property. A list, a NumPy
                array or a pyarrow array. Text, bytes and integers of 64 bits are hashed as arrays; a list may mix what
                a header can hold, AmqpField too, which takes its time.
            field_type: the wire type of bare header values, as ``long`` for a client that sends all integers so; None
                for that which `client` gives each. Bytes are binary in pika: say ``longstr`` for text as bytes.
            client: whose encoding bare values take.
            fill_null: the value that a null counts as, as `values` hold it; ``AmqpField("void")`` for a void header.
                None, NaN and pandas' NA and NaT are nulls.
            missing_nulls: whether a null says that its message lacks the header or property. Without it, and without
                `fill_null`, nulls are refused.

        Memory beyond the values: as in :meth:`HashRing.indices`, and another 8 bytes for each integer in a header that
        stands in a list, or with fewer than 64 bits, or beside nulls.

        Raises:
            EmptyRingError: the ring has no buckets.
            RowError: a value is null, or the client cannot send it, as a routing key or id of more than 255 bytes; the
                message has its position.
            ChannelClosedError: the broker of that release closes the channel on such a message.
            InputError: the whole is nothing that holds values; only headers have a field type; a message cannot lack
                its routing key; nulls are both filled and missing; or aio-pika cannot send a header of that name.
        """
        if client == AMQP_1_0:
            refuse_converted(self.ring.release)
            if field_type is not None:
                raise InputError("a field type is of AMQP 0-9-1: for AMQP 1.0 give Amqp10Values")
        else:
            check_client(client)
        if field_type is not None and self.hashed_on.kind != "header":
            raise InputError(
                f"the exchange hashes the {self.hashed_on}: only a header's values have a field type"
            )
        if not self.ring.bucket_count:
            return self.ring.indices(())
        from rabbit_chx.routing import arrays

        seed_of_null = self._seed_of_null(fill_null, field_type, client, missing=missing_nulls)
        if self.hashed_on.kind == "routing-key":
            longest = None if client == AMQP_1_0 else MAX_SHORTSTR
            seeds = arrays.hashes(values, seed_of_null=seed_of_null, longest=longest)
        elif client == AMQP_1_0:
            seeds = arrays.amqp10_seeds(
                values,
                self._amqp10_term,
                text=self.hashed_on.name != b"timestamp" or self.hashed_on.kind == "header",
                seed_of_null=seed_of_null,
            )
        elif self.hashed_on.kind == "property":
            seeds = arrays.property_seeds(
                values, self.hashed_on.name.decode(), client, seed_of_null=seed_of_null
            )
        else:
            self._refuse_name_that_is_cut(client)
            seeds = arrays.header_seeds(
                values, self.ring.release, client, field_type, self._seed_of_field, seed_of_null=seed_of_null
            )
        return self.ring.indices_of_seeds(seeds)

    def destinations_for(self, values: Iterable[Any], **how: Unpack[Columns]) -> NDArray[np.object_]:
        """The destination of each of many messages, as an array of objects, None for a hole; all else as in `indices`."""
        from rabbit_chx.routing import arrays

        return arrays.destinations_at(self.indices(values, **how), self.ring.destinations)

    def counts(self, values: Iterable[Any], **how: Unpack[Columns]) -> dict[Destination | None, int]:
        """How many of many messages each destination gets; holes, if any, under None; all else as in `indices`."""
        from rabbit_chx.routing import arrays

        return arrays.counts_at(self.indices(values, **how), self.ring.destinations)

    def explain(
        self,
        routing_key: str | bytes = "",
        headers: Headers | None = None,
        properties: object = None,
        *,
        cc: Iterable[str | bytes] = (),
        bcc: Iterable[str | bytes] = (),
        client: Sender = "pika",
    ) -> Explanation:
        """How a message comes to its destination; everything is as in `route`."""
        message = self._message(routing_key, headers, properties, cc=cc, bcc=bcc, client=client)
        buckets = self.ring.bucket_count
        destination = self._route(message)
        about = partial(
            Explanation,
            destination=destination,
            hashed_on=self.hashed_on,
            buckets=buckets,
            release=self.ring.release,
            provenance=self.ring.provenance,
        )
        if not buckets:
            return about(reason="the ring has no buckets: nothing is bound to the exchange")
        term, rule = self._hashed(message)
        try:
            text = erlang_text(term)
        except RecursionError:
            raise too_deep() from None
        seed = seed_of(term) if buckets > 1 else None
        walk = (0,) if seed is None else walk_of_seed(seed, buckets)
        return about(
            reason=f"bucket {walk[-1]} is a hole in the ring" if destination is None else None,
            term=text,
            phash2=None if seed is None else _phash2(term),
            seed=seed,
            walk=walk,
            bucket=walk[-1],
            rule=f"{rule.about}: {rule.says}",
            source=rule.source,
        )

    @property
    def _message(self) -> Callable[..., Message | Amqp10Message]:
        return partial(message_of, release=self.ring.release)

    def _route(self, message: Message | Amqp10Message) -> Destination | None:
        buckets = self.ring.bucket_count
        if not buckets:
            return None
        return self.ring.buckets[jump_consistent_hash(self._hashed(message).term, buckets)]

    def _hashed(self, message: Message | Amqp10Message) -> HashedTerm:
        if self.hashed_on.kind == "routing-key":
            return HashedTerm(message.routing_keys[0], HASHED_ROUTING_KEY)
        if self.hashed_on.kind == "property":
            return hashed_property(message, self.hashed_on.name.decode())
        return self._checked(hashed_header(message, self.hashed_on.name, self.ring.release))

    def _seed_of_null(
        self,
        fill: Any,  # noqa: ANN401
        field_type: FieldType | None,
        client: Sender,
        *,
        missing: bool,
    ) -> Callable[[], int] | None:
        """What finds the seed of a null, asked only where there is one; None where nulls are refused."""
        if missing and fill is not None:
            raise InputError("nulls are both filled and missing: give fill_null or missing_nulls")
        if missing and self.hashed_on.kind == "routing-key":
            raise InputError("the exchange hashes the routing key, which no message lacks: give fill_null")
        if missing:
            return self._seed_of_message_without
        if fill is None:
            return None
        if self.hashed_on.kind == "routing-key":
            return partial(seed_of, shortstr(fill, "fill_null"))
        if client == AMQP_1_0:
            return partial(seed_of, self._amqp10_term(fill))
        if self.hashed_on.kind == "property":
            message = Message.of("", None, {self.hashed_on.name.decode(): fill}, cc=(), bcc=(), client=client)
            return partial(seed_of, self._hashed(message).term)
        return partial(self._seed_of_field, field_of_type(fill, field_type, client))

    def _seed_of_message_without(self) -> int:
        message = self._message("", None, None, cc=(), bcc=(), client="pika")
        return seed_of(self._hashed(message).term)

    def _amqp10_term(self, value: object) -> Term:
        return hashed_term(self.hashed_on.kind, self.hashed_on.name.decode(errors="replace"), value)

    def _refuse_name_that_is_cut(self, client: Client) -> None:
        if client == "aio-pika" and len(self.hashed_on.name) > PAMQP_NAME_BYTES:
            raise InputError(
                f"aio-pika cuts names to {PAMQP_NAME_BYTES} bytes, so it never sends the {self.hashed_on}: give the "
                "exchange a shorter name in hash-header"
            )

    def _seed_of_field(self, field: AmqpField) -> int:
        return seed_of(self._checked(field_term(field, self.ring.release)).term)

    def _checked(self, hashed: HashedTerm) -> HashedTerm:
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


def _phash2(term: Term) -> int | None:
    while isinstance(term, list) and term:
        term = term[0]
    return None if isinstance(term, int) and not isinstance(term, bool) else phash2(term)
