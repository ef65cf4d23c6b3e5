"""Changes as operations, operations as calls of pika, and the errors for refused ones."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock, call

import pytest

from rabbit_chx import errors
from rabbit_chx.broker import live_broker
from rabbit_chx.broker.live_broker import Operation, make_refusal
from rabbit_chx.broker.pika_connection import _call
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.schema import PlannedChange

EXCHANGE = ExchangeDefinition(
    "x", "topic", auto_delete=True, internal=True, arguments={"n": [1, {"a": True}]}
)
CLASSIC = QueueDefinition("q", durable=False, auto_delete=True, arguments={"x-max-length": 5})
QUORUM = QueueDefinition("q", "quorum")
TO_QUEUE = BindingDefinition("x", "q", "k", {"x-match": "all"})
TO_EXCHANGE = BindingDefinition("x", ExchangeRef("y"), "#")
POLICY = PolicyDefinition("p", "^q", "queues", {"max-length": 5}, 3)
X = Operation("declare", ExchangeDefinition("x"))

IF_EMPTY = Operation("delete", CLASSIC, if_unused=True, if_empty=True)


@pytest.mark.parametrize(
    ("action", "live", "wanted", "operations"),
    [
        ("create", None, EXCHANGE, [Operation("declare", EXCHANGE)]),
        ("create", None, CLASSIC, [Operation("declare", CLASSIC)]),
        ("create", None, POLICY, []),
        ("bind", None, TO_QUEUE, [Operation("bind", TO_QUEUE)]),
        ("unbind", TO_EXCHANGE, None, [Operation("unbind", TO_EXCHANGE)]),
        ("delete", EXCHANGE, None, [Operation("delete", EXCHANGE, if_unused=True)]),
        ("delete", CLASSIC, None, [IF_EMPTY]),
        ("delete", QUORUM, None, [Operation("delete", QUORUM)]),
        ("delete", POLICY, None, []),
        ("replace", CLASSIC, QUORUM, [IF_EMPTY, Operation("declare", QUORUM)]),
        ("replace", EXCHANGE, X.subject, [Operation("delete", EXCHANGE, if_unused=True), X]),
        ("update", PolicyDefinition("p", "^q"), POLICY, []),
    ],
)
def test_a_change_is_these_operations_which_may_be_repeated_if_they_create(
    action: Any, live: Any, wanted: Any, operations: list[Operation]
) -> None:
    change = PlannedChange(action, live, wanted)
    assert [*live_broker.operations_of(change, allow_loss=False)] == operations
    lossy = live_broker.operations_of(change, allow_loss=True)
    assert not any(it.if_empty or (it.if_unused and it.subject == CLASSIC) for it in lossy)
    is_creation = action in {"create", "bind"} and wanted != POLICY
    assert live_broker.is_repeatable(change) is is_creation, "over a channel, which no policy goes"


SENT: dict[Operation, Any] = {
    Operation("declare", EXCHANGE): call.exchange_declare("x", "topic", False, True, True, True, {"n": [1, {"a": True}]}),
    Operation("declare", CLASSIC): call.queue_declare("q", False, False, False, True, {"x-max-length": 5, "x-queue-type": "classic"}),
    Operation("declare", QueueDefinition("q", exclusive=True)): call.queue_declare("q", False, True, True, False, {"x-queue-type": "classic"}),
    Operation("delete", EXCHANGE, if_unused=True): call.exchange_delete("x", True),
    Operation("delete", CLASSIC, if_empty=True): call.queue_delete("q", False, True),
    Operation("bind", TO_QUEUE): call.queue_bind("q", "x", "k", {"x-match": "all"}),
    Operation("bind", TO_EXCHANGE): call.exchange_bind("y", "x", "#", {}),
    Operation("unbind", TO_QUEUE): call.queue_unbind("q", "x", "k", {"x-match": "all"}),
    Operation("unbind", TO_EXCHANGE): call.exchange_unbind("y", "x", "#", {}),
}  # fmt: skip


@pytest.mark.parametrize("operation", SENT)
def test_an_operation_as_a_call_of_pika(operation: Operation) -> None:
    channel = Mock()
    _call(channel, operation)
    assert channel.mock_calls == [SENT[operation]]


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
        live_broker.check_declared_name(name, "queue")
    for other in ("a", "-", " ", "é" * 127, "amq.x", "\0"):
        live_broker.check_declared_name(other, "queue")


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
    text = "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'"
    error = make_refusal(WHERE, operation, 403, text)
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
