"""Samples of the keys of partitions: whether partitions share keys.

A sample has the smallest hashes of a partition's keys, so partitions that share keys share some of these hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The most keys of a sample. One that has a further hash does not have all keys of its partition.
_MOST = 1_000


def add_to_sample(sample: bytes, keys: Any) -> bytes:  # Arrow has no types
    """Return the sample of a partition, b"" at first, with the keys of a batch: an Arrow array or a list of bytes.

    It has 8 bytes for each key, in ascending order.
    """
    distinct: Any = pc.unique(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary()))
    hashes = b"".join(hashlib.sha256(key).digest()[:8] for key in distinct.to_pylist())
    smallest = np.union1d(np.frombuffer(sample, np.uint64), np.frombuffer(hashes, np.uint64))
    return smallest[: _MOST + 1].tobytes()


def count_split_keys(samples: Iterable[bytes]) -> tuple[int, int, bool]:
    """Return how many keys were compared, how many of them are in more than one partition, and whether these are all keys.

    Keys are compared up to the hash that all samples reach: up to there each has all keys of its partition.
    """
    partitions = [np.frombuffer(sample, np.uint64) for sample in samples]
    cut_off = [hashes[_MOST - 1] for hashes in partitions if len(hashes) > _MOST]
    comparable = [hashes if not cut_off else hashes[hashes <= min(cut_off)] for hashes in partitions]
    _, times = np.unique(np.concatenate([np.empty(0, np.uint64), *comparable]), return_counts=True)
    return len(times), int(np.count_nonzero(times > 1)), not cut_off
