"""Is every routing key in one partition? A sample of each partition's keys, small enough to compare them all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["KeySample", "KeySampler", "SplitKeys"]

#: Different keys that a partition keeps; 8 bytes for each travel to the driver.
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class KeySample:
    """The smallest hashes of a partition's keys: partitions that share keys share some of these.

    Attributes:
        hashes: 8 bytes for each, in order.
        complete: whether it is all keys of the partition.
    """

    hashes: bytes = b""
    complete: bool = True


class KeySampler:
    """Takes the sample of a partition, batch by batch."""

    def __init__(self) -> None:
        self._kept: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._complete = True

    def add(self, keys: Any) -> None:  # noqa: ANN401  # Arrow has no types
        """Look at the keys of a batch: an Arrow array or a list of bytes."""
        different: Any = pc.unique(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.binary()))
        hashes = b"".join(hashlib.sha256(key).digest()[:8] for key in different.to_pylist())
        kept = np.union1d(self._kept, np.frombuffer(hashes, np.uint64))
        self._complete = self._complete and len(kept) <= _MOST
        self._kept = kept[:_MOST]

    def sample(self) -> KeySample:
        """Of all keys so far."""
        return KeySample(self._kept.tobytes(), self._complete)


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """What samples of several partitions tell together.

    Attributes:
        looked_at: different keys that were compared.
        split: of these, how many are in more than one partition.
        complete: whether these are all keys.
    """

    looked_at: int
    split: int
    complete: bool

    @classmethod
    def of(cls, samples: Iterable[KeySample]) -> SplitKeys:
        """Compare up to the hash that every sample reaches: below it, each has all hashes of its partition."""
        partitions = [(np.frombuffer(sample.hashes, np.uint64), sample.complete) for sample in samples]
        cut_off = [hashes[-1] for hashes, complete in partitions if not complete]
        comparable = [hashes if not cut_off else hashes[hashes <= min(cut_off)] for hashes, _ in partitions]
        _, times = np.unique(np.concatenate([np.empty(0, np.uint64), *comparable]), return_counts=True)
        return cls(len(times), int(np.count_nonzero(times > 1)), not cut_off)
