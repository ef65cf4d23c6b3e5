"""Which bucket a seed has: one table for each bucket count, filled on demand, shared by the whole process.

The exchange keeps 21 bits of a hash, so it is a function from 2^21 seeds to buckets, and that function
depends on nothing but the bucket count N. All rings with the same N share one table. A table starts empty;
whoever walks a seed writes the answer down.

A table takes 2 MiB up to 255 buckets, 4 MiB up to 65,535 and 8 MiB above. At most `MAX_TABLES` are kept; the
table that was asked for longest ago goes first.

Threads: two threads that walk the same seed write the same bucket into the same cell, and a cell is written
whole, so a reader sees either "not filled" or the answer. The lock guards the list of tables alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Literal

SEEDS = 1 << 21
MAX_TABLES = 16
_CELLS: tuple[tuple[Literal["B", "H", "I"], int], ...] = (("B", 1), ("H", 2), ("I", 4))  # code, bytes

opened: dict[int, SeedTable] = {}
_lock = Lock()


@dataclass(frozen=True, slots=True)
class SeedTable:
    """The bucket of each seed for one bucket count.

    Attributes:
        cells: one cell for each of the 2^21 seeds, of 1, 2 or 4 bytes; writable.
        unfilled: what a cell holds before its seed was walked.
    """

    cells: memoryview
    unfilled: int


def table_of(buckets: int) -> SeedTable | None:
    """Return the table of a bucket count, if one is open."""
    return opened.get(buckets)


def open_table(buckets: int) -> SeedTable:
    """Return the table of a bucket count, made if need be.

    Args:
        buckets: the bucket count, 1 to 2^32 - 1.
    """
    with _lock:
        table = opened.pop(buckets, None) or _empty_table(buckets)
        opened[buckets] = table
        while len(opened) > MAX_TABLES:
            del opened[next(iter(opened))]
    return table


def _empty_table(buckets: int) -> SeedTable:
    code, width = next(cell for cell in _CELLS if buckets < 1 << 8 * cell[1])
    cells = memoryview(bytearray(b"\xff") * (SEEDS * width)).cast(code)
    return SeedTable(cells, unfilled=(1 << 8 * width) - 1)
