"""Arrays of keys to buckets: phash2 of many keys at once, and the walk of many seeds at once.

The only package of this floor that uses NumPy; it is loaded when the first array is routed. pyarrow is taken where
the caller brings its arrays, and is no dependency.
"""

from rabbit_chx.routing.arrays.exchange_seeds import amqp10_seeds, header_seeds, property_seeds
from rabbit_chx.routing.arrays.keys import hashes
from rabbit_chx.routing.arrays.seeds import (
    all_buckets,
    buckets_of_seeds,
    counts_at,
    destinations_at,
    indices,
    indices_of_all_seeds,
    indices_of_seeds,
    share_moved,
    shares,
)

__all__ = [
    "all_buckets",
    "amqp10_seeds",
    "buckets_of_seeds",
    "counts_at",
    "destinations_at",
    "hashes",
    "header_seeds",
    "indices",
    "indices_of_all_seeds",
    "indices_of_seeds",
    "property_seeds",
    "share_moved",
    "shares",
]
