"""Columns of values on an x-consistent-hash exchange, beside the same values one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

OLD, NEW = Release("3.12.14"), Release("4.3.6")
BOTH = pytest.mark.parametrize("release", [OLD, NEW], ids=str)
CLIENTS = pytest.mark.parametrize("client", ["pika", "aio-pika"])
BUCKETS = [*(f"b{n}" for n in range(60)), None, *(f"b{n}" for n in range(60))]


def exchange(release: Release, arguments: dict[str, Any] | None = None) -> ConsistentHashExchange:
    return ConsistentHashExchange("x", HashRing.from_buckets(BUCKETS, release), arguments)


def by_header(release: Release) -> ConsistentHashExchange:
    return exchange(release, {"hash-header": "t"})


def names(x: ConsistentHashExchange, indices: Any) -> list[Any]:
    assert indices.dtype == np.int32
    return [(*x.ring.destinations, None)[index] for index in indices]


def one_by_one(x: ConsistentHashExchange, values: list[Any], client: Any = "pika") -> list[Any]:
    return [x.route("k", {"t": value}, client=client) for value in values]
