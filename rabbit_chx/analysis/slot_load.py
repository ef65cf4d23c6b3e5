"""Load of each slot of a ring, and the heavy keys of a stream of keys in bounded memory. No I/O.

RabbitMQ counts a message for the exchange that it was published to, and not for those that it passes on its way (tried on 3.10.8, 4.0.5 and
4.3.6: slot exchanges have no ``message_stats``). So the load comes from a sample of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace, nlargest
from itertools import chain
from typing import Any

from rabbit_chx.analysis.key_routing import Hashing, Refused, SampleBatch
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap, check_key_map
from rabbit_chx.words import plural


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
        heaviest = sketch.heaviest(_HEAVIEST)
        keys = tuple(
            KeyLoad(key, place, count.least, count.most) for count in heaviest for key, place in [count.key]
        )
        counted = {place: count for place, count in messages.items() if place is not None}
        return cls(counted, nowhere, keys)

    @property
    def sent(self) -> int:
        """The number of all messages."""
        return int(sum(self.messages.values())) + self.nowhere

    @property
    def counts(self) -> dict[str, object]:
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
    places = hashing.route_all(distinct, key_map.beneath)
    for (identity, count), place in zip(ordered, places, strict=True):
        yield identity, None if isinstance(place, Refused) else place, count
