"""A sample of hashed values, and their destinations."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace, nlargest
from itertools import chain
from typing import Any, NamedTuple, TypedDict, cast

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE
from rabbit_chx.amqp.fields import FIELD_TYPES, AmqpField, Client, FieldType, field_for
from rabbit_chx.checks import MAX_SHORTSTR, check_whole, is_whole, short_string
from rabbit_chx.erlang.hashing import Term
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
from rabbit_chx.text import plural

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
    if destination not in ring.destinations and destination in ring.underlying.destinations:
        ring = ring.underlying  # a slot is asked for
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
    for power in itertools.count():
        size = min(_FIRST_BATCH << min(power, 20), _LARGEST_BATCH)
        batch = [pattern.replace(_NUMBER, str(n)) for n in range(start, start + size)]
        if longest is not None and len(batch[-1].encode()) > longest:
            raise InputError(
                f"the pattern {pattern[:40]!r}... makes keys of more than {longest} bytes: "
                "AMQP cannot carry them; shorten it"
            )
        yield batch
        start += size


# -- Load of each slot of a ring, and the heavy keys of a stream of keys in bounded memory. No I/O
# RabbitMQ counts a message for the exchange that it was published to, and not for those that it passes on its way (tried on 3.10.8, 4.0.5 and
# 4.3.6: slot exchanges have no ``message_stats``). So the load comes from a sample of keys.


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How often a key was seen: a number between two bounds.

    Attributes:
        key: the key.
        least: the fewest times that it was seen.
        most: the most times that it was seen.
    """

    key: Any
    least: int
    most: int


class KeySketch:
    """The most frequent keys of a sequence. It holds a fixed number k of keys, however many there are.

    This is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT 2005),
    with counts from 1. A new key without a free counter takes over the smallest one, and its count, which is the possible error. After N
    messages:

    - a key with a counter was seen at most `most` and at least `least` times;
    - a key without one was seen at most as often as the smallest counter, which is at most N/k;
    - the j heaviest keys aside, no error is larger than the messages of all other keys divided by k - j, for each j below k
      (Berinde, Cormode, Indyk, Strauss: Space-optimal Heavy Hitters with Strong Error Bounds, PODS 2009).

    Args:
        counters: how many keys it holds.

    Raises:
        InputError: there is not at least one counter.
    """

    def __init__(self, counters: int = 1000) -> None:
        if not is_whole(counters, 1):
            raise InputError(
                f"a sketch with {counters!r:.40} counters holds no key: pass a whole number from 1"
            )
        self._size = counters
        self._most: dict[Hashable, int] = {}
        self._taken_over: dict[Hashable, int] = {}
        # Each key once, with a former value of its counter, which is at most the present value.
        self._smallest: list[tuple[int, int, Hashable]] = []
        self._order = 0
        self.messages = 0

    def add(self, key: Hashable, messages: int = 1) -> None:
        """Count a key.

        Args:
            key: the key.
            messages: how many messages have it, from 1.
        """
        self.messages += messages
        if key in self._most:
            self._most[key] += messages
            return
        before = 0
        self._order += 1
        if len(self._most) < self._size:
            heappush(self._smallest, (messages, self._order, key))
        else:
            before, _, replaced = self._least_counter()
            del self._most[replaced], self._taken_over[replaced]
            heapreplace(self._smallest, (before + messages, self._order, key))
        self._most[key] = before + messages
        self._taken_over[key] = before

    def heaviest(self, keys: int) -> tuple[KeyCount, ...]:
        """Return the keys that were seen most often, the heaviest first, by the bound that is sure.

        Args:
            keys: how many.
        """
        counts = (KeyCount(key, most - self._taken_over[key], most) for key, most in self._most.items())
        return tuple(nlargest(keys, counts, key=lambda count: (count.least, count.most)))

    def _least_counter(self) -> tuple[int, int, Hashable]:
        """Return the smallest counter, after the heap has caught up with it."""
        while True:
            noted, order, key = self._smallest[0]
            now = self._most[key]
            if noted == now:
                return self._smallest[0]
            heapreplace(self._smallest, (now, order, key))


_COUNTERS = 1000
_HEAVIEST = 20


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """How many messages a heavy key has: a number between two bounds.

    Attributes:
        key: the key.
        place: its destination, a slot or queue of the ring.
        least: the fewest messages that it has.
        most: the most messages that it has.
    """

    key: Any
    place: Place
    least: int
    most: int


class SampleSize(TypedDict):
    """A sample of keys, in JSON: its source, and how many of its messages reach nothing."""

    source: str
    messages: int
    nowhere: int


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """The number of messages of each destination of a ring.

    Attributes:
        messages: the messages of each destination that has any.
        nowhere: the messages that have no destination, or that the broker refuses.
        keys: the heaviest keys, the heaviest first.
        source: the file of keys, or the pattern; empty if it is not known.
    """

    messages: Mapping[Destination, float] = field(hash=False)
    nowhere: int = 0
    keys: tuple[KeyLoad, ...] = ()
    source: str = ""

    @classmethod
    def of_keys(
        cls,
        key_map: KeyMap,
        batches: Iterable[Sequence[Any] | SampleBatch],
        *,
        hashing: Hashing | None = None,
        counters: int = _COUNTERS,
    ) -> SlotLoad:
        """Return the load of a sample. Its memory is bounded by the largest batch.

        Args:
            key_map: the ring or the slot table, or another map of keys.
            batches: the hashed value of each message, in batches; or each batch as a `SampleBatch`.
            hashing: the hashed part of a message; None for the routing key.
            counters: how many keys to count at a time; see :class:`rabbit_chx.analysis.KeySketch`.

        Raises:
            InputError: a value cannot be sent, or `key_map` is none.
        """
        check_key_map(key_map)
        hashing = hashing or Hashing()
        messages: Counter[Place] = Counter()
        sketch = KeySketch(counters)
        for key, place, count in chain.from_iterable(
            _route_distinct(key_map, batch, hashing) for batch in batches
        ):
            messages[place] += count
            sketch.add((key, place), count)
        nowhere = messages.pop(None, 0)
        keys = []
        for load in sketch.heaviest(_HEAVIEST):
            key, place = load.key
            keys.append(KeyLoad(key, place, load.least, load.most))
        counted = {place: count for place, count in messages.items() if place is not None}
        return cls(counted, nowhere, tuple(keys))

    @property
    def sent(self) -> int:
        """The number of all messages."""
        return int(sum(self.messages.values())) + self.nowhere

    @property
    def counts(self) -> SampleSize:
        """The fields of the sample in JSON."""
        return {"source": self.source, "messages": self.sent, "nowhere": self.nowhere}

    def text(self, members: str) -> str:
        """Return the sample in words.

        Args:
            members: what the messages are routed to.
        """
        nowhere = f", {self.nowhere:,} of them not routed to a {members}" if self.nowhere else ""
        return f"{plural(self.sent, 'message')} of {self.source}{nowhere}"

    def share(self, messages: float) -> float:
        """Return the share of the load of some messages.

        Args:
            messages: their number.
        """
        return float(f"{messages / sum(self.messages.values()):.9g}")


def _route_distinct(
    key_map: KeyMap, batch: Sequence[Any] | SampleBatch, hashing: Hashing
) -> Iterable[tuple[Hashable, Place, int]]:
    """Return each distinct value, where it goes, and how often it occurs; the most frequent first."""
    sample = batch if isinstance(batch, SampleBatch) else SampleBatch(batch)
    weights, first = hashing.weigh(sample)
    ordered = Counter(weights).most_common()
    distinct = [sample.values[first[identity]] for identity, _ in ordered]
    places = hashing.route_all(distinct, key_map.underlying)
    for (identity, count), place in zip(ordered, places, strict=True):
        yield identity, None if isinstance(place, Refused) else place, count
