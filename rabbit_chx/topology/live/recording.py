"""Store the records of rings on the broker, before and after the operations that change them: see :mod:`rabbit_chx.topology.ring_records`.

An apply stores the record of each ring with its steps before its first change, and the final record after its last one. Each record is
stored before the former one is deleted, and in between both yield the ring that the broker has. So the records are right whenever the apply
ends.
"""

from __future__ import annotations

import contextlib
import getpass
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Literal, TypeVar

from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    MismatchError,
    NotDeterminedError,
    PlanOutdatedError,
    RabbitChxError,
)
from rabbit_chx.routing import Binding, HashRing
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.ring_changes import RingState
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.times import time_text
from rabbit_chx.topology.live.live_broker import APPLY_LOCK, LOCK_ID, LiveBroker, LockedError, Operation
from rabbit_chx.topology.live.reading import LiveExchange, read_bindings, read_topology
from rabbit_chx.topology.live_rings import find_live_ring, find_recorded_ring
from rabbit_chx.topology.mark import BOTH_MESSAGES, MARK, Mark, Stamp, mark_arguments
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.pending_apply import PENDING_APPLY, pending_arguments
from rabbit_chx.topology.planning.plan_value import Plan
from rabbit_chx.topology.planning.resuming import make_pending
from rabbit_chx.topology.ring_records import (
    RingRecord,
    Step,
    after_steps,
    fit_state,
    following,
    make_record,
    newest,
    prove_ring,
    record_arguments,
    record_names,
    records_of,
    split_steps,
)

_LOCK = QueueDefinition(APPLY_LOCK, durable=False, exclusive=True, auto_delete=True)
_LOCKED = 405
#: Errors of a broker that does not take a record or the mark.
_NOT_STORED = (AccessRefusedError, MismatchError)
_NEEDED = "configure on rabbit-chx.*, and write on amq.default"
#: How long another connection that changes the topology is awaited, as of services that declare one exchange when they start.
WAIT_S, _PAUSE_S = 30.0, 0.25
_Result = TypeVar("_Result")


def _name_trial(name: str) -> Operation:
    """Return an operation that needs configure on the name of an exchange, and changes nothing: no queue has the name."""
    return Operation("delete", QueueDefinition(name), if_unused=True, if_empty=True)


@contextlib.contextmanager
def locked(broker: LiveBroker) -> Iterator[None]:
    """Hold the exclusive queue that prevents others from changing rings. The broker deletes it when the connection closes.

    `read_topology` then refuses what it reads from another broker, because its random argument is not there.

    Raises:
        LockedError: another connection has it.
        AccessRefusedError: the user may not declare it.
    """
    lock_id = secrets.token_hex(8)
    try:
        broker.amqp.perform(Operation("declare", replace(_LOCK, arguments={LOCK_ID: lock_id})))
    except AccessRefusedError as error:
        raise AccessRefusedError(
            f"{error}: it is an exclusive queue that keeps a second application out; nothing was changed",
            queue=APPLY_LOCK,
            reply_code=error.reply_code,
        ) from None
    except BrokerRefusedError as error:
        if error.reply_code != _LOCKED:
            raise
        raise LockedError(broker.where) from None
    broker.lock_id = lock_id
    try:
        yield
    finally:
        broker.lock_id = ""
        # The connection may be closed, which deletes the lock. After Ctrl-C within pika, its state may violate its own checks.
        with contextlib.suppress(Exception):
            broker.amqp.perform(Operation("delete", _LOCK))


def wait_for_others(
    do: Callable[[], _Result],
    broker: LiveBroker,
    *,
    repeated_after: type[PlanOutdatedError] = LockedError,
) -> _Result:
    """Return what `do` returns; after an error of the type `repeated_after`, which another connection causes, do it again.

    Raises:
        PlanOutdatedError: the other connection has not ended within `WAIT_S` seconds.
    """
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return do()
        except repeated_after as error:
            if time.monotonic() >= end:
                raise PlanOutdatedError(f"{error}; given up after {WAIT_S:g} s") from None
        broker.sleep(_PAUSE_S)


class _Store:
    """The exchanges with records, while they change.

    Attributes:
        mark: the mark of the vhost.
    """

    def __init__(self, live: LiveTopology, broker: LiveBroker) -> None:
        self.mark = live.facts.mark
        self._live, self._broker = live, broker
        self._names: dict[str, list[str]] = {}
        self._live_names = {*live.facts.records}

    def names(self, exchange: str) -> list[str]:
        """Return the names of the exchanges that contain the record of an exchange."""
        if exchange not in self._names:
            self._names[exchange] = [name for name in record_names(exchange) if name in self._live_names]
        return self._names[exchange]

    def sign(self, record: RingRecord) -> RingRecord:
        """Return a record with the time, the writer and the stamp of the broker, and the rings of the former records."""
        transient = self.mark.passing(place for place, _ in record.bindings)
        signed = replace(_sign(record, self.mark.stamp_now), transient=transient)
        return signed if record.began else self._with_past(signed)

    def _with_past(self, record: RingRecord) -> RingRecord:
        name, live = record.exchange, self._live
        former = newest(records_of(name, live.facts.records))
        if former is None:
            return record
        found = find_live_ring(live, live.exchange(name), name)
        return following(
            record, former, found.ring, [member.binding for member in found.bound], live.facts.mark
        )

    def declaration(self, record: RingRecord) -> Operation | None:
        """Return the operation that stores a record under a free name; None if it is too large."""
        arguments = record_arguments(record, self._broker.amqp.frame_max)
        if arguments is None:
            return None
        used = self.names(record.exchange)
        free = next(name for name in record_names(record.exchange) if name not in used)
        used.append(free)
        return Operation("declare", _exchange(free, arguments))

    def deletions(self, exchange: str, *, keep: int = 0) -> list[Operation]:
        """Return the operations that delete all records of an exchange but the last `keep` ones."""
        names = self.names(exchange)
        gone = names[: len(names) - keep]
        self._names[exchange] = names[len(gone) :]
        return [Operation("delete", _exchange(name)) for name in gone]

    def replacement(self, record: RingRecord) -> list[Operation] | None:
        """Return the operations that store a record, and delete the former ones; None if it is too large."""
        if len(self.names(record.exchange)) == len(record_names(record.exchange)):
            first = [Operation("delete", _exchange(self.names(record.exchange).pop()))]
        else:
            first = []
        stored = self.declaration(record)
        if stored is None:
            return None
        return [*first, stored, *self.deletions(record.exchange, keep=1)]

    def final(self, record: RingRecord) -> list[Operation] | None:
        """Return the operations that store a final record under the first name; None if it is too large."""
        operations = self.replacement(record)
        if operations is not None and self.names(record.exchange) != [record_names(record.exchange)[0]]:
            operations += self.replacement(record) or []
        return operations

    def perform(self, operations: Sequence[Operation]) -> None:
        """Perform operations in order."""
        if len(operations) > 1 and self._broker.amqp.perform_together(operations):
            return
        for operation in operations:  # singly, to find the one that the broker refuses
            self._broker.amqp.perform(operation)

    def make_mark(self) -> None:
        """Make the mark again, unless both of its messages are there.

        Raises:
            AccessRefusedError: the user may not count, declare or fill the queue.
            MismatchError: it does not keep its messages.
        """
        if self.mark.holds:
            return
        if self.mark.doubt:
            raise MismatchError(
                f"the messages of the queue {MARK} cannot be counted: {self.mark.doubt}", queue=MARK
            )
        mark = self.mark.renewed()
        amqp = self._broker.amqp
        amqp.renew_mark(QueueDefinition(MARK, arguments=mark_arguments(mark.stamp)))
        self.mark = replace(mark, messages=amqp.count(MARK).messages)
        if not self.mark.holds:
            because = f", because of {mark.policies}" if mark.policies else ""
            raise MismatchError(
                f"the queue {MARK}, which proves records, keeps {self.mark.messages} of its {BOTH_MESSAGES} messages{because}",
                queue=MARK,
            )


def _exchange(
    name: str, arguments: Mapping[str, object] | None = None, *, durable: bool = True
) -> ExchangeDefinition:
    return ExchangeDefinition(name, "fanout", durable, internal=True, arguments=arguments or {})


def _sign(record: RingRecord, stamp: Stamp) -> RingRecord:
    return replace(record, written=time_text(datetime.now(UTC)), writer=name_writer(), stamp=stamp)


def record_of(exchange: LiveExchange) -> RingRecord:
    """Return the record of the ring of an exchange, for a file. Nothing is stored."""
    ring, bound = exchange.ring, exchange.bindings
    place = {destination: number for number, destination in enumerate(ring.destinations)}
    ordered = ring.bindings or sorted(bound, key=lambda binding: place.get(binding[0], len(place)))
    return _sign(make_record(exchange.name, ring, ordered), exchange.mark.stamp_now)


def make_record_of(live: LiveTopology, name: str) -> RingRecord:
    """Return the record of the ring of a live topology, without time and writer."""
    live_ring = find_live_ring(live, live.exchange(name), name)
    return make_record(name, live_ring.ring, live_ring.state.bindings or ())


def name_writer() -> str:
    """Return who stores something on the broker: the user, the machine and the version."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a user database
        user = "unknown"
    try:
        version = metadata.version("rabbit-chx")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return f"{user}@{socket.gethostname()} (rabbit_chx {version})"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the steps of a ring with its record.

    Attributes:
        kind: when the record is stored. ``first``: before the first change of the plan. ``between``: before the change of the number
            `before`, in the place of the former record. ``again``: before that change, too, which makes the exchange again; the former
            record is deleted after it.
        before: the number of a change of the plan; 0 for the first part.
    """

    kind: Literal["first", "between", "again"]
    before: int
    record: RingRecord


class RingKeeper:
    """Keeps the records of the rings that a plan changes.

    Args:
        plan: the plan.
        live: the topology before it.
        broker: the broker.
        records: False: no records are stored, and those of rings that change are deleted.

    Attributes:
        completed: the number of changes of the plan that are done.
        notes: why rings have no record, as sentences.
    """

    def __init__(self, plan: Plan, live: LiveTopology, broker: LiveBroker, *, records: bool = True) -> None:
        self.completed = 0
        self.notes: list[str] = []
        self._plan, self._live, self._broker, self._records = plan, live, broker, records
        self._store = _Store(live, broker)
        self._current: dict[str, RingRecord] = {}
        self._parts: dict[int, list[_Part]] = {}
        self._unrecorded: set[str] = set()
        self._keeps_plan = records and bool(plan.changes)

    # -- before the first change

    def begin(self) -> None:
        """Store the records before the first change.

        Raises:
            AccessRefusedError: a record exists, and the user may not replace it.
        """
        parts = self._plan_parts()
        if not parts:
            return
        if not self._records:
            for name in parts:
                self._store.perform(self._store.deletions(name))
            return
        has_records = any(map(self._store.names, parts))
        for name in sorted(parts, key=lambda name: not self._store.names(name)):
            try:
                self._store.make_mark()
                self._begin_ring(name, parts[name])
            except _NOT_STORED as error:
                if has_records and isinstance(error, MismatchError) and not self._store.mark.doubt:
                    # For no user anything would prove a record, and the former ones would be of other rings. Which ones are left is not known here.
                    names = [name for each in parts for name in record_names(each)]
                    self._store.perform([Operation("delete", _exchange(name)) for name in names])
                elif has_records:
                    self.finish_after_refusal()
                    raise AccessRefusedError(
                        f"{error}; the record of the ring of {name} cannot be updated, so nothing was changed: let a user apply the "
                        f"plan who has {_NEEDED}",
                        exchange=name,
                        reply_code=error.reply_code,
                    ) from None
                self._note_denied(error)
                return

    def _begin_ring(self, name: str, parts: list[_Part]) -> None:
        stored = [replace(part, record=self._store.sign(part.record)) for part in parts]
        if all(part.kind != "first" for part in stored):
            # The ring is not certain. Its unbinds could make an old record fit that says nothing about it.
            self._store.perform(self._store.deletions(name))
        frame_max = self._broker.amqp.frame_max
        if any(record_arguments(part.record, frame_max) is None for part in stored):
            self._unrecorded.add(name)
            self.notes.append(
                f"the record of the ring of {name} does not fit into a frame of {frame_max:,} bytes (frame_max), so the broker does not keep its order"
            )
            self._store.perform(self._store.deletions(name))
            return
        for part in stored:
            if part.kind == "first":
                self._current[name] = part.record
                self._store.perform(self._store.replacement(part.record) or [])
            else:
                self._parts.setdefault(part.before, []).append(part)

    def _note_denied(self, error: RabbitChxError) -> None:
        self._records = False
        self._parts.clear()
        self._current.clear()
        self.notes.append(
            "the order of the rings is not recorded on the broker, so that only rabbitmqctl can read it later: "
            + (f"the user needs {_NEEDED} ({error})" if isinstance(error, AccessRefusedError) else str(error))
        )

    def _plan_parts(self) -> dict[str, list[_Part]]:
        """Return the parts of each ring that changes. The first one of a ring that is certain is stored before the first change."""
        steps: dict[str, list[tuple[int, PlannedChange]]] = {}
        replaced: dict[str, int] = {}
        for number, change in enumerate(self._plan.changes):
            if change.ring:
                steps.setdefault(change.binding.source, []).append((number, change))
            elif change.action in ("create", "replace") and _has_ring(change.wanted):
                steps.setdefault(change.name, [])  # also without members
                if change.action == "replace":
                    replaced[change.name] = number
        return {
            name: list(self._parts_of(name, of_ring, replaced.get(name))) for name, of_ring in steps.items()
        }

    def _parts_of(
        self, name: str, steps: list[tuple[int, PlannedChange]], replaced: int | None
    ) -> Iterator[_Part]:
        exchange = self._live.exchange(name)
        live_ring = find_live_ring(self._live, exchange, name)
        is_known = exchange is None or exchange.type != HASH_EXCHANGE or live_ring.ring.ground.is_certain
        if is_known:
            early = [step for step in steps if replaced is None or step[0] < replaced]
            yield from _split(name, live_ring.state, early, live_ring.ring)
        late = [step for step in steps if replaced is not None and step[0] > replaced]
        if replaced is None and _is_reset(self._plan, name):
            late = [step for step in steps if step[1].action == "bind"]
        empty = RingState((), live_ring.ring.release, Ground("recorded"), (), end_known=True)
        for part in _split(name, empty, late, live_ring.ring) if late or replaced is not None else ():
            if part.kind != "first":
                yield part
            elif is_known and replaced is not None:
                yield replace(part, kind="again", before=replaced)
            elif not is_known and late:  # what remains in a ring that is not known goes with its exchange
                yield replace(part, kind="between", before=late[0][0])

    def try_names(self) -> None:
        """Try the permission on each name that a record may get, before the first record is stored.

        Raises:
            AccessRefusedError: a record exists, and the user may not replace it.
        """
        exchanges = [*self._plan_parts()] if self._records else []
        names = (name for exchange in exchanges for name in record_names(exchange))
        try:
            self._store.perform([_name_trial(name) for name in names])
        except AccessRefusedError as error:
            if not any(map(self._store.names, exchanges)):
                self._note_denied(error)
                return
            raise AccessRefusedError(
                f"{self._broker.where}: the user needs configure on exchange {error.queue} (rabbitmqctl set_permissions), so the record of the "
                "ring cannot be updated, and nothing was changed",
                exchange=error.queue,
                reply_code=error.reply_code,
            ) from error

    def keep_plan(self, note: Callable[[str], None]) -> None:
        """Store what a second run needs to resume the plan, unless this one resumes another. `note` gets the reason if the broker does not take it."""
        if not self._keeps_plan or self._plan.resumes is not None:
            return
        self.drop_plan()
        arguments, why_not = _pending_of(self._plan, self._live)
        if arguments is None:
            note(why_not)
            return
        try:
            self._broker.amqp.perform(Operation("declare", _exchange(PENDING_APPLY, arguments)))
        except AccessRefusedError:
            pass
        except BrokerRefusedError as refusal:  # such as a limit of exchanges
            note(f"{refusal}: {_NOT_RESUMED}")

    def drop_plan(self) -> None:
        """Delete what a second run would need."""
        if self._keeps_plan or self._live.facts.pending is not None:
            with contextlib.suppress(AccessRefusedError):
                self._broker.amqp.perform(Operation("delete", _exchange(PENDING_APPLY)))

    # -- during the changes

    def cuts(self) -> frozenset[int]:
        """Return the changes before which a record may have to be stored, by their distance from the next change of the plan."""
        return frozenset(number - self.completed for number in self._parts)

    def operations_before(self) -> list[Operation]:
        """Return the operations that precede the next change of the plan."""
        operations: list[Operation] = []
        for part in self._parts.get(self.completed, ()):
            if part.kind == "between":
                self._current[part.record.exchange] = part.record
                operations += self._store.replacement(part.record) or []
            elif stored := self._store.declaration(part.record):
                operations.append(stored)
        return operations

    def operations_after(self) -> list[Operation]:
        """Return the operations that follow the next change of the plan, before it is counted."""
        operations: list[Operation] = []
        for part in self._parts.get(self.completed, ()):
            if part.kind == "again":
                self._current[part.record.exchange] = part.record
                operations += self._store.deletions(part.record.exchange, keep=1)
        return operations

    # -- after the last change

    def end(self) -> set[str]:
        """Store the final records of the rings of the plan, also of those that did not change; delete those of exchanges that are gone.

        Return the exchanges whose rings have a record then.

        Raises:
            BrokerRefusedError: the broker refuses it for another reason than a permission.
        """
        recorded = set()
        try:
            for name in _orphans(self._plan, self._live):
                self._store.perform(self._store.deletions(name))
            for name in _recordable(self._plan, self._live):
                self._store.perform(self._finish(name))
                if self._records and self._store.names(name):
                    recorded.add(name)
        except _NOT_STORED as error:
            self._note_denied(error)
        self.drop_plan()
        return recorded

    def _finish(self, name: str) -> list[Operation]:
        if _is_gone(self._plan, name):
            return self._store.deletions(name)
        record = _record_after(self._plan, self._live, name) if self._records else None
        if record is None or name in self._unrecorded:
            return []
        if name not in self._current:
            if has_record(self._live, record, self._store.mark):
                return []
            self._store.make_mark()
        return self._store.final(self._store.sign(self._ending(record))) or []

    def _ending(self, record: RingRecord) -> RingRecord:
        """Return a final record with what the record of the steps knows."""
        begun = self._current.get(record.exchange)
        if begun is None:
            return record
        return replace(record, origin=begun.origin, began=begun.written, gap=begun.gap, past=begun.past)

    def finish_after_refusal(self) -> None:
        """Store final records of the rings whose steps the broker refused, if the records determine them."""
        with contextlib.suppress(RabbitChxError):
            bound = read_bindings(self._broker.api, self._broker.vhost)
            for name, record in self._current.items():
                if len(self._store.names(name)) == 1:
                    self._finish_early(record, [binding.member for binding in bound.get(name, [])])

    def _finish_early(self, record: RingRecord, bound: Sequence[Binding]) -> None:
        with contextlib.suppress(NotDeterminedError):
            known = {*record.bindings}
            foreign = tuple(binding for binding in bound if binding not in known)
            try:
                state = fit_state(record, [binding for binding in bound if binding in known])
            except NotDeterminedError:
                if self.completed < len(self._plan.changes):
                    raise
                state = after_steps(record.state, record.steps)
            final = replace(
                record, state=state._replace(ground=Ground("recorded")), steps=(), foreign=foreign
            )
            self._store.perform(self._store.final(self._store.sign(self._ending(final))) or [])


def why_not_resumable(plan: Plan, live: LiveTopology) -> str:
    """Return why an interruption of a plan could not be resumed, as a sentence; empty if it could."""
    return _pending_of(plan, live)[1] if plan.changes and plan.resumes is None else ""


_NOT_RESUMED = "after an interruption, the shares of keys count from the ring as it is then, and the plan has another checksum"


def _pending_of(plan: Plan, live: LiveTopology) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments of the exchange that keeps a plan, or why they are too large."""
    pending = make_pending(plan, live, time_text(datetime.now(UTC)), name_writer())
    arguments, frame_max = pending_arguments(pending, live.facts.frame_max), live.facts.frame_max
    if arguments is not None:
        return arguments, ""
    return None, (
        f"{len(plan.changes):,} changes do not fit into a frame of {frame_max:,} bytes (frame_max): {_NOT_RESUMED}"
    )


def _split(
    name: str, state: RingState, steps: Sequence[tuple[int, PlannedChange]], ring: HashRing
) -> Iterator[_Part]:
    """Yield the parts of the steps of a ring; the first is stored before the first change of the plan."""
    actions = [
        Step(
            "bind" if step.action == "bind" else "unbind",
            step.binding.member,
        )
        for _, step in steps
    ]
    state = state._replace(ground=Ground("recorded"))
    for start, before, part in split_steps(state, actions):
        record = RingRecord(name, before, part, ring.provenance)
        yield _Part("between", steps[start][0], record) if start else _Part("first", 0, record)


def _is_reset(plan: Plan, name: str) -> bool:
    """Return True if a plan makes a ring whatever it was."""
    return name in plan.rings and plan.rings[name].way == "reset"


def _has_ring(subject: object) -> bool:
    return isinstance(subject, ExchangeDefinition) and subject.type == HASH_EXCHANGE


def _is_gone(plan: Plan, name: str) -> bool:
    """Return True if an exchange does not have a ring after a plan."""
    return any(
        change.action in ("delete", "replace")
        and (change.kind, change.name) == ("exchange", name)
        and not _has_ring(change.wanted)
        for change in plan.changes
    )


def _record_after(plan: Plan, live: LiveTopology, name: str) -> RingRecord | None:
    """Return the final record of a ring after a plan; None if the ring is not certain."""
    exchange = live.exchange(name)
    live_ring = find_live_ring(live, exchange, name)
    is_new = exchange is None or exchange.type != HASH_EXCHANGE
    is_replaced = any(
        (planned.action, planned.kind, planned.name) == ("replace", "exchange", name)
        for planned in plan.changes
    )
    if not (is_new or is_replaced or _is_reset(plan, name) or live_ring.ring.ground.is_certain):
        return None
    change = plan.rings.get(name)
    after = None if change is None else change.ring_after
    if change is not None and change.steps and after is not None:
        record = make_record(name, after, after.bindings or ())
    else:
        record = make_record(name, after or live_ring.ring, live_ring.state.bindings or ())
    return replace(record, origin=live_ring.ring.provenance)


def _recordable(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges of a plan that have rings, and the other ones with a record that their live ring confirms.

    A record of another order stays: it is what shows that a restart, or another program, has changed the ring.
    """
    planned = [name for name, change in plan.rings.items() if change.is_ring]
    others = {record.exchange for record in live.facts.records.values() if isinstance(record, RingRecord)}
    return [
        *planned,
        *(name for name in sorted(others & live.rings.keys() - {*planned}) if _is_confirmed(live, name)),
    ]


def _is_confirmed(live: LiveTopology, name: str) -> bool:
    found = find_recorded_ring(live, name)
    return found is not None and found[1].buckets == live.rings[name].buckets


def _orphans(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges that have records, and neither exist nor are made by the plan: records that an ended apply has left."""
    exchanges = {record.exchange for record in live.facts.records.values() if isinstance(record, RingRecord)}
    existing = {exchange.name for exchange in live.exchanges if exchange.type == HASH_EXCHANGE}
    return sorted(exchanges - existing - plan.rings.keys())


def has_record(live: LiveTopology, record: RingRecord, mark: Mark) -> bool:
    """Return True if the broker has this record, under its first name only, and the mark proves it."""
    names = [name for name in record_names(record.exchange) if name in live.facts.records]
    if names != [record_names(record.exchange)[0]]:
        return False
    stored = live.facts.records[names[0]]
    if not isinstance(stored, RingRecord) or not stored.has_same_ring(record):
        return False
    bound = record.state.bindings or ()
    keeps = stored.state.release.follows(RESTART_KEEPS)  # without, a restart voids the record anyway
    if keeps and bool(stored.transient) != bool(mark.passing(place for place, _ in bound)):
        return False
    try:
        prove_ring([stored], bound, record.state.release, mark)
    except NotDeterminedError:
        return False
    return True


def find_unrecorded(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges whose records an application of an empty plan stores or deletes."""
    found = [*_orphans(plan, live), *([PENDING_APPLY] if live.facts.pending else [])]
    for name in _recordable(plan, live):
        record = _record_after(plan, live, name)
        if record is not None and not has_record(live, record, live.facts.mark):
            found.append(name)
    return found


def record_rings(expected: Mapping[str, HashRing], broker: LiveBroker) -> dict[str, RingRecord]:
    """Store the records of rings, and return them.

    Args:
        expected: the rings by their exchanges, as `read_topology` returned them, or observed.
        broker: the broker.

    Raises:
        PlanOutdatedError: a ring has changed.
        LockedError: another connection applies a plan.
        InputError: a ring is not certain, or its record is too large.
        AccessRefusedError: the user may not declare the exchanges or the mark.
        MismatchError: the mark does not keep its messages.
    """
    with locked(broker):
        return _record(expected, read_topology(broker), broker)


def forget_records(exchange: str, broker: LiveBroker) -> None:
    """Delete the records of an exchange whose ring is not known: bindings that are added to it could make an old record fit.

    The caller holds the lock.

    Raises:
        AccessRefusedError: the user may not delete them.
    """
    store = _Store(read_topology(broker), broker)
    store.perform(store.deletions(exchange))


def _record(
    expected: Mapping[str, HashRing], live: LiveTopology, broker: LiveBroker
) -> dict[str, RingRecord]:
    store, records = _Store(live, broker), {}
    for name, ring in expected.items():
        if not ring.ground.is_certain:
            raise InputError(
                f"the ring of {name} is {ring.provenance}, so it is not recorded: read it", exchange=name
            )
        if ring.provenance == "observed" and _has_bindings_of(live, name, ring):
            live = live.with_rings({name: ring})
        if live.rings.get(name) != ring:
            raise PlanOutdatedError(f"the ring of {name} has changed meanwhile: record it again")
        store.make_mark()
        record = store.sign(make_record_of(live, name))
        operations = store.final(record)
        if operations is None:
            raise InputError(
                f"the record of the ring of {name} does not fit into a frame of {broker.amqp.frame_max:,} bytes: use fewer members, or raise frame_max in the broker's configuration",
                exchange=name,
            )
        store.perform(operations)
        records[name] = record
    return records


def _has_bindings_of(live: LiveTopology, name: str, ring: HashRing) -> bool:
    """Return True if the exchange of a live topology has the bindings of a ring."""
    if ring.bindings is None:
        raise InputError(
            f"the ring of {name} has several bindings of one destination, whose order keys do not show: read it, or unbind all but one",
            exchange=name,
        )
    exchange = live.exchange(name)
    members = () if exchange is None else exchange.ring or ()
    return Counter((member.destination, member.key) for member in members) == Counter(ring.bindings)
