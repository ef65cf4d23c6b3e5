"""Measure keys per second and memory as a ring grows: 2 to 10,000 buckets, 5M short keys in Arrow, one core.

The table is in README.md, *How it grows*. The memory is read from /proc, so the script needs Linux.

    python bench/growth.py
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
from indices import SHORT_KEYS, median_seconds, run_on_one_core, short_keys

from rabbit_chx import HashRing

BUCKETS = (2, 10, 100, 1_000, 10_000)
RUNS = 5


def measure(buckets: int) -> tuple[float, float, float, float]:
    """Return seconds to build the ring, seconds to fill its table, keys/s then, and MiB above the keys."""
    run_on_one_core()
    keys = pa.array(short_keys(SHORT_KEYS))
    gc.collect()
    HashRing.from_bindings([("q", 3)]).indices(keys[:1000])  # load everything that is loaded only once
    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    started = time.perf_counter()
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(buckets)])
    built = time.perf_counter()
    ring.shares()
    filled = time.perf_counter()
    rate = len(keys) / median_seconds(partial(ring.indices, keys), RUNS)
    return built - started, filled - built, rate, status_mib("VmHWM") - before


def status_mib(name: str) -> float:
    """Return a line of this process's status in /proc, in MiB: VmRSS is its memory now, VmHWM is its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Measure each count in a process of its own, and print a Markdown table."""
    print("| buckets | ring built, ms | table filled, ms | keys/s | memory above the keys, MiB |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    context = multiprocessing.get_context("spawn")
    for buckets in BUCKETS:
        with context.Pool(1) as pool:
            built, filled, rate, mib = pool.apply(measure, (buckets,))
        print(f"| {buckets:,} | {built * 1e3:.1f} | {filled * 1e3:.0f} | {rate / 1e6:.1f} M | {mib:.0f} |")


if __name__ == "__main__":
    main()
