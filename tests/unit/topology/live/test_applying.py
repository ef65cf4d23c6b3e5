"""A plan is checked, done in order and compared. The broker's answers are scripted: they are faults that no broker gives at will."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sides import as_live

from rabbit_chx import HashRing, Release
from rabbit_chx.errors import (
    AccessRefusedError,
    ApplyError,
    ConnectionLostError,
    InputError,
    PlanOutdatedError,
    PlanRefusedError,
)
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    Plan,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)
from rabbit_chx.topology.live import applying
from rabbit_chx.topology.live.applying import Applied, Permission, apply_plan
from rabbit_chx.topology.live.live_broker import Operation, QueueCounts, make_refusal
from rabbit_chx.topology.live.reading import APPLY_LOCK

LOCK = QueueDefinition(APPLY_LOCK, durable=False, exclusive=True, auto_delete=True)
WANTED = Topology.from_toml(
    """
    owns = ["old"]
    [[exchanges]]
    name = "orders"
    type = "x-consistent-hash"
    ring = [{ queue = "orders.{1..3}" }]
    [[queues]]
    name = "orders.{1..3}"
    """
)


@dataclass
class Script:
    """A broker without objects, whose answers to some operations are given.

    Attributes:
        refuses: the code and the words with which an operation is refused; None: it is done.
        counts: what is in the queue that is counted, from one time to the next.
        ring: the buckets that are read at the end.
        queues: the names of the queues that are there.
        type: their type.
        steps: what was asked: an operation, a tuple of those that were sent together, or the name of a queue that was counted.
        counted: what the management API counts in each queue.
        counted_last: the same just before a queue is deleted.
    """

    refuses: Callable[[Operation], tuple[int, str] | None] = lambda _: None
    counts: list[QueueCounts] = field(default_factory=list)
    ring: tuple[str, ...] = ("orders.1", "orders.2", "orders.3")
    queues: tuple[str, ...] = ()
    type: str = "classic"
    steps: list[Any] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    counted_last: dict[str, int] = field(default_factory=dict)

    where, vhost = "amqp://guest:***@host:5672/%2F", "/"
    has_management = has_source = True
    consumer_timeout_ms: int | None = None
    file_records: Mapping[str, Any] = field(default_factory=dict)

    @property
    def amqp(self) -> Script:
        return self

    @property
    def api(self) -> Script:
        return self

    @property
    def carrier(self) -> Any:
        raise AssertionError("there are no slots")

    def perform(self, operation: Operation) -> None:
        self.steps.append(operation)
        refusal = self.refuses(operation)
        if refusal is not None:
            raise make_refusal(self.where, operation, *refusal)

    def perform_together(self, operations: Sequence[Operation]) -> bool:
        self.steps.append(tuple(operations))
        return all(self.refuses(operation) is None for operation in operations)

    def check_sendable(self, operations: Sequence[Operation]) -> None:
        """All can be sent."""

    def count(self, queue: str) -> QueueCounts:
        self.steps.append(queue)
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]

    def check_exchange(self, exchange: str) -> None:
        raise AssertionError(exchange)

    def read_rings(self, exchanges: Sequence[str], release: Release) -> dict[str, HashRing]:
        return {exchange: HashRing.from_buckets(self.ring, release) for exchange in exchanges}

    def sleep(self, seconds: float) -> None:
        """No time passes."""

    def overview(self) -> dict[str, Any]:
        return {"rabbitmq_version": "4.3.6", "cluster_name": "rabbit@one"}

    def get(self, *path: str, **_: Any) -> Any:
        if path == ("vhosts", "/"):
            return {}
        assert path == ("queues", "/", "old")
        return self.counted_last

    def get_list(self, *path: str, **_: Any) -> list[dict[str, Any]]:
        if path[0] != "queues":
            return []
        arguments = {"x-queue-type": self.type}
        return [
            {"name": name, "durable": True, "arguments": arguments, **self.counted} for name in self.queues
        ]

    def put(self, *path: str, body: object) -> None:  # noqa: ARG002
        raise AssertionError(path)

    def delete(self, *path: str) -> None:
        raise AssertionError(path)

    def operations(self) -> list[Any]:
        """Return the operations after the lock and before its end."""
        return [step for step in self.steps if not isinstance(step, Operation) or step.subject != LOCK]

    def apply(self, made: Plan, permission: Permission = Permission()) -> Applied:  # noqa: B008
        """Apply a plan."""
        return apply_plan(made, self, permission, lambda _done, _all: None)

    def live(self) -> LiveTopology:
        """Return what is there."""
        return LiveTopology(
            queues=tuple(QueueDefinition(name, self.type) for name in self.queues),
            cluster="rabbit@one",
            vhost="/",
            release=Release("4.3.6"),
        )


def declares(operation: Operation, name: str) -> bool:
    """Whether an operation declares this queue."""
    subject = operation.subject
    return operation.action == "declare" and isinstance(subject, QueueDefinition) and subject.name == name


def test_new_objects_go_together_and_the_ring_is_read_afterwards() -> None:
    script = Script()
    done = script.apply(plan(WANTED, script.live()))

    ahead, together, settled = script.operations()
    names = ["rabbit-chx.ring.orders", "rabbit-chx.next.orders"]
    assert (ahead.action, ahead.subject.name) == ("declare", names[0])
    assert [(operation.action, operation.subject.name) for operation in settled] == [
        ("declare", names[1]),
        ("delete", names[0]),
        ("declare", names[0]),
        ("delete", names[1]),
    ]
    assert [operation for operation in together if operation.action == "bind"] == [
        Operation("bind", BindingDefinition("orders", f"orders.{n}", "1")) for n in (1, 2, 3)
    ]
    assert len(done.changes) == 7
    assert done.rings["orders"].buckets == script.ring
    assert script.steps[0] == Operation("declare", LOCK)
    assert script.steps[-1] == Operation("delete", LOCK)


def test_a_plan_of_another_broker_is_outdated_and_nothing_is_done() -> None:
    script = Script(queues=("orders.1",))
    with pytest.raises(PlanOutdatedError, match="has changed since the plan was made"):
        script.apply(plan(WANTED, Script().live()))
    assert script.operations() == []
    assert script.steps[-1] == Operation("delete", LOCK)


def shown(*bindings: tuple[str, str], **about: Any) -> LiveTopology:
    """Return a broker with this ring, from which a plan was made."""
    release = about.pop("release", Release("4.3.6"))
    exchange = ExchangeDefinition(
        "h", "x-consistent-hash", ring=tuple(RingMember(queue, key) for queue, key in bindings)
    )
    live = LiveTopology(
        (exchange,), tuple(map(QueueDefinition, "abcd")), cluster="rabbit@one", vhost="/", release=release
    )
    return replace(live, **about).with_rings({"h": HashRing.from_bindings(bindings, release)})


SHOWN = (("a", "1"), ("b", "2"), ("c", "1"))


@pytest.mark.parametrize(
    "now",
    [
        shown(*SHOWN, cluster="rabbit@two"),
        shown(*SHOWN, vhost="staging"),
        shown(*SHOWN, release=Release("4.0.5")),
        shown(SHOWN[1], SHOWN[0], SHOWN[2]),  # the same steps move 87 % of the keys, not 75 %
    ],
    ids=["cluster", "vhost", "release", "ring"],
)
def test_a_plan_is_bound_to_what_it_was_shown_for(now: LiveTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these alone makes it outdated, although the changes are the same."""
    wanted = Topology(
        (ExchangeDefinition("h", "x-consistent-hash", ring=(RingMember("a"), RingMember("d"))),),
        tuple(map(QueueDefinition, "abcd")),
    )
    made = plan(wanted, shown(*SHOWN))
    assert plan(wanted, now).changes == made.changes
    monkeypatch.setattr(applying, "read_topology", lambda _: now)
    script = Script()
    with pytest.raises(PlanOutdatedError, match="has changed since the plan was made"):
        script.apply(made, Permission(moved=1.0))
    assert script.operations() == []


def test_another_application_is_waited_for_by_the_user() -> None:
    script = Script(lambda _: (405, "RESOURCE_LOCKED"))
    with pytest.raises(PlanOutdatedError, match=f"exclusive queue {APPLY_LOCK}"):
        script.apply(plan(WANTED, script.live()))
    assert len(script.steps) == 1


def test_who_may_not_declare_the_lock_is_refused_before_anything_is_done() -> None:
    script = Script(lambda _: (403, "ACCESS_REFUSED"))
    with pytest.raises(
        AccessRefusedError, match=rf"needs configure on queue {APPLY_LOCK}: .*nothing was changed"
    ) as caught:
        script.apply(plan(WANTED, script.live()))
    assert len(script.steps) == 1
    assert (caught.value.queue, caught.value.reply_code) == (APPLY_LOCK, 403)


def test_a_refusal_of_several_together_is_done_again_one_by_one_to_find_the_refusal() -> None:
    def refuses(operation: Operation) -> tuple[int, str] | None:
        text = "ACCESS_REFUSED - access to queue 'orders.2' refused"
        return (403, text) if declares(operation, "orders.2") else None

    script = Script(refuses)
    with pytest.raises(
        ApplyError, match=r"queue 'orders.2' refused.*; 2 of 7 changes were done: plan and apply again"
    ) as caught:
        script.apply(plan(WANTED, script.live()))
    assert [change.name for change in caught.value.applied.changes] == ["orders", "orders.1"]
    assert (caught.value.queue, caught.value.reply_code) == ("orders.2", 403)


def test_a_first_operation_that_is_refused_changes_nothing() -> None:
    def refuses(operation: Operation) -> tuple[int, str] | None:
        return None if operation.subject == LOCK else (403, "ACCESS_REFUSED - access to x refused")

    script = Script(refuses)
    with pytest.raises(AccessRefusedError, match="access to x refused"):
        script.apply(plan(WANTED, script.live()))


def test_a_lost_connection_reports_how_far_it_got() -> None:
    def refuses(operation: Operation) -> None:
        if operation.action == "bind":
            raise ConnectionLostError("gone")

    script = Script(refuses)
    with pytest.raises(ApplyError, match="gone; 0 of 7 changes were done") as caught:
        script.apply(plan(WANTED, script.live()))
    assert isinstance(caught.value.__cause__, ConnectionLostError)


def test_another_ring_than_planned_is_an_error() -> None:
    script = Script(ring=("orders.1", "orders.3", "orders.2"))
    with pytest.raises(ApplyError, match=r"the ring of orders is .*, and not .*someone else binds too"):
        script.apply(plan(WANTED, script.live()))


def test_a_ring_that_is_missing_after_all_changes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    monkeypatch.setattr(script, "read_rings", lambda *_: {})
    with pytest.raises(ApplyError, match="the ring of orders is None after all changes"):
        script.apply(plan(WANTED, script.live()))


_LEFT = "it is unbound and was not deleted"


@dataclass
class Drained(Script):
    """A broker with the queue `old`, bound to the exchange `news`, whose time passes only while one waits."""

    queues: tuple[str, ...] = ("old",)
    pauses: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def get_list(self, *path: str, **about: Any) -> list[dict[str, Any]]:
        if path[0] == "exchanges":
            return [
                {
                    "name": "news",
                    "type": "fanout",
                    "durable": True,
                    "auto_delete": False,
                    "internal": False,
                    "arguments": {},
                }
            ]
        if path[0] == "bindings":
            is_bound = not any(isinstance(step, Operation) and step.action == "unbind" for step in self.steps)
            ends = {"source": "news", "destination": "old", "destination_type": "queue"}
            return [{**ends, "routing_key": "", "arguments": {}, "properties_key": "~"}] if is_bound else []
        return super().get_list(*path, **about)

    def live(self) -> LiveTopology:
        bound = BindingDefinition("news", "old", "")
        return replace(super().live(), exchanges=(ExchangeDefinition("news", "fanout"),), bindings=(bound,))

    def remove(self, **permission: Any) -> Applied:
        """Apply the plan that deletes the queue."""
        made = plan(Topology(owns=("old",)), self.live())
        return apply_plan(
            made, self, Permission(delete=True, **permission), lambda *_: None, self.told.append
        )

    def actions(self) -> list[str]:
        """Return the operations, without the records."""
        return [step.action for step in self.operations() if isinstance(step, Operation)]


@pytest.mark.parametrize("type_", ["classic", "quorum"])
@pytest.mark.parametrize("drain_s", [0.0, 60.0])
def test_a_queue_that_is_not_empty_in_time_is_left_unbound(type_: str, drain_s: float) -> None:
    """Whoever fills it: messages that are published to its name do not stop with the unbind."""
    script = Drained(counts=[QueueCounts(1200, 2)], type=type_)
    says = rf"^queue old still has 1,200 messages and 2 consumers after {drain_s:g} s: {_LEFT}; run it again; 1 of 2"
    with pytest.raises(ApplyError, match=says) as caught:
        script.remove(drain_s=drain_s)
    assert (script.actions(), len(caught.value.applied.changes)) == (["unbind"], 1)
    assert sum(script.pauses) == drain_s
    assert len(script.told) == drain_s / 5
    assert script.told[1:2] in ([], ["waiting until old is empty: 5 of 60 s"])


def test_unacknowledged_messages_keep_a_queue() -> None:
    script = Drained(counts=[QueueCounts(0, 1)], counted_last={"messages": 7})
    with pytest.raises(ApplyError, match="queue old still has 7 messages and 1 consumer after 60 s"):
        script.remove()
    assert script.actions() == ["unbind"]


@pytest.mark.parametrize("unacknowledged", [0, 3])
def test_a_queue_with_messages_and_without_consumers_is_not_waited_for(unacknowledged: int) -> None:
    """But as long as the API may be late."""
    ready = 0 if unacknowledged else 1
    script = Drained(
        counts=[QueueCounts(ready, 0)], counted={"messages": 3}, counted_last={"messages": unacknowledged}
    )
    with pytest.raises(
        ApplyError, match=f"still has . messages? and no consumers, so nothing empties it: {_LEFT}"
    ):
        script.remove()
    assert script.actions() == ["unbind"]
    assert sum(script.pauses) == 7.0


def test_a_queue_that_is_left_again_is_an_apply_error() -> None:
    """It was unbound before, so that nothing was changed this time: what is left to do is the same."""
    script = Script(counts=[QueueCounts(1, 1)], queues=("old",))
    with pytest.raises(ApplyError, match=f"{_LEFT}; run it again; 0 of 1 changes were done"):
        script.apply(plan(Topology(owns=("old",)), script.live()), Permission(delete=True, drain_s=0))
    assert script.operations()[-1] == "old"


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_a_queue_is_unbound_and_drained_before_it_is_deleted(type_: str) -> None:
    script = Drained(counts=[QueueCounts(n, 2) for n in (9, 5, 0, 1, 0)], type=type_)
    assert len(script.remove().changes) == 2
    assert script.actions() == ["unbind", "delete"]
    assert sum(script.pauses) == 8.5, "the API may be late, so it is empty for seven seconds"


def test_a_loss_that_is_allowed_is_not_waited_for() -> None:
    script = Drained(counts=[QueueCounts(5, 1)])
    assert len(script.remove(loss=True).changes) == 2
    assert script.pauses == []
    assert script.operations()[-1] == Operation("delete", QueueDefinition("old"))


def _replacement(script: Script) -> Plan:
    return plan(Topology(queues=(QueueDefinition("old", arguments={"x-max-length": 5}),)), script.live())


def test_a_replaced_queue_without_consumers_is_refused() -> None:
    """Nothing would empty it while it is unbound."""
    script = Script(counts=[QueueCounts(1, 0)], queues=("old",))
    says = "queue old is to be replaced, and has 1 message and no consumers, so nothing empties it; start a consumer, or allow it"
    with pytest.raises(PlanRefusedError, match=says):
        script.apply(_replacement(script), Permission(delete=True))
    assert script.operations() == ["old"]


def test_a_replaced_queue_whose_new_messages_would_be_unroutable_is_refused() -> None:
    """Only the exchange `news` routes to it, and to nothing else in the meantime."""
    script = Drained(counts=[QueueCounts(1, 2)])
    wanted = replace(script.live(), queues=(QueueDefinition("old", arguments={"x-max-length": 5}),))
    says = (
        "queue old is to be replaced, and has 1 message and 2 consumers: it is not drained, since new messages would be unroutable until it "
        "is bound again; let its consumers empty it and stop them, or allow it"
    )
    with pytest.raises(PlanRefusedError, match=says):
        script.apply(plan(wanted.objects, script.live()), Permission(delete=True))
    assert script.operations() == ["old"]


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_an_empty_queue_is_deleted_with_its_consumers(type_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    script = Script(counts=[QueueCounts(0, 2)], queues=("old",), type=type_, counted={"messages": 0})
    made = plan(Topology(owns=("old",)), script.live())
    monkeypatch.setattr(script, "sleep", pauses.append)
    script.apply(made, Permission(delete=True))

    assert sum(pauses) == 7.0, "until the API counts what consumers took before"
    deletion = Operation("delete", QueueDefinition("old", type_), if_empty=type_ == "classic")
    assert script.operations()[-2:] == ["old", deletion]
    named = as_live(script.live(), consumer_tags={"old": ("billing-1", "billing-2")})
    assert plan(Topology(owns=("old",)), named).warnings == (
        "queue old is deleted with its consumers billing-1, billing-2",
    )


@pytest.mark.parametrize(
    ("counts", "says"), [(QueueCounts(1, 0), "has 1 message"), (QueueCounts(0, 1), "has 1 consumer")]
)
def test_an_empty_quorum_queue_is_counted_again_just_before_it_is_deleted(
    counts: QueueCounts, says: str
) -> None:
    script = Script(counts=[QueueCounts(0, 0), counts], queues=("old",), type="quorum")
    with pytest.raises(PlanRefusedError, match=says):
        script.apply(plan(Topology(owns=("old",)), script.live()), Permission(delete=True))


def test_a_deletion_has_to_be_allowed() -> None:
    script = Script(counts=[QueueCounts(0, 0)], queues=("old",))
    made = plan(Topology(owns=("old",)), script.live())
    with pytest.raises(PlanRefusedError, match="allow_delete=True"):
        script.apply(made)
    with pytest.raises(PlanRefusedError, match="allow_delete=True"):
        script.apply(replace(made, refusals=()))
    script.apply(made, Permission(delete=True))
    assert script.operations()[-1] == Operation(
        "delete", QueueDefinition("old"), if_unused=True, if_empty=True
    )


def test_only_a_plan_is_applied() -> None:
    script = Script()
    with pytest.raises(
        InputError, match=r"a Topology is not a Plan: make one with rabbit_chx\.topology\.plan"
    ):
        apply_plan(WANTED, script, Permission(), lambda *_: None)  # type: ignore[arg-type]
    assert script.steps == []


def test_what_was_done_is_shown_in_a_line() -> None:
    assert repr(Applied((), {}, "0123456789abcdef")) == "<Applied 0 changes, 0 rings, 0123456789ab>"


def test_nobody_counts_what_is_in_a_stream() -> None:
    script = Script(counts=[QueueCounts(0, 0)], queues=("old",), type="stream")
    made = plan(Topology(owns=("old",)), script.live())
    with pytest.raises(PlanRefusedError, match="queue old is to be deleted, and is a stream"):
        script.apply(made, Permission(delete=True))
    script.apply(made, Permission(delete=True, loss=True))
    assert script.operations()[-1] == Operation("delete", QueueDefinition("old", "stream"))


def test_what_the_client_cannot_send_is_refused_before_anything_is_changed() -> None:
    @dataclass
    class Unable(Script):
        def check_sendable(self, operations: Sequence[Operation]) -> None:
            raise InputError(f"{len(operations)} operations")

    script = Unable()
    with pytest.raises(InputError, match="7 operations"):
        script.apply(plan(WANTED, script.live()))
    assert script.operations() == []


def test_a_name_that_would_reach_the_broker_as_another_is_refused_before_anything_is_changed() -> None:
    script = Script()
    with pytest.raises(InputError, match="has a line break"):
        script.apply(plan(Topology(queues=(QueueDefinition("a"), QueueDefinition("b\nc"))), script.live()))
    assert script.operations() == []


def test_what_goes_together_and_ends_with_a_queue_is_done_once() -> None:
    script = Script()
    script.apply(plan(Topology(queues=(QueueDefinition("a"), QueueDefinition("b"))), script.live()))
    (together,) = script.operations()
    assert len(together) == 2


def test_a_plan_for_another_vhost_needs_a_permission() -> None:
    wanted = Topology.from_toml('vhost = "${env}"\n[variables]\nenv = "staging"\n[[queues]]\nname = "q"\n')
    live = Topology(vhost="/")
    made = plan(wanted, as_live(live))
    assert [refusal.kind for refusal in made.refused(allow_moved=1, allow_delete=True)] == ["vhost"]
    assert str(made.refusals[0].override) == "allow_vhost=True"
    assert made.refused(allow_vhost=True) == ()
    assert plan(wanted, as_live(replace(live, vhost="staging"))).refusals == ()
    assert plan(wanted, LiveTopology()).refusals == ()  # that of a file
    assert [finding.kind for finding in check(as_live(live), wanted).findings][:1] == ["different"]
    assert 'vhost = "/"' in live.to_toml()
