"""How many messages each slot of a ring gets, and which keys they have. No I/O.

RabbitMQ has no such figures: it counts a message for the exchange that it was published to, and not for those it passes on its
way (tried on 3.10.8, 4.0.5 and 4.3.6: slot exchanges have no ``message_stats``). So they come from a sample of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from rabbit_chx.analysis.key_routing import Hashing, Refused, SampleBatch
from rabbit_chx.analysis.key_sketch import KeySketch
from rabbit_chx.routing import Destination, HashRing, KeyMap, Place, check_key_map, ring_beneath

_COUNTERS = 1000
_HEAVIEST = 20


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """How many messages a heavy key has: a number between two bounds.

    Attributes:
        key: the key.
        place: the slot or queue of the ring where it goes.
        least: the fewest messages that it has.
        most: the most messages that it has.
    """

    key: Any
    place: Place
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """How many messages each destination of a ring gets.

    Attributes:
        messages: the messages of each destination that has any.
        nowhere: the messages that have no destination, or that the broker refuses.
        keys: the heaviest keys, the heaviest first.
    """

    messages: Mapping[Destination, float] = field(hash=False)
    nowhere: int = 0
    keys: tuple[KeyLoad, ...] = ()

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
            key_map: the slot table, or its ring.
            batches: what is hashed of each message, once for each message, in batches; or each batch as a `SampleBatch`.
            hashing: what the exchange hashes; None for the routing key.
            counters: how many keys to count at a time; see :class:`rabbit_chx.analysis.KeySketch`.

        Raises:
            InputError: a value cannot be sent, or `key_map` is neither a HashRing nor a SlotTable.
        """
        check_key_map(key_map)
        ring = ring_beneath(key_map)
        hashing = hashing or Hashing()
        messages: Counter[Place] = Counter()
        sketch = KeySketch(counters)
        for key, place, count in chain.from_iterable(_routed(ring, batch, hashing) for batch in batches):
            messages[place] += count
            sketch.add((key, place), count)
        nowhere = messages.pop(None, 0)
        heaviest = sketch.heaviest(_HEAVIEST)
        keys = tuple(KeyLoad(count.key[0], count.key[1], count.least, count.most) for count in heaviest)
        counted = {place: count for place, count in messages.items() if place is not None}
        return cls(counted, nowhere, keys)


def _routed(
    ring: HashRing, batch: Sequence[Any] | SampleBatch, hashing: Hashing
) -> Iterable[tuple[Hashable, Place, int]]:
    """Return each distinct value, where it goes, and how often it occurs; the most frequent first."""
    values, messages, _ = batch if isinstance(batch, SampleBatch) else SampleBatch(batch)
    values_by_identity: dict[Hashable, Any] = {}
    counts: Counter[Hashable] = Counter()
    for identity, value, count in zip(
        hashing.identities(values), values, messages or repeat(1, len(values)), strict=True
    ):
        values_by_identity.setdefault(identity, value)
        counts[identity] += count
    ordered = [counted for counted in counts.most_common() if counted[1]]
    places = hashing.route_all([values_by_identity[identity] for identity, _ in ordered], ring)
    for (identity, count), place in zip(ordered, places, strict=True):
        yield identity, None if isinstance(place, Refused) else place, count
