"""Keys that land on a wanted destination, for tests and canaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.modulo_map import ModuloMap
from rabbit_chx.checks import check_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, KeyMap, Place, check_key_map, queue_behind, ring_beneath

_NUMBER = "{n}"
_FIRST_BATCH = 64
_LARGEST_BATCH = 1 << 14


class NoKeyFoundError(InputError):
    """No key of the pattern reached the destination within the tries that were allowed."""


def keys_for(
    ring: KeyMap | ModuloMap,
    destination: Destination,
    pattern: str = "canary-{n}",
    *,
    start: int = 0,
    tries: int = 1_000_000,
    hashing: Hashing | None = None,
    read: Callable[[str], Any] = str,
) -> Iterator[str]:
    """Return keys that land on a destination, in the order of their numbers, without an end.

    ::

        list(itertools.islice(keys_for(ring, "q7"), 3))

    Args:
        ring: the ring, or the slots of one; the keys are as sure as its provenance. Or an exchange of type ``x-modulus-hash``, or a
            super stream: its keys are routing keys, and `hashing` and `read` do not count.
        destination: the destination that the keys must reach: with slots a queue, or one of the slots.
        pattern: a key with ``{n}`` in the place of a number.
        start: the first number.
        tries: how many candidates in a row may land elsewhere before the search is given up.
        hashing: what the exchange hashes; the routing key if None.
        read: makes a key what the exchange is given to hash, as an AmqpField of a number.

    Raises:
        InputError: the destination has no bucket, the pattern has no ``{n}``, or a number is out of range.
        NotDeterminedError: nobody can know where a key of an ``x-modulus-hash`` exchange goes, on that release.
        NoKeyFoundError: no key reaches its buckets; or, while iterating, `tries` keys in a row went
            elsewhere.
    """
    _check_pattern(pattern)
    check_whole("start", start, 0)
    check_whole("tries", tries, 1)
    if isinstance(ring, ModuloMap):
        routed = _routed_by_modulo(ring, destination)
        return _search(routed, destination, _batches(pattern, start, MAX_SHORTSTR), tries)
    check_key_map(ring)
    beneath = ring_beneath(ring)
    if destination not in ring.destinations and destination in beneath.destinations:
        ring = beneath  # a slot is asked for
    if destination not in ring.destinations:
        names = ", ".join(map(str, ring.destinations[:10])) or "nothing at all"
        raise InputError(
            f"{destination!s} has no bucket in the ring; the ring has {names}",
            queue=destination if isinstance(destination, str) else None,
        )
    counted = beneath.buckets[: beneath.bucket_count]
    if all(queue_behind(ring, place) != destination for place in counted):
        raise NoKeyFoundError(
            f"no key lands on {destination!s}: its exact share is 0, as the ring has holes, and of its buckets the broker "
            f"counts the first {beneath.bucket_count:,} alone: delete the exchange and declare it again"
        )
    hashed = hashing or Hashing()

    def routed_by_ring(batch: list[str]) -> Sequence[Place | Refused]:
        return hashed.route_all(list(map(read, batch)), ring)

    longest = None if hashed.hash_header is not None else MAX_SHORTSTR
    return _search(routed_by_ring, destination, _batches(pattern, start, longest), tries)


def _routed_by_modulo(
    exchange: ModuloMap, destination: Destination
) -> Callable[[list[str]], Sequence[Place]]:
    """Return what says where routing keys go. Each destination has a share."""
    if destination not in exchange.destinations:
        names = ", ".join(map(str, exchange.destinations[:10])) or "nothing at all"
        raise InputError(
            f"{destination!s} is not bound to {exchange.name}; bound are {names}",
            queue=destination if isinstance(destination, str) else None,
        )
    return lambda batch: exchange.route_all([{"routing_key": key} for key in batch])


def _check_pattern(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise InputError(f"the pattern is {pattern!r:.60}: give text with {_NUMBER} in it")
    if _NUMBER not in pattern:
        raise InputError(
            f"the pattern {pattern!r:.60} makes one key only: write {_NUMBER} where its number belongs"
        )
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the pattern {pattern!r:.60} holds half of a surrogate pair: give whole text"
        ) from None


def _search(
    routed: Callable[[list[str]], Sequence[Place | Refused]],
    destination: Destination,
    batches: Iterator[list[str]],
    tries: int,
) -> Iterator[str]:
    misses = 0
    for batch in batches:
        for key, place in zip(batch, routed(batch), strict=True):
            if place == destination:
                yield key
                misses = 0
                continue
            misses += 1
            if misses == tries:
                raise NoKeyFoundError(
                    f"{tries:,} keys in a row, up to {key!r}, do not land on {destination!s}: allow more tries"
                )


def _batches(pattern: str, start: int, longest: int | None) -> Iterator[list[str]]:
    """Yield candidates in batches that grow: the first keys come quickly, a long search runs on arrays.

    Args:
        pattern: a key with ``{n}`` in it.
        start: the first number.
        longest: how many bytes a key may have; None for any number.
    """
    for power in count():
        size = min(_FIRST_BATCH << min(power, 20), _LARGEST_BATCH)
        batch = [pattern.replace(_NUMBER, str(n)) for n in range(start, start + size)]
        if longest is not None and len(batch[-1].encode()) > longest:
            raise InputError(
                f"the pattern {pattern[:40]!r}... makes keys of more than {longest} bytes: "
                "AMQP cannot carry them; shorten it"
            )
        yield batch
        start += size
