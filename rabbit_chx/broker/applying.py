"""Apply a plan to a broker: check it against the live topology, perform its changes in order, and compare the rings afterwards.

After an interruption, another plan finds the remaining changes of objects from the live topology, and all steps of the rings and the shares
of keys from what the broker keeps of the first run: see :mod:`rabbit_chx.records.live_rings`. So that it does not matter which steps are
done, or whether a service has bound its queue meanwhile, a member of a ring is unbound just before it is bound.

A broker removes a binding only if the arguments have the same types. JSON has fewer types than AMQP: 5 may have been sent as any of eight
types. So a binding with arguments may remain after an unbind that reported no error. The management API deletes it by its
``properties_key``.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from rabbit_chx import errors
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.broker.hand_over import (
    HandOver,
    HandOverLevel,
    HandOverTally,
    drain_park,
    hand_over_slot,
    parts_of,
)
from rabbit_chx.broker.live_broker import (
    LiveBroker,
    Operation,
    QueueCounts,
    Shape,
    check_declared_name,
    is_repeatable,
    operations_of,
    try_count,
)
from rabbit_chx.broker.reading import (
    DOWN,
    TOTALS,
    leader_fault,
    read_bindings,
    read_consumer_tags,
    read_topology,
    with_totals,
)
from rabbit_chx.broker.recording import RingKeeper, locked
from rabbit_chx.planning.plan import plan as make_plan
from rabbit_chx.planning.plan_value import DRAIN_S, Plan
from rabbit_chx.planning.refusals import ALLOW_LOSS, loss_refusal, uncounted_loss_refusal, uncounted_refusal
from rabbit_chx.planning.ring_plan import Append, KeyMapPlan
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import OrderKnowledge
from rabbit_chx.text import FEW, listed, plural
from rabbit_chx.topology.argument_table import ArgumentTable, plain
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects import (
    TRIAL,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import HandOverMarker, parse_member

#: The largest number of repeatable changes that are performed before the answer is awaited.
_BATCH_SIZE = 100
#: The statistics of a queue are up to ten seconds old, by the default collect_statistics_interval (measured on 3.10.8 and 4.3.6: a queue has
#: five seconds, and the collector of the management API five more). A consumer is listed earlier.
_POLL_INTERVAL_S = 0.5
_POLLS = 22
#: While queues are drained, the wait is reported every five seconds.
_LOOKS_PER_NOTE = 10
_UNCOUNTED = "the broker does not tell how many messages it has"
_BOUND: Mapping[str, Shape] = {"routing_key": str, "properties_key": str, "arguments?": dict}
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
        drain_s: the time in seconds in which consumers must empty the queues that the plan deletes or replaces.
    """

    moved: float | None = None
    delete: bool = False
    loss: bool = False
    hand_over: HandOverLevel = "parked"
    records: bool = True
    vhost: bool = False
    unlink: bool = False
    drain_s: float = DRAIN_S


class _QueueLeftError(errors.BrokerRefusedError):
    """A queue that is to be deleted is not empty. It is unbound, and keeps its messages and consumers."""

    @classmethod
    def of(cls, queue: str, counts: QueueCounts | None, when: str) -> _QueueLeftError:
        if counts is None:
            return cls(
                f"nobody can count the messages of queue {queue} {when}: it is unbound and was not deleted; wait until its node runs, and run "
                "it again",
                queue=queue,
            )
        messages = plural(counts.messages, "message")
        if not counts.consumers:
            return cls(
                f"queue {queue} still has {messages} and no consumers, so nothing empties it: it is unbound and was not deleted; "
                f"start a consumer, or allow the loss with {ALLOW_LOSS}, and run it again",
                queue=queue,
            )
        return cls(
            f"queue {queue} still has {messages} and {plural(counts.consumers, 'consumer')} {when}: it is unbound "
            "and was not deleted; run it again",
            queue=queue,
        )


def apply_plan(
    plan: Plan | Topology,
    broker: LiveBroker,
    permission: Permission,
    progress: Callable[[int, int], None],
    waiting: Callable[[str], None] = lambda _: None,
) -> Applied:
    """Apply a plan, or that of a topology.

    `progress` is called with the number of completed changes, first 0, and the number of all changes; `waiting` with a sentence that says
    which queues are drained, every five seconds, and before the first change if an interruption could not be resumed.

    Raises:
        LockedError: another connection applies a plan.
        PlanOutdatedError: the broker has changed since the plan was made.
        PlanRefusedError: the plan exceeds the permissions.
        ApplyError: an error after the first change.
        RabbitChxError: an error before the first change.
        InputError: `plan` is neither.
    """
    if not isinstance(plan, Plan | Topology):
        raise errors.InputError(
            f"a {type(plan).__name__} is not a Plan: pass a Topology, such as Topology.from_file(path), or a plan of it, "
            "rabbit_chx.topology.plan(wanted, broker.topology())"
        )
    with locked(broker), contextlib.closing(broker.carrier):  # also after an error of `progress`, or Ctrl-C
        made, live, drained = _check_plan(plan, broker, permission)  # of what an earlier run has left
        keeper = RingKeeper(made, live, broker, records=permission.records)
        return _apply_checked(made, broker, permission, progress, keeper, waiting=waiting, drained=drained)


def _check_plan(
    plan: Plan | Topology, broker: LiveBroker, permission: Permission
) -> tuple[Plan, LiveTopology, frozenset[str]]:
    """Refuse a plan that is outdated or exceeds the permissions.

    Return the plan of what is left, the live topology, and the queues that are drained before the plan deletes them.
    """
    live = read_topology(broker)
    current = make_plan(plan if isinstance(plan, Topology) else plan.wanted, live, propose=False)
    if isinstance(plan, Plan) and current.checksum != plan.checksum:
        raise errors.PlanOutdatedError(
            f"{broker.where}: the broker has changed since the plan was made (checksum {plan.checksum:.12} then, {current.checksum:.12} "
            "now): plan again",
        )
    plan = current
    refusals = list(
        plan.refused(
            allow_moved=permission.moved,
            allow_delete=permission.delete,
            allow_loss=permission.loss,
            allow_vhost=permission.vhost,
            allow_unlink=permission.unlink,
            records=permission.records,
        )
    )
    drained: list[str] = []
    if not permission.loss:
        losses, drained = _find_losses(plan, live, broker)
        refusals += losses
    if permission.hand_over == "in-order":
        hand_overs = [part for part in _split_changes(plan) if isinstance(part, HandOver)]
        queues = (queue for hand_over in hand_overs for queue in (hand_over.old, hand_over.new))
        refusals += find_order_refusals(queues, broker)
    if refusals:
        raise errors.PlanRefusedError(
            "\n  ".join(["the plan is refused, and nothing was changed:", *map(str, refusals)]),
            refusals,
        )
    _check_sendable(plan.changes, broker)
    _try_hand_overs(plan, broker, permission.hand_over)
    _try_replacements(plan, broker)
    return plan, live, frozenset(drained)


def _check_sendable(changes: tuple[PlannedChange, ...], broker: LiveBroker) -> None:
    """Refuse arguments that the client or the broker would not accept, before the first change."""
    for change in changes:
        if change.action == "create" and change.kind in ("exchange", "queue"):
            check_declared_name(change.name, change.kind)
    broker.amqp.check_sendable(
        [operation for change in changes for operation in operations_of(change, allow_loss=True)]
    )


def _try_replacements(plan: Plan, broker: LiveBroker) -> None:
    """Declare what replaces other objects, before the first step, and let all rings as they are if the broker refuses it.

    An object is deleted before another one takes its place, and it is too late then to find that the broker does not take the new one. So it
    is declared twice before. Under its own name, which exists, it shows whether the user may configure it; a difference is expected. Under a
    name of ours it shows whether the broker takes its arguments, if the user may configure that name.
    """
    for change in plan.changes:
        wanted = change.wanted
        if change.action != "replace" or not isinstance(wanted, ExchangeDefinition | QueueDefinition):
            continue
        with contextlib.suppress(errors.MismatchError):
            broker.amqp.perform(Operation("declare", wanted))
        tried = replace(wanted, name=TRIAL)
        try:
            # An apply that was killed between the next two operations has left an object that may differ.
            broker.amqp.perform(Operation("delete", tried))
            broker.amqp.perform(Operation("declare", tried))
        except errors.AccessRefusedError:
            continue
        except errors.BrokerRefusedError as error:
            raise type(error)(
                f"{change.kind} {change.name} would be deleted and declared again, and the broker does not take it: {error}; nothing was changed",
                reply_code=error.reply_code,
            ) from error
        broker.amqp.perform(Operation("delete", tried))


def _try_hand_overs(plan: Plan, broker: LiveBroker, level: HandOverLevel) -> None:
    """Try what a hand-over of slots needs before its messages are parked: otherwise they would wait in the parking queue.

    A binding that nobody makes is removed: of the new queue, and between the parking queue and the exchange.
    """
    hand_overs = [part for part in _split_changes(plan) if isinstance(part, HandOver)]
    for part in hand_overs:
        parked = BindingDefinition(part.park, ExchangeRef(part.exchange), "")
        for needed in (part.bind.binding, parked):
            try:
                broker.amqp.perform(Operation("unbind", replace(needed, arguments={TRIAL: True})))
            except errors.AccessRefusedError as error:
                raise errors.AccessRefusedError(
                    f"{error}; nothing was changed",
                    exchange=error.exchange,
                    queue=error.queue,
                    reply_code=error.reply_code,
                ) from error
            except errors.BrokerRefusedError:
                continue  # for another reason: the hand-over itself tells it
    if hand_overs and level == "in-order":
        _check_markers(broker)


def _check_markers(broker: LiveBroker) -> None:
    """Try the permissions of a hand-over in order, by a marker to a queue that nobody has."""
    try:
        broker.carrier.send_marker(TRIAL, HandOverMarker("flush", "", "", ""))
    except errors.AccessRefusedError as error:
        raise errors.AccessRefusedError(
            f"{error}: a hand-over in order needs write on exchange amq.default, and configure, write and read on queues amq.gen*; nothing was "
            "changed",
            exchange="amq.default",
            reply_code=error.reply_code,
        ) from error
    except errors.BrokerRefusedError:
        return  # as the queue does not exist


def _find_losses(plan: Plan, live: LiveTopology, broker: LiveBroker) -> tuple[list[Finding], list[str]]:
    """Return a refusal for each queue whose messages a plan would lose, and the deleted and replaced queues that are drained first.

    A queue is not drained before its replacement if it has no consumers, or if new messages would be unroutable until it is bound again.
    AMQP counts ready messages only. The management API also counts unacknowledged messages, some seconds late.
    """
    refusals = []
    drained = []
    live_queues = {queue.name for queue in live.queues}
    for change in plan.changes:
        subject = change.live
        if change.action not in ("delete", "replace") or not isinstance(subject, QueueDefinition):
            continue
        if subject.name not in live_queues:
            continue  # a stand-in, which the plan declares to remove its buckets
        if subject.name in plan.parking_queues.values() or subject.name in live.facts.queues.down:
            continue  # its messages are published again first; or the plan refuses it
        if subject.type == "stream":
            refusals.append(uncounted_loss_refusal(subject.name))
            continue
        try:
            counts = broker.amqp.count(subject.name)
        except errors.NotFoundError:
            continue
        counted = live.facts.queues.messages.get(subject.name)
        if subject.type == "quorum" and counted is None and _count_all(subject.name, broker) is None:
            refusals.append(uncounted_refusal(change, _UNCOUNTED))
            continue
        messages = max(counts.messages, counted or 0)
        is_drained = change.action == "delete" or (counts.consumers and plan.reaches_others(subject.name))
        if is_drained and (messages or counts.consumers):
            drained.append(subject.name)
        elif not is_drained and (counts.messages or counts.consumers):
            refusals.append(loss_refusal(subject.name, messages, counts.consumers, is_replaced=True))
    return refusals, drained


def _drain(queues: Iterable[str], broker: LiveBroker, drain_s: float, waiting: Callable[[str], None]) -> None:
    """Wait until the consumers of unbound queues have emptied them: no ready and no unacknowledged messages.

    A queue counts as empty, or as without consumers, when each look for the time of `_POLLS` has found it so. The wait ends `drain_s`
    seconds after its begin; a queue that is empty then is looked at for that time.

    Raises:
        _QueueLeftError: a queue is not empty in time, or has messages and no consumers.
    """
    begin = time.monotonic()
    slept_s = 0.0
    empty = dict.fromkeys(queues, 0)  # how many looks in a row
    abandoned = dict.fromkeys(empty, 0)
    left: list[_QueueLeftError] = []
    for look in count(0):
        elapsed_s = max(slept_s, time.monotonic() - begin)
        for name in tuple(empty):
            counts = _count_all(name, broker)
            is_empty = counts is not None and not counts.messages
            is_abandoned = counts is not None and counts.messages and not counts.consumers
            empty[name] = empty[name] + 1 if is_empty else 0
            abandoned[name] = abandoned[name] + 1 if is_abandoned else 0
            if not is_empty and (elapsed_s >= drain_s or abandoned[name] > _POLLS):
                left.append(_QueueLeftError.of(name, counts, f"after {elapsed_s:.0f} s"))
                del empty[name]
            elif empty[name] > _POLLS:
                del empty[name]
        if not empty:
            break
        if look % _LOOKS_PER_NOTE == 0:
            waiting(
                f"waiting until {listed(sorted(empty))} {'is' if len(empty) == 1 else 'are'} empty: {min(elapsed_s, drain_s):.0f} of {drain_s:g} s"
            )
        broker.sleep(_POLL_INTERVAL_S)
        slept_s += _POLL_INTERVAL_S
    if left:
        raise _QueueLeftError("; ".join(map(str, left)), queue=left[0].queue)


def _count_all(queue: str, broker: LiveBroker) -> QueueCounts | None:
    """Return the counts of a queue, with its unacknowledged messages; zeros if it does not exist any more, None if nobody can count them.

    A quorum queue without a leader answers with zeros over AMQP, and the management API does not count it. For some seconds it does not count
    a new one either, and 4.3 not those of `leader_fault`; then AMQP alone counts.
    """
    path = ("queues", broker.vhost, queue)
    fields = {"messages?": int, "state?": str, "type?": str}
    try:
        for _ in range(_POLLS):
            found = broker.api.get(*path, fields=fields)
            if found.get("messages") is None:  # a broker that collects no metrics counts if it is asked to
                found |= broker.api.get(*path, query=TOTALS, fields=fields)
            if found.get("state") in DOWN:
                return None
            unsettled = found.get("messages")
            if unsettled is not None or found.get("type") != "quorum":
                counts = broker.amqp.count(queue)
                return replace(counts, messages=max(counts.messages, unsettled or 0))
            broker.sleep(_POLL_INTERVAL_S)
    except errors.NotFoundError:
        return QueueCounts(0, 0)
    return None if leader_fault(found) else broker.amqp.count(queue)


def _apply_checked(
    plan: Plan,
    broker: LiveBroker,
    permission: Permission,
    progress: Callable[[int, int], None],
    keeper: RingKeeper,
    *,
    waiting: Callable[[str], None],
    drained: frozenset[str],
) -> Applied:
    done = keeper.done
    tally = HandOverTally()

    def add(change: PlannedChange) -> None:
        done.append(change)
        progress(len(done), len(plan.changes))

    progress(0, len(plan.changes))
    keeper.begin(waiting)
    try:
        _apply_parts(plan, broker, permission, add, tally, waiting=waiting, drained=drained)
        rings = verify_rings(plan, broker)
        recorded = keeper.end()
        if not broker.has_source:
            rings = {
                name: replace(ring, order=OrderKnowledge("recorded")) if name in recorded else ring
                for name, ring in rings.items()
            }
    except errors.RabbitChxError as error:
        is_refused = isinstance(error, errors.BrokerRefusedError | errors.PlanRefusedError)
        has_begun = (
            done or tally.begun or tally.moved or (plan.changes[:1] and plan.changes[0].action == "replace")
        )
        if is_refused and len(done) < len(plan.changes):
            keeper.finish_after_refusal(is_unchanged=not has_begun)
        # The first operation was refused, so nothing has changed.
        if not has_begun and is_refused and not isinstance(error, _QueueLeftError):
            raise
        applied = _make_result(done, {}, plan, tally, keeper)
        raise errors.ApplyError(
            f"{error}; {_say_done(done, plan, error)}{_say_rest(done, plan, error)}",
            applied,
            exchange=error.exchange,
            queue=error.queue,
            reply_code=error.reply_code,
        ) from error
    return _make_result(done, rings, plan, tally, keeper)


def _has_only_declared(done: Sequence[PlannedChange], plan: Plan) -> bool:
    """Return True if no ring was changed: neither the changes that are done nor the next one, which failed, is a step of one."""
    begun = plan.changes[: len(done) + 1]
    return all(change.action in ("create", "update") for change in begun)


def _say_done(done: Sequence[PlannedChange], plan: Plan, error: errors.RabbitChxError) -> str:
    """Return what was done. After a lost connection it is not known which of the last operations the broker has got."""
    if not _has_only_declared(done, plan):
        return f"{len(done)} of {len(plan.changes)} changes were done"
    is_exact = isinstance(error, errors.BrokerRefusedError | errors.PlanRefusedError)
    names = listed([f"{change.kind} {change.name}" for change in done], FEW)
    declared = (
        f"declared {'' if is_exact else 'at least '}{names}" if done else "what was declared is not known"
    )
    return f"{declared}, and no ring was changed: the same command does the rest"


def _say_rest(done: Sequence[PlannedChange], plan: Plan, error: errors.RabbitChxError) -> str:
    """Return how the rest is done."""
    if len(done) == len(plan.changes) or _has_only_declared(done, plan):
        return ""
    if isinstance(error, errors.AccessRefusedError):
        return ", and a user with that permission does the rest: plan and apply again"
    return ": plan and apply again, which does the rest"


def _make_result(
    done: list[PlannedChange],
    rings: Mapping[str, HashRing],
    plan: Plan,
    tally: HandOverTally,
    keeper: RingKeeper,
) -> Applied:
    handed_over = tuple(tally.slots)
    overtaken = tuple(tally.overtaken)
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
    completed: Callable[[PlannedChange], None],
    tally: HandOverTally,
    *,
    waiting: Callable[[str], None],
    drained: frozenset[str],
) -> None:
    """Perform the changes.

    The parking queues are drained before the first deletion, and at the end. The `drained` queues are drained before the first of them is
    deleted or replaced: then their unbinds are done, which the deletion of a stand-in precedes.
    """
    parks_are_empty = False
    for part in _split_changes(plan):
        if isinstance(part, HandOver):
            hand_over_slot(part, broker, permission.hand_over, tally)
            completed(part.unbind)
            completed(part.bind)
            continue
        waited: set[str] = set()
        for group in group_changes(part):
            action = group[0].action  # a deletion or a replacement is a group by itself
            if action == "delete" and not parks_are_empty:
                _drain_parks(plan, broker, tally)
                parks_are_empty = True
            if _is_drained(group[0], drained) and action not in waited:
                waited.add(action)
                names = [
                    change.name for change in part if change.action == action and _is_drained(change, drained)
                ]
                _drain(names, broker, permission.drain_s, waiting)
            _apply_group(group, broker, completed, allow_loss=permission.loss, drained=drained, rebinds=True)
    if not parks_are_empty:
        _drain_parks(plan, broker, tally)


def _is_drained(change: PlannedChange, queues: Collection[str]) -> bool:
    return change.action in ("delete", "replace") and change.kind == "queue" and change.name in queues


def _drain_parks(plan: Plan, broker: LiveBroker, tally: HandOverTally) -> None:
    for exchange, park in plan.parking_queues.items():
        tally.moved += drain_park(broker, exchange, park)


def group_changes(changes: Iterable[PlannedChange]) -> Iterator[tuple[PlannedChange, ...]]:
    """Yield the changes in groups: consecutive repeatable changes of one action form a group, any other change is a group by itself.

    So all declarations are answered before the first bind is sent.
    """
    group: list[PlannedChange] = []
    for change in changes:
        continues = group and is_repeatable(change) and change.action == group[-1].action
        if group and (len(group) == _BATCH_SIZE or not continues):
            yield tuple(group)
            group.clear()
        group.append(change)
    if group:
        yield tuple(group)


def apply_changes(changes: Iterable[PlannedChange], broker: LiveBroker) -> None:
    """Perform changes in order, without records. A binding that exists already keeps its place.

    Raises:
        PlanRefusedError: a queue that is to be deleted has messages.
        RabbitChxError: the broker refuses a change; earlier ones are done.
    """
    for group in group_changes(changes):
        _apply_group(group, broker, lambda _: None, allow_loss=False, drained=(), rebinds=False)


def _apply_group(
    group: tuple[PlannedChange, ...],
    broker: LiveBroker,
    completed: Callable[[PlannedChange], None],
    *,
    allow_loss: bool,
    drained: Collection[str],
    rebinds: bool,
) -> None:
    """Perform a group of changes. `rebinds`: a member of a ring is unbound just before it is bound."""
    operations = [
        operation
        for change in group
        for operation in _operations(change, allow_loss=allow_loss, rebinds=rebinds)
    ]
    # Singly, to find the change that the broker refuses.
    together = len(operations) > 1 and is_repeatable(group[0]) and broker.amqp.perform_together(operations)
    for change in group:
        if not together:
            _apply_change(change, broker, allow_loss=allow_loss, drained=drained, rebinds=rebinds)
        if change.action == "unbind":
            remove_binding(change.binding, broker)
        completed(change)


def _operations(change: PlannedChange, *, allow_loss: bool, rebinds: bool) -> tuple[Operation, ...]:
    operations = operations_of(change, allow_loss=allow_loss)
    if rebinds and change.ring and change.action == "bind":
        return (Operation("unbind", change.binding), *operations)
    return operations


def _apply_change(
    change: PlannedChange, broker: LiveBroker, *, allow_loss: bool, drained: Collection[str], rebinds: bool
) -> None:
    if isinstance(change.subject, PolicyDefinition):
        _apply_policy(change.subject, broker, is_deleted=change.wanted is None)
        return
    operations = _operations(change, allow_loss=allow_loss, rebinds=rebinds)
    if isinstance(change.live, QueueDefinition) and not allow_loss:
        operations = _check_deletion(
            change, change.live, operations, broker, is_drained=change.name in drained
        )
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
    change: PlannedChange,
    queue: QueueDefinition,
    operations: tuple[Operation, ...],
    broker: LiveBroker,
    *,
    is_drained: bool,
) -> tuple[Operation, ...]:
    """Return the operations that delete or replace a queue, after a check that it is empty.

    The broker itself checks a classic queue (``if-empty``). For a quorum queue it refuses this condition (540 NOT_IMPLEMENTED). It does not
    count unacknowledged messages; the management API does.

    Raises:
        PlanRefusedError: the queue has messages or consumers.
        _QueueLeftError: the queue was drained, and has messages again.
    """
    if is_drained:
        drained_counts = _count_all(queue.name, broker)
        if drained_counts is None or drained_counts.messages:
            raise _QueueLeftError.of(queue.name, drained_counts, "after it was empty")
        return (replace(operations[0], if_unused=False), *operations[1:])
    if queue.type == "classic":
        return operations
    counts = _count_all(queue.name, broker)
    if counts is None or counts.messages or counts.consumers:
        is_replaced = change.action == "replace"
        refusal = (
            uncounted_refusal(change, _UNCOUNTED)
            if counts is None
            else loss_refusal(queue.name, counts.messages, counts.consumers, is_replaced=is_replaced)
        )
        raise errors.PlanRefusedError(str(refusal), [refusal])
    return operations


def _ring_changes(plan: Plan) -> Iterator[tuple[str, KeyMapPlan, HashRing]]:
    """Yield each exchange with a ring, its change, and its ring after the plan."""
    for name, change in plan.rings.items():
        if change.ring_after is not None:
            yield name, change, change.ring_after


def verify_rings(plan: Plan, broker: LiveBroker) -> Mapping[str, HashRing]:
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
            raise errors.BrokerRefusedError(
                f"the ring of {name} is {live_ring!r} after all changes, and not {ring!r}: someone else binds too, or the "
                "broker did not do what it answered; check the ring",
                exchange=name,
            )
    return rings


def _verify_bindings(planned: Mapping[str, HashRing], broker: LiveBroker) -> Mapping[str, HashRing]:
    """Return the planned rings, after a comparison of their bindings with those of the broker."""
    bound = read_bindings(broker.api, broker.vhost)
    for name, ring in planned.items():
        there = Counter(binding.member for binding in bound.get(name, ()))
        wanted = Counter(ring.bindings or ())
        if wanted < there:
            foreign = ", ".join(f"{place!s} (key {key})" for place, key in there - wanted)
            raise errors.BrokerRefusedError(
                f"someone else binds too: {foreign} is bound to {name} and not in the plan; unbind it, and apply again",
                exchange=name,
            )
        if there != wanted:
            raise errors.BrokerRefusedError(
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
    with contextlib.suppress(errors.NotFoundError):  # it was deleted meanwhile, or with one of its ends
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
            group = "let the group read it (declare a new queue first, without slots)"
            readers = "no consumer"
            if others:
                readers = f"a consumer {others[0]!r}, which is not a member of a group"
            elif _is_consumed([queue], broker):
                group = "let a user with the tag monitoring apply the plan"
                readers = "consumers that the user cannot list"
            refusals.append(
                Finding(
                    "hand-over",
                    f"queue {queue} has {readers}, and a hand-over in order needs a ConsumerGroup on both queues",
                    f"{group}, or allow messages to be overtaken with `--hand-over parked` (`hand_over='parked'`)",
                )
            )
    return refusals


def _is_consumed(queues: Iterable[str], broker: LiveBroker) -> bool:
    counted = (try_count(broker.amqp, queue) for queue in queues)
    return any(counts is not None and counts.consumers for counts in counted)


# -- Appends in order: what makes them impossible, and the wait until each old queue has been empty once since the bind


#: The time in seconds for which `wait_drained` waits by default.
WAIT_S = 600.0
#: The totals of queues are up to five seconds old, by the default of `collect_statistics_interval` and of quorum queues (measured on 3.10.8
#: and 4.3.6; other statistics are up to ten).
STALE_S = 7.0
_POLL_S = 1.0
_NOTE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Drained:
    """The end of a wait for old queues.

    Attributes:
        after_s: how long it took, in seconds.
        never_empty: the queues that were never empty, with their last counts; None for one that nobody can count.
        early: the new queues that had consumers before each old queue had been empty.
    """

    after_s: float
    never_empty: dict[str, QueueCounts | None] = field(default_factory=dict)
    early: tuple[str, ...] = ()

    @property
    def is_in_order(self) -> bool:
        """True if each old queue has been empty once, and nobody consumed from a new one before."""
        return not self.never_empty and not self.early


def append_of(plan: Plan) -> Append | None:
    """Return the appends of a plan to its rings as one, without queues that it deletes; None if there is none."""
    deleted = {change.name for change in plan.changes if (change.action, change.kind) == ("delete", "queue")}
    appends = [append for ring in plan.rings.values() if (append := ring.append) is not None]
    old = dict.fromkeys(place for append in appends for place in append.old if place not in deleted)
    new = dict.fromkeys(place for append in appends for place in append.new)
    return Append(tuple(old), tuple(new)) if appends else None


def why_not_in_order(plan: Plan) -> Iterator[str]:
    """Yield why keys that a plan moves do not stay in order, whatever anybody waits for."""
    for name, ring in plan.rings.items():
        if ring.moved_at_worst and ring.append is None:
            yield f"the plan moves keys of {name} otherwise than by an append, which puts new queues behind the others"
        yield from ring.obstacles


def with_obstacles(plan: Plan, broker: LiveBroker) -> Plan:
    """Return a plan whose appends have what makes their order impossible now."""
    rings = {}
    for name, ring in plan.rings.items():
        append = ring.append
        obstacles = () if append is None else tuple(_obstacles(name, append, broker))
        rings[name] = replace(ring, obstacles=obstacles) if obstacles else ring
    return replace(plan, rings=rings)


def _obstacles(exchange: str, append: Append, broker: LiveBroker) -> Iterator[str]:
    """Yield what makes the order of an append impossible. A passive declaration counts at once, and for each user."""
    prefix = f"the order of keys that move in {exchange} is not kept"
    for place in append.new:
        counts = _count(place, broker)
        if counts is not None and counts.consumers:
            yield (
                f"{prefix}: {place} has {plural(counts.consumers, 'consumer')} already, which would handle new messages before the old queues "
                "have passed older ones; stop them first"
            )
    for place in append.old:
        if isinstance(place, ExchangeRef):
            yield f"{prefix}: keys leave the exchange {place.name}, and which messages wait behind it is not known"
            continue
        counts = _count(place, broker)
        if counts is not None and counts.messages and not counts.consumers:
            yield (
                f"{prefix}: {place} has {plural(counts.messages, 'message')} and no consumer, so it is never empty; start a consumer of it "
                "first"
            )


def _count(place: Destination, broker: LiveBroker) -> QueueCounts | None:
    return try_count(broker.amqp, place) if isinstance(place, str) else None


def wait_drained(
    append: Append,
    broker: LiveBroker,
    longest_s: float,
    waiting: Callable[[str], None],
) -> Drained:
    """Wait until each old queue has been empty once: no ready and no unacknowledged messages.

    The totals of the broker are some seconds old, so that a queue which they call empty may have been so before the bind. So only what they
    say `STALE_S` after the begin counts.
    """
    begin = time.monotonic()
    slept_s = 0.0
    next_note_s = 0.0
    left: dict[str, QueueCounts | None] = {place: None for place in append.old if isinstance(place, str)}
    early: dict[str, None] = {}
    while True:
        elapsed_s = max(slept_s, time.monotonic() - begin)
        left = _read_counts(left, broker)
        if elapsed_s >= STALE_S:
            left = {name: counts for name, counts in left.items() if counts is None or counts.messages}
        if not left:
            return Drained(elapsed_s, early=tuple(early))
        early |= dict.fromkeys(_consumed(append.new, broker))
        if elapsed_s >= longest_s:
            return Drained(elapsed_s, left, tuple(early))
        if elapsed_s >= next_note_s:
            waiting(
                f"waiting for {describe_queues(left)} to have been empty once: {elapsed_s:.0f} of {longest_s:g} s"
            )
            next_note_s = elapsed_s + _NOTE_EVERY_S
        broker.sleep(_POLL_S)
        slept_s += _POLL_S


def _read_counts(names: Iterable[str], broker: LiveBroker) -> dict[str, QueueCounts | None]:
    """Return the messages of queues, with those that are not acknowledged, and their consumers; None for one that nobody can count."""
    found: dict[str, QueueCounts | None] = {}
    for entry in with_totals(broker.api, broker.vhost, [{"name": name} for name in names]):
        name = entry["name"]
        unsettled = entry.get("messages")
        counts = try_count(broker.amqp, name)
        if counts is None or not isinstance(unsettled, int):
            found[name] = None
        else:
            found[name] = replace(counts, messages=max(counts.messages, unsettled))
    return found


def _consumed(places: Iterable[Destination], broker: LiveBroker) -> Iterator[str]:
    """Yield the queues that have consumers."""
    for place in places:
        counts = _count(place, broker)
        if isinstance(place, str) and counts is not None and counts.consumers:
            yield place


def describe_queues(queues: dict[str, QueueCounts | None]) -> str:
    """Return queues with the number of their messages, and whether nobody consumes from them."""
    return listed([_describe_queue(name, counts) for name, counts in queues.items()])


def _describe_queue(name: str, counts: QueueCounts | None) -> str:
    if counts is None:
        return f"{name} (its messages cannot be counted)"
    messages = plural(counts.messages, "message")
    return f"{name} ({messages})" if counts.consumers else f"{name} ({messages}, no consumer)"
