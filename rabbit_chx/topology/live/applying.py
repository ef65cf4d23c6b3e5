"""Apply a plan to a broker: check it against the live topology, perform its changes in order, and compare the rings afterwards.

Progress is not stored. After an interruption, another plan finds the remaining changes from the live topology.

A broker removes a binding only if the arguments have the same types. JSON has fewer types than AMQP: 5 may have been sent as any of eight
types. So a binding with arguments may remain after an unbind that reported no error. The management API deletes it by its
``properties_key``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import (
    ApplyError,
    BrokerRefusedError,
    InputError,
    NotFoundError,
    PlanOutdatedError,
    PlanRefusedError,
    RabbitChxError,
)
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.ground import Ground
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.live.hand_over import (
    HandOver,
    HandOverLevel,
    HandOverTally,
    drain_park,
    hand_over_slot,
    parse_member,
    parts_of,
)
from rabbit_chx.topology.live.live_broker import (
    LiveBroker,
    Operation,
    QueueCounts,
    Shape,
    check_declared_name,
    is_repeatable,
    operations_of,
    try_count,
)
from rabbit_chx.topology.live.reading import read_bindings, read_topology
from rabbit_chx.topology.live.recording import RingKeeper, lock, unlock
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import (
    ArgumentTable,
    BindingDefinition,
    PolicyDefinition,
    QueueDefinition,
    plain,
)
from rabbit_chx.topology.planning.map_change import MapChange
from rabbit_chx.topology.planning.plan import Plan
from rabbit_chx.topology.planning.plan import plan as make_plan
from rabbit_chx.topology.planning.refusals import loss, uncounted_loss

#: The largest number of repeatable changes that are performed before the answer is awaited.
_BATCH_SIZE = 100
#: The management API lists a new consumer within five seconds: collect_statistics_interval, v4.3.
_POLL_INTERVAL_S, _POLLS = 0.5, 14
_NOT_FOUND = 404
_BOUND: Mapping[str, Shape] = {"routing_key": str, "properties_key": str, "arguments?": dict}
_CONSUMER: Mapping[str, Shape] = {"consumer_tag": str, "queue?": {"name?": str}}
#: Names that cannot be segments of an HTTP path.
_UNSAFE_SEGMENTS = {".", ".."}


@dataclass(frozen=True, slots=True, repr=False)
class Applied:
    """The result of applying a plan.

    Attributes:
        changes: the completed changes, in order.
        rings: the rings afterwards, by exchange, of the exchanges whose rings changed: read by the ring source, or else replayed.
        checksum: the checksum of the plan.
        handed_over: the slots that changed hands, each with its old and its new queue.
        unparked: the number of messages that were moved from parking queues back to their exchange.
        overtaken: a sentence for each slot whose parked messages may be overtaken although an in-order hand-over was requested.
        unrecorded: why the order of rings is not stored on the broker, as sentences.
    """

    changes: tuple[PlannedChange, ...]
    rings: Mapping[str, HashRing]
    checksum: str
    handed_over: tuple[tuple[str, str, str], ...] = ()
    unparked: int = 0
    overtaken: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Applied {len(self.changes)} changes, {len(self.rings)} rings, {self.checksum[:12]}>"


@dataclass(frozen=True, slots=True)
class Permission:
    """The permissions for applying a plan, in addition to those of the topology.

    Attributes:
        moved: the share of keys that may move in each ring, 0 to 1; None: the limit of the topology.
        delete: permits deleting and replacing objects.
        loss: permits deleting queues that have messages or consumers.
        hand_over: the method of moving slots.
        records: False: the order of the rings is not stored on the broker.
        vhost: permits another vhost than the topology names.
        unlink: permits cutting federation links.
    """

    moved: float | None = None
    delete: bool = False
    loss: bool = False
    hand_over: HandOverLevel = "parked"
    records: bool = True
    vhost: bool = False
    unlink: bool = False


def apply_plan(
    plan: Plan, broker: LiveBroker, permission: Permission, progress: Callable[[int, int], None]
) -> Applied:
    """Apply a plan. `progress` is called with the number of completed changes, first 0, and the number of all changes.

    Raises:
        PlanOutdatedError: the broker has changed since the plan was made, or another plan is being applied.
        PlanRefusedError: the plan exceeds the permissions.
        ApplyError: an error after the first change.
        RabbitChxError: an error before the first change.
        InputError: `plan` is not a plan.
    """
    if not isinstance(plan, Plan):
        raise InputError(
            f"a {type(plan).__name__} is not a Plan: make one with rabbit_chx.topology.plan(wanted, broker.topology())"
        )
    lock(broker)
    try:
        live, consumed = _check_plan(plan, broker, permission)
        keeper = RingKeeper(plan, live, broker, records=permission.records)
        applied = _apply_checked(plan, broker, permission, progress, keeper, consumed=consumed)
    except RabbitChxError:
        _unlock(plan, broker)
        raise
    _unlock(plan, broker)
    return applied


def _unlock(plan: Plan, broker: LiveBroker) -> None:
    if plan.parking_queues:
        broker.carrier.close()
    unlock(broker)


def _check_plan(plan: Plan, broker: LiveBroker, permission: Permission) -> tuple[Topology, frozenset[str]]:
    """Refuse a plan that is outdated or exceeds the permissions.

    Return the live topology, and the empty queues with consumers that the plan deletes.
    """
    live = read_topology(broker)
    current = make_plan(plan.wanted, live, propose=False)
    if current.checksum != plan.checksum:
        raise PlanOutdatedError(
            f"{broker.where}: the broker has changed since the plan was made (checksum {plan.checksum:.12} then, {current.checksum:.12} "
            "now): plan again",
        )
    refusals = list(
        current.refused(
            allow_moved=permission.moved,
            allow_delete=permission.delete,
            allow_vhost=permission.vhost,
            allow_unlink=permission.unlink,
        )
    )
    consumed: dict[str, int] = {}
    if not permission.loss:
        losses, consumed = _find_losses(plan, live, broker)
        refusals += losses + _find_unacknowledged(consumed, broker)
    if permission.hand_over == "in-order":
        hand_overs = [part for part in _split_changes(plan) if isinstance(part, HandOver)]
        queues = (queue for hand_over in hand_overs for queue in (hand_over.old, hand_over.new))
        refusals += find_order_refusals(queues, broker)
    if refusals:
        raise PlanRefusedError(
            "\n".join(
                ["the plan is refused, and nothing was changed:", *(f"  {refusal}" for refusal in refusals)]
            ),
            refusals,
        )
    _check_sendable(plan.changes, broker)
    return live, frozenset(consumed)


def _check_sendable(changes: tuple[PlannedChange, ...], broker: LiveBroker) -> None:
    """Refuse arguments that the client or the broker would not accept, before the first change."""
    for change in changes:
        if change.action == "create" and change.kind in ("exchange", "queue"):
            check_declared_name(change.name, change.kind)
    broker.amqp.check_sendable(
        [operation for change in changes for operation in operations_of(change, allow_loss=True)]
    )


def _find_losses(plan: Plan, live: Topology, broker: LiveBroker) -> tuple[list[Finding], dict[str, int]]:
    """Return a refusal for each deleted or replaced queue that may lose messages, and the consumer count of each empty deleted queue.

    AMQP counts ready messages only. The management API also counts unacknowledged messages, some seconds late.
    """
    refusals = []
    consumed: dict[str, int] = {}
    live_queues = {queue.name for queue in live.queues}
    for change in plan.changes:
        subject = change.live
        if change.action not in ("delete", "replace") or not isinstance(subject, QueueDefinition):
            continue
        if subject.name not in live_queues:
            continue  # a stand-in, which the plan declares to remove its buckets
        if subject.name in plan.parking_queues.values():
            continue  # it is drained first
        if subject.type == "stream":
            refusals.append(uncounted_loss(subject.name))
            continue
        try:
            counts = broker.amqp.count(subject.name)
        except RabbitChxError as error:
            if error.reply_code != _NOT_FOUND:
                raise
            continue
        listed = live.messages.get(subject.name)
        if change.action == "delete" and not counts.messages and counts.consumers and listed == 0:
            consumed[subject.name] = counts.consumers
        elif counts.messages or counts.consumers:
            refusals.append(loss(subject.name, max(counts.messages, listed or 0), counts.consumers))
    return refusals, consumed


def _find_unacknowledged(consumed: Mapping[str, int], broker: LiveBroker) -> list[Finding]:
    if consumed:
        _wait_for_api_counts(broker)
    counts = {name: _count_by_api(name, broker) for name in consumed}
    return [loss(name, counts[name], consumers) for name, consumers in consumed.items() if counts[name]]


def _wait_for_api_counts(broker: LiveBroker) -> None:
    for _ in range(_POLLS):
        broker.sleep(_POLL_INTERVAL_S)


def _count_by_api(queue: str, broker: LiveBroker) -> int:
    answer = broker.api.get("queues", broker.vhost, queue, fields={"messages?": int})
    return int(answer.get("messages") or 0)


def _apply_checked(
    plan: Plan,
    broker: LiveBroker,
    permission: Permission,
    progress: Callable[[int, int], None],
    keeper: RingKeeper,
    *,
    consumed: frozenset[str],
) -> Applied:
    done: list[PlannedChange] = []
    tally = HandOverTally()

    def count(change: PlannedChange) -> None:
        done.append(change)
        keeper.completed = len(done)
        progress(len(done), len(plan.changes))

    progress(0, len(plan.changes))
    keeper.begin()
    try:
        _apply_parts(plan, broker, permission, count, tally, keeper=keeper, consumed=consumed)
        rings = _verify_rings(plan, broker)
        recorded = keeper.end()
        if not broker.has_source:
            rings = {
                name: replace(ring, ground=Ground("recorded")) if name in recorded else ring
                for name, ring in rings.items()
            }
    except RabbitChxError as error:
        is_refused = isinstance(error, BrokerRefusedError | PlanRefusedError)
        if is_refused:
            keeper.settle_after_refusal()
        has_begun = tally.begun or tally.moved or (plan.changes and plan.changes[0].action == "replace")
        if not done and not has_begun and is_refused:
            raise  # the first operation was refused, so nothing has changed
        applied = _make_result(done, {}, plan, tally, keeper)
        raise ApplyError(
            f"{error}; {len(done)} of {len(plan.changes)} changes were done: plan and apply again, which does the rest",
            applied,
            exchange=error.exchange,
            queue=error.queue,
            reply_code=error.reply_code,
        ) from error
    return _make_result(done, rings, plan, tally, keeper)


def _make_result(
    done: list[PlannedChange],
    rings: Mapping[str, HashRing],
    plan: Plan,
    tally: HandOverTally,
    keeper: RingKeeper,
) -> Applied:
    handed_over, overtaken = tuple(tally.slots), tuple(tally.overtaken)
    return Applied(
        tuple(done), rings, plan.checksum, handed_over, tally.moved, overtaken, tuple(keeper.notes)
    )


def _split_changes(plan: Plan) -> Iterator[HandOver | tuple[PlannedChange, ...]]:
    slots = {slot.slot: name for name, change in plan.rings.items() for slot in change.handed_over}
    return parts_of(plan.changes, slots, plan.parking_queues)


def _apply_parts(
    plan: Plan,
    broker: LiveBroker,
    permission: Permission,
    count: Callable[[PlannedChange], None],
    tally: HandOverTally,
    *,
    keeper: RingKeeper,
    consumed: frozenset[str],
) -> None:
    """Perform the changes. The parking queues are drained before the first deletion, and at the end."""
    is_drained = False
    for part in _split_changes(plan):
        if isinstance(part, HandOver):
            hand_over_slot(part, broker, permission.hand_over, tally)
            count(part.unbind)
            count(part.bind)
            continue
        first_deletion = next((n for n, change in enumerate(part) if change.action == "delete"), len(part))
        apply_changes(part[:first_deletion], broker, count, keeper, allow_loss=permission.loss)
        if first_deletion < len(part):
            _drain_parks(plan, broker, tally)
            is_drained = True
            if consumed & {change.name for change in part[first_deletion:] if change.kind == "queue"}:
                _wait_for_api_counts(broker)  # consumers may have taken messages before the unbinds
            apply_changes(
                part[first_deletion:], broker, count, keeper, allow_loss=permission.loss, consumed=consumed
            )
    if not is_drained:
        _drain_parks(plan, broker, tally)


def _drain_parks(plan: Plan, broker: LiveBroker, tally: HandOverTally) -> None:
    for exchange, park in plan.parking_queues.items():
        tally.moved += drain_park(broker, exchange, park)


def group_changes(changes: tuple[PlannedChange, ...]) -> Iterator[tuple[PlannedChange, ...]]:
    """Yield the changes in groups: consecutive repeatable changes form a group, any other change is a group by itself."""
    for repeatable, group in groupby(changes, is_repeatable):
        listed = tuple(group)
        size = _BATCH_SIZE if repeatable else 1
        for start in range(0, len(listed), size):
            yield listed[start : start + size]


def apply_changes(
    changes: tuple[PlannedChange, ...],
    broker: LiveBroker,
    count: Callable[[PlannedChange], None],
    keeper: RingKeeper | None = None,
    *,
    allow_loss: bool = False,
    consumed: Collection[str] = (),
) -> None:
    """Perform changes in order, store the records of rings between them, and call `count` with each completed change.

    `consumed` are the queues that are deleted although they have consumers.

    Raises:
        PlanRefusedError: a queue that is to be deleted has messages.
        RabbitChxError: the broker refuses a change; earlier changes are counted.
    """
    for group in group_changes(changes):
        for part in (group,) if keeper is None else keeper.split(group):
            _apply_group(part, broker, count, keeper, allow_loss=allow_loss, consumed=consumed)


def _apply_group(
    group: tuple[PlannedChange, ...],
    broker: LiveBroker,
    count: Callable[[PlannedChange], None],
    keeper: RingKeeper | None,
    *,
    allow_loss: bool,
    consumed: Collection[str],
) -> None:
    records = [] if keeper is None else keeper.operations_before()
    operations = [
        *records,
        *(operation for change in group for operation in operations_of(change, allow_loss=allow_loss)),
    ]
    # Singly, to find the change that the broker refuses.
    is_sent = len(group) > 1 or (records and group[0].ring)
    together = is_sent and broker.amqp.perform_together(operations)
    if not together:
        for operation in records:
            broker.amqp.perform(operation)
    for change in group:
        if not together:
            _apply_change(change, broker, allow_loss=allow_loss, consumed=consumed)
        if change.action == "unbind":
            remove_binding(change.binding, broker)
        for operation in () if keeper is None else keeper.operations_after():
            broker.amqp.perform(operation)
        count(change)


def _apply_change(
    change: PlannedChange, broker: LiveBroker, *, allow_loss: bool, consumed: Collection[str]
) -> None:
    if isinstance(change.subject, PolicyDefinition):
        _apply_policy(change.subject, broker, is_deleted=change.wanted is None)
        return
    operations = operations_of(change, allow_loss=allow_loss)
    if change.action == "delete" and isinstance(change.subject, QueueDefinition) and not allow_loss:
        operations = _check_deletion(change.subject, operations, broker, is_consumed=change.name in consumed)
    for operation in operations:
        broker.amqp.perform(operation)


def _apply_policy(policy: PolicyDefinition, broker: LiveBroker, *, is_deleted: bool) -> None:
    path = ("policies", broker.vhost, policy.name)
    if is_deleted:
        broker.api.delete(*path)
        return
    body = {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": plain(policy.definition),
        "priority": policy.priority,
    }
    broker.api.put(*path, body=body)


def _check_deletion(
    queue: QueueDefinition, operations: tuple[Operation, ...], broker: LiveBroker, *, is_consumed: bool
) -> tuple[Operation, ...]:
    """Return the operations that delete a queue, after a check that it is empty.

    The broker itself checks a classic queue (``if-empty``). For a quorum queue it refuses this condition (540 NOT_IMPLEMENTED). It does not
    count unacknowledged messages; the management API does.

    Raises:
        PlanRefusedError: the queue has messages, or consumers although it is not one of the `consumed` queues.
    """
    if queue.type == "classic" and not is_consumed:
        return operations
    counts = try_count(broker.amqp, queue.name) or QueueCounts(0, 0)
    messages = counts.messages
    if is_consumed:
        messages = max(messages, _count_by_api(queue.name, broker))
    if messages or (counts.consumers and not is_consumed):
        refusal = loss(queue.name, messages, counts.consumers)
        raise PlanRefusedError(str(refusal), [refusal])
    return (Operation("delete", queue, if_empty=True),) if queue.type == "classic" else operations


def _ring_changes(plan: Plan) -> Iterator[tuple[str, MapChange, HashRing]]:
    """Yield each exchange with a ring, its change, and its ring after the plan."""
    for name, change in plan.rings.items():
        if isinstance(change.after, HashRing):
            yield name, change, change.after


def _verify_rings(plan: Plan, broker: LiveBroker) -> Mapping[str, HashRing]:
    """Read the changed rings and return them. Without a ring source, compare the bindings, and return the rings of the plan.

    Raises:
        BrokerRefusedError: a ring differs from the plan.
    """
    planned = {name: after for name, change, after in _ring_changes(plan) if change.steps}
    if not planned:
        return planned
    if not broker.has_source:
        return _verify_bindings(planned, broker)
    release: Release = next(iter(planned.values())).release
    rings = broker.read_rings(tuple(planned), release)
    for name, ring in planned.items():
        live_ring = rings.get(name)
        if ring.buckets != (live_ring.buckets if live_ring is not None else ()):
            raise BrokerRefusedError(
                f"the ring of {name} is {live_ring!r} after all changes, and not {ring!r}: someone else binds too, or the "
                "broker did not do what it answered; check the ring",
                exchange=name,
            )
    return rings


def _verify_bindings(planned: Mapping[str, HashRing], broker: LiveBroker) -> Mapping[str, HashRing]:
    """Return the planned rings, after a comparison of their bindings with those of the broker."""
    bound = read_bindings(broker)
    for name, ring in planned.items():
        if Counter(bound.get(name, ())) != Counter(ring.bindings or ()):
            raise BrokerRefusedError(
                f"the bindings of {name} are not those of {ring!r} after all changes: someone else binds too, or the broker did not do "
                "what it answered; compare its bindings",
                exchange=name,
            )
    return planned


def remove_binding(binding: BindingDefinition, broker: LiveBroker) -> None:
    """Remove a binding with arguments that remains after an unbind.

    Raises:
        AccessRefusedError: the user lacks a permission.
        UnreachableError: the management API does not answer.
    """
    destination = binding.destination
    end = ("e", destination.name) if isinstance(destination, ExchangeRef) else ("q", destination)
    if not binding.arguments or not broker.has_management or {binding.source, end[1]} & _UNSAFE_SEGMENTS:
        return
    path = ("bindings", broker.vhost, "e", binding.source, *end)
    with contextlib.suppress(NotFoundError):  # it was deleted meanwhile, or with one of its ends
        for entry in broker.api.get_list(*path, fields=_BOUND):
            if (
                entry["routing_key"] == binding.routing_key
                and ArgumentTable(entry.get("arguments") or {}) == binding.arguments
            ):
                broker.api.delete(*path, entry["properties_key"])


def find_order_refusals(queues: Iterable[str], broker: LiveBroker) -> list[Finding]:
    """Return a refusal for each queue that has no consumer, or a consumer that is not a member of a group."""
    names = list(dict.fromkeys(queues))
    if not names:
        return []
    tags = read_consumer_tags(names, broker)
    for _ in range(_POLLS):
        if all(tags.values()) or not _is_consumed([queue for queue in names if not tags[queue]], broker):
            break
        broker.sleep(_POLL_INTERVAL_S)
        tags = read_consumer_tags(names, broker)
    refusals = []
    for queue in names:
        others = [tag for tag in tags[queue] if parse_member(tag) is None]
        if others or not tags[queue]:
            readers = (
                f"a consumer {others[0]!r}, which is not a member of a group" if others else "no consumer"
            )
            refusals.append(
                Finding(
                    "hand-over",
                    f"queue {queue} has {readers}, and a hand-over in order needs a ConsumerGroup on both queues",
                    "let the group read it (declare a new queue first, without slots), or allow messages to be overtaken with "
                    "--hand-over parked",
                )
            )
    return refusals


def read_consumer_tags(queues: Iterable[str], broker: LiveBroker) -> dict[str, list[str]]:
    """Return the consumer tags of each queue from the management API, which lists a new consumer after some seconds."""
    tags: dict[str, list[str]] = {queue: [] for queue in queues}
    for entry in broker.api.get_list("consumers", broker.vhost, fields=_CONSUMER):
        queue = (entry.get("queue") or {}).get("name")
        if queue in tags:
            tags[queue].append(entry["consumer_tag"])
    return tags


def _is_consumed(queues: Iterable[str], broker: LiveBroker) -> bool:
    counted = (try_count(broker.amqp, queue) for queue in queues)
    return any(counts is not None and counts.consumers for counts in counted)
