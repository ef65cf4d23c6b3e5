"""The server's jump consistent hash: from a term and a bucket count to a bucket.

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``, ``jump_consistent_hash/2``
and ``jump_consistent_hash_value/4`` (v3.7.8 to v4.3.6; the clause for the empty list since v4.3.5). It is the jump hash of Lamping and
Veach with another random number generator, so the results differ.

The exchange keeps 21 bits of a hash. So the bucket is a function of one of 2^21 seeds and the bucket count N. All rings of the process with
the same N share one table of this function, which is filled on demand. A table takes 2 MiB up to 255 buckets, 4 MiB up to 65,535 and 8 MiB
above. At most `MAX_TABLES` are kept; the least recently requested one is dropped first.

Threads may fill a table concurrently: they write the same bucket into the same cell, and a cell is written atomically, so a reader sees
either "not filled" or the result. The lock only guards the list of tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Literal

from rabbit_chx.checks import check_whole
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.exs1024 import exs1024_uniform
from rabbit_chx.erlang.terms import Term

SEEDS = 1 << 21
SEED_MASK = SEEDS - 1
MAX_TABLES = 16
_CELLS: tuple[tuple[Literal["B", "H", "I"], int], ...] = (("B", 1), ("H", 2), ("I", 4))  # code, bytes

opened: dict[int, SeedTable] = {}
_lock = Lock()


def jump_consistent_hash(term: Term, buckets: int) -> int:
    """Return the bucket of a term, as the server finds it.

    Args:
        term: what the exchange hashes. Of a list the first element is hashed; an integer is the seed itself; all else, the empty list
            included, goes through phash2. With one bucket nothing is hashed.
        buckets: how many buckets there are, at least 1.

    Returns:
        The bucket, from 0.

    Raises:
        InputError: there are no buckets, or the value is not an Erlang term.
    """
    check_whole("the bucket count", buckets, 1)
    if buckets == 1:
        return 0
    return bucket_of_seed(seed_of(term), buckets)


def seed_of(term: Term) -> int:
    """Return the seed of a term: the 21 bits that decide, whatever the bucket count.

    The server seeds its generator with ``{K, K, K}``, of which it keeps ``K band 16#1fffff``; for a negative K that is the two's
    complement.

    Args:
        term: what the exchange hashes, as for `jump_consistent_hash`.
    """
    while isinstance(term, list) and term:
        term = term[0]
    if isinstance(term, int) and not isinstance(term, bool):
        return int(term) & SEED_MASK
    return phash2(term) & SEED_MASK


def bucket_of_seed(seed: int, buckets: int) -> int:
    """Return the bucket of a seed: looked up where the table of this bucket count is open, else walked.

    Args:
        seed: 0 to 2^21 - 1.
        buckets: how many buckets there are, at least 1.
    """
    table = table_of(buckets)
    if table is None:
        return _last_of_walk(seed, buckets)
    bucket: int = table.cells[seed]
    if bucket == table.unfilled:
        bucket = table.cells[seed] = _last_of_walk(seed, buckets)
    return bucket


def walk_of_seed(seed: int, buckets: int) -> tuple[int, ...]:
    """Return the buckets that the jump hash goes through, from 0; the last is the answer."""
    # The quotient is compared before it is cut to an integer: the same answer, and no case for large ones.
    walk = [0]
    for uniform in exs1024_uniform((seed, seed, seed)):
        following = (walk[-1] + 1) / uniform
        if following >= buckets:
            break
        walk.append(int(following))
    return tuple(walk)


@lru_cache(maxsize=16_384)
def _last_of_walk(seed: int, buckets: int) -> int:
    return walk_of_seed(seed, buckets)[-1]


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
    """Return the table of a bucket count, made if need be."""
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
