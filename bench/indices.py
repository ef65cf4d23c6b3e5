"""Compare `HashRing.indices` with calls of `destination_for` and with a C loop, in keys per second.

All three use the same table of seeds, which is filled before the clock starts. They run on one core. The
figures are medians of several runs.

    python bench/indices.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from c_loop import compiled_route

from rabbit_chx.routing import HashRing

SHORT_KEYS = 5_000_000
UUID_KEYS = 1_000_000
LOOPED_KEYS = 200_000
QUICK_PART = 10


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description="compare HashRing.indices with a scalar loop, in keys per second"
    )
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK_PART}th of the keys, fewer runs")
    parser.add_argument("--buckets", type=int, default=10, help="bucket count of the ring (default: 10)")
    parser.add_argument("--runs", type=int, help="runs of each (default: 7, with --quick 3)")
    options = parser.parse_args()
    part = QUICK_PART if options.quick else 1
    runs = options.runs or (3 if options.quick else 7)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    core = run_on_one_core()

    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(options.buckets)])
    ring.shares()  # fill the table
    print(f"ring of {options.buckets} buckets, {core}, medians of {runs} runs")
    in_c = compiled_route(ring)
    if in_c is None:
        print("no C compiler: the limit is not measured")
    headings = ("array keys/s", "loop keys/s", "C loop keys/s", "of loop", "of C")
    print(f"{'keys':<24}{'count':>10}" + "".join(f"{heading:>15}" for heading in headings))
    for name, keys in (
        ("short, 8 to 19 bytes", short_keys(SHORT_KEYS // part)),
        ("UUIDs, 36 bytes", uuid_keys(UUID_KEYS // part)),
    ):
        sample = keys[: LOOPED_KEYS // part]
        expected = [ring.destinations.index(str(ring.destination_for(key))) for key in sample[:2_000]]
        if ring.indices(keys[:2_000]).tolist() != expected:
            raise SystemExit(f"{name}: arrays and single keys disagree, so their speed means nothing")
        array = pa.array(keys)
        by_array = len(keys) / median_seconds(partial(ring.indices, array), runs)
        by_loop = len(sample) / median_seconds(partial(routed_one_by_one, ring, sample), runs)
        by_c = float("nan")
        if in_c is not None:
            if not (in_c(array) == ring.indices(array)).all():
                raise SystemExit(f"{name}: arrays and the C loop disagree, so their speed means nothing")
            by_c = len(keys) / median_seconds(partial(in_c, array), runs)
        rates = "".join(f"{rate:>15,.0f}" for rate in (by_array, by_loop, by_c))
        print(f"{name:<24}{len(keys):>10,}{rates}{by_array / by_loop:>15.0f}{by_array / by_c:>15.2f}")
        if len(cores) > 1:
            os.sched_setaffinity(0, cores)
            by_all = len(keys) / median_seconds(partial(ring.indices, array), runs)
            os.sched_setaffinity(0, {min(cores)})
            print(f"  on {len(cores)} cores {by_all:,.0f} keys/s, {by_all / by_array:.2f} of one core")


def routed_one_by_one(ring: HashRing, keys: list[str]) -> list[Any]:
    """Return the destination of each key, by one call for each."""
    return [ring.destination_for(key) for key in keys]


def short_keys(count: int) -> list[str]:
    """Return distinct keys of 8 to 19 characters."""
    rng = random.Random(1)  # noqa: S311 - no secret
    return [f"{n:07d}-{'k' * rng.randrange(12)}" for n in range(count)]


def uuid_keys(count: int) -> list[str]:
    """Return random UUIDs as text."""
    rng = random.Random(2)  # noqa: S311 - no secret
    return [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(count)]


def median_seconds(work: Callable[[], Any], runs: int) -> float:
    """Return the median duration of several runs, in seconds, after one run that does not count."""
    work()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def run_on_one_core() -> str:
    """Keep this process on one core if the system can. Return in words what was done."""
    if not hasattr(os, "sched_setaffinity"):
        return "all cores (this system cannot choose one)"
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return f"core {core}"


if __name__ == "__main__":
    main()
