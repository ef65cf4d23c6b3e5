"""A sample of hashed values, and their destinations."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, cast

from rabbit_chx.amqp.client_fields import Client, field_for
from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE
from rabbit_chx.amqp.fields import FIELD_TYPES, AmqpField, FieldType
from rabbit_chx.checks import MAX_SHORTSTR, check_whole, short_string
from rabbit_chx.erlang.terms import Term
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import (
    ConsistentHashExchange,
    Destination,
    HashRing,
    ModulusHashExchange,
    Release,
    SuperStream,
)
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap, check_key_map
from rabbit_chx.routing.message import HashedOn, field_term, property_bytes, property_seconds
from rabbit_chx.routing.slot_table import SlotTable

#: A sample of one of these alone has equal values where they are equal in Python.
_PLAIN = (str, bytes, bool, int)


class SampleBatch(NamedTuple):
    """A part of a sample.

    Attributes:
        values: the hashed values: routing keys, or values of the header or the property.
        messages: how many messages have each; None for one.
        names: the name of each value in a result; None for the value itself.
    """

    values: Sequence[Any]
    messages: Sequence[int] | None = None
    names: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A message for which the broker would close the channel, instead of routing it.

    Attributes:
        reason: the reaction of the broker, and its cause.
    """

    reason: str = field(metadata=shown(json="refused"))


@dataclass(frozen=True, slots=True)
class Hashing:
    """What an exchange hashes: the routing key, or a header, or a property.

    Attributes:
        hash_header: the exchange's argument ``hash-header``, which is the header's name; None without one.
        hash_property: the exchange's argument ``hash-property``; None without one.
        client: the client whose encoding bare header values take, ``pika`` or ``aio-pika``.
        field_type: the wire type of bare header values; None for that which the client gives each.
    """

    hash_header: str | None = None
    hash_property: str | None = None
    client: Client = "rabbit-chx"
    field_type: FieldType | None = None

    def __post_init__(self) -> None:
        HashedOn.from_arguments(self.arguments)
        if self.field_type is None:
            return
        if self.field_type not in FIELD_TYPES:
            raise InputError(
                f"{self.field_type!r:.60} is not an AMQP field type: pass one of {', '.join(FIELD_TYPES)}"
            )
        if self.hash_header is None:
            raise InputError(f"{self.field_type} is the type of a header's values: pass hash_header too")

    @property
    def arguments(self) -> dict[str, str]:
        """The exchange's arguments."""
        arguments = {"hash-header": self.hash_header, "hash-property": self.hash_property}
        return {name: value for name, value in arguments.items() if value is not None}

    def message(self, value: Any) -> dict[str, Any]:
        """Return the message that has this value where the exchange looks, as arguments of its `route`.

        Args:
            value: the routing key, or the value of the header or the property.
        """
        if self.hash_header is not None:
            return {"headers": {self.hash_header: self._header(value)}, "client": self.client}
        if self.hash_property is not None:
            return {"properties": {self.hash_property: value}, "client": self.client}
        return {"routing_key": value}

    def exchange(self, ring: KeyMap) -> ConsistentHashExchange | ModulusHashExchange | SuperStream:
        """Return what routes whole messages by a key map: an exchange, or the clients of a super stream."""
        return self.ring_exchange(ring) or cast("ModulusHashExchange | SuperStream", ring)

    def ring_exchange(self, ring: KeyMap) -> ConsistentHashExchange | None:
        """Return the exchange of a ring, which explains its routes; None for a key map that routes messages itself."""
        check_key_map(ring)
        if ring.hashing.exchange_type != HASH_EXCHANGE:
            return None
        return ConsistentHashExchange("sample", cast("HashRing | SlotTable", ring), self.arguments)

    def route_all(self, values: Sequence[Any], ring: KeyMap) -> list[Place | Refused]:
        """Return the destination of each value by the rules of the map's release; None if its message is unroutable.

        Args:
            values: routing keys, or values of the header or the property.
            ring: the key map of the exchange.
        """
        exchange = self.ring_exchange(ring)
        if exchange is None:
            return [self.exchange(ring).route(**self.message(value)) for value in values]
        if not exchange.ring.destinations:
            return [_route(exchange, self.message(value)) for value in values]
        places: tuple[Place, ...] = (*exchange.destinations, None)  # the index of a hole, -1, is the last
        try:
            indices = exchange.indices(values, field_type=self.field_type, client=self.client)
        except ChannelClosedError:
            return [_route(exchange, self.message(value)) for value in values]
        return [places[index] for index in indices.tolist()]

    def identities(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return something hashable for each value, equal where values are the same in a message.

        Python takes 1, 1.0 and True for equal; on the wire they differ, and text and its bytes may not.

        Args:
            values: routing keys, or values of the header or the property.
        """
        kinds = set(map(type, values))
        if len(kinds) == 1 and kinds.pop() in _PLAIN:
            return values
        return list(map(self._sent, values))

    def weigh(self, batch: SampleBatch) -> tuple[dict[Any, int], dict[Any, int]]:
        """Return how many messages each distinct value has that has any, and the index of the first such value, both by identity.

        Args:
            batch: the part of a sample.
        """
        identities = self.identities(batch.values)
        first = dict(zip(reversed(identities), range(len(identities) - 1, -1, -1), strict=True))
        if batch.messages is None:
            return Counter(identities), first
        weights: dict[Any, int] = {}
        for identity, messages in zip(identities, batch.messages, strict=True):
            if messages:
                weights[identity] = weights.get(identity, 0) + messages
        return weights, first

    def term(self, value: Any, release: Release) -> Term:
        """Return the term that an ``x-consistent-hash`` exchange of a release hashes for a value.

        Args:
            value: the routing key, or the value of the header or the property.
            release: the release of the broker.
        """
        sent = self._sent(value)
        if self.hash_header is not None:
            return field_term(sent, release).term
        return str(sent).encode() if self.hash_property == "timestamp" else cast("bytes", sent)

    def _sent(self, value: Any) -> Any:
        if self.hash_header is not None:
            return field_for(self._header(value), self.client)
        if self.hash_property is None:
            return short_string(value, "the routing key")
        if self.hash_property == "timestamp":
            return property_seconds(value, self.client)
        return property_bytes(self.hash_property, value, self.client)

    def _header(self, value: Any) -> Any:
        bare = self.field_type is None or isinstance(value, AmqpField)
        return value if bare else AmqpField(self.field_type, value)  # type: ignore[arg-type]


def _route(exchange: ConsistentHashExchange, message: dict[str, Any]) -> Place | Refused:
    try:
        return exchange.route(**message)
    except ChannelClosedError as error:
        return Refused(str(error))


_NUMBER = "{n}"
_FIRST_BATCH = 64
_LARGEST_BATCH = 1 << 14


class NoKeyFoundError(InputError):
    """No key of the pattern reached the destination within the tries that were allowed."""


def keys_for(
    ring: KeyMap,
    destination: Destination,
    pattern: str = "canary-{n}",
    *,
    start: int = 0,
    tries: int = 1_000_000,
    hashing: Hashing | None = None,
    read: Callable[[str], Any] = str,
    among: Iterable[Sequence[str]] | None = None,
) -> Iterator[str]:
    """Return an iterator of keys that reach a destination, in order. It is endless, unless they are `among` others.

    ::

        list(itertools.islice(keys_for(ring, "q7"), 3))

    Args:
        ring: the key map; the keys are as sure as its provenance.
        destination: the destination that the keys must reach: with slots a queue, or one of the slots.
        pattern: a key with ``{n}`` in the place of a number.
        start: the first number.
        tries: how many candidates in a row may land elsewhere before the search is given up.
        hashing: the hashed part of a message; the routing key if None.
        read: converts a key into the hashed value, such as an AmqpField of a number.
        among: batches of keys to choose from, instead of those of the pattern.

    Raises:
        InputError: the destination gets no key, the pattern has no ``{n}``, or a number is out of range.
        NotDeterminedError: the release does not determine the destinations of an ``x-modulus-hash`` exchange.
        NoKeyFoundError: no key reaches its buckets; or, while iterating, `tries` keys in a row went elsewhere.
    """
    _check_pattern(pattern)
    check_whole("start", start, 0)
    check_whole("tries", tries, 1)
    check_key_map(ring)
    if destination not in ring.destinations and destination in ring.beneath.destinations:
        ring = ring.beneath  # a slot is asked for
    if destination not in ring.destinations:
        names = ", ".join(map(str, dict.fromkeys(ring.destinations[:10]))) or "nothing at all"
        raise InputError(
            f"{destination!s} has no bucket in the ring; the ring has {names}",
            queue=destination if isinstance(destination, str) else None,
        )
    if destination not in ring.buckets[: ring.bucket_count]:
        raise NoKeyFoundError(
            f"no key lands on {destination!s}: its exact share is 0, as the ring has holes, and of its buckets the broker "
            f"counts the first {ring.bucket_count:,} alone: delete the exchange and declare it again"
        )
    hashed = hashing or Hashing()

    def routed(batch: Sequence[str]) -> Sequence[Place | Refused]:
        return hashed.route_all(list(map(read, batch)), ring)

    if among is not None:
        return _search(routed, destination, among, sys.maxsize)
    longest = None if hashed.hash_header is not None else MAX_SHORTSTR
    return _search(routed, destination, _batches(pattern, start, longest), tries)


def _check_pattern(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise InputError(f"the pattern is {pattern!r:.60}: pass text with {_NUMBER} in it")
    if _NUMBER not in pattern:
        raise InputError(
            f"the pattern {pattern!r:.60} makes one key only: write {_NUMBER} where its number belongs"
        )
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the pattern {pattern!r:.60} holds half of a surrogate pair: pass whole text"
        ) from None


def _search(
    routed: Callable[[Sequence[str]], Sequence[Place | Refused]],
    destination: Destination,
    batches: Iterable[Sequence[str]],
    tries: int,
) -> Iterator[str]:
    misses = 0
    for batch in batches:
        for key, place in zip(batch, routed(batch), strict=True):
            if place == destination:
                yield key
                misses = 0
                continue
            misses += 1
            if misses == tries:
                raise NoKeyFoundError(
                    f"{tries:,} keys in a row, up to {key!r}, do not land on {destination!s}: allow more tries"
                )


def _batches(pattern: str, start: int, longest: int | None) -> Iterator[list[str]]:
    """Yield candidates in batches of growing size: the first keys arrive quickly, a long search uses arrays."""
    for power in count():
        size = min(_FIRST_BATCH << min(power, 20), _LARGEST_BATCH)
        batch = [pattern.replace(_NUMBER, str(n)) for n in range(start, start + size)]
        if longest is not None and len(batch[-1].encode()) > longest:
            raise InputError(
                f"the pattern {pattern[:40]!r}... makes keys of more than {longest} bytes: "
                "AMQP cannot carry them; shorten it"
            )
        yield batch
        start += size
