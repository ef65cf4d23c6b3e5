"""Which partition has which queue, or which slice of a queue: arithmetic without Spark."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing.murmur3 import murmur3_x86_32

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.routing import KeyMap

__all__ = ["NO_QUEUE", "Placement", "salts"]

_SPARK_SEED = 42
#: What reports show instead of a queue for rows that have none.
NO_QUEUE = "(no queue)"


@dataclass(frozen=True, slots=True)
class Placement:
    """Partitions in the order of the ring's destinations: first all slices of the first queue, and so on.

    A slice is a part of a queue's keys. All rows of a key are in one slice.

    Attributes:
        queues: names of the ring's destinations, in its order.
        slices: number of partitions of each queue, 1 or more.
        spare: whether there is one more partition, the last, for rows without a queue (a null key, a hole).
    """

    queues: tuple[str, ...]
    slices: tuple[int, ...]
    spare: bool = False

    @classmethod
    def of(
        cls,
        ring: KeyMap,
        *,
        slices: Mapping[str, int] | None = None,
        partitions: int | None = None,
        spare: bool = False,
    ) -> Placement:
        """Return the placement of a ring.

        Args:
            ring: a ring or a table of slots with at least one destination.
            slices: number of partitions of each queue that has more than one.
            partitions: number of partitions of all queues; each queue gets slices by its share of the ring.
            spare: whether there is a partition for rows without a queue.

        Raises:
            InputError: a queue is not in the ring, a number is too small, or `slices` and `partitions` are
                both given.
        """
        queues = tuple(map(str, ring.destinations))
        if slices is not None and partitions is not None:
            raise InputError(
                "slices and partitions were given: give the slices of each queue, or their total"
            )
        if partitions is not None:
            return cls(queues, _by_share(ring, partitions), spare)
        return cls(queues, _as_asked(queues, slices or {}), spare)

    @property
    def partitions(self) -> int:
        """The number of all partitions."""
        return sum(self.slices) + self.spare

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first partition of each queue."""
        return tuple(accumulate(self.slices, initial=0))[:-1]

    @property
    def labels(self) -> tuple[str, ...]:
        """The queue or slice of each partition, such as ``q1`` or ``q2 1/3``."""
        return (
            *(
                queue if slices == 1 else f"{queue} {n}/{slices}"
                for queue, slices in zip(self.queues, self.slices, strict=True)
                for n in range(1, slices + 1)
            ),
            *((NO_QUEUE,) if self.spare else ()),
        )

    @property
    def needs_hashes(self) -> bool:
        """Whether a queue has more than one slice."""
        return max(self.slices) > 1

    def partitions_of(
        self, indices: NDArray[np.int32], hashes: NDArray[np.int64] | None = None
    ) -> NDArray[np.int32]:
        """Return the partition of each row.

        Args:
            indices: index of each row's queue; -1 if it has none.
            hashes: a hash of each row's key, needed if a queue has more than one slice. It must not be the
                hash of the ring: the keys of one queue have few values of that.
        """
        import numpy as np

        last = self.partitions - 1 if self.spare else 0
        found = np.array((*self.offsets, last), np.int32)[indices]  # -1 takes the last
        if hashes is not None:
            found += (hashes % np.array((*self.slices, 1), np.int64)[indices]).astype(np.int32)
        return found


def _as_asked(queues: tuple[str, ...], slices: Mapping[str, int]) -> tuple[int, ...]:
    if not isinstance(slices, Mapping):
        raise InputError(
            f"slices is {slices!r:.60}: give a dict of queue names and numbers, such as {{'q1': 4}}"
        )
    for queue, number in slices.items():
        if queue not in queues:
            raise InputError(
                f"slices names the queue {queue!r}, which is not in the ring: it has {', '.join(queues[:10])}"
            )
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise InputError(f"slices gives the queue {queue!r} {number!r}: give a whole number, 1 or more")
    return tuple(slices.get(queue, 1) for queue in queues)


def _by_share(ring: KeyMap, partitions: int) -> tuple[int, ...]:
    """Give out slices one by one, each to the queue whose slices are the largest so far."""
    number = len(ring.destinations)
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < number:
        raise InputError(
            f"partitions is {partitions!r}: the ring has {number} queues, and each needs one or more of its own"
        )
    shares = ring.shares()
    slices = [1] * number
    heap = [(-shares[destination], index) for index, destination in enumerate(ring.destinations)]
    heapq.heapify(heap)
    for _ in range(partitions - number):
        index = heap[0][1]
        slices[index] += 1
        heapq.heapreplace(heap, (-shares[ring.destinations[index]] / slices[index], index))
    return tuple(slices)


def salts(partitions: int) -> tuple[int, ...]:
    """Return for each partition an int that Spark's ``repartition(partitions, column)`` sends there.

    Mirrors apache/spark v3.5.0, HashPartitioning.partitionIdExpression: ``pmod(murmur3(column, 42),
    partitions)``, where Murmur3_x86_32.hashInt takes an int as its four bytes, little-endian.
    """
    found: dict[int, int] = {}
    for salt in count():
        if len(found) == partitions:
            break
        hashed = murmur3_x86_32(struct.pack("<i", salt), _SPARK_SEED)
        signed = hashed - (1 << 32) if hashed >> 31 else hashed
        found.setdefault(signed % partitions, salt)
    return tuple(found[partition] for partition in range(partitions))
