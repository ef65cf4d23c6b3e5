"""Arrays of keys to buckets: phash2 of many keys, and the jump hash of many seeds.

This is the only part of `routing` that uses NumPy; it is imported on first use. pyarrow arrays are accepted without a dependency on
pyarrow.
"""

from rabbit_chx.routing.arrays.exchange_seeds import ExchangeSeeds, list_hashes
from rabbit_chx.routing.arrays.keys import hashes, is_null, murmur3_hashes, pieces
from rabbit_chx.routing.arrays.modulo import ModuloFlows
from rabbit_chx.routing.arrays.nested import nested_flows
from rabbit_chx.routing.arrays.seeds import (
    all_buckets,
    all_seeds,
    buckets_of_seeds,
    counts_at,
    destinations_at,
    flows,
    indices,
    indices_of_all_seeds,
    indices_of_seeds,
)

__all__ = [
    "ExchangeSeeds",
    "ModuloFlows",
    "all_buckets",
    "all_seeds",
    "buckets_of_seeds",
    "counts_at",
    "destinations_at",
    "flows",
    "hashes",
    "indices",
    "indices_of_all_seeds",
    "indices_of_seeds",
    "is_null",
    "list_hashes",
    "murmur3_hashes",
    "nested_flows",
    "pieces",
]
