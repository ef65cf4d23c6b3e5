"""A plan, done on a broker: checked against what is there now, done in order, and compared afterwards.

What was done is never written down. After an interruption, another plan finds out from the broker what is left.

A broker unbinds only what has the same arguments with the same types. JSON does not tell types: 5 may have been sent as any of
eight. So a binding with arguments may still be there after an unbind, without any error. The management API deletes it by its
own key for it (``properties_key``).
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from rabbit_chx.errors import (
    AccessRefusedError,
    ApplyError,
    BrokerRefusedError,
    InputError,
    NotFoundError,
    PlanOutdatedError,
    PlanRefusedError,
    RabbitChxError,
)
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology.arguments import ArgumentTable
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.hand_over import (
    HandOver,
    HandOverLevel,
    HandOverTally,
    handed_over,
    park_drained,
    parts_of,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import BindingDefinition, QueueDefinition
from rabbit_chx.topology.operations import (
    ApiRequest,
    Operation,
    QueueCounts,
    QueueDeclare,
    QueueDelete,
    Refusal,
    check_declared_name,
    is_repeatable,
    refused,
    steps_of,
)
from rabbit_chx.topology.plan import Plan
from rabbit_chx.topology.plan import plan as plan_of
from rabbit_chx.topology.reading import APPLY_LOCK, rings_read, topology_read
from rabbit_chx.topology.refusals import PlanRefusal, loss, uncounted_loss
from rabbit_chx.topology.steps import (
    Access,
    ApiSequence,
    CarrierEnd,
    Pause,
    Pipeline,
    SendingCheck,
    Sequence,
    asked,
)

_AT_ONCE = 100
#: The management API lists a new consumer within five seconds: collect_statistics_interval, v4.3.
_LOOK_S, _LOOKS = 0.5, 14
_NOT_ALLOWED, _NOT_FOUND, _LOCKED = 403, 404, 405
#: Names that are no part of a path of HTTP.
_NO_SEGMENTS = {".", ".."}
_PREFIX = "rabbit-chx.group."
_TAG = re.compile(rf"{re.escape(_PREFIX)}(.+)\.[^.]+", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Applied:
    """What was done of a plan.

    Attributes:
        changes: the changes that were done, in order.
        rings: the rings afterwards, by exchange, of the exchanges whose rings changed. They are read where there is a ring
            source, else replayed.
        checksum: the checksum of the plan.
        handed_over: the slots that changed hands, each with the queue before and the queue afterwards.
        unparked: how many messages were in parking queues, and were published once more to their exchange.
        overtaken: a sentence for each slot whose parked messages may be overtaken, though it was to change hands in order.
    """

    changes: tuple[PlannedChange, ...]
    rings: Mapping[str, HashRing]
    checksum: str
    handed_over: tuple[tuple[str, str, str], ...] = ()
    unparked: int = 0
    overtaken: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Applied {len(self.changes)} changes, {len(self.rings)} rings, {self.checksum[:12]}>"


@dataclass(frozen=True, slots=True)
class Permission:
    """What applying a plan may do beyond what the topology says.

    Attributes:
        moved: the share of keys that may move in each ring, 0 to 1; None: what the topology says.
        delete: whether objects may be deleted and replaced.
        loss: whether queues may be deleted that have messages or consumers.
        hand_over: how slots change hands.
    """

    moved: float | None = None
    delete: bool = False
    loss: bool = False
    hand_over: HandOverLevel = "parked"


def plan_applied(
    plan: Plan, access: Access, permission: Permission, progress: Callable[[int, int], None]
) -> Sequence[Applied]:
    """Apply a plan.

    Args:
        plan: the plan.
        access: what the sequence may ask.
        permission: what is allowed.
        progress: called with the number of changes that are done, 0 before the first, and of all.

    Raises:
        PlanOutdatedError: the broker has changed since the plan was made, or another plan is being applied.
        PlanRefusedError: the plan does more than it may.
        ApplyError: something went wrong after the first change.
        RabbitChxError: something went wrong before it.
        InputError: it is no plan.
    """
    if not isinstance(plan, Plan):
        raise InputError(
            f"a {type(plan).__name__} is no plan: make one with rabbit_chx.topology.plan(wanted, broker.topology())"
        )
    yield from _lock(access.where)
    try:
        consumed = yield from _checked(plan, access, permission)
        applied = yield from _applied(plan, access, permission, progress, consumed)
    except RabbitChxError:
        yield from _unlock(carrying=bool(plan.parks))
        raise
    yield from _unlock(carrying=bool(plan.parks))
    return applied


def _lock(where: str) -> Sequence[None]:
    """Declare the exclusive queue that keeps others from applying a plan. The broker deletes it when the connection ends."""
    lock = QueueDeclare(APPLY_LOCK, durable=False, exclusive=True, auto_delete=True)
    answer = yield lock
    if not isinstance(answer, Refusal):
        return
    if answer.reply_code == _LOCKED:
        raise PlanOutdatedError(
            f"{where}: another connection applies a plan, and holds the exclusive queue {APPLY_LOCK}: wait until it is done, "
            "then plan again"
        )
    if answer.reply_code == _NOT_ALLOWED:
        raise AccessRefusedError(
            f"{refused(where, lock, answer)}: it is an exclusive queue that keeps a second application out; nothing was changed",
            queue=APPLY_LOCK,
            reply_code=answer.reply_code,
        )
    raise refused(where, lock, answer)


def _unlock(*, carrying: bool) -> Sequence[None]:
    if carrying:
        yield CarrierEnd()
    with contextlib.suppress(RabbitChxError):  # the connection may be gone, and the lock with it
        yield QueueDelete(APPLY_LOCK)


def _checked(plan: Plan, access: Access, permission: Permission) -> Sequence[frozenset[str]]:
    """Refuse a plan that is outdated, or does more than it may. Return the empty queues with consumers that it deletes."""
    live = yield from topology_read(access)
    now = plan_of(plan.wanted, live)
    if now.checksum != plan.checksum:
        raise PlanOutdatedError(
            f"{access.where}: the broker has changed since the plan was made (checksum {plan.checksum:.12} then, {now.checksum:.12} "
            "now): plan again",
        )
    refusals = list(now.refused(allow_moved=permission.moved, allow_delete=permission.delete))
    consumed: dict[str, int] = {}
    if not permission.loss:
        refusals += yield from _losses(plan, live, access, consumed)
    if permission.hand_over == "in-order":
        overs = [part for part in _parts(plan) if isinstance(part, HandOver)]
        refusals += yield from order_refusals(
            (queue for over in overs for queue in (over.old, over.new)), access
        )
    if refusals:
        raise PlanRefusedError(
            "\n".join(
                ["the plan is refused, and nothing was changed:", *(f"  {refusal}" for refusal in refusals)]
            ),
            refusals,
        )
    yield from _check_sending(plan.changes, access.vhost)
    return frozenset(consumed)


def _check_sending(changes: tuple[PlannedChange, ...], vhost: str) -> Sequence[None]:
    """Refuse what the client or the broker could not take, before anything is changed."""
    for change in changes:
        if change.action == "create" and change.kind in ("exchange", "queue"):
            check_declared_name(change.name, change.kind)
    steps = (step for change in changes for step in steps_of(change, vhost, allow_loss=True))
    yield SendingCheck(tuple(step for step in steps if not isinstance(step, ApiRequest)))


def _losses(
    plan: Plan, live: Topology, access: Access, consumed: dict[str, int]
) -> Sequence[list[PlanRefusal]]:
    """Return a refusal for each queue that is deleted or replaced and may lose messages.

    An empty queue with consumers may be deleted. It is added to `consumed`, with their number. AMQP counts the messages that are ready. Those that
    consumers have not acknowledged are in the count of the management API.
    """
    refusals = []
    live_queues = {queue.name for queue in live.queues}
    for change in plan.changes:
        subject = change.live
        if change.action not in ("delete", "replace") or not isinstance(subject, QueueDefinition):
            continue
        if subject.name not in live_queues:
            continue  # the plan itself makes it, to take a ghost away
        if subject.name in plan.parks.values():
            continue  # it is emptied before
        if subject.type == "stream":
            refusals.append(uncounted_loss(subject.name))
            continue
        operation = QueueDeclare(subject.name, passive=True)
        answer = yield operation
        if isinstance(answer, QueueCounts):
            held = live.messages.get(subject.name)
            if change.action == "delete" and not answer.messages and answer.consumers and held == 0:
                consumed[subject.name] = answer.consumers
            elif answer.messages or answer.consumers:
                messages = max(answer.messages, held or 0)
                refusals.append(loss(subject.name, messages, answer.consumers))
        elif isinstance(answer, Refusal) and answer.reply_code != _NOT_FOUND:
            raise refused(access.where, operation, answer)
    if consumed:
        yield from _api_counts_settled()
    for name, consumers in consumed.items():
        listed = yield ApiRequest("GET", ("queues", access.vhost, name))
        if messages := listed.get("messages") or 0:
            refusals.append(loss(name, messages, consumers))
    return refusals


def _api_counts_settled() -> Sequence[None]:
    """Wait until the management API counts what consumers have taken so far."""
    for _ in range(_LOOKS):
        yield Pause(_LOOK_S)


def _applied(
    plan: Plan,
    access: Access,
    permission: Permission,
    progress: Callable[[int, int], None],
    consumed: frozenset[str],
) -> Sequence[Applied]:
    done: list[PlannedChange] = []
    tally = HandOverTally()

    def count(change: PlannedChange) -> None:
        done.append(change)
        progress(len(done), len(plan.changes))

    progress(0, len(plan.changes))
    try:
        yield from _parts_done(plan, access, permission, count, tally, consumed=consumed)
        rings = yield from _rings_afterwards(plan, has_source=access.has_source)
    except RabbitChxError as error:
        begun = tally.begun or tally.moved or (plan.changes and plan.changes[0].action == "replace")
        if not done and not begun and isinstance(error, BrokerRefusedError | PlanRefusedError):
            raise  # the first operation was refused, so nothing has changed
        applied = _outcome(done, {}, plan, tally)
        raise ApplyError(
            f"{error}; {len(done)} of {len(plan.changes)} changes were done: plan and apply again, which does the rest",
            applied,
            exchange=error.exchange,
            queue=error.queue,
            reply_code=error.reply_code,
        ) from error
    return _outcome(done, rings, plan, tally)


def _outcome(
    done: list[PlannedChange], rings: Mapping[str, HashRing], plan: Plan, tally: HandOverTally
) -> Applied:
    over, overtaken = tuple(tally.slots), tuple(tally.overtaken)
    return Applied(tuple(done), rings, plan.checksum, over, tally.moved, overtaken)


def _parts(plan: Plan) -> Iterator[HandOver | tuple[PlannedChange, ...]]:
    slots = {
        slot.slot: name
        for name, ring in plan.rings.items()
        for slot in (() if ring.hands is None else ring.hands.handed_over)
    }
    return parts_of(plan.changes, slots, plan.parks)


def _parts_done(
    plan: Plan,
    access: Access,
    permission: Permission,
    count: Callable[[PlannedChange], None],
    tally: HandOverTally,
    *,
    consumed: frozenset[str],
) -> Sequence[None]:
    """Do the changes of a plan. The parking queues are empty before the first deletion, and in the end."""
    drained = False
    for part in _parts(plan):
        if isinstance(part, HandOver):
            yield from handed_over(part, access, permission.hand_over, tally)
            count(part.unbind)
            count(part.bind)
            continue
        last = next((n for n, change in enumerate(part) if change.action == "delete"), len(part))
        yield from changes_done(part[:last], access, count, allow_loss=permission.loss)
        if last < len(part):
            yield from _parks_drained(plan, access, tally)
            drained = True
            if consumed & {change.name for change in part[last:] if change.kind == "queue"}:
                yield from _api_counts_settled()
            yield from changes_done(part[last:], access, count, allow_loss=permission.loss, consumed=consumed)
    if not drained:
        yield from _parks_drained(plan, access, tally)


def _parks_drained(plan: Plan, access: Access, tally: HandOverTally) -> Sequence[None]:
    for exchange, park in plan.parks.items():
        tally.moved += yield from park_drained(access.where, exchange, park)


def changes_together(changes: tuple[PlannedChange, ...]) -> Iterator[tuple[PlannedChange, ...]]:
    """Yield the changes in groups: repeatable ones together, any other alone."""
    for repeatable, group in groupby(changes, is_repeatable):
        listed = tuple(group)
        size = _AT_ONCE if repeatable else 1
        for start in range(0, len(listed), size):
            yield listed[start : start + size]


def changes_done(
    changes: tuple[PlannedChange, ...],
    access: Access,
    count: Callable[[PlannedChange], None],
    *,
    allow_loss: bool = False,
    consumed: Collection[str] = (),
) -> Sequence[None]:
    """Do changes in order. Those that may be done again go together, as pipelines that wait once.

    Args:
        changes: the changes.
        access: what the sequence may ask.
        count: called with each change that is done.
        allow_loss: whether queues may be deleted that have messages or consumers.
        consumed: the queues that may be deleted with their consumers if they are empty.

    Raises:
        PlanRefusedError: a queue is to be deleted that has messages now.
        RabbitChxError: the broker refuses one; those before it are counted.
    """
    for group in changes_together(changes):
        steps = [steps_of(change, access.vhost, allow_loss=allow_loss) for change in group]
        one_by_one = len(group) == 1
        if not one_by_one:
            answer = yield Pipeline(tuple(step for of_change in steps for step in of_change))  # type: ignore[misc]  # no policies
            one_by_one = isinstance(answer, Refusal)  # which finds the change that the broker refuses
        for change, of_change in zip(group, steps, strict=True):
            if one_by_one:
                if change.action == "delete" and change.kind == "queue" and not allow_loss:
                    deletion = yield from _safe_deletion(change, of_change, access, consumed)
                    yield from _steps_done(deletion, access.where)
                else:
                    yield from _steps_done(of_change, access.where)
            if change.action == "unbind" and isinstance(change.live, BindingDefinition):
                yield from binding_removed(change.live, access)
            count(change)


def _safe_deletion(
    change: PlannedChange,
    steps: tuple[Operation | ApiRequest, ...],
    access: Access,
    consumed: Collection[str],
) -> Sequence[tuple[Operation | ApiRequest, ...]]:
    """Return the deletion of a queue, after a check that it is empty.

    The broker itself checks a classic queue (``if-empty``). It refuses this condition for a quorum queue (540 NOT_IMPLEMENTED). It
    never counts the messages that consumers have not acknowledged; the management API does.
    """
    queue, is_consumed = change.subject, change.name in consumed
    assert isinstance(queue, QueueDefinition)  # noqa: S101  # of this kind
    if queue.type == "classic" and not is_consumed:
        return steps
    answer = yield QueueDeclare(queue.name, passive=True)
    counts = answer if isinstance(answer, QueueCounts) else QueueCounts(0, 0)
    messages = counts.messages
    if is_consumed:
        listed = yield ApiRequest("GET", ("queues", access.vhost, queue.name))
        messages = max(messages, listed.get("messages") or 0)
    if messages or (counts.consumers and not is_consumed):
        refusal = loss(queue.name, messages, counts.consumers)
        raise PlanRefusedError(str(refusal), [refusal])
    return (QueueDelete(queue.name, if_empty=True),) if queue.type == "classic" else steps


def _steps_done(steps: tuple[Operation | ApiRequest, ...], where: str) -> Sequence[None]:
    for step in steps:
        if isinstance(step, ApiRequest):
            yield step
        else:
            yield from asked(where, step)


def _rings_afterwards(plan: Plan, *, has_source: bool) -> Sequence[Mapping[str, HashRing]]:
    """Return the rings that changed, as they are now, and refuse others than those that were planned."""
    planned = {name: ring for name, ring in plan.rings.items() if ring.steps}
    if not has_source or not planned:
        return {name: ring.after for name, ring in planned.items()}
    release: Release = next(iter(planned.values())).after.release
    rings = yield from rings_read(planned, release)
    for name, ring in planned.items():
        live_ring = rings.get(name)
        if ring.after.buckets != (live_ring.buckets if live_ring is not None else ()):
            raise BrokerRefusedError(
                f"the ring of {name} is {live_ring!r} after all changes, and not {ring.after!r}: someone else binds too, or the "
                "broker did not do what it answered; check the ring",
                exchange=name,
            )
    return rings


def binding_removed(binding: BindingDefinition, access: Access) -> ApiSequence[None]:
    """Take a binding away that is still there after an unbind. A binding without arguments never is.

    Raises:
        AccessRefusedError: the user may not.
        UnreachableError: the management API does not answer.
    """
    place = binding.destination
    end = ("e", place.name) if isinstance(place, ExchangeRef) else ("q", place)
    if not binding.arguments or not access.has_management or {binding.source, end[1]} & _NO_SEGMENTS:
        return
    path = ("bindings", access.vhost, "e", binding.source, *end)
    try:
        listed = yield ApiRequest("GET", path)
        for entry in listed:
            if (
                entry["routing_key"] == binding.routing_key
                and ArgumentTable(entry["arguments"]) == binding.arguments
            ):
                yield ApiRequest("DELETE", (*path, entry["properties_key"]))
    except NotFoundError:  # it went meanwhile, or with one of its ends
        return


def order_refusals(queues: Iterable[str], access: Access) -> Sequence[list[PlanRefusal]]:
    """Return a refusal for each queue that no group reads, or not a group alone.

    Raises:
        RabbitChxError: the management API does not tell.
    """
    wanted = list(dict.fromkeys(queues))
    if not wanted:
        return []
    tags = yield from consumer_tags(wanted, access)
    for _ in range(_LOOKS):
        if all(tags.values()) or not (
            yield from _is_consumed([queue for queue in wanted if not tags[queue]])
        ):
            break
        yield Pause(_LOOK_S)
        tags = yield from consumer_tags(wanted, access)
    refusals = []
    for queue in wanted:
        others = [tag for tag in tags[queue] if member_of(tag) is None]
        if others or not tags[queue]:
            who = f"a consumer {others[0]!r}, which is no member of a group" if others else "no consumer"
            refusals.append(
                PlanRefusal(
                    f"queue {queue} has {who}, and a hand-over in order needs a ConsumerGroup on both queues: let the group read "
                    f"it (declare a new queue first, without slots), or allow messages to be overtaken with --hand-over parked"
                )
            )
    return refusals


def consumer_tags(queues: Iterable[str], access: Access) -> ApiSequence[dict[str, list[str]]]:
    """Return the tags of the consumers of each of these queues, as the management API lists them."""
    tags: dict[str, list[str]] = {queue: [] for queue in queues}
    listed = yield ApiRequest("GET", ("consumers", access.vhost), listed=True, fields={"consumer_tag": str})
    for entry in listed:
        queue = entry.get("queue", {}).get("name")
        if queue in tags:
            tags[queue].append(entry["consumer_tag"])
    return tags


def _is_consumed(queues: Iterable[str]) -> Sequence[bool]:
    """Return whether one of these queues has a consumer, as AMQP tells."""
    for queue in queues:
        answer = yield QueueDeclare(queue, passive=True)
        if isinstance(answer, QueueCounts) and answer.consumers:
            return True
    return False


def tag_of(member: str) -> str:
    """Return a new consumer tag of a member."""
    return f"{_PREFIX}{member}.{secrets.token_hex(4)}"


def member_of(consumer_tag: str) -> str | None:
    """Return the member of a group that a consumer belongs to; None for a consumer of something else."""
    match = _TAG.fullmatch(consumer_tag)
    return match and match[1]
