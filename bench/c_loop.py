"""Compile limit.c, and call it from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rabbit_chx import HashRing
from rabbit_chx.routing.arrays import all_buckets


def compiled_route(ring: HashRing) -> Callable[[Any], NDArray[np.int32]] | None:
    """Return a function that does in C what `ring.indices` does with an Arrow string array.

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

    def call(keys: Any) -> NDArray[np.int32]:  # noqa: ANN401  # Arrow has no types
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
