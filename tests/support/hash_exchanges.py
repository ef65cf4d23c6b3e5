"""x-consistent-hash exchanges over rings of b0, b1 and so on."""

from __future__ import annotations

from typing import Any

from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.6"), Release("4.3.6")


def ring(buckets: int, release: Release) -> HashRing:
    return HashRing.from_buckets([f"b{n}" for n in range(buckets)], release)


def by_header(release: Release, buckets: int = 1000, name: str = "t") -> ConsistentHashExchange:
    return ConsistentHashExchange("x", ring(buckets, release), {"hash-header": name})


def answers(exchange: ConsistentHashExchange, **message: Any) -> tuple[Any, ...]:
    explained = exchange.explain("k", **message)
    assert explained.destination == exchange.route("k", **message)
    return explained.term, explained.phash2, explained.destination
