"""Measure how fast a ring answers: arrays of keys, single calls, and arrays on larger rings.

``rates`` compares `HashRing.indices` with calls of `destination_for` and with a C loop (limit.c), in keys per second. All three
use the same table of seeds, which is filled before the clock starts, and run on one core. ``calls`` measures the first batch on
a new bucket count, an unseen key, and ``import rabbit_chx``. ``growth`` measures keys per second and memory for 2 to 10,000
buckets; it reads the memory from /proc, so it needs Linux. All figures are medians of several runs.

    python bench/indices.py [--quick] [calls] [growth] [rates]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rabbit_chx.routing import HashRing
from rabbit_chx.routing.arrays.seeds import all_buckets

SHORT_KEYS = 5_000_000
UUID_KEYS = 1_000_000
LOOPED_KEYS = 200_000
FIRST_BATCH_KEYS = 10_000
UNSEEN_KEYS = 200_000
IMPORTS = 31
GROWTH_BUCKETS = (2, 10, 100, 1_000, 10_000)
QUICK_PART = 10


def main() -> None:
    """Measure the parts that are named, or all."""
    parts = {"calls": measure_calls, "growth": measure_growth, "rates": measure_rates}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)} (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK_PART}th of the keys, fewer runs")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(parts)}")
    for part, measure in parts.items():  # `rates` is last, since it keeps this process on one core
        if not options.parts or part in options.parts:
            measure(quick=options.quick)


def measure_calls(*, quick: bool) -> None:
    """Print the time of single calls, and of calls that most readers can compare with."""
    print(f"first batch of {FIRST_BATCH_KEYS:,} keys on a new bucket count: {first_batch_ms():.1f} ms")
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(10)])
    ring.shares()  # fill the table
    rng = random.Random(3)  # noqa: S311 - no secret
    keys = [rng.randbytes(12) for _ in range(UNSEEN_KEYS // (QUICK_PART if quick else 1))]
    scalar, crc = per_call_us(ring.destination_for, keys), per_call_us(zlib.crc32, keys)
    print(f"destination_for an unseen 12-byte key: {scalar:.2f} us (zlib.crc32, in C: {crc:.2f} us)")
    runs = 3 if quick else IMPORTS
    bare, package = import_ms("pass", runs), import_ms("import rabbit_chx", runs)
    mirror = import_ms("from rabbit_chx import HashRing", runs)
    print(f"a bare interpreter {bare:.1f} ms, with import rabbit_chx +{package - bare:.1f} ms,", end=" ")
    print(f"with HashRing +{mirror - bare:.1f} ms")


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
    assert callable(function)
    rates = []
    for start in range(0, len(keys), len(keys) // 5):
        part = keys[start : start + len(keys) // 5]
        started = time.perf_counter()
        for key in part:
            function(key)
        rates.append((time.perf_counter() - started) / len(part))
    return statistics.median(rates) * 1e6


def import_ms(code: str, runs: int) -> float:
    """Return the milliseconds of a new interpreter that runs the code."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1e3


def measure_growth(*, quick: bool) -> None:
    """Print a Markdown table with a row for each bucket count, which is measured in a separate process."""
    keys, runs = (SHORT_KEYS // QUICK_PART, 3) if quick else (SHORT_KEYS, 5)
    print("| buckets | ring built, ms | table filled, ms | keys/s | memory above the keys, MiB |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    context = multiprocessing.get_context("spawn")
    for buckets in GROWTH_BUCKETS:
        with context.Pool(1) as pool:
            built, filled, rate, mib = pool.apply(growth_figures, (buckets, keys, runs))
        print(f"| {buckets:,} | {built * 1e3:.1f} | {filled * 1e3:.0f} | {rate / 1e6:.1f} M | {mib:.0f} |")


def growth_figures(buckets: int, keys_count: int, runs: int) -> tuple[float, float, float, float]:
    """Return seconds to build the ring, seconds to fill its table, keys/s then, and MiB above the keys."""
    run_on_one_core()
    keys = pa.array(short_keys(keys_count))
    gc.collect()
    HashRing.from_bindings([("q", 3)]).indices(keys[:1000])  # load everything that is loaded only once
    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    started = time.perf_counter()
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(buckets)])
    built = time.perf_counter()
    ring.shares()
    filled = time.perf_counter()
    rate = len(keys) / median_seconds(partial(ring.indices, keys), runs)
    return built - started, filled - built, rate, status_mib("VmHWM") - before


def status_mib(name: str) -> float:
    """Return a line of this process's status in /proc, in MiB: VmRSS is its memory now, VmHWM is its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def measure_rates(*, quick: bool) -> None:
    """Print the keys per second of arrays, of single calls and of the C loop on a ring of 10 buckets."""
    part, runs = (QUICK_PART, 3) if quick else (1, 7)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    core = run_on_one_core()

    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(10)])
    ring.shares()  # fill the table
    print(f"ring of 10 buckets, {core}, medians of {runs} runs")
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


def compiled_route(ring: HashRing) -> Callable[[Any], NDArray[np.int32]] | None:
    """Return a function that does in C what `ring.indices` does with an Arrow string array: limit.c.

    Return None if there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "limit.so")
        source = Path(__file__).with_name("limit.c")
        subprocess.run([compiler, "-O3", "-shared", "-fPIC", "-o", library, source], check=True)
        route = ctypes.CDLL(str(library)).route
    route.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
    route.restype = None
    table = np.ascontiguousarray(all_buckets(len(ring.buckets)), dtype=np.uint8)
    names = {destination: i for i, destination in enumerate(ring.destinations)}
    destinations = np.array([-1 if b is None else names[b] for b in ring.buckets], dtype=np.int32)

    def call(keys: Any) -> NDArray[np.int32]:  # Arrow has no types
        _, offsets, data = keys.buffers()
        indices = np.empty(len(keys), np.int32)
        route(
            offsets.address,
            data.address,
            len(keys),
            table.ctypes.data,
            destinations.ctypes.data,
            indices.ctypes.data,
        )
        return indices

    return call


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
