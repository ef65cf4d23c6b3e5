"""A hash exchange and its queues, declared in one call: a topology of one exchange that only adds objects.

Existing objects are compared first. AMQP shows little of them, so the ring source and the management API are used if they are configured.
Missing objects are created. A new binding only adds buckets at the end of the ring, so an existing ring must be the beginning of the wanted
one. Any other difference is refused before the first change. With the management API the changes are those of a plan, which is applied, so
that the broker keeps a record of the ring.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from rabbit_chx.errors import (
    AccessRefusedError,
    ApplyError,
    InputError,
    MismatchError,
    NotFoundError,
    PlanOutdatedError,
    RabbitChxError,
)
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import GivenBindings, order_of_binding, order_of_destination, weight_of
from rabbit_chx.routing.message import HashedOn, refuse_misspelt
from rabbit_chx.topology.live.applying import Applied, Permission, apply_changes, apply_plan
from rabbit_chx.topology.live.live_broker import LiveBroker, Operation, check_declared_name
from rabbit_chx.topology.live.reading import APPLY_LOCK, LiveExchange, read_ring, read_topology
from rabbit_chx.topology.live.recording import forget_records
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.planning.plan import plan
from rabbit_chx.topology.ring_records import records_of
from rabbit_chx.topology.rules.arguments import limit_faults

_NOT_FOUND = 404
#: How long another application of a plan is awaited, as of services that declare one exchange when they start.
_WAIT_S, _PAUSE_S = 30.0, 0.25
_REMEDY = "nothing was changed; unbind and bind in the order that is wanted, which moves keys, or declare what is there"


@dataclass(frozen=True, slots=True)
class Declared:
    """The result of `Broker.declare`.

    Attributes:
        created: the objects that did not exist before: the exchange as an ExchangeRef, queues by their names.
        bound: ``(destination, binding key)`` of each new binding, in order.
        ring: the ring afterwards. Its provenance is ``read`` if a ring source compared it, ``recorded`` if the broker keeps a record of it,
            ``replayed`` if the exchange is new and has no record, and ``assumed`` otherwise.
        unrecorded: why the order of the ring is not stored on the broker, as sentences; empty without a change or a management URL.
    """

    created: tuple[Destination, ...]
    bound: tuple[Binding, ...]
    ring: HashRing
    unrecorded: tuple[str, ...] = ()


def declare_exchange(
    exchange: ExchangeDefinition,
    bindings: GivenBindings,
    broker: LiveBroker,
    release: Release,
    *,
    queue_arguments: Mapping[str, Any] | None = None,
    allow_existing: bool = False,
    records: bool = True,
) -> Declared:
    """Declare an exchange and its queues, and bind them in order. Errors are those of `Broker.declare`."""
    check_declared_name(exchange.name, "exchange")
    refuse_misspelt(exchange.arguments)
    wanted = make_wanted_ring(bindings, release)
    queues = []
    for destination in _destinations(wanted):
        if isinstance(destination, ExchangeRef):
            check_declared_name(destination.name, "exchange")
            continue
        check_declared_name(destination, "queue")
        queue = QueueDefinition(destination, arguments=queue_arguments or {})
        # The broker accepts a limit by which the queue would lose messages.
        for found in limit_faults(queue, release):
            raise InputError(f"queue {destination!r}: {found.message}: {found.fix}", queue=destination)
        queues.append(queue)
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            return _declare(exchange, queues, wanted, broker, allow_existing=allow_existing, records=records)
        except PlanOutdatedError:  # another program declares or applies: what it leaves is compared again
            if time.monotonic() > end:
                raise
            broker.sleep(_PAUSE_S)


def _declare(
    exchange: ExchangeDefinition,
    queues: Iterable[QueueDefinition],
    wanted: HashRing,
    broker: LiveBroker,
    *,
    allow_existing: bool,
    records: bool,
) -> Declared:
    """Compare what exists, and declare what is missing. `wanted` is the ring of all bindings on a fresh exchange.

    Raises:
        PlanOutdatedError: another program changes the vhost.
    """
    name = exchange.name
    is_new = _is_missing(exchange, broker)
    missing = [queue for queue in queues if _is_missing(queue, broker)]
    for destination in _destinations(wanted):
        if isinstance(destination, ExchangeRef):
            broker.amqp.check_exchange(destination.name)
    to_bind, ring = wanted.bindings or (), wanted
    if not is_new:
        to_bind, ring = _compare_existing(exchange, wanted, broker, allow_existing=allow_existing)
        _refuse_buckets_without_queue(name, ring, missing)
    created: tuple[Destination, ...] = (
        *([exchange.ref] if is_new else []),
        *(queue.ref for queue in missing),
    )
    unrecorded = ""
    if broker.has_management and records and (is_new or to_bind):
        if is_new or ring.ground.is_certain:
            applied = _apply_recorded(exchange, missing, wanted, broker)
            if applied is not None:
                done = set(_what_is_made(applied.changes))  # another program may have made a part meanwhile
                created = tuple(place for place in created if place in done)
                bound = tuple(binding for binding in to_bind if binding in done)
                return Declared(created, bound, applied.rings.get(name, wanted), applied.unrecorded)
            unrecorded = f"the user may not declare queue {APPLY_LOCK} and exchanges rabbit-chx.*"
        else:
            forget_records(name, broker)
            unrecorded = "it was not known before; read it by a ring source"
    changes = [
        *(PlannedChange("create", None, definition) for definition in ([exchange] if is_new else [])),
        *(PlannedChange("create", None, queue) for queue in missing),
        *(PlannedChange("bind", None, BindingDefinition(name, *binding), ring=True) for binding in to_bind),
    ]
    apply_changes(tuple(changes), broker, lambda _: None)
    if to_bind and not is_new and broker.has_source:
        ring = _read_again(name, wanted, broker)
    notes = (f"the order of the ring is not stored on the broker: {unrecorded}",) if unrecorded else ()
    return Declared(created, to_bind, ring, notes)


def _destinations(ring: HashRing) -> Iterable[Destination]:
    return dict.fromkeys(destination for destination, _ in ring.bindings or ())


def _what_is_made(changes: Iterable[PlannedChange]) -> Iterator[Destination | Binding]:
    for change in changes:
        if isinstance(change.wanted, BindingDefinition):
            yield change.wanted.destination, change.wanted.routing_key
        elif isinstance(change.wanted, (ExchangeDefinition, QueueDefinition)):
            yield change.wanted.ref


def _apply_recorded(
    exchange: ExchangeDefinition, missing: Sequence[QueueDefinition], ring: HashRing, broker: LiveBroker
) -> Applied | None:
    """Declare what is missing by a plan, so that the broker keeps a record of the ring. Return None if the user may not do that.

    Raises:
        PlanOutdatedError: another program changes the vhost.
        MismatchError: another program has bound other members meanwhile.
        AccessRefusedError: a record exists, and the user may not replace it.
    """
    name, live = exchange.name, read_topology(broker)
    found = live.exchange(name)
    bound = {member.binding: member for member in (found and found.ring) or ()}
    members = tuple(bound.get(binding, RingMember(*binding)) for binding in ring.bindings or ())
    wanted = Topology(exchanges=(replace(found or exchange, ring=members),), queues=tuple(missing))
    planned = plan(wanted, live, propose=False)
    if not {change.action for change in planned.changes} <= {"create", "bind"}:
        raise MismatchError(
            f"exchange {name!r} has changed meanwhile, and is not the beginning of what is wanted: {_REMEDY}",
            exchange=name,
        )
    if not planned.changes:
        raise PlanOutdatedError(f"another program has declared exchange {name!r} meanwhile: declare it again")
    try:
        return apply_plan(planned, broker, Permission(moved=1.0), lambda *_: None)
    except ApplyError as error:
        if isinstance(error.__cause__, RabbitChxError):
            raise error.__cause__ from None
        raise
    except AccessRefusedError as error:
        if error.queue != APPLY_LOCK or records_of(name, live.facts.records):
            raise
        return None


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
                f"the management API does not list exchange {name!r} in vhost {broker.vhost!r}, and {broker.where} does: pass URLs "
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
        to_bind = find_rest_by_bindings(name, wanted, live.bindings)
        if live.ring.ground.is_certain:
            ring = live.ring
    elif broker.has_source:
        ring = read_ring(broker, name, wanted.release)
    if ring.ground.is_certain:
        by_bindings, to_bind = to_bind, find_rest_by_ring(name, wanted, ring)
        if broker.has_management and by_bindings != to_bind:
            raise MismatchError(
                f"exchange {name!r} has bindings without buckets: its ring is {ring!r}, and "
                f"{len(live.bindings)} bindings are listed; nothing was changed; unbind and bind what has no buckets",
                exchange=name,
            )
    elif not broker.has_management and not allow_existing:
        raise InputError(
            f"exchange {name!r} exists, and AMQP does not list its bindings: pass Broker a ring_source or a "
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


def _refuse_buckets_without_queue(exchange: str, ring: HashRing, missing: Iterable[QueueDefinition]) -> None:
    """Refuse a certain ring if it has buckets of a queue that does not exist, because their messages are lost."""
    for queue in missing if ring.ground.is_certain else ():
        if queue.name in ring.destinations:
            raise MismatchError(
                f"queue {queue.name!r} does not exist, and has buckets of exchange {exchange!r}, whose messages are lost: "
                "declare the queue, bind and unbind it, and declare all this again",
                exchange=exchange,
                queue=queue.name,
            )


def make_wanted_ring(bindings: GivenBindings, release: Release) -> HashRing:
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
                "ignore or add the second, by release; pass it once"
            )
    return ring


def find_rest_by_ring(exchange: str, wanted: HashRing, live: HashRing) -> tuple[Binding, ...]:
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


def find_rest_by_bindings(exchange: str, wanted: HashRing, live: Collection[Binding]) -> tuple[Binding, ...]:
    """Return the bindings of the wanted ring that follow the listed ones, whose order no API returns.

    Raises:
        MismatchError: the exchange has other bindings than the first of the wanted ones.
    """
    bindings = wanted.bindings or ()
    if sorted(live, key=order_of_binding) == sorted(bindings[: len(live)], key=order_of_binding):
        return bindings[len(live) :]
    live_bindings = sorted(live, key=lambda binding: order_of_destination(binding[0]))
    raise MismatchError(
        f"exchange {exchange!r} has the bindings {_list_bindings(live_bindings)}, not {_list_bindings(bindings)}: {_REMEDY}",
        exchange=exchange,
    )


def _list_bindings(bindings: Collection[Binding]) -> str:
    shown = ", ".join(f"{destination!s}={key}" for destination, key in bindings)
    return f"{shown:.400}" or "(none)"
