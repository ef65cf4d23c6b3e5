"""A hash exchange and its queues, declared in one call: a topology of one exchange that only adds objects.

Existing objects are compared first. AMQP shows little of them, so the ring source and the management API are used if they are configured.
Missing objects are created. A new binding only adds buckets at the end of the ring, so an existing ring must be the beginning of the wanted
one. Any other difference is refused before the first change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rabbit_chx.errors import InputError, MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import GivenBindings, order_of_binding, order_of_destination, weight_of
from rabbit_chx.routing.message import HashedOn, refuse_misspelt
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.file.arguments import limit_faults
from rabbit_chx.topology.live.applying import apply_changes
from rabbit_chx.topology.live.live_broker import LiveBroker, Operation, check_declared_name
from rabbit_chx.topology.live.reading import LiveExchange, read_ring
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, QueueDefinition

_NOT_FOUND = 404
_REMEDY = "nothing was changed; unbind and bind in the order that is wanted, which moves keys, or declare what is there"


@dataclass(frozen=True, slots=True)
class Declared:
    """The result of `Broker.declare`.

    Attributes:
        created: the objects that did not exist before: the exchange as an ExchangeRef, queues by their names.
        bound: ``(destination, binding key)`` of each new binding, in order.
        ring: the ring afterwards. Its provenance is ``read`` if a ring source compared it, ``replayed`` if the exchange is new, and
            ``assumed`` otherwise.
    """

    created: tuple[Destination, ...]
    bound: tuple[Binding, ...]
    ring: HashRing


def declare_exchange(
    exchange: ExchangeDefinition,
    bindings: GivenBindings,
    broker: LiveBroker,
    release: Release,
    *,
    queue_arguments: Mapping[str, Any] | None = None,
    allow_existing: bool = False,
) -> Declared:
    """Declare an exchange and its queues, and bind them in order. Errors are those of `Broker.declare`."""
    check_declared_name(exchange.name, "exchange")
    refuse_misspelt(exchange.arguments)
    ring = wanted = wanted_ring(bindings, release)
    to_bind = wanted.bindings or ()
    definitions: list[ExchangeDefinition | QueueDefinition] = [exchange]
    exchanges: list[str] = []
    for destination in dict.fromkeys(destination for destination, _ in to_bind):
        if isinstance(destination, ExchangeRef):
            check_declared_name(destination.name, "exchange")
            exchanges.append(destination.name)
        else:
            check_declared_name(destination, "queue")
            definitions.append(QueueDefinition(destination, arguments=queue_arguments or {}))
    _check_limits(definitions, release)
    missing = [definition for definition in definitions if _is_missing(definition, broker)]
    for name in exchanges:
        broker.amqp.check_exchange(name)
    is_new = exchange in missing
    if not is_new:
        to_bind, ring = _compare_existing(exchange, wanted, broker, allow_existing=allow_existing)
        _refuse_buckets_without_queue(exchange.name, ring, missing)
    changes = [PlannedChange("create", None, definition) for definition in missing]
    changes += [
        PlannedChange("bind", None, BindingDefinition(exchange.name, *binding), ring=True)
        for binding in to_bind
    ]
    apply_changes(tuple(changes), broker, lambda _: None)
    if to_bind and not is_new and broker.has_source:
        ring = _read_again(exchange.name, wanted, broker)
    created = tuple(ref for definition in missing if (ref := definition.ref) is not None)
    return Declared(created, to_bind, ring)


def _check_limits(definitions: Collection[ExchangeDefinition | QueueDefinition], release: Release) -> None:
    """Raise an InputError for a queue that would lose messages by its delivery limit, although the broker accepts it."""
    for definition in definitions:
        if isinstance(definition, QueueDefinition):
            for found in limit_faults(definition, release):
                raise InputError(
                    f"queue {definition.name!r}: {found.message}: {found.fix}", queue=definition.name
                )


def _is_missing(definition: ExchangeDefinition | QueueDefinition, broker: LiveBroker) -> bool:
    """Return True if an exchange or a queue is missing. An existing one is declared again: the broker refuses it if it differs.

    Raises:
        MismatchError: it exists with another type, durability or arguments.
    """
    operation = Operation("declare", definition)
    broker.amqp.check_sendable([operation])
    try:
        if isinstance(definition, ExchangeDefinition):
            broker.amqp.check_exchange(definition.name)
        else:
            broker.amqp.count(definition.name)
    except RabbitChxError as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return True
    broker.amqp.perform(operation)
    return False


def _compare_existing(
    exchange: ExchangeDefinition, wanted: HashRing, broker: LiveBroker, *, allow_existing: bool
) -> tuple[tuple[Binding, ...], HashRing]:
    """Return the missing bindings of an existing exchange, and its ring so far."""
    name, to_bind, ring = exchange.name, wanted.bindings or (), wanted.with_release(wanted.release)
    if broker.has_management:
        try:
            live = LiveExchange.of(broker, name, wanted.release)
        except NotFoundError:
            raise MismatchError(
                f"the management API does not list exchange {name!r} in vhost {broker.vhost!r}, and {broker.where} does: give URLs "
                "of the same broker",
                exchange=name,
            ) from None
        live.check_type()
        if HashedOn.from_arguments(live.hash_arguments) != HashedOn.from_arguments(exchange.arguments):
            raise MismatchError(
                f"exchange {name!r} has the arguments {live.hash_arguments}, not {dict(exchange.arguments)}, and so "
                "hashes something else: delete it and declare it again, or declare what is there",
                exchange=name,
            )
        to_bind = left_by_bindings(name, wanted, live.bindings)
    if broker.has_source:
        ring = live.ring if broker.has_management else read_ring(broker, name, wanted.release)
        by_bindings, to_bind = to_bind, left_by_ring(name, wanted, ring)
        if broker.has_management and by_bindings != to_bind:
            raise MismatchError(
                f"exchange {name!r} has bindings without buckets: its ring is {ring!r}, and "
                f"{len(live.bindings)} bindings are listed; nothing was changed; unbind and bind what has no buckets",
                exchange=name,
            )
    elif not broker.has_management and not allow_existing:
        raise InputError(
            f"exchange {name!r} exists, and AMQP does not list its bindings: give Broker a ring_source or a "
            "management_url to compare with, or declare with allow_existing=True if it has no other bindings than these",
            exchange=name,
        )
    return to_bind, ring


def _read_again(exchange: str, wanted: HashRing, broker: LiveBroker) -> HashRing:
    ring = read_ring(broker, exchange, wanted.release)
    if ring != wanted:
        raise MismatchError(
            f"bindings were added to exchange {exchange!r}, and it now has the ring {ring!r}, not {wanted!r}: "
            "a destination had a binding without buckets, or another client binds; compare its bindings, and bind "
            "again what differs",
            exchange=exchange,
        )
    return ring


def _refuse_buckets_without_queue(
    exchange: str, ring: HashRing, missing: Collection[ExchangeDefinition | QueueDefinition]
) -> None:
    """Refuse a certain ring if it has buckets of a queue that does not exist, because their messages are lost."""
    if not ring.ground.is_certain:
        return
    for declared in missing:
        if isinstance(declared, QueueDefinition) and declared.name in ring.destinations:
            raise MismatchError(
                f"queue {declared.name!r} does not exist, and has buckets of exchange {exchange!r}, whose messages are lost: "
                "declare the queue, bind and unbind it, and declare all this again",
                exchange=exchange,
                queue=declared.name,
            )


def wanted_ring(bindings: GivenBindings, release: Release) -> HashRing:
    """Return the ring that bindings make on a fresh exchange.

    Raises:
        InputError: the broker would refuse a binding, or a destination has two bindings.
    """
    ring = HashRing.from_bindings(bindings, release)
    keys: dict[Destination, str] = {}
    for destination, key in ring.bindings or ():
        if keys.setdefault(destination, key) != key:
            raise InputError(
                f"{destination!r} is bound twice, with the weights {keys[destination]} and {key}: the broker would "
                "ignore or add the second, by release; give it once"
            )
    return ring


def left_by_ring(exchange: str, wanted: HashRing, live: HashRing) -> tuple[Binding, ...]:
    """Return the bindings of the wanted ring that follow the ring that was read.

    Raises:
        MismatchError: the wanted ring does not begin with the ring that was read.
    """
    bindings = wanted.bindings or ()
    ends = [0, *accumulate(weight_of(*binding) for binding in bindings)]
    size = len(live.buckets)
    if live.buckets == wanted.buckets[:size] and size in ends:
        return bindings[ends.index(size) :]
    pairs = zip(live.buckets, wanted.buckets, strict=False)
    first = next(
        (n for n, (live_place, wanted_place) in enumerate(pairs) if live_place != wanted_place),
        min(size, len(wanted.buckets)),
    )
    raise MismatchError(
        f"exchange {exchange!r} has the ring {live!r}, not {wanted!r}; bucket {first} is the first that differs: {_REMEDY}",
        exchange=exchange,
    )


def left_by_bindings(exchange: str, wanted: HashRing, live: Collection[Binding]) -> tuple[Binding, ...]:
    """Return the bindings of the wanted ring that follow the listed ones, whose order no API returns.

    Raises:
        MismatchError: the exchange has other bindings than the first of the wanted ones.
    """
    bindings = wanted.bindings or ()
    if sorted(live, key=order_of_binding) == sorted(bindings[: len(live)], key=order_of_binding):
        return bindings[len(live) :]
    live_bindings = sorted(live, key=lambda binding: order_of_destination(binding[0]))
    raise MismatchError(
        f"exchange {exchange!r} has the bindings {_shown(live_bindings)}, not {_shown(bindings)}: {_REMEDY}",
        exchange=exchange,
    )


def _shown(bindings: Collection[Binding]) -> str:
    shown = ", ".join(f"{destination!s}={key}" for destination, key in bindings)
    return f"{shown:.400}" or "(none)"
