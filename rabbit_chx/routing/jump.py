"""The server's jump consistent hash: from a term and a bucket count to a bucket.

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``, ``jump_consistent_hash/2``
and ``jump_consistent_hash_value/4`` (v3.10.0 to v4.3.6; the clause for the empty list since v4.3.5). It is the jump hash of Lamping and
Veach with another random number generator, so the results differ.

The exchange uses 21 bits of a hash, so the bucket is a function of one of 2^21 seeds and the bucket count N. All rings of the process with
the same N share one table of this function, which is filled on demand. A table takes 2 MiB up to 255 buckets, 4 MiB up to 65,535 and 8 MiB
above. At most `MAX_TABLES` are open; the least recently opened one is dropped first. Only arrays of keys open a table (`open_table`); a
single key uses it if it is open. Threads may fill a table concurrently: a cell is written
atomically and always gets the same bucket, so a reader sees either "not filled" or the result. The lock guards only the list of tables.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Literal, TypeAlias

from rabbit_chx.checks import check_whole
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.hashing import Term, exs1024_uniform

SEEDS = 1 << 21
SEED_MASK = SEEDS - 1
MAX_TABLES = 16
_CELLS: tuple[tuple[Literal["B", "H", "I"], int], ...] = (("B", 1), ("H", 2), ("I", 4))  # code, bytes

#: The bucket of each seed for one bucket count: a writable cell of 1, 2 or 4 bytes for each of the 2^21 seeds; and the content of a cell whose
#: seed was not computed.
SeedTable: TypeAlias = tuple[memoryview, int]
#: The open tables by bucket count, the most recently opened last.
opened: dict[int, SeedTable] = {}
_lock = Lock()


def jump_consistent_hash(term: Term, buckets: int) -> int:
    """Return the bucket of a term, as the server computes it.

    Args:
        term: the hashed term. Of a list the first element is hashed. An integer is the seed itself. All other terms, including the empty
            list, are hashed by phash2. With one bucket nothing is hashed.
        buckets: the number of buckets, at least 1.

    Returns:
        The bucket, from 0.

    Raises:
        InputError: the number of buckets is less than 1, or the value is not an Erlang term.
    """
    check_whole("the bucket count", buckets, 1)
    if buckets == 1:
        return 0
    return bucket_of_seed(seed_of(term), buckets)


def seed_of(term: Term) -> int:
    """Return the seed of a term: 21 bits, independent of the bucket count.

    The server seeds its generator with ``{K, K, K}`` and uses ``K band 16#1fffff``, the two's complement for a negative K.
    """
    while isinstance(term, list) and term:
        term = term[0]
    if isinstance(term, int) and not isinstance(term, bool):
        return int(term) & SEED_MASK
    return phash2(term) & SEED_MASK


def bucket_of_seed(seed: int, buckets: int) -> int:
    """Return the bucket of a seed: from the table of this bucket count if it is open, otherwise computed."""
    table = opened.get(buckets)
    if table is None:
        return _last_of_walk(seed, buckets)
    cells, unfilled = table
    bucket: int = cells[seed]
    if bucket == unfilled:
        bucket = cells[seed] = _last_of_walk(seed, buckets)
    return bucket


def walk_of_seed(seed: int, buckets: int) -> tuple[int, ...]:
    """Return the buckets that the jump hash visits, from 0; the last is the result."""
    # The quotient is compared before truncation: the result is the same, without a special case for large ones.
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


def open_table(buckets: int) -> SeedTable:
    """Return the table of a bucket count; create it if necessary."""
    with _lock:
        table = opened.pop(buckets, None) or _empty_table(buckets)
        opened[buckets] = table
        while len(opened) > MAX_TABLES:
            del opened[next(iter(opened))]
    return table


def _empty_table(buckets: int) -> SeedTable:
    code, width = next(cell for cell in _CELLS if buckets < 1 << 8 * cell[1])
    cells = memoryview(bytearray(b"\xff") * (SEEDS * width)).cast(code)
    return cells, (1 << 8 * width) - 1
