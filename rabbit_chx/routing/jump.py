"""The server's jump consistent hash: a term and a bucket count give a bucket.

Mirrors rabbitmq-server
``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``,
``jump_consistent_hash/2`` and ``jump_consistent_hash_value/4`` (v3.7.8 to v4.3.6; the clause for the empty
list since v4.3.5). It is the jump hash of Lamping and Veach over another generator, so their numbers differ.
"""

from __future__ import annotations

from functools import lru_cache

from rabbit_chx.checks import check_whole
from rabbit_chx.erlang import Term, exs1024_uniform, phash2
from rabbit_chx.routing.seed_tables import SEEDS, table_of

SEED_MASK = SEEDS - 1


def jump_consistent_hash(term: Term, buckets: int) -> int:
    """Return the bucket of a term, as the server finds it.

    Args:
        term: what the exchange hashes. Of a list the first element is hashed; an integer is the seed itself;
            all else, the empty list included, goes through phash2. With one bucket nothing is hashed.
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

    The server seeds its generator with ``{K, K, K}``, of which it keeps ``K band 16#1fffff``; for a negative
    K that is the two's complement.

    Args:
        term: what the exchange hashes, as for `jump_consistent_hash`.

    Raises:
        InputError: the value is not an Erlang term.
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
    """Return the buckets that the jump hash goes through, from 0; the last is the answer.

    Args:
        seed: 0 to 2^21 - 1.
        buckets: how many buckets there are, at least 1.
    """
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
