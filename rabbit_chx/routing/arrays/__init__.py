"""Arrays of keys to buckets: phash2 of many keys, and the jump hash of many seeds.

This is the only part of `routing` that uses NumPy; it is imported on first use. pyarrow arrays are accepted without a dependency on
pyarrow.
"""
