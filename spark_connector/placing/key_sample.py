"""A sample of each partition's routing keys, small enough to find keys that are in two partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The most keys of a partition's sample; 8 bytes for each travel to the driver.
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class KeySample:
    """The smallest hashes of a partition's keys. Partitions that share keys share some of these hashes.

    Attributes:
        hashes: 8 bytes for each key, in ascending order.
        complete: whether the sample has all keys of the partition.
    """

    hashes: bytes = b""
    complete: bool = True


class KeySampler:
    """Makes the sample of a partition, batch by batch."""

    def __init__(self) -> None:
        self._smallest: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._complete = True

    def add(self, keys: Any) -> None:  # noqa: ANN401  # Arrow has no types
        """Take the keys of a batch into the sample: an Arrow array or a list of bytes."""
        distinct: Any = pc.unique(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary()))
        hashes = b"".join(hashlib.sha256(key).digest()[:8] for key in distinct.to_pylist())
        smallest = np.union1d(self._smallest, np.frombuffer(hashes, np.uint64))
        self._complete = self._complete and len(smallest) <= _MOST
        self._smallest = smallest[:_MOST]

    def sample(self) -> KeySample:
        """Return the sample of all keys so far."""
        return KeySample(self._smallest.tobytes(), self._complete)


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """How many keys are in more than one partition, by the samples of the partitions.

    Attributes:
        looked_at: number of different keys that were compared.
        split: number of these keys that are in more than one partition.
        complete: whether all keys were compared.
    """

    looked_at: int
    split: int
    complete: bool

    @classmethod
    def of(cls, samples: Iterable[KeySample]) -> SplitKeys:
        """Compare samples up to the hash that all of them reach; up to there each sample has all its keys."""
        partitions = [(np.frombuffer(sample.hashes, np.uint64), sample.complete) for sample in samples]
        cut_off = [hashes[-1] for hashes, complete in partitions if not complete]
        comparable = [hashes if not cut_off else hashes[hashes <= min(cut_off)] for hashes, _ in partitions]
        _, times = np.unique(np.concatenate([np.empty(0, np.uint64), *comparable]), return_counts=True)
        return cls(len(times), int(np.count_nonzero(times > 1)), not cut_off)
