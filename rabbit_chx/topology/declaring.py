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
from rabbit_chx.topology.applying import apply_changes
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.live_broker import LiveBroker
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.operations import Operation, check_declared_name
from rabbit_chx.topology.reading import LiveExchange, read_hash_exchange, read_ring

_NOT_FOUND = 404
_REMEDY = "nothing was changed; unbind and bind in the order that is wanted, which moves keys, or declare what is there"


@dataclass(frozen=True, slots=True)
class AskedExchange:
    """The arguments of `Broker.declare`."""

    exchange: str
    bindings: GivenBindings
    durable: bool = True
    arguments: Mapping[str, Any] | None = None
    queue_arguments: Mapping[str, Any] | None = None
    allow_existing: bool = False


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


def declare_exchange(asked: AskedExchange, broker: LiveBroker, release: Release) -> Declared:
    """Declare an exchange and its queues, and bind them in order. Errors are those of `Broker.declare`."""
    check_declared_name(asked.exchange, "exchange")
    refuse_misspelt(asked.arguments or ())
    wanted = wanted_ring(asked.bindings, release)
    bindings = wanted.bindings or ()
    for place, _ in bindings:
        name, kind = (place.name, "exchange") if isinstance(place, ExchangeRef) else (place, "queue")
        check_declared_name(name, kind)
    exchange = ExchangeDefinition(
        asked.exchange, HASH_EXCHANGE, asked.durable, arguments=asked.arguments or {}
    )
    queues = dict.fromkeys(place for place, _ in bindings if isinstance(place, str))
    declarations: list[ExchangeDefinition | QueueDefinition] = [exchange]
    declarations += [QueueDefinition(queue, arguments=asked.queue_arguments or {}) for queue in queues]
    missing = [declaration for declaration in declarations if _is_missing(declaration, broker)]
    for name in dict.fromkeys(place.name for place, _ in bindings if isinstance(place, ExchangeRef)):
        broker.amqp.check_exchange(name)
    to_bind, ring = bindings, wanted
    is_new = exchange in missing
    if not is_new:
        to_bind, ring = _compared(asked, wanted, broker)
        _refuse_ghosts(asked.exchange, ring, missing)
    for declaration in missing:
        broker.amqp.perform(Operation("declare", declaration))
    changes = (BindingDefinition(asked.exchange, *binding) for binding in to_bind)
    apply_changes(
        tuple(PlannedChange("bind", None, binding, ring=True) for binding in changes),
        broker,
        lambda _: None,
    )
    if to_bind and not is_new and broker.has_source:
        ring = _read_again(asked.exchange, wanted, broker)
    created = tuple(
        ExchangeRef(declaration.name) if isinstance(declaration, ExchangeDefinition) else declaration.name
        for declaration in missing
    )
    return Declared(created, to_bind, ring)


def _is_missing(declaration: ExchangeDefinition | QueueDefinition, broker: LiveBroker) -> bool:
    """Return True if an exchange or a queue is missing. An existing one is declared again: the broker refuses it if it differs.

    Raises:
        MismatchError: it exists with another type, durability or arguments.
    """
    operation = Operation("declare", declaration)
    broker.amqp.check_sendable([operation])
    try:
        if isinstance(declaration, ExchangeDefinition):
            broker.amqp.check_exchange(declaration.name)
        else:
            broker.amqp.count(declaration.name)
    except RabbitChxError as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return True
    broker.amqp.perform(operation)
    return False


def _compared(
    asked: AskedExchange, wanted: HashRing, broker: LiveBroker
) -> tuple[tuple[Binding, ...], HashRing]:
    """Return the missing bindings of an existing exchange, and its ring so far."""
    exchange = asked.exchange
    to_bind, ring = wanted.bindings or (), wanted.with_release(wanted.release)
    if broker.has_management:
        live = _read_live(exchange, wanted.release, broker)
        if HashedOn.from_arguments(live.arguments) != HashedOn.from_arguments(asked.arguments):
            raise MismatchError(
                f"exchange {exchange!r} has the arguments {dict(live.arguments)}, not {dict(asked.arguments or {})}, and so "
                "hashes something else: delete it and declare it again, or declare what is there",
                exchange=exchange,
            )
        to_bind = left_by_bindings(exchange, wanted, live.bindings)
    if broker.has_source:
        ring = read_ring(broker, exchange, wanted.release)
        by_bindings, to_bind = to_bind, left_by_ring(exchange, wanted, ring)
        if broker.has_management and by_bindings != to_bind:
            raise MismatchError(
                f"exchange {exchange!r} has bindings without buckets: its ring is {ring!r}, and "
                f"{len(live.bindings)} bindings are listed; nothing was changed; unbind and bind what has no buckets",
                exchange=exchange,
            )
    if not broker.has_management and not broker.has_source and not asked.allow_existing:
        raise InputError(
            f"exchange {exchange!r} exists, and AMQP does not tell what is bound to it: give Broker a ring_source or a "
            "management_url to compare with, or declare with allow_existing=True if it has no other bindings than these",
            exchange=exchange,
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


def _read_live(exchange: str, release: Release, broker: LiveBroker) -> LiveExchange:
    """Read an exchange, which AMQP has found, from the management API."""
    try:
        return read_hash_exchange(broker.api, broker.vhost, exchange, release)
    except NotFoundError:
        raise MismatchError(
            f"the management API knows no exchange {exchange!r} in vhost {broker.vhost!r}, and {broker.where} does: give URLs "
            "of the same broker",
            exchange=exchange,
        ) from None


def _refuse_ghosts(
    exchange: str, ring: HashRing, missing: Collection[ExchangeDefinition | QueueDefinition]
) -> None:
    """Refuse a ring that was read if it has buckets of a queue that does not exist, because their messages are lost."""
    if ring.provenance != "read":
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
