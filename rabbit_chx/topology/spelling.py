"""Names that are probably misspelled. A broker takes them all the same, so they are no mistakes of a file."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import HASH_EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rabbit_chx.topology.object_set import ObjectSet

__all__ = ["misspellings"]

_TYPES = ("direct", "fanout", "topic", "headers", HASH_EXCHANGE, "x-modulus-hash")
_EXCHANGE_ARGUMENTS = ("alternate-exchange",)
_HASH_ARGUMENTS = (*_EXCHANGE_ARGUMENTS, "hash-header", "hash-property")
_QUEUE_ARGUMENTS = (
    "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-max-age", "x-overflow",
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-single-active-consumer",
    "x-queue-mode", "x-queue-version", "x-queue-master-locator", "x-queue-leader-locator", "x-delivery-limit",
    "x-initial-cluster-size", "x-quorum-initial-group-size", "x-quorum-target-group-size", "x-consumer-timeout",
    "x-max-in-memory-length", "x-max-in-memory-bytes", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes",
)  # fmt: skip
_CLOSE = 0.85
_NUMBERS = re.compile(r"[0-9]+")
#: How many names are compared with all others at most.
_COMPARED = 100


def misspellings(topology: ObjectSet) -> Iterator[str]:
    """Yield a sentence for each name that is like another one that was probably meant.

    Args:
        topology: whose names.
    """
    for exchange in topology.exchanges:
        if exchange.type not in _TYPES and (meant := _meant(exchange.type, _TYPES)):
            yield f"exchange {exchange.name} is of type {exchange.type}: did you mean {meant}?"
        known = _HASH_ARGUMENTS if exchange.type == HASH_EXCHANGE else _EXCHANGE_ARGUMENTS
        yield from _arguments(f"exchange {exchange.name}", exchange.arguments, known)
    for queue in topology.queues:
        yield from _arguments(f"queue {queue.name}", queue.arguments, _QUEUE_ARGUMENTS)
    used_exchanges = [one.name for one in topology.unlisted if isinstance(one, ExchangeRef)]
    used_queues = [one for one in topology.unlisted if isinstance(one, str)]
    yield from _names("exchange", used_exchanges, [one.name for one in topology.exchanges])
    yield from _names("queue", used_queues, [one.name for one in topology.queues])


def _arguments(what: str, arguments: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    for name in arguments:
        if name not in known and (meant := _meant(name, known)):
            yield f"{what} has the argument {name}, which RabbitMQ ignores: did you mean {meant}?"


def _meant(name: str, known: Iterable[str]) -> str | None:
    plain = name.lower().replace("_", "-")
    close = get_close_matches(plain, known, 1, _CLOSE) or get_close_matches(f"x-{plain}", known, 1, _CLOSE)
    return close[0] if close else None


def _names(kind: str, used: Iterable[str], listed: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each used name whose letters are nearly those of a listed one; numbers do not count."""
    by_letters = {_NUMBERS.sub("", name): name for name in reversed(list(listed))}
    unknown: dict[str, str] = {}
    for name in used:
        unknown.setdefault(_NUMBERS.sub("", name), name)
    strange = ((letters, name) for letters, name in unknown.items() if letters not in by_letters)
    for letters, name in islice(strange, _COMPARED):
        close = get_close_matches(letters, by_letters, 1, _CLOSE)
        if close:
            yield f"{kind} {name} is not in the file: did you mean {by_letters[close[0]]}?"
