"""Store the records of rings on the broker, and delete those of rings that change: see :mod:`rabbit_chx.records.ring_records`.

Before its first change an apply stores its steps (:mod:`rabbit_chx.records.pending_apply`) and deletes the records of the rings that it
changes. After its last change it stores their new records, and deletes its steps. So whenever it ends early, no record is wrong, and the steps
can be repeated.
"""

from __future__ import annotations

import contextlib
import getpass
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import TypeVar

from rabbit_chx.broker.live_broker import APPLY_LOCK, LOCK_ID, LiveBroker, LockedError, Operation
from rabbit_chx.broker.live_exchange import LiveExchange
from rabbit_chx.broker.reading import read_homes, read_mark, read_topology
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    MismatchError,
    PlanOutdatedError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.resuming import digest_of
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.records.live_rings import find_live_ring, find_recorded
from rabbit_chx.records.mark import BOTH_MESSAGES, Mark, mark_arguments
from rabbit_chx.records.pending_apply import PendingApply, PlannedSteps, pending_arguments
from rabbit_chx.records.ring_records import (
    RingRecord,
    beginning,
    doubt_since,
    following,
    make_record,
    record_arguments,
    record_name,
    unseen_restarts,
    why_void,
)
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.times import time_text
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    ExchangeDefinition,
    ObjectSet,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.objects.own_names import MARK, PENDING_APPLY
from rabbit_chx.words import listed

_LOCK = QueueDefinition(APPLY_LOCK, durable=False, exclusive=True, auto_delete=True)
_LOCKED = 405
#: Errors of a broker that does not take a record or the mark.
_NOT_STORED = (AccessRefusedError, MismatchError)
_NEEDED = "configure on rabbit-chx.*, and write on amq.default"
#: How long another connection that changes the topology is awaited, as of services that declare one exchange when they start.
WAIT_S, _PAUSE_S = 30.0, 0.25
_Result = TypeVar("_Result")


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
        self.mark = evidence_of(live).mark
        self._live, self._broker = live, broker
        self._names = {*evidence_of(live).records}

    def has(self, exchange: str) -> bool:
        """Return True if the broker has a record of an exchange."""
        return record_name(exchange) in self._names

    def delete(self, exchanges: Iterable[str]) -> None:
        """Delete the records of exchanges."""
        names = [record_name(exchange) for exchange in exchanges if self.has(exchange)]
        self._perform([Operation("delete", _exchange(name)) for name in names])
        self._names -= {*names}

    def store(self, record: RingRecord) -> bool:
        """Store a record in the place of the former one; return False if it is too large, so that there is none."""
        name, arguments = record_name(record.exchange), record_arguments(record, self._broker.amqp.frame_max)
        former = [Operation("delete", _exchange(name))] if name in self._names else []
        stored = [] if arguments is None else [Operation("declare", _exchange(name, arguments))]
        self._perform([*former, *stored])
        (self._names.add if stored else self._names.discard)(name)
        return bool(stored)

    def _perform(self, operations: Sequence[Operation]) -> None:
        if len(operations) > 1 and self._broker.amqp.perform_together(operations):
            return
        for operation in operations:  # singly, to find the one that the broker refuses
            self._broker.amqp.perform(operation)

    def locate_queues(self) -> None:
        """Read the nodes of the queues again, where a restart of one changes rings: the plan has made some."""
        release = self._live.release
        if release is not None and not release.follows(RESTART_KEEPS):
            self.mark = replace(self.mark, nodes=read_homes(self._broker.api, self._broker.vhost))

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
        broker, policies = self._broker, self.mark.policies
        broker.amqp.renew_mark(QueueDefinition(MARK, arguments=mark_arguments(self.mark.renewed().stamp)))
        made = read_mark(broker.api, broker.vhost, self.mark.stamp.cluster, broker.amqp.count)
        nodes, cluster = {**self.mark.nodes, **made.nodes}, self.mark.cluster
        self.mark = replace(made, nodes=nodes, cluster=cluster, policies=policies, persistent=None)
        if not self.mark.holds:
            because = f", because of {policies}" if policies else ""
            raise MismatchError(
                f"the queue {MARK}, which proves records, keeps {self.mark.messages} of its {BOTH_MESSAGES} messages{because}",
                queue=MARK,
            )


def _exchange(
    name: str, arguments: Mapping[str, object] | None = None, *, durable: bool = True
) -> ExchangeDefinition:
    return ExchangeDefinition(name, "fanout", durable, internal=True, arguments=arguments or {})


def record_of(exchange: LiveExchange) -> RingRecord:
    """Return the record of the ring of an exchange, for a file. Nothing is stored."""
    place = {destination: number for number, destination in enumerate(exchange.ring.destinations)}
    ordered = sorted(exchange.members, key=lambda member: place.get(member.destination, len(place)))
    record = make_record(exchange.name, exchange.ring, ordered)
    return replace(
        record, written=time_text(datetime.now(UTC)), writer=name_writer(), stamp=exchange.mark.stamp_now
    )


def _sign(record: RingRecord, mark: Mark) -> RingRecord:
    """Return a record with the time, the writer and the stamp of the broker."""
    stamp = mark.stamp_now
    if unseen_restarts(record.members, record.ring.release, mark):
        stamp = replace(stamp, start=None)
    return replace(record, written=time_text(datetime.now(UTC)), writer=name_writer(), stamp=stamp)


def _begin_record(name: str, live: LiveTopology, mark: Mark) -> RingRecord:
    """Return the record of a ring before an apply, with the history of the record that the apply will store."""
    found = find_live_ring(live, live.exchange(name), name)
    record, former = _sign(make_record(name, found.ring, found.bound), mark), _find_former(name, live)
    record = replace(record, ring=replace(record.ring, ground=found.ring.ground))
    if former is None:
        return record
    return beginning(record, former, doubt_since(former, found.ring, found.bound, evidence_of(live).mark))


def _end_record(record: RingRecord, begun: RingRecord | None, live: LiveTopology, mark: Mark) -> RingRecord:
    """Return a record with its history: that which an apply has begun, or that of the former record."""
    signed, former = _sign(record, mark), _find_former(record.exchange, live)
    if begun is not None:
        return replace(
            signed, origin=begun.origin, began=begun.began, past=begun.past, number=begun.number + 1
        )
    if former is None:
        return signed
    return following(signed, former, doubt_since(former, record.ring, record.members, evidence_of(live).mark))


def _find_former(name: str, live: LiveTopology) -> RingRecord | None:
    """Return the former record of a ring, or what an apply that has not ended keeps of it."""
    record, planned = evidence_of(live).kept.about(name)
    if planned is not None:
        return planned.record
    return record if isinstance(record, RingRecord) else None


def make_record_of(live: LiveTopology, name: str) -> RingRecord:
    """Return the record of the ring of a live topology, without time and writer."""
    live_ring = find_live_ring(live, live.exchange(name), name)
    return make_record(name, live_ring.ring, live_ring.bound)


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


class RingKeeper:
    """Keeps the records of the rings that a plan changes.

    Args:
        plan: the plan.
        live: the topology before it.
        broker: the broker.
        records: False: no records are stored, and those of rings that change are deleted.

    Attributes:
        done: the changes of the plan that are done.
        notes: why rings have no record, as sentences.
    """

    def __init__(self, plan: Plan, live: LiveTopology, broker: LiveBroker, *, records: bool = True) -> None:
        self.done: list[PlannedChange] = []
        self.notes: list[str] = []
        self._plan, self._live, self._broker, self._records = plan, live, broker, records
        self._store = _Store(live, broker)
        self._pending = evidence_of(live).pending if plan.resumes else None

    # -- before the first change

    def begin(self, note: Callable[[str], None]) -> None:
        """Store the steps of the plan, and delete the records of the rings that it changes. `note` gets the reason if the steps are too large.

        Raises:
            AccessRefusedError: a record exists, and the user may not replace it.
        """
        changing = _list_changing(self._plan)
        has_records = any(map(self._store.has, changing))
        if self._plan.changes:
            try:
                if not self._plan.resumes:
                    self._drop_plan()
                if self._records:
                    self._try_names(changing)
                    if changing:
                        self._store.make_mark()
                    self._keep_plan(note)
            except _NOT_STORED as error:
                is_spoilt = isinstance(error, MismatchError) and not self._store.mark.doubt
                if has_records and not is_spoilt:
                    unchanged = f"{error}; the records of {listed(changing)} cannot be updated, so nothing was changed"
                    if self._store.mark.is_down:
                        raise UnreachableError(unchanged, queue=MARK) from None
                    raise AccessRefusedError(
                        f"{unchanged}: let a user apply the plan who has {_NEEDED}",
                        exchange=error.exchange,
                        reply_code=error.reply_code,
                    ) from None
                self._note_denied(error)
        self._store.delete(changing)

    def _try_names(self, changing: Iterable[str]) -> None:
        """Try the permission on the name of each record."""
        for name in map(record_name, changing):
            self._broker.amqp.perform(
                Operation("delete", QueueDefinition(name), if_unused=True, if_empty=True)
            )

    def _note_denied(self, error: RabbitChxError) -> None:
        self._records = False
        self.notes.append(
            "the order of the rings is not recorded on the broker, so that only rabbitmqctl can read it later: "
            + (f"the user needs {_NEEDED} ({error})" if isinstance(error, AccessRefusedError) else str(error))
        )

    def _keep_plan(self, note: Callable[[str], None]) -> None:
        """Store what a second run needs to repeat the plan, unless this one repeats another."""
        if self._plan.resumes:
            return
        self._pending = _pending_of(self._plan, self._live, self._store.mark)
        arguments = pending_arguments(self._pending, self._live.facts.limits.frame_max)
        if arguments is None:
            note(_why_not_kept(self._plan, self._live))
            return
        try:
            self._broker.amqp.perform(Operation("declare", _exchange(PENDING_APPLY, arguments)))
        except AccessRefusedError:
            raise
        except BrokerRefusedError as refusal:  # such as a limit of exchanges
            note(f"{refusal}: {_NOT_REPEATED}")

    def _drop_plan(self) -> None:
        self._broker.amqp.perform(Operation("delete", _exchange(PENDING_APPLY)))

    # -- after the last change

    def end(self) -> set[str]:
        """Store the records of the rings of the plan, also of those that did not change; delete those of exchanges that are gone.

        Return the exchanges whose rings have a record then.

        Raises:
            BrokerRefusedError: the broker refuses it for another reason than a permission.
        """
        recorded = set()
        try:
            self._store.locate_queues()
            self._store.delete(_orphans(self._plan, self._live))
            for name in _recordable(self._plan, self._live):
                if self._finish(name):
                    recorded.add(name)
            if self._pending is not None or evidence_of(self._live).pending is not None:
                self._drop_plan()
        except _NOT_STORED as error:
            self._note_denied(error)
        return recorded

    def _finish(self, name: str, *, is_early: bool = False) -> bool:
        """Store the record of a ring after the plan; return whether it has one."""
        if _is_gone(self._plan, name):
            self._store.delete([name])
        record = _record_after(self._plan, self._live, self._pending, name) if self._records else None
        if record is None or _is_gone(self._plan, name):
            return False
        if why := why_unrecordable(record, self._plan.wanted, self._live):
            self.notes.append(f"the order of the ring of {name} is not recorded on the broker: {why}")
            self._store.delete([name])
            return False
        planned = None if self._pending is None else self._pending.rings.get(name)
        if planned is None and has_record(self._live, record):
            return True
        self._store.make_mark()
        begun = None if planned is None else planned.record
        final = _end_record(record, begun, self._live, self._store.mark)
        if self._store.store(replace(final, number=final.number - is_early)):
            return True
        frame_max = self._broker.amqp.frame_max
        self.notes.append(
            f"the record of the ring of {name} does not fit into a frame of {frame_max:,} bytes (frame_max), so the broker does not keep its order"
        )
        return False

    def finish_after_refusal(self, *, is_unchanged: bool) -> None:
        """Store the records of the rings of which all steps are done, or none, after the broker has refused a change.

        `is_unchanged`: nothing at all was changed, so that nothing has to be repeated.
        """
        with contextlib.suppress(RabbitChxError):
            self._store.locate_queues()
            for name, planned in () if self._pending is None else self._pending.rings.items():
                done, steps = (
                    Counter(map(str, _steps_of(name, part))) for part in (self.done, self._plan.changes)
                )
                if steps and done == steps:
                    self._finish(name, is_early=True)
                former = evidence_of(self._live).records.get(record_name(name))
                if not done and isinstance(former, RingRecord) and planned.record is not None:
                    self._store.store(replace(former, number=planned.record.number))
            if is_unchanged and not self._plan.resumes:
                self._drop_plan()


def _steps_of(name: str, changes: Iterable[PlannedChange]) -> Iterator[PlannedChange]:
    """Yield the changes that concern the ring of an exchange."""
    for change in changes:
        is_itself = change.kind == "exchange" and change.name == name
        if is_itself or (change.ring and change.binding.source == name):
            yield change


def _list_changing(plan: Plan) -> list[str]:
    """Return the exchanges whose rings a plan changes, also those that it makes without members."""
    names = [
        change.binding.source if change.ring else change.name
        for change in plan.changes
        if change.ring or (change.action in ("create", "replace") and _has_ring(change.wanted))
    ]
    return list(dict.fromkeys(names))


def _pending_of(plan: Plan, live: LiveTopology, mark: Mark) -> PendingApply:
    """Return what a broker keeps of a plan until it is applied."""
    changing = _list_changing(plan)
    rings = {
        name: PlannedSteps(
            _begin_record(name, live, mark) if ring.is_ring else None,
            tuple((step.action == "bind", step.binding.member) for step in ring.steps),
            0 if ring.ring is None else len(ring.ring.early),
            tuple(ring.moments),
            {
                "way": ring.way,
                "unknown": ring.movement.unknown,
                "transient_share": ring.movement.transient_share,
            },
        )
        for name, ring in plan.rings.items()
        if ring.is_moving or name in changing
    }
    return PendingApply(
        (live.cluster, live.vhost),
        digest_of(plan.wanted),
        plan.checksum,
        time_text(datetime.now(UTC)),
        name_writer(),
        tuple(map(str, plan.changes)),
        rings,
    )


def why_not_resumable(plan: Plan, live: LiveTopology) -> str:
    """Return why an interruption of a plan could not be repeated with its checksum, as a sentence; empty if it could."""
    if not plan.changes or plan.resumes:
        return ""
    pending = _pending_of(plan, live, evidence_of(live).mark)
    return "" if pending_arguments(pending, live.facts.limits.frame_max) else _why_not_kept(plan, live)


_NOT_REPEATED = "after an interruption, the shares of keys count from the ring as it is then, and the plan has another checksum"


def _why_not_kept(plan: Plan, live: LiveTopology) -> str:
    return f"{len(plan.changes):,} changes do not fit into a frame of {live.facts.limits.frame_max:,} bytes (frame_max): {_NOT_REPEATED}"


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


#: The ways of a plan that make a ring whatever it was.
_MADE = ("new", "replaced", "reset")


def _record_after(
    plan: Plan, live: LiveTopology, pending: PendingApply | None, name: str
) -> RingRecord | None:
    """Return the record of a ring after a plan; None if the ring is not certain."""
    exchange, change = live.exchange(name), plan.rings.get(name)
    live_ring = find_live_ring(live, exchange, name)
    planned = None if pending is None else pending.rings.get(name)
    is_made = any(
        (done.action, done.kind, done.name) in (("create", "exchange", name), ("replace", "exchange", name))
        for done in plan.changes
    )
    if plan.resumes and planned is not None and planned.record is not None:
        is_made = is_made or planned.about["way"] in _MADE or planned.record.ring.ground.is_certain
    elif change is not None and (change.steps or change.way in _MADE):
        is_made = is_made or change.way in _MADE or change.before.ground.is_certain
    if not (is_made or live_ring.ring.ground.is_certain):
        return None
    after = None if change is None else change.ring_after
    if change is None or not change.steps or after is None:
        return make_record(name, after or live_ring.ring, live_ring.bound)
    wanted = plan.wanted.exchange(name)
    known = [*live_ring.bound, *(planned.record.members if planned and planned.record else ())]
    members = {member.binding: member for member in known} | {
        member.binding: member for member in (wanted.ring if wanted and wanted.ring else ())
    }
    made = [members.get(binding, RingMember(*binding)) for binding in after.bindings or ()]
    return replace(make_record(name, after, made), origin=live_ring.ring.provenance)


def why_unrecordable(record: RingRecord, *topologies: ObjectSet) -> str:
    """Return why no record of a ring can last: what the broker deletes by itself comes back at another place; empty if one can.

    `topologies` have the exchange and its members, the first of them as they are to be.
    """
    named_by: dict[object, ExchangeDefinition | QueueDefinition] = {}
    for side in reversed(topologies):
        named_by |= {one.ref: one for one in side.exchanges} | {one.ref: one for one in side.queues}
    for place in (ExchangeRef(record.exchange), *(member.destination for member in record.members)):
        named = named_by.get(place)
        if named is not None and named.why_transient:
            return f"{named.kind} {named.name} {named.why_transient}, and comes back at another place of the ring"
    return ""


def _recordable(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges of a plan that have rings, and the other ones with a record that their live ring confirms.

    A record of another order stays: it is what shows that a restart, or another program, has changed the ring.
    """
    planned = [name for name, change in plan.rings.items() if change.is_ring]
    others = {
        record.exchange for record in evidence_of(live).records.values() if isinstance(record, RingRecord)
    }
    return [
        *planned,
        *(name for name in sorted(others & live.rings.keys() - {*planned}) if _is_confirmed(live, name)),
    ]


def _is_confirmed(live: LiveTopology, name: str) -> bool:
    found = find_recorded(live, name)
    return found is not None and found.ring.buckets == live.rings[name].buckets


def _orphans(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges that have records, and neither exist nor are made by the plan: records that an ended apply has left."""
    exchanges = {
        record.exchange for record in evidence_of(live).records.values() if isinstance(record, RingRecord)
    }
    existing = {exchange.name for exchange in live.exchanges if exchange.type == HASH_EXCHANGE}
    return sorted(exchanges - existing - plan.rings.keys())


def has_record(live: LiveTopology, record: RingRecord) -> bool:
    """Return True if the broker has this record, and it proves the ring."""
    stored, planned = evidence_of(live).kept.about(record.exchange)
    if planned is not None or not isinstance(stored, RingRecord) or not stored.has_same_ring(record):
        return False
    return not why_void(stored, record.members, record.ring.release, evidence_of(live).mark)


def find_unrecorded(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges whose records an application of an empty plan stores or deletes."""
    found = [*_orphans(plan, live), *([PENDING_APPLY] if evidence_of(live).pending else [])]
    for name in _recordable(plan, live):
        record = _record_after(plan, live, evidence_of(live).pending, name)
        is_kept = record_name(name) in evidence_of(live).records
        if record and (
            is_kept if why_unrecordable(record, plan.wanted, live) else not has_record(live, record)
        ):
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
        InputError: a ring is not certain, no record of it can last, or its record is too large.
        AccessRefusedError: the user may not declare the exchanges or the mark.
        MismatchError: the mark does not keep its messages.
    """
    with locked(broker):
        return _record(expected, read_topology(broker), broker)


def forget_records(exchange: str, broker: LiveBroker) -> None:
    """Delete the record of an exchange whose ring is not known: bindings that are added to it could make an old record fit.

    The caller holds the lock.

    Raises:
        AccessRefusedError: the user may not delete it.
    """
    _Store(read_topology(broker), broker).delete([exchange])


def _record(
    expected: Mapping[str, HashRing], live: LiveTopology, broker: LiveBroker
) -> dict[str, RingRecord]:
    store, records = _Store(live, broker), {}
    for name, ring in expected.items():
        if why := why_unrecordable(make_record_of(live, name), live):
            store.delete([name])
            raise InputError(
                f"no record of the ring of {name} would last, and none is kept: {why}", exchange=name
            )
        if not ring.ground.is_certain:
            raise InputError(
                f"the ring of {name} is {ring.provenance}, so it is not recorded: read it", exchange=name
            )
        if ring.provenance == "observed" and _has_bindings_of(live, name, ring):
            live = live.with_rings({name: ring})
        if live.rings.get(name) != ring:
            raise PlanOutdatedError(f"the ring of {name} has changed meanwhile: record it again")
        store.make_mark()
        record = _end_record(make_record_of(live, name), None, live, store.mark)
        if not store.store(record):
            raise InputError(
                f"the record of the ring of {name} does not fit into a frame of {broker.amqp.frame_max:,} bytes: use fewer members, or raise frame_max in the broker's configuration",
                exchange=name,
            )
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
