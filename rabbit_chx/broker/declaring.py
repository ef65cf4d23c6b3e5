"""A hash exchange and its queues, declared in one call: the plan of a topology of one exchange, which may only add objects.

A new binding only adds buckets at the end of the ring, so an existing ring must be the beginning of the wanted one. Any other difference is
refused before the first change. AMQP alone shows little of what exists: see `_look_around`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rabbit_chx import errors
from rabbit_chx.broker.applying import Applied, Permission, apply_changes, apply_plan, verify_rings
from rabbit_chx.broker.live_broker import APPLY_LOCK, LiveBroker, Operation, check_declared_name
from rabbit_chx.broker.reading import read_ring, read_topology
from rabbit_chx.broker.recording import delete_record, forget_records, locked, wait_for_others
from rabbit_chx.planning.plan import declared, plan
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.records.live_rings import evidence_of, make_members
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import AS_LISTED, GivenBindings
from rabbit_chx.routing.message import refuse_misspelt
from rabbit_chx.topology.arguments import limit_faults
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects import (
    QUEUE_TYPE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.schema import PlannedChange

_NOT_FOUND = 404
_REMEDY = "nothing was changed; unbind and bind in the order that is wanted, which moves keys, or declare what is there"


@dataclass(frozen=True, slots=True)
class Declared:
    """The result of `Broker.declare`.

    Attributes:
        created: the objects that did not exist before: the exchange as an ExchangeRef, queues by their names.
        bound: ``(destination, binding key)`` of each new binding, in order.
        ring: the ring afterwards. Its provenance is ``read`` if a ring source compared it, ``recorded`` if the broker keeps a record of it,
            ``replayed`` if the exchange is new and has no record, and None otherwise: its order is not known.
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
    arguments = queue_arguments or {}
    queues = []
    for destination in _destinations(wanted):
        if isinstance(destination, ExchangeRef):
            check_declared_name(destination.name, "exchange")
            continue
        check_declared_name(destination, "queue")
        queue = QueueDefinition(
            destination, "classic" if QUEUE_TYPE in arguments else "", arguments=arguments
        )
        # The broker accepts a limit by which the queue would lose messages.
        for found in limit_faults(queue, release):
            raise errors.InputError(f"queue {destination!r}: {found.message}: {found.fix}", queue=destination)
        queues.append(queue)
    exchange = replace(exchange, ring=tuple(RingMember(*binding) for binding in wanted.bindings or ()))

    def compare_and_declare() -> Declared:
        with contextlib.ExitStack() as held:
            if not broker.has_management:
                # A user without it is not kept from declaring, and is shown the name of the cluster only.
                with contextlib.suppress(errors.AccessRefusedError):
                    held.enter_context(locked(broker))
            return _declare(exchange, queues, wanted, broker, allow_existing=allow_existing, records=records)

    # What another program leaves that declares or applies is compared again.
    return wait_for_others(compare_and_declare, broker, repeated_after=errors.PlanOutdatedError)


def _declare(
    exchange: ExchangeDefinition,
    queues: Sequence[QueueDefinition],
    wanted: HashRing,
    broker: LiveBroker,
    *,
    allow_existing: bool,
    records: bool,
) -> Declared:
    """Plan what is missing, and apply it.

    Raises:
        PlanOutdatedError: another program changes the vhost.
    """
    if broker.has_management:
        live = read_topology(broker, refuses_changes=True)
    else:
        live = _look_around(exchange, queues, wanted.release, broker, allow_existing=allow_existing)
    _check_exchanges(wanted, broker)
    made = plan(declared(live, exchange, queues), _assume_beginning(exchange, wanted, live), propose=False)
    _refuse_other_changes(made, exchange.name)
    if not made.changes:
        return Declared((), (), live.rings[exchange.name])
    done = {_made_by(change) for change in made.changes}
    places = (exchange.ref, *_destinations(wanted))
    before = live.rings.get(exchange.name)
    is_known = before is None or before.order.is_known
    result = Declared(
        tuple(place for place in places if place in done),
        tuple(binding for binding in wanted.bindings or () if binding in done),
        _ring_after(made, exchange.name, is_known=is_known),
    )
    if not broker.has_management:
        delete_record(exchange.name, broker)
        apply_changes(made.changes, broker)
        if broker.has_source and live.exchange(exchange.name) is not None:
            result = replace(result, ring=verify_rings(made, broker).get(exchange.name, result.ring))
        return result
    try:
        if is_known:
            applied = _apply(made, broker, records=records)
            return replace(
                result, ring=applied.rings.get(exchange.name, result.ring), unrecorded=applied.unrecorded
            )
        unrecorded = "it was not known before; read it by a ring source"
        with locked(broker):
            forget_records(exchange.name, broker)
            apply_changes(made.changes, broker)
    except errors.AccessRefusedError as error:
        if error.queue != APPLY_LOCK or exchange.name in evidence_of(live).records:
            raise
        unrecorded = f"the user may not declare queue {APPLY_LOCK} and exchanges rabbit-chx.*"
        apply_changes(made.changes, broker)
    note = f"the order of the ring is not stored on the broker: {unrecorded}"
    return replace(result, unrecorded=(note,) if records else ())


def _check_exchanges(ring: HashRing, broker: LiveBroker) -> None:
    for destination in _destinations(ring):
        if isinstance(destination, ExchangeRef):
            broker.amqp.check_exchange(destination.name)


def _destinations(ring: HashRing) -> Iterable[Destination]:
    return dict.fromkeys(destination for destination, _ in ring.bindings or ())


def _made_by(change: PlannedChange) -> Destination | Binding | None:
    subject = change.subject
    return (
        (subject.destination, subject.routing_key) if isinstance(subject, BindingDefinition) else subject.ref
    )


def _ring_after(made: Plan, exchange: str, *, is_known: bool) -> HashRing:
    """Return the ring after a plan. `is_known`: the order before is known; the plan has assumed it if it is not."""
    after = made.rings[exchange].ring_after
    assert after is not None  # an exchange of another type would be replaced
    return after if is_known else HashRing.unordered(after.bindings or (), after.release)


def _apply(made: Plan, broker: LiveBroker, *, records: bool) -> Applied:
    try:
        return apply_plan(made, broker, Permission(moved=1.0, records=records), lambda *_: None)
    except errors.ApplyError as error:
        if isinstance(error.__cause__, errors.RabbitChxError):
            raise error.__cause__ from None
        raise


def _refuse_other_changes(made: Plan, exchange: str) -> None:
    """Refuse a plan that does more than it adds.

    Raises:
        MismatchError: an object has other properties, or the ring is not the beginning of the wanted one.
    """
    others = [change for change in made.changes if change.action not in ("create", "bind")]
    for change in others:
        if change.action == "replace" and change.fields:
            (message, *_) = [each.message for each in made.refusals if each.kind == "replacement"]
            ends = {change.kind: change.name}
            raise errors.MismatchError(
                f"{message}: nothing was changed; declare what is there",
                exchange=ends.get("exchange"),
                queue=ends.get("queue"),
            )
    if others:
        ring = made.rings[exchange]
        bound_again = {change.subject for change in made.changes if change.action == "bind"}
        # Whether a binding must move depends on the order. That one is not wanted is true in each order.
        unwanted = [change for change in others if change.subject not in bound_again]
        named = (unwanted or others)[0]
        raise errors.MismatchError(
            f"exchange {exchange!r} has the ring {ring.before!r}, and {ring.after!r} takes another change than new bindings ({named}): "
            f"{_REMEDY}",
            exchange=exchange,
        )


def _assume_beginning(exchange: ExchangeDefinition, wanted: HashRing, live: LiveTopology) -> LiveTopology:
    """Return the topology with a ring whose order is not known in the order of the wanted bindings, if it has the first of them.

    Raises:
        MismatchError: its bindings make no ring.
    """
    found = live.exchange(exchange.name)
    ring = live.rings.get(exchange.name)
    if found is not None and found.type == exchange.type and ring is None:
        raise errors.MismatchError(
            f"exchange {exchange.name!r} has a binding that no client can make: delete it, and bind again what is wanted",
            exchange=exchange.name,
        )
    bound = [member.binding for member in (found and found.ring) or ()]
    first = (wanted.bindings or ())[: len(bound)]
    if ring is None or ring.order.is_known or Counter(bound) != Counter(first):
        return live
    ring = replace(HashRing.from_bindings(first, wanted.release), order=AS_LISTED)
    return live.with_rings({exchange.name: ring})


def _look_around(
    exchange: ExchangeDefinition,
    queues: Iterable[QueueDefinition],
    release: Release,
    broker: LiveBroker,
    *,
    allow_existing: bool,
) -> LiveTopology:
    """Return which of the objects exist, as AMQP alone shows it: what is declared again, and not refused, does not differ.

    The ring source shows the ring. Without one, it is assumed that nothing is bound.

    Raises:
        MismatchError: an object exists with another type, durability or arguments.
        InputError: the exchange exists, and nothing shows its bindings.
    """
    is_new = _is_missing(exchange, broker)
    there = tuple(queue for queue in queues if not _is_missing(queue, broker))
    if is_new:
        return LiveTopology(queues=there, release=release)
    if not broker.has_source and not allow_existing:
        raise errors.InputError(
            f"exchange {exchange.name!r} exists, and AMQP does not list its bindings: pass Broker a ring_source or a "
            "management_url to compare with, or declare with allow_existing=True if it has no other bindings than these",
            exchange=exchange.name,
        )
    ring = HashRing.unordered((), release)
    if broker.has_source:
        ring = read_ring(broker, exchange.name, release)
    keys = {(member.destination, member.weight): member for member in exchange.ring or ()}
    names = {queue.name for queue in there}
    members = tuple(
        keys.get((member.destination, member.weight), member)
        for member in make_members(ring.buckets)
        if isinstance(member.destination, ExchangeRef) or member.destination in names
    )
    found = replace(exchange, ring=members)
    return LiveTopology((found,), there, release=release, rings={exchange.name: ring})


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
    except errors.RabbitChxError as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return True
    broker.amqp.perform(operation)
    return False


def make_wanted_ring(bindings: GivenBindings, release: Release) -> HashRing:
    """Return the ring that bindings make on a fresh exchange.

    Raises:
        InputError: the broker would refuse a binding, or a destination has two bindings.
    """
    ring = HashRing.from_bindings(bindings, release)
    keys: dict[Destination, str] = {}
    for destination, key in ring.bindings or ():
        if keys.setdefault(destination, key) != key:
            raise errors.InputError(
                f"{destination!r} is bound twice, with the weights {keys[destination]} and {key}: the broker would "
                "ignore or add the second, by release; pass it once"
            )
    return ring
