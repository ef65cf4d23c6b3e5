"""Measure single calls: the first batch on a new bucket count, an unseen key, `import rabbit_chx`.

Each figure is a median. Machines differ, so the script also prints the cost of something that everybody
knows.

    python bench/latency.py
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
import zlib

import pyarrow as pa

from rabbit_chx import HashRing

FIRST_BATCH_KEYS = 10_000
UNSEEN_KEYS = 200_000
IMPORTS = 31


def first_batch_ms() -> float:
    """Return the milliseconds for 10,000 keys on a new bucket count. NumPy is already loaded."""
    keys = pa.array([f"order-{n}" for n in range(FIRST_BATCH_KEYS)])
    HashRing.from_bindings([("q", 2)]).indices(keys)
    seconds = []
    for buckets in range(101, 112):
        ring = HashRing.from_bindings([("q", buckets)])
        started = time.perf_counter()
        ring.indices(keys)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1e3


def per_call_us(function: object, keys: list[bytes]) -> float:
    """Return the microseconds of one call, in a loop over keys that the function has not seen."""
    assert callable(function)  # noqa: S101
    rates = []
    for start in range(0, len(keys), len(keys) // 5):
        part = keys[start : start + len(keys) // 5]
        started = time.perf_counter()
        for key in part:
            function(key)
        rates.append((time.perf_counter() - started) / len(part))
    return statistics.median(rates) * 1e6


def import_ms(code: str) -> float:
    """Return the milliseconds of a new interpreter that runs the code."""
    seconds = []
    for _ in range(IMPORTS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1e3


def main() -> None:
    """Measure and print."""
    print(f"first batch of {FIRST_BATCH_KEYS:,} keys on a new bucket count: {first_batch_ms():.1f} ms")
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(10)])
    ring.shares()  # fill the table
    rng = random.Random(3)  # noqa: S311 - no secret
    keys = [rng.randbytes(12) for _ in range(UNSEEN_KEYS)]
    scalar, crc = per_call_us(ring.destination_for, keys), per_call_us(zlib.crc32, keys)
    print(f"destination_for an unseen 12-byte key: {scalar:.2f} us (zlib.crc32, in C: {crc:.2f} us)")
    bare, package = import_ms("pass"), import_ms("import rabbit_chx")
    mirror = import_ms("from rabbit_chx import HashRing")
    print(f"a bare interpreter {bare:.1f} ms, with import rabbit_chx +{package - bare:.1f} ms,", end=" ")
    print(f"with HashRing +{mirror - bare:.1f} ms")


if __name__ == "__main__":
    main()
