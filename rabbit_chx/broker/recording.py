"""Store the records of rings on the broker, and delete those of rings that change: see :mod:`rabbit_chx.records.ring_records`.

Before its first change an apply stores its steps (:mod:`rabbit_chx.records.live_rings`) and deletes the records of the rings that it
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
from typing import TypeVar

from rabbit_chx import errors
from rabbit_chx.broker.live_broker import APPLY_LOCK, LOCK_ID, LiveBroker, LockedError, Operation
from rabbit_chx.broker.reading import (
    KEEPS_ABSENT_SINCE,
    list_queues,
    read_mark,
    read_topology,
    with_queues,
)
from rabbit_chx.checks import time_text
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.ring_plan import digest_of
from rabbit_chx.records.live_rings import (
    PendingApply,
    PlannedSteps,
    evidence_of,
    find_live_ring,
    pending_arguments,
)
from rabbit_chx.records.ring_records import (
    BOTH_MESSAGES,
    RestartMark,
    RingRecord,
    make_record,
    mark_arguments,
    record_arguments,
    record_name,
    unseen_restarts,
)
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.text import listed
from rabbit_chx.topology import objects
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.version import __version__

_LOCK = objects.QueueDefinition(APPLY_LOCK, durable=False, exclusive=True, auto_delete=True)
_LOCKED = 405
_NOT_FOUND = 404
#: Errors of a broker that does not take a record or the mark.
_NOT_STORED = (errors.AccessRefusedError, errors.MismatchError)
_NEEDED = "configure on rabbit-chx.*, and write on amq.default"
#: How long another connection that changes the topology is awaited, as of services that declare one exchange when they start.
WAIT_S = 30.0
_PAUSE_S = 0.25
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
    except errors.AccessRefusedError as error:
        raise errors.AccessRefusedError(
            f"{error}: it is an exclusive queue that keeps a second application out; nothing was changed",
            queue=APPLY_LOCK,
            reply_code=error.reply_code,
        ) from None
    except errors.BrokerRefusedError as error:
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
    repeated_after: type[errors.PlanOutdatedError] = LockedError,
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
                raise errors.PlanOutdatedError(f"{error}; given up after {WAIT_S:g} s") from None
        broker.sleep(_PAUSE_S)


class _Store:
    """The exchanges with records, while they change.

    Attributes:
        mark: the mark of the vhost.
    """

    def __init__(self, live: LiveTopology, broker: LiveBroker) -> None:
        evidence = evidence_of(live)
        self.mark = evidence.mark
        self._live = live
        self._broker = broker
        self._names = {*map(record_name, evidence.records), *evidence.damaged}

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
        name = record_name(record.exchange)
        arguments = record_arguments(record, self._broker.amqp.frame_max)
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
            self.mark = with_queues(self.mark, list_queues(self._broker.api, self._broker.vhost), release)

    def make_mark(self) -> None:
        """Make the mark again, unless both of its messages are there.

        Raises:
            AccessRefusedError: the user may not count, declare or fill the queue.
            MismatchError: it does not keep its messages.
        """
        if self.mark.holds:
            return
        fault = self.mark.fault
        release = self._live.release
        is_down = isinstance(fault, errors.UnreachableError) and fault.reply_code is None
        is_replaceable = is_down and release is not None and release.numbers >= KEEPS_ABSENT_SINCE
        if fault is not None and not is_replaceable:
            raise errors.MismatchError(
                f"the messages of the queue {objects.MARK} cannot be counted: {fault}", queue=objects.MARK
            )
        broker = self._broker
        policies = self.mark.policies
        broker.amqp.renew_mark(
            objects.QueueDefinition(objects.MARK, arguments=mark_arguments(self.mark.renewed()))
        )
        made = read_mark(broker, self.mark.recorded_start.cluster)
        nodes = {**self.mark.nodes, **made.nodes}
        cluster = self.mark.cluster
        self.mark = replace(made, nodes=nodes, cluster=cluster, policies=policies, persistent=None)
        if not self.mark.holds:
            because = f", because of {policies}" if policies else ""
            raise errors.MismatchError(
                f"the queue {objects.MARK}, which proves records, keeps {self.mark.messages} of its {BOTH_MESSAGES} messages{because}",
                queue=objects.MARK,
            )


def _exchange(name: str, arguments: Mapping[str, object] | None = None) -> objects.ExchangeDefinition:
    return objects.ExchangeDefinition(name, "fanout", internal=True, arguments=arguments or {})


def record_of(live: LiveTopology, name: str) -> RingRecord:
    """Return the record of the ring of an exchange, for a file. Nothing is stored."""
    found = find_live_ring(live, live.exchange(name), name)
    return _sign(make_record(name, found.ring, found.bound), evidence_of(live).mark)


def _sign(record: RingRecord, mark: RestartMark, writer: str | None = None) -> RingRecord:
    """Return a record with the time, the writer (None: this program) and the start of the broker."""
    writer = name_writer() if writer is None else writer
    recorded_start = replace(mark.stamp_now, nodes=tuple(sorted(mark.cluster)))
    if unseen_restarts(record.members, record.release, mark):
        recorded_start = replace(recorded_start, start=None)
    return replace(record, written=time_text(datetime.now(UTC)), writer=writer, recorded_start=recorded_start)


def name_writer() -> str:
    """Return who stores something on the broker: the user, the machine and the version."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a user database
        user = "unknown"
    return f"{user}@{socket.gethostname()} (rabbit_chx {__version__})"


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
        self._plan = plan
        self._live = live
        self._broker = broker
        self._records = records
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
                is_new = not self._plan.resumes
                if is_new:
                    self._drop_plan()
                if self._records:
                    self._try_names(changing)
                    if changing:
                        self._store.make_mark()
                    if is_new:
                        self._keep_plan(note)
            except _NOT_STORED as error:
                fault = self._store.mark.fault
                if has_records and (fault is not None or isinstance(error, errors.AccessRefusedError)):
                    unchanged = f"{error}; the records of {listed(changing)} cannot be updated, so nothing was changed"
                    if isinstance(fault, errors.UnreachableError):
                        raise errors.UnreachableError(unchanged, queue=objects.MARK) from None
                    raise errors.AccessRefusedError(
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
                Operation("delete", objects.QueueDefinition(name), if_unused=True, if_empty=True)
            )

    def _note_denied(self, error: errors.RabbitChxError) -> None:
        self._records = False
        self.notes.append(
            "the order of the rings is not recorded on the broker, so that only rabbitmqctl can read it later: "
            + (
                f"the user needs {_NEEDED} ({error})"
                if isinstance(error, errors.AccessRefusedError)
                else str(error)
            )
        )

    def _keep_plan(self, note: Callable[[str], None]) -> None:
        """Store what a second run needs to repeat the plan."""
        self._pending = _pending_of(self._plan, self._live, self._store.mark)
        arguments = pending_arguments(self._pending, self._live.facts.limits.frame_max)
        if arguments is None:
            note(_why_not_kept(self._plan, self._live))
            return
        try:
            self._broker.amqp.perform(Operation("declare", _exchange(objects.PENDING_APPLY, arguments)))
        except errors.AccessRefusedError:
            raise
        except errors.BrokerRefusedError as refusal:  # such as a limit of exchanges
            note(f"{refusal}: {_NOT_REPEATED}")

    def _drop_plan(self) -> None:
        self._broker.amqp.perform(Operation("delete", _exchange(objects.PENDING_APPLY)))

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
            for name, change in self._plan.rings.items():
                if change.is_ring and self._finish(name):
                    recorded.add(name)
            if self._pending is not None or evidence_of(self._live).pending is not None:
                self._drop_plan()
        except _NOT_STORED as error:
            self._note_denied(error)
        return recorded

    def _finish(self, name: str, *, is_early: bool = False) -> bool:
        """Store the record of a ring after the plan; return whether it has one."""
        change = self._plan.rings[name]
        planned = self._planned(name)
        if change.change == "delete" or change.ring_after is None:
            self._store.delete([name])
            return False
        record = _record_after(self._plan, self._live, planned, name) if self._records else None
        if record is None:
            return False
        if why := why_unrecordable(name, record.members, self._plan.wanted, self._live):
            self.notes.append(f"the order of the ring of {name} is not recorded on the broker: {why}")
            self._store.delete([name])
            return False
        evidence = evidence_of(self._live)
        if planned is None and evidence.proves(name, record.ring, record.members):
            return True
        self._store.make_mark()
        record = _sign(record, self._store.mark)
        final = evidence.following(record) if planned is None else planned.followed_by(record)
        if self._store.store(replace(final, number=final.number - is_early)):
            return True
        frame_max = self._broker.amqp.frame_max
        self.notes.append(
            f"the record of the ring of {name} does not fit into a frame of {frame_max:,} bytes (frame_max), so the broker does not keep its order"
        )
        return False

    def _planned(self, name: str) -> PlannedSteps | None:
        return None if self._pending is None else self._pending.rings.get(name)

    def finish_after_refusal(self, *, is_unchanged: bool) -> None:
        """Store the records of the rings of which all steps are done, or none, after the broker has refused a change.

        `is_unchanged`: nothing at all was changed, so that nothing has to be repeated.
        """
        with contextlib.suppress(errors.RabbitChxError):
            self._store.locate_queues()
            for name, planned in () if self._pending is None else self._pending.rings.items():
                done, steps = (
                    Counter(map(str, _steps_of(name, part))) for part in (self.done, self._plan.changes)
                )
                if steps and done == steps:
                    self._finish(name, is_early=True)
                former = evidence_of(self._live).records.get(name)
                if not done and former is not None:
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
    return [
        name for name, ring in plan.rings.items() if ring.is_ring and (ring.steps or ring.change == "remake")
    ]


def _pending_of(plan: Plan, live: LiveTopology, mark: RestartMark) -> PendingApply:
    """Return what a broker keeps of a plan until it is applied."""
    rings = {}
    evidence = evidence_of(live)
    for name in _list_changing(plan):
        change = plan.rings[name]
        found = find_live_ring(live, live.exchange(name), name)
        record = _sign(make_record(name, found.ring, found.bound), mark, writer="")
        before = evidence.following(record)
        steps = tuple((step.action == "bind", step.binding.member) for step in change.steps)
        early = 0 if change.ring is None else len(change.ring.early)
        rings[name] = PlannedSteps(before, steps, early, change.change, change.gives_up_order)
    movements = {
        name: (change.moments, change.movement.unknown, change.movement.transient_share)
        for name, change in plan.rings.items()
        if change.is_moving or name in rings
    }
    return PendingApply(
        digest_of(plan.wanted, live),
        plan.checksum,
        time_text(datetime.now(UTC)),
        name_writer(),
        tuple(map(str, plan.changes)),
        rings,
        movements,
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


def _record_after(
    plan: Plan, live: LiveTopology, planned: PlannedSteps | None, name: str
) -> RingRecord | None:
    """Return the record of a ring after a plan; None if the ring is not certain. `planned`: its steps, if an earlier run began them."""
    change = plan.rings[name]
    exchange = live.exchange(name)
    found = find_live_ring(live, exchange, name)
    origin = planned or change
    was_certain = (planned is not None or change.steps) and origin.before.order.is_certain
    is_certain = origin.change == "remake" or was_certain or found.ring.order.is_certain
    if change.ring_after is None or not is_certain:
        return None
    if not change.steps:
        return make_record(name, change.ring_after, found.bound)
    known = [*found.bound]
    if planned is not None:
        known += planned.record.members
    wanted = plan.wanted.exchange(name)
    if wanted is not None and wanted.ring is not None:
        known += wanted.ring
    members = {member.binding: member for member in known}
    bindings = change.ring_after.bindings or ()
    made = [members.get(binding, objects.RingMember(*binding)) for binding in bindings]
    return replace(make_record(name, change.ring_after, made), origin=origin.before.provenance or "replayed")


def why_unrecordable(
    exchange: str, members: Iterable[objects.RingMember], *topologies: objects.ObjectSet
) -> str:
    """Return why no record of a ring can last: what the broker deletes by itself comes back at another place; empty if one can.

    `topologies` have the exchange and its members, the first of them as they are to be.
    """
    named_by: dict[object, objects.ExchangeDefinition | objects.QueueDefinition] = {}
    for side in reversed(topologies):
        named_by |= {one.ref: one for one in side.exchanges} | {one.ref: one for one in side.queues}
    for place in (ExchangeRef(exchange), *(member.destination for member in members)):
        named = named_by.get(place)
        if named is not None and named.why_transient:
            return f"{named.kind} {named.name} {named.why_transient}, and comes back at another place of the ring"
    return ""


def _orphans(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges that have records, and neither exist nor are made by the plan: records that an ended apply has left."""
    existing = {exchange.name for exchange in live.exchanges if exchange.type == objects.HASH_EXCHANGE}
    return sorted(evidence_of(live).records.keys() - existing - plan.rings.keys())


def find_unrecorded(plan: Plan, live: LiveTopology) -> list[str]:
    """Return the exchanges whose records an application of an empty plan stores or deletes."""
    evidence = evidence_of(live)
    found = [*_orphans(plan, live), *([objects.PENDING_APPLY] if evidence.pending else [])]
    for name, change in plan.rings.items():
        planned = evidence.steps_of(name) if plan.resumes else None
        record = _record_after(plan, live, planned, name) if change.is_ring else None
        if record is not None and (
            name in evidence.records
            if why_unrecordable(name, record.members, plan.wanted, live)
            else not evidence.proves(name, record.ring, record.members)
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
    records = {}
    with locked(broker):
        live = read_topology(broker)
        store = _Store(live, broker)
        for name, ring in expected.items():
            found = find_live_ring(live, live.exchange(name), name)
            if why := why_unrecordable(name, found.bound, live):
                store.delete([name])
                raise errors.InputError(
                    f"no record of the ring of {name} would last, and none is kept: {why}", exchange=name
                )
            if not ring.order.is_certain:
                raise errors.InputError(
                    f"the ring of {name} is {ring.order}, so it is not recorded: read it", exchange=name
                )
            if ring.provenance == "observed" and _has_bindings_of(live, name, ring):
                live = live.with_rings({name: ring})
                found = find_live_ring(live, live.exchange(name), name)
            if live.rings.get(name) != ring:
                raise errors.PlanOutdatedError(f"the ring of {name} has changed meanwhile: record it again")
            store.make_mark()
            record = _sign(make_record(name, found.ring, found.bound), store.mark)
            record = evidence_of(live).following(record)
            if not store.store(record):
                raise errors.InputError(
                    f"the record of the ring of {name} does not fit into a frame of {broker.amqp.frame_max:,} bytes: use fewer members, or raise frame_max in the broker's configuration",
                    exchange=name,
                )
            records[name] = record
    return records


def forget_records(exchange: str, broker: LiveBroker) -> None:
    """Delete the record of an exchange whose ring is not known: bindings that are added to it could make an old record fit.

    The caller holds the lock.

    Raises:
        AccessRefusedError: the user may not delete it.
    """
    _Store(read_topology(broker), broker).delete([exchange])


def delete_record(exchange: str, broker: LiveBroker) -> None:
    """Delete the record of an exchange over AMQP alone: bindings that are added to it could make an old record fit.

    Raises:
        AccessRefusedError: the user may not delete it.
    """
    record = _exchange(record_name(exchange))
    try:
        broker.amqp.check_exchange(record.name)
    except errors.RabbitChxError as error:
        if error.reply_code != _NOT_FOUND:
            raise
    else:
        broker.amqp.perform(Operation("delete", record))


def _has_bindings_of(live: LiveTopology, name: str, ring: HashRing) -> bool:
    """Return True if the exchange of a live topology has the bindings of a ring."""
    if ring.bindings is None:
        raise errors.InputError(
            f"the ring of {name} has several bindings of one destination, whose order keys do not show: read it, or unbind all but one",
            exchange=name,
        )
    exchange = live.exchange(name)
    members = () if exchange is None else exchange.ring or ()
    return Counter((member.destination, member.key) for member in members) == Counter(ring.bindings)
