"""Changes as operations, operations as calls of pika, and the errors for refused ones."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx import errors
from rabbit_chx.broker.pika_connection import _call
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.live.live_broker import (
    Operation,
    check_declared_name,
    is_repeatable,
    make_refusal,
    operations_of,
)

EXCHANGE = ExchangeDefinition(
    "x", "topic", auto_delete=True, internal=True, arguments={"n": [1, {"a": True}]}
)
CLASSIC = QueueDefinition("q", durable=False, auto_delete=True, arguments={"x-max-length": 5})
QUORUM = QueueDefinition("q", "quorum")
TO_QUEUE = BindingDefinition("x", "q", "k", {"x-match": "all"})
TO_EXCHANGE = BindingDefinition("x", ExchangeRef("y"), "#")
POLICY = PolicyDefinition("p", "^q", "queues", {"max-length": 5}, 3)

CASES: dict[str, tuple[PlannedChange, tuple[Operation, ...]]] = {
    "an exchange": (PlannedChange("create", None, EXCHANGE), (Operation("declare", EXCHANGE),)),
    "a queue": (PlannedChange("create", None, CLASSIC), (Operation("declare", CLASSIC),)),
    "a deleted exchange": (
        PlannedChange("delete", EXCHANGE, None),
        (Operation("delete", EXCHANGE, if_unused=True),),
    ),
    "a deleted queue": (
        PlannedChange("delete", CLASSIC, None),
        (Operation("delete", CLASSIC, if_unused=True, if_empty=True),),
    ),
    "a deleted quorum queue": (PlannedChange("delete", QUORUM, None), (Operation("delete", QUORUM),)),
    "a replaced queue": (
        PlannedChange("replace", CLASSIC, QUORUM),
        (Operation("delete", CLASSIC, if_unused=True, if_empty=True), Operation("declare", QUORUM)),
    ),
    "a replaced exchange": (
        PlannedChange("replace", EXCHANGE, ExchangeDefinition("x")),
        (Operation("delete", EXCHANGE, if_unused=True), Operation("declare", ExchangeDefinition("x"))),
    ),
    "a binding": (PlannedChange("bind", None, TO_QUEUE), (Operation("bind", TO_QUEUE),)),
    "an unbound exchange": (PlannedChange("unbind", TO_EXCHANGE, None), (Operation("unbind", TO_EXCHANGE),)),
    "a policy": (PlannedChange("update", PolicyDefinition("p", "^q"), POLICY), ()),
    "a deleted policy": (PlannedChange("delete", POLICY, None), ()),
    "a new policy": (PlannedChange("create", None, POLICY), ()),
}


@pytest.mark.parametrize(("change", "operations"), CASES.values(), ids=CASES)
def test_a_change_is_these_operations_which_may_be_repeated_if_they_create(
    change: PlannedChange, operations: tuple[Operation, ...]
) -> None:
    assert operations_of(change, allow_loss=False) == operations
    lossy = operations_of(change, allow_loss=True)
    assert not any(it.if_empty or (it.if_unused and it.subject == CLASSIC) for it in lossy)
    is_creation = change.action in {"create", "bind"} and change.wanted != POLICY
    assert is_repeatable(change) is is_creation, "over a channel, which no policy goes"


class Channel:
    """A channel of pika, which notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments: self.calls.append((method, *arguments))


SENT: dict[str, tuple[Operation, tuple[Any, ...]]] = {
    "exchange": (
        Operation("declare", EXCHANGE),
        ("exchange_declare", "x", "topic", False, True, True, True, {"n": [1, {"a": True}]}),
    ),
    "queue": (
        Operation("declare", CLASSIC),
        ("queue_declare", "q", False, False, False, True, {"x-max-length": 5, "x-queue-type": "classic"}),
    ),
    "exclusive queue": (
        Operation("declare", QueueDefinition("q", exclusive=True)),
        ("queue_declare", "q", False, True, True, False, {"x-queue-type": "classic"}),
    ),
    "deleted exchange": (Operation("delete", EXCHANGE, if_unused=True), ("exchange_delete", "x", True)),
    "deleted queue": (Operation("delete", CLASSIC, if_empty=True), ("queue_delete", "q", False, True)),
    "binding": (Operation("bind", TO_QUEUE), ("queue_bind", "q", "x", "k", {"x-match": "all"})),
    "binding of an exchange": (Operation("bind", TO_EXCHANGE), ("exchange_bind", "y", "x", "#", {})),
    "unbound queue": (Operation("unbind", TO_QUEUE), ("queue_unbind", "q", "x", "k", {"x-match": "all"})),
    "unbound exchange": (Operation("unbind", TO_EXCHANGE), ("exchange_unbind", "y", "x", "#", {})),
}


@pytest.mark.parametrize(("operation", "call"), SENT.values(), ids=SENT)
def test_an_operation_as_a_call_of_pika(operation: Operation, call: tuple[Any, ...]) -> None:
    channel = Channel()
    _call(channel, operation)
    assert channel.calls == [call]


X = Operation("declare", ExchangeDefinition("x"))
Q = Operation("declare", QueueDefinition("q"))
TO_Q2 = BindingDefinition("x", "q2", "1")
TO_D = BindingDefinition("x", ExchangeRef("d"), "1")
WHERE = "amqp://guest:***@host:5672/%2F"


@pytest.mark.parametrize(
    ("code", "type_", "plugin"),
    [(406, "x-modulus-hash", "rabbitmq_sharding"), (503, "x-random", "rabbitmq_random_exchange")],
)
def test_a_type_that_the_broker_does_not_have_is_one_of_a_plugin(code: int, type_: str, plugin: str) -> None:
    error = make_refusal(WHERE, X, code, f"PRECONDITION_FAILED - unknown exchange type '{type_}'")
    assert (type(error), error.reply_code) == (errors.BrokerRefusedError, code)
    assert f"rabbitmq-plugins enable {plugin} on" in str(error)


@pytest.mark.parametrize("name", ["", "a\nb", "a\r", "é" * 128, "\ud800"])
def test_a_name_that_would_not_arrive_as_it_is_is_refused(name: str) -> None:
    with pytest.raises(errors.InputError):
        check_declared_name(name, "queue")
    for other in ("a", "-", " ", "é" * 127, "amq.x", "\0"):
        check_declared_name(other, "queue")


NEEDS: dict[Operation, str] = {
    X: "configure on exchange x",
    Q: "configure on queue q",
    Operation("bind", TO_Q2): "write on queue q2 and read on exchange x",
    Operation("unbind", TO_Q2): "write on queue q2 and read on exchange x",
    Operation("bind", TO_D): "write on exchange d and read on exchange x",
    Operation("unbind", TO_D): "write on exchange d and read on exchange x",
    Operation("delete", Q.subject): "configure on queue q",
    Operation("delete", X.subject): "configure on exchange x",
    Operation("declare", ExchangeDefinition("x", arguments={"alternate-exchange": "other"})): "configure on exchange x, read on it, and write on exchange other",
    Operation("declare", QueueDefinition("q", arguments={"x-dead-letter-exchange": "other"})): "configure on queue q, read on it, and write on exchange other",
}  # fmt: skip


@pytest.mark.parametrize("operation", NEEDS)
def test_a_permission_that_lacks_is_named(operation: Operation) -> None:
    """RabbitMQ 3.10 names the object only."""
    error = make_refusal(
        WHERE,
        operation,
        403,
        "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'",
    )
    assert type(error) is errors.AccessRefusedError
    assert str(error).endswith(f"rabbitmqctl set_permissions; for this the user needs {NEEDS[operation]}")
    assert error.reply_code == 403


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (404, "NOT_FOUND - no exchange 'x' in vhost '/'", errors.NotFoundError),
        (405, "RESOURCE_LOCKED - cannot obtain exclusive access", errors.BrokerRefusedError),
        (406, "PRECONDITION_FAILED - inequivalent arg 'durable'", errors.MismatchError),
        (530, "NOT_ALLOWED - vhost / is down", errors.BrokerRefusedError),
        (540, "NOT_IMPLEMENTED - cannot delete queue", errors.BrokerRefusedError),
        (541, "INTERNAL_ERROR", errors.BrokerRefusedError),
        (320, "CONNECTION_FORCED - broker forced connection closure", errors.ConnectionLostError),
    ],
)
def test_the_code_decides_the_error(code: int, text: str, kind: type[errors.RabbitChxError]) -> None:
    for operation in NEEDS:
        error = make_refusal(WHERE, operation, code, text)
        assert (type(error), error.reply_code) == (kind, code)
        assert str(error).startswith(f"{WHERE}: the broker answered {code} {text}: ")
