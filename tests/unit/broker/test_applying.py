"""A plan is checked, done in order and compared. The broker's answers are scripted: they are faults that no broker gives at will."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from model_broker import ModelBroker
from model_client import ModelClient
from one_hash_exchange import hashing, with_buckets
from sides import as_live

from rabbit_chx import HashRing, Release, errors
from rabbit_chx.broker import applying
from rabbit_chx.broker.applying import Applied, Permission, apply_plan
from rabbit_chx.broker.live_broker import (
    APPLY_LOCK,
    LOCK_ID,
    LockedError,
    Operation,
    QueueCounts,
    make_refusal,
)
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    Plan,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)
from rabbit_chx.topology.objects import MARK

OLD = ["old"]
DELETED = Topology(owns=("old",))
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


class Script(ModelClient):
    """A broker whose answers to some operations are given, and whose time passes only while one waits.

    Attributes:
        steps: what was asked: an operation, a tuple of those that were sent together, or the name of a queue that was counted.
        pauses: the seconds that were waited.
        told: what was said meanwhile.

    Args:
        refuses: the code and the words with which an operation is refused; None: it is done.
        counts: what is in the queue that is counted, from one time to the next.
        queues: the names of the queues that are there.
        type_: their type.
        bound: whether the first one is bound to the exchange `news`.
        counted: what the management API counts in each queue.
        counted_last: the same just before a queue is deleted.
    """

    def __init__(
        self,
        refuses: Callable[[Operation], tuple[int, str] | None] = lambda _: None,
        *,
        counts: Sequence[QueueCounts] = (),
        queues: Sequence[str] = (),
        type_: str = "classic",
        bound: bool = False,
        counted: dict[str, Any] | None = None,
        counted_last: dict[str, Any] | None = None,
    ) -> None:
        there = Topology(queues=tuple(QueueDefinition(name, type_) for name in queues))
        if bound:
            news = ExchangeDefinition("news", "fanout"), BindingDefinition("news", queues[0], "")
            there = replace(there, exchanges=news[:1], bindings=news[1:])
        super().__init__(ModelBroker.holding(there, Release("4.3.6")))
        self.steps: list[Any] = []
        self.pauses: list[float] = []
        self.told: list[str] = []
        self._refusal, self._counts = refuses, list(counts)
        self._counted, self._counted_last = counted or {}, counted_last or {}

    def perform(self, operation: Operation) -> None:
        self.steps.append(operation)
        refusal = self._refusal(operation)
        if refusal is not None:
            raise make_refusal(self.where, operation, *refusal)
        super().perform(operation)

    def perform_together(self, operations: Sequence[Operation]) -> bool:
        self.steps.append(tuple(operations))
        if any(self._refusal(operation) is not None for operation in operations):
            return False
        for operation in operations:
            super().perform(operation)
        return True

    def count(self, queue: str) -> QueueCounts:
        if queue == MARK:
            return super().count(queue)
        self.steps.append(queue)
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def get(self, *path: str, **about: Any) -> Any:
        return self._counted_last if path == ("queues", "/", "old") else super().get(*path, **about)

    def _listed(self, kind: str, *path: str) -> Any:
        listed = super()._listed(kind, *path)
        return [{**entry, **self._counted} for entry in listed] if kind == "queues" else listed

    def operations(self) -> list[Any]:
        """Return the operations after the lock and before its end."""
        return [
            step
            for step in self.steps
            if not (isinstance(step, Operation) and step.subject.name == APPLY_LOCK)
        ]

    def apply(self, made: Plan, **permission: Any) -> Applied:
        """Apply a plan."""
        return apply_plan(made, self, Permission(**permission), lambda *_: None, self.told.append)

    def delete_old(self, **permission: Any) -> Applied:
        """Apply the plan that deletes the queue `old`."""
        return self.apply(plan(DELETED, self.live()), delete=True, **permission)

    def actions(self) -> list[str]:
        """Return the operations, without the records."""
        return [step.action for step in self.operations() if isinstance(step, Operation)]


def test_new_objects_go_together_and_the_ring_is_read_afterwards() -> None:
    script = Script()
    done = script.apply(plan(WANTED, script.live()))

    declared, bound, final = (one for one in script.operations() if getattr(one, "action", "") != "delete")
    assert (final.action, final.subject.name) == ("declare", "rabbit-chx.ring.orders")
    assert {operation.action for operation in declared} == {"declare"}
    assert [operation for operation in bound if operation.action == "bind"] == [
        Operation("bind", BindingDefinition("orders", f"orders.{n}", "1")) for n in (1, 2, 3)
    ]
    assert len(done.changes) == 7
    assert done.rings["orders"].buckets == ("orders.1", "orders.2", "orders.3")
    assert repr(Applied((), {}, "0123456789abcdef")) == "<Applied 0 changes, 0 rings, 0123456789ab>"
    ahead_of_all = script.steps[0]
    assert (ahead_of_all.action, replace(ahead_of_all.subject, arguments={})) == ("declare", LOCK)
    assert [*ahead_of_all.subject.arguments] == [LOCK_ID]
    assert script.steps[-1] == Operation("delete", LOCK)


SHOWN = as_live(
    with_buckets(hashing("a", RingMember("b", "2"), "c"), *"abbc"), cluster="rabbit@one", vhost="/"
)
#: The same steps move 87 % of its keys, not 75 %.
TURNED = as_live(
    with_buckets(hashing(RingMember("b", "2"), "a", "c"), *"bbac"), cluster="rabbit@one", vhost="/"
)


@pytest.mark.parametrize(
    "now",
    [
        as_live(SHOWN, cluster="rabbit@two"),
        as_live(SHOWN, vhost="staging"),
        as_live(SHOWN, release=Release("4.0.5")),
        TURNED,
    ],
    ids=["cluster", "vhost", "release", "ring"],
)
def test_a_plan_is_bound_to_what_it_was_shown_for(now: LiveTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these alone makes it outdated, although the changes are the same."""
    wanted = hashing(*"ad")
    made = plan(wanted, SHOWN)
    assert plan(wanted, now).changes == made.changes
    monkeypatch.setattr(applying, "read_topology", lambda _: now)
    script = Script()
    with pytest.raises(errors.PlanOutdatedError, match="has changed since the plan was made"):
        script.apply(made, moved=1.0)
    assert script.operations() == []
    assert script.steps[-1] == Operation("delete", LOCK)


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (405, LockedError, f"exclusive queue {APPLY_LOCK}: wait until it is done"),
        (403, errors.AccessRefusedError, f"needs configure on queue {APPLY_LOCK}: .*nothing was changed"),
        (406, errors.MismatchError, "REFUSED"),
    ],
)
def test_without_the_lock_nothing_is_done(code: int, error: type[errors.RabbitChxError], says: str) -> None:
    """Another application has it, the user may not declare it, or it is refused for another reason."""
    script = Script(lambda _: (code, "REFUSED"))
    with pytest.raises(error, match=says) as caught:
        script.apply(plan(WANTED, script.live()))
    assert len(script.steps) == 1
    assert type(caught.value) is error
    assert code == 405 or (caught.value.queue, caught.value.reply_code) == (APPLY_LOCK, code)


def refuses_a_queue(operation: Operation) -> tuple[int, str] | None:
    text = "ACCESS_REFUSED - access to queue 'orders.2' refused"
    return (403, text) if operation == Operation("declare", QueueDefinition("orders.2")) else None


def refuses_all(operation: Operation) -> tuple[int, str] | None:
    return None if operation.subject.name == APPLY_LOCK else (403, "ACCESS_REFUSED - access to x refused")


def loses_the_connection(operation: Operation) -> None:
    if operation.action == "bind":
        raise errors.ConnectionLostError("gone")


@pytest.mark.parametrize(
    ("refuses", "error", "says", "done"),
    [
        (refuses_a_queue, errors.ApplyError, r"queue 'orders.2' refused.*; declared exchange orders, queue orders.1, and no ring was changed: the same command does the rest", ["orders", "orders.1"]),
        (loses_the_connection, errors.ApplyError, "gone; 4 of 7 changes were done", ["orders", "orders.1", "orders.2", "orders.3"]),
        (refuses_all, errors.AccessRefusedError, "the user needs configure on exchange orders", None),
    ],
)  # fmt: skip
def test_an_apply_that_ends_early_reports_how_far_it_got(
    refuses: Any, error: type[errors.RabbitChxError], says: str, done: list[str] | None
) -> None:
    """Operations that go together are done again one by one to find the refusal."""
    script = Script(refuses)
    with pytest.raises(error, match=says) as caught:
        script.apply(plan(WANTED, script.live()))
    if isinstance(caught.value, errors.ApplyError):
        assert [change.name for change in caught.value.applied.changes] == done
        is_lost = isinstance(caught.value.__cause__, errors.ConnectionLostError)
        assert (caught.value.queue == "orders.2") is (caught.value.reply_code == 403) is not is_lost


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("number", [0, 1])
def test_an_error_of_the_caller_ends_an_apply_without_its_lock(
    error: type[BaseException], number: int
) -> None:
    script = Script()

    def progress(done: int, _: int) -> None:
        if done == number:
            raise error

    with pytest.raises(error):
        apply_plan(plan(WANTED, script.live()), script, Permission(), progress)
    assert script.steps[-1] == Operation("delete", LOCK)


def test_an_interrupted_connection_does_not_hide_the_interruption() -> None:
    def breaks(operation: Operation) -> None:
        if operation == Operation("delete", LOCK):
            raise AssertionError("pika's state")

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    script = Script(breaks)
    with pytest.raises(KeyboardInterrupt):
        apply_plan(plan(WANTED, script.live()), script, Permission(), interrupt)


def test_another_ring_than_planned_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    other = HashRing.from_buckets(["orders.1", "orders.3", "orders.2"], Release("4.3.6"))
    for rings, says in (
        ({"orders": other}, r"the ring of orders is .*, and not .*someone else binds too"),
        ({}, "the ring of orders is None after all changes"),
    ):
        script = Script()
        made = plan(WANTED, script.live())
        monkeypatch.setattr(script, "read_rings", lambda *_, rings=rings: rings)
        with pytest.raises(errors.ApplyError, match=says):
            script.apply(made)


@pytest.mark.parametrize(
    ("about", "drain_s", "says", "done", "waited_s"),
    [
        *(
            ({"counts": [QueueCounts(1200, 2)], "bound": True, "type_": type_}, drain_s, f"1,200 messages and 2 consumers after {drain_s:g} s: ", "1 of 2", drain_s)
            for type_ in ("classic", "quorum")
            for drain_s in (0.0, 60.0)
        ),
        ({"counts": [QueueCounts(0, 1)], "bound": True, "counted_last": {"messages": 7}}, 60.0, "7 messages and 1 consumer after 60 s", "1 of 2", 60.0),  # which are unacknowledged
        ({"counts": [QueueCounts(1, 0)], "bound": True, "counted_last": {"messages": 0}}, 60.0, "1 message and no consumers, so nothing empties it", "1 of 2", 11.0),
        ({"counts": [QueueCounts(0, 0)], "bound": True, "counted_last": {"messages": 3}}, 60.0, "3 messages and no consumers, so nothing empties it", "1 of 2", 11.0),
        # It was unbound before, so that nothing was changed this time: what is left to do is the same.
        ({"counts": [QueueCounts(1, 1)]}, 0.0, "1 message and 1 consumer", "0 of 1", 0.0),
    ],
)  # fmt: skip
def test_a_queue_that_is_not_empty_in_time_is_left_unbound(
    about: dict[str, Any], drain_s: float, says: str, done: str, waited_s: float
) -> None:
    """Whoever fills it. Without consumers it is not waited for, but as long as the API may be late."""
    script = Script(queues=OLD, counted={"messages": 3}, **about)
    says = f"^queue old still has {says}.*it is unbound and was not deleted; .*run it again; {done} changes were done"
    with pytest.raises(errors.ApplyError, match=says) as caught:
        script.delete_old(drain_s=drain_s)
    assert script.actions() == ["unbind"] * len(caught.value.applied.changes)
    assert sum(script.pauses) == waited_s
    if says.startswith("^queue old still has 1,200"):
        assert len(script.told) == drain_s / 5
        assert script.told[1:2] in ([], ["waiting until old is empty: 5 of 60 s"])


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_a_queue_is_unbound_and_drained_before_it_is_deleted(type_: str) -> None:
    script = Script(queues=OLD, bound=True, counts=[QueueCounts(n, 2) for n in (9, 5, 0, 1, 0)], type_=type_)
    assert len(script.delete_old().changes) == 2
    assert script.actions() == ["unbind", "delete"]
    assert sum(script.pauses) == 12.5, "the API may be late, so it is empty for eleven seconds"
    script = Script(queues=OLD, bound=True, counts=[QueueCounts(5, 1)], type_=type_)
    assert len(script.delete_old(loss=True).changes) == 2
    assert script.pauses == []
    assert script.operations()[-1] == Operation("delete", QueueDefinition("old", type_))


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_an_empty_queue_is_deleted_with_its_consumers(type_: str) -> None:
    script = Script(counts=[QueueCounts(0, 2)], queues=OLD, type_=type_, counted={"messages": 0})
    live = script.live()
    script.delete_old()
    assert sum(script.pauses) == 11.0, "until the API counts what consumers took before"
    deletion = Operation("delete", QueueDefinition("old", type_), if_empty=type_ == "classic")
    assert script.operations()[-2:] == ["old", deletion]
    tags: Mapping[str, tuple[str, ...] | int]
    for tags, named in (
        ({"old": ("billing-1",)}, "1 consumer: billing-1"),
        ({"old": ("billing-1", "billing-2")}, "2 consumers: billing-1, billing-2"),
        ({"old": 3}, "3 consumers"),
    ):
        warning = f"queue old is deleted, and has {named}"
        assert plan(DELETED, as_live(live, consumer_tags=tags)).warnings == (warning,)


REPLACED = Topology(queues=(QueueDefinition("old", arguments={"x-max-length": 5}),))


@pytest.mark.parametrize(
    ("wanted", "about", "says"),
    [
        (REPLACED, {"counts": [QueueCounts(1, 0)]}, "to be replaced, and has 1 message and no consumers, so nothing empties it; start a consumer, or allow it"),
        (REPLACED, {"counts": [QueueCounts(1, 2)], "bound": True}, "to be replaced, and has 1 message and 2 consumers: it is not drained, since new messages would be unroutable until it is bound again; let its consumers empty it and stop them, or allow it"),
        (DELETED, {"counts": [QueueCounts(0, 0)], "type_": "stream"}, "to be deleted, and is a stream"),
        # A quorum queue is counted again just before it is deleted.
        (DELETED, {"counts": [QueueCounts(0, 0), QueueCounts(1, 0)], "type_": "quorum"}, "to be deleted, and has 1 message"),
        (DELETED, {"counts": [QueueCounts(0, 0), QueueCounts(0, 1)], "type_": "quorum"}, "has 1 consumer"),
        # Without a leader it answers with zeros.
        (DELETED, {"counts": [QueueCounts(0, 0)], "type_": "quorum", "counted_last": {"type": "quorum"}}, "to be deleted, and the broker does not tell how many messages it has: nobody can count its messages; wait until its node runs, or allow it with `--allow loss` \\(`allow_loss=True`\\)"),
        (DELETED, {"counts": [QueueCounts(0, 0)], "type_": "quorum", "counted_last": {"state": "minority", "messages": 0}}, "the broker does not tell how many"),
    ],
)  # fmt: skip
def test_a_queue_that_would_lose_messages_is_refused(
    wanted: Topology, about: dict[str, Any], says: str
) -> None:
    script = Script(queues=OLD, **about)
    there = script.live().as_wanted()
    wanted = replace(wanted, exchanges=there.exchanges, bindings=there.bindings)
    made = plan(wanted, script.live())
    with pytest.raises(errors.PlanRefusedError, match=says):
        script.apply(made, delete=True)
    assert not any(isinstance(step, Operation) for step in script.operations())
    if about.get("type_") == "stream":
        script.apply(made, delete=True, loss=True)
        assert script.operations()[-1] == Operation("delete", QueueDefinition("old", "stream"))


@pytest.mark.parametrize("wanted", [DELETED, REPLACED], ids=["deleted", "replaced"])
@pytest.mark.parametrize(
    ("type_", "listed", "state"),
    [
        ("quorum", {"state": "minority"}, "minority"),
        (
            "quorum",
            {"state": "live", "leader": "rabbit@a", "members": ["rabbit@a"], "online": []},
            "without a majority of its members online",
        ),
        (
            "quorum",
            {
                "leader": "rabbit@c",
                "members": ["rabbit@a", "rabbit@b", "rabbit@c"],
                "online": ["rabbit@a", "rabbit@b"],
            },
            "without a leader online",
        ),
        ("classic", {"state": "down"}, "down"),
        ("stream", {"state": "stopped"}, "stopped"),
    ],
)
def test_a_queue_that_is_down_is_not_counted_as_empty(
    wanted: Topology, type_: str, listed: dict[str, Any], state: str
) -> None:
    """The plan says so, and nobody asks the queue, which may not answer. Its count by the management API is null."""
    script = Script(queues=OLD, type_=type_, counted={**listed, "messages": None})
    made = plan(wanted, script.live())
    (refusal,) = made.refused(allow_delete=True)
    assert f"the broker reports it as {state}: nobody can count its messages; wait until its node" in str(
        refusal
    )
    assert (refusal.kind, refusal.allow_with) == ("loss", "--allow loss")
    with pytest.raises(
        errors.PlanRefusedError, match=f"to be (deleted|replaced), and .* as {state}"
    ) as caught:
        script.apply(made, delete=True)
    assert caught.value.refusals == (refusal,)
    script.apply(made, delete=True, loss=True)
    assert "delete" in script.actions()
    assert "old" not in script.steps


#: Since an upgrade, 4.3 does not count the messages of some quorum queues that run (rabbitmq-server #16974).
_UNCOUNTED: dict[str, Any] = {
    "type": "quorum",
    "state": "running",
    "messages": None,
    "leader": "rabbit@a",
    "members": ["rabbit@a"],
    "online": ["rabbit@a"],
}


def test_a_quorum_queue_that_runs_and_is_not_counted_is_not_down() -> None:
    counted: dict[str, Any] = {"counted": _UNCOUNTED, "counted_last": _UNCOUNTED}
    script = Script(queues=OLD, type_="quorum", counts=[QueueCounts(0, 0)], **counted)
    assert script.live().facts.queues.down == {}
    made = plan(DELETED, script.live())
    assert made.refused(allow_delete=True) == ()
    script.apply(made, delete=True)
    assert script.actions() == ["delete"]
    full = Script(queues=OLD, type_="quorum", counts=[QueueCounts(1, 0)], **counted)
    with pytest.raises(errors.ApplyError, match="still has 1 message and no consumers"):
        full.apply(plan(DELETED, full.live()), delete=True)


def test_a_queue_that_goes_down_while_it_is_drained_is_left() -> None:
    about: dict[str, Any] = {"counted": {"messages": 3}, "counted_last": {"state": "down"}}
    script = Script(queues=OLD, counts=[QueueCounts(3, 1)], bound=True, **about)
    says = "nobody can count the messages of queue old after 60 s: .*not deleted; wait until its node runs"
    with pytest.raises(errors.ApplyError, match=says):
        script.delete_old()
    assert script.actions() == ["unbind"]


def test_a_deletion_has_to_be_allowed() -> None:
    script = Script(counts=[QueueCounts(0, 0)], queues=OLD)
    made = plan(DELETED, script.live())
    for refused in (made, replace(made, refusals=())):
        with pytest.raises(errors.PlanRefusedError, match="allow_delete=True"):
            script.apply(refused)
    script.apply(made, delete=True)
    deletion = Operation("delete", QueueDefinition("old"), if_unused=True, if_empty=True)
    assert script.operations()[-1] == deletion


def test_only_a_plan_or_what_has_one_is_applied() -> None:
    script = Script()
    with pytest.raises(
        errors.InputError, match=r"a LiveTopology is not a Plan: pass a Topology, .*Topology\.from_file"
    ):
        apply_plan(script.live(), script, Permission(), lambda *_: None)  # type: ignore[arg-type]
    assert script.steps == []


def test_what_the_client_cannot_send_is_refused_before_anything_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script()
    with pytest.raises(errors.InputError, match="has a line break"):
        script.apply(plan(Topology(queues=(QueueDefinition("a"), QueueDefinition("b\nc"))), script.live()))
    check_sendable = Mock(side_effect=errors.InputError("cannot be sent"))
    monkeypatch.setattr(script, "check_sendable", check_sendable)
    with pytest.raises(errors.InputError, match="cannot be sent"):
        script.apply(plan(WANTED, script.live()))
    assert len(check_sendable.call_args.args[0]) == 7
    assert script.operations() == []
    monkeypatch.undo()
    script.apply(plan(Topology(queues=(QueueDefinition("a"), QueueDefinition("b"))), script.live()))
    (together,) = script.operations()
    assert len(together) == 2


def test_only_the_queue_that_is_deleted_is_waited_for() -> None:
    script = Script(queues=OLD, bound=True, counts=[QueueCounts(1, 1), QueueCounts(0, 0)])
    script.apply(plan(Topology(owns=("old", "news")), script.live()), delete=True, drain_s=1)
    assert {step for step in script.steps if isinstance(step, str)} == {"old"}


def test_a_queue_that_is_gone_counts_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Mock(side_effect=errors.NotFoundError("404", reply_code=404))
    script = Script()
    monkeypatch.setattr(script, "count", gone)
    monkeypatch.setattr(script, "get", gone)
    assert applying._count_all("old", script) == QueueCounts(0, 0)
