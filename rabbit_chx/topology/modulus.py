"""The exchanges that hash modulo the number of their bindings, from a list of these, and the share of keys that another list moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rabbit_chx.checks import is_number
from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange, Release, SuperStream
from rabbit_chx.routing.bindings import (
    AS_LISTED,
    Place,
    Provenance,
    ascending_bindings,
    order_of_binding,
    order_of_destination,
)
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.modulus_exchange import ModulusHash
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import MODULUS_BY_BINDING_KEY, MODULUS_UNORDERED
from rabbit_chx.routing.super_stream import StreamHash, super_stream_of
from rabbit_chx.topology import objects


def number_bindings(
    bindings: Iterable[objects.BindingDefinition], release: Release
) -> tuple[Destination, ...]:
    """Return the destination of each binding, in the order of the broker's numbers.

    If the order of `release` cannot be computed, that of 4.3 is used.
    """
    if release.follows(MODULUS_BY_BINDING_KEY):
        ordered = sorted(bindings, key=lambda binding: order_of_binding(binding.member))
    else:
        ordered = sorted(bindings, key=lambda binding: order_of_destination(binding.destination))
    return tuple(binding.destination for binding in ordered)


def modulus_of(
    name: str, bindings: Iterable[objects.BindingDefinition], release: Release, provenance: Provenance | None
) -> ModulusHashExchange:
    """Return the exchange with these bindings. Bindings that differ only in their arguments count, too."""
    bindings = sorted(bindings, key=lambda binding: order_of_destination(binding.destination))
    pairs = [binding.member for binding in bindings]
    if len(set(pairs)) < len(pairs):
        pairs = list(ascending_bindings(number_bindings(bindings, release)))
    return ModulusHashExchange(name, pairs, release, provenance)


def share_moved(before: Sequence[Place], after: Sequence[Place], release: Release | None = None) -> float:
    """Return the exact share of the hashes whose destination differs between two sequences of numbered destinations.

    Args:
        before: the destination of each number before.
        after: the same afterwards.
        release: that of an ``x-modulus-hash`` exchange. If it does not order bindings, the result is the largest possible share; if the two
            numbers of bindings have no common divisor, each order moves the same share. None for a super stream, whose clients for Java,
            .NET and Go hash.
    """
    if release and release.follows(MODULUS_UNORDERED) and math.gcd(len(before), len(after)) > 1:
        return 1.0 if len({*before, *after}) > 1 else 0.0
    hashing = ModulusHash() if release else StreamHash()
    old = KeyMap(before, hashing, AS_LISTED)
    new = KeyMap(after, hashing, AS_LISTED)
    return old.share_moved(new)


def modulo_map_of(
    exchange: objects.ExchangeDefinition,
    bindings: Iterable[objects.BindingDefinition],
    release: Release | None,
    provenance: Provenance | None = "replayed",
    queues: Iterable[objects.QueueDefinition] = (),
) -> ModulusHashExchange | SuperStream | None:
    """Return the map of an exchange that hashes modulo the number of its bindings; None for any other exchange.

    A super stream is a direct exchange with the argument ``x-super-stream``. Its partitions are in the order that its bindings contain,
    which the broker returns to clients (``rabbit_stream_utils.erl``, ``sort_partitions/1``). Bindings that do not have a number each are in an
    order that only this protocol shows: then the order of a map that was read is not known.

    Args:
        exchange: the exchange.
        bindings: bindings, of which those of the exchange count.
        release: the release of the broker; None for the newest one that was compared.
        provenance: the origin of the bindings.
        queues: queues that are known. One that is no stream is no partition, wherever it is bound: the broker leaves it out
            (``rabbit_stream_manager.erl``, ``partitions``; tested on 3.10.8 and 4.3.6).
    """
    bound = [binding for binding in bindings if binding.source == exchange.name]
    if exchange.type == objects.MODULUS_EXCHANGE:
        return modulus_of(exchange.name, bound, release or NEWEST_COMPARED, provenance)
    if not is_super_stream(exchange):
        return None
    others = {queue.name for queue in queues if queue.type not in ("stream", "")}
    bound, is_ordered = order_partitions(one for one in bound if one.destination not in others)
    if provenance == "read" and not is_ordered:
        provenance = None
    pairs = [binding.member for binding in bound]
    return super_stream_of(exchange.name, pairs, provenance=provenance)


def order_partitions(
    bindings: Iterable[objects.BindingDefinition],
) -> tuple[list[objects.BindingDefinition], bool]:
    """Return the bindings of a super stream to its partitions, by their numbers, and True if these determine the order."""
    bound = [binding for binding in bindings if not isinstance(binding.destination, ExchangeRef)]
    bound.sort(key=_partition_order)
    orders = [binding.arguments.get(objects.PARTITION_ORDER) for binding in bound]
    numbers = {order for order in orders if is_number(order)}
    return bound, len(bound) < 2 or len(numbers) == len(bound)


def is_super_stream(exchange: objects.ExchangeDefinition) -> bool:
    """Return True if an exchange is that of a super stream."""
    return exchange.type == "direct" and exchange.arguments.get(objects.SUPER_STREAM) is True


def hashes(exchange: objects.ExchangeDefinition) -> bool:
    """Return True if an exchange maps keys to destinations by a hash."""
    return exchange.type in (objects.HASH_EXCHANGE, objects.MODULUS_EXCHANGE) or is_super_stream(exchange)


def _partition_order(binding: objects.BindingDefinition) -> tuple[int, float]:
    order = binding.arguments.get(objects.PARTITION_ORDER)
    # The broker sorts terms, in which a number precedes any other.
    return (0, order) if is_number(order) else (1, 0)
