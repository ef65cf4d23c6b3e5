"""Samples of the keys of partitions: whether partitions share keys.

A sample has the smallest hashes of a partition's keys, so partitions that share keys share some of these hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The most keys of a sample. One that has a further hash does not have all keys of its partition.
_MOST = 1_000


class KeySampler:
    """Samples the keys of a partition, batch by batch."""

    def __init__(self) -> None:
        self._smallest: NDArray[np.uint64] = np.empty(0, np.uint64)

    def add(self, keys: Any) -> None:  # Arrow has no types
        """Add the keys of a batch: an Arrow array or a list of bytes."""
        distinct: Any = pc.unique(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary()))
        hashes = b"".join(hashlib.sha256(key).digest()[:8] for key in distinct.to_pylist())
        self._smallest = np.union1d(self._smallest, np.frombuffer(hashes, np.uint64))[: _MOST + 1]

    def sample(self) -> bytes:
        """Return the sample of all keys so far: 8 bytes for each, in ascending order."""
        return self._smallest.tobytes()


def count_split_keys(samples: Iterable[bytes]) -> tuple[int, int, bool]:
    """Return how many keys were compared, how many of them are in more than one partition, and whether these are all keys.

    Keys are compared up to the hash that all samples reach: up to there each has all keys of its partition.
    """
    partitions = [np.frombuffer(sample, np.uint64) for sample in samples]
    cut_off = [hashes[_MOST - 1] for hashes in partitions if len(hashes) > _MOST]
    comparable = [hashes if not cut_off else hashes[hashes <= min(cut_off)] for hashes in partitions]
    _, times = np.unique(np.concatenate([np.empty(0, np.uint64), *comparable]), return_counts=True)
    return len(times), int(np.count_nonzero(times > 1)), not cut_off
