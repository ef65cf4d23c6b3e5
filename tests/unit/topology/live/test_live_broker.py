"""Changes as operations, operations as calls of pika, and the errors for refused ones."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.broker.pika_connection import _call
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
)
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
}


@pytest.mark.parametrize(("change", "operations"), CASES.values(), ids=CASES)
def test_a_change_as_operations(change: PlannedChange, operations: tuple[Operation, ...]) -> None:
    assert operations_of(change, allow_loss=False) == operations


def test_what_may_be_lost_is_deleted_without_conditions() -> None:
    (operation,) = operations_of(PlannedChange("delete", CLASSIC, None), allow_loss=True)
    assert operation == Operation("delete", CLASSIC)


@pytest.mark.parametrize(("change", "_"), CASES.values(), ids=CASES)
def test_creations_and_binds_may_be_done_again(change: PlannedChange, _: object) -> None:
    assert is_repeatable(change) is (change.action in {"create", "bind"})


def test_a_policy_does_not_go_over_a_channel() -> None:
    assert not is_repeatable(PlannedChange("create", None, POLICY))


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
    ("operation", "refusal", "kind", "words"),
    [
        (Q, (403, "ACCESS_REFUSED - access to queue 'q1' refused"), AccessRefusedError, "q1"),
        (
            Q,
            (405, "RESOURCE_LOCKED - exclusive queue 'q1'"),
            BrokerRefusedError,
            "RESOURCE_LOCKED",
        ),
        (
            Operation("bind", TO_Q2),
            (404, "NOT_FOUND - no queue 'q2'"),
            NotFoundError,
            "no queue 'q2'",
        ),
        (X, (320, "CONNECTION_FORCED - bye"), ConnectionLostError, "bye"),
        (
            X,
            (406, "PRECONDITION_FAILED - unknown exchange type 'x-modulus-hash'"),
            BrokerRefusedError,
            "rabbitmq-plugins enable rabbitmq_sharding on",
        ),
        (
            X,
            (503, "COMMAND_INVALID - unknown exchange type 'x-random'"),
            BrokerRefusedError,
            "rabbitmq-plugins enable rabbitmq_random_exchange on",
        ),
    ],
)
def test_refusals_become_errors(
    operation: Operation, refusal: tuple[int, str], kind: type[RabbitChxError], words: str
) -> None:
    error = make_refusal(WHERE, operation, *refusal)

    assert type(error) is kind
    assert words in str(error)
    assert WHERE in str(error)
    assert error.reply_code == refusal[0]


@pytest.mark.parametrize("name", ["", "a\nb", "a\r", "é" * 128, "\ud800"])
def test_names_that_would_not_arrive_as_they_are(name: str) -> None:
    with pytest.raises(InputError):
        check_declared_name(name, "queue")


@pytest.mark.parametrize("name", ["a", "-", " ", "é" * 127, "amq.x", "\0"])
def test_names_that_arrive(name: str) -> None:
    check_declared_name(name, "queue")


NEEDS: dict[Operation, str] = {
    X: "configure on exchange x",
    Q: "configure on queue q",
    Operation("bind", TO_Q2): "write on queue q2 and read on exchange x",
    Operation("unbind", TO_Q2): "write on queue q2 and read on exchange x",
    Operation("bind", TO_D): "write on exchange d and read on exchange x",
    Operation("unbind", TO_D): "write on exchange d and read on exchange x",
    Operation("delete", Q.subject): "configure on queue q",
    Operation("delete", X.subject): "configure on exchange x",
}


@pytest.mark.parametrize("operation", NEEDS)
def test_a_permission_that_lacks_is_named(operation: Operation) -> None:
    """RabbitMQ 3.10 names the object only."""
    error = make_refusal(
        WHERE,
        operation,
        403,
        "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'",
    )
    assert type(error) is AccessRefusedError
    assert str(error).endswith(f"rabbitmqctl set_permissions; for this the user needs {NEEDS[operation]}")
    assert error.reply_code == 403


def test_what_the_arguments_of_a_declaration_need() -> None:
    refusal = (403, "ACCESS_REFUSED")
    exchange = Operation("declare", ExchangeDefinition("x", arguments={"alternate-exchange": "other"}))
    queue = Operation("declare", QueueDefinition("q", arguments={"x-dead-letter-exchange": "other"}))
    assert str(make_refusal(WHERE, exchange, *refusal)).endswith(
        "configure on exchange x, read on it, and write on exchange other"
    )
    assert str(make_refusal(WHERE, queue, *refusal)).endswith(
        "configure on queue q, read on it, and write on exchange other"
    )


CODES: list[tuple[int, str, type[RabbitChxError]]] = [
    (404, "NOT_FOUND - no exchange 'x' in vhost '/'", NotFoundError),
    (405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue", BrokerRefusedError),
    (406, "PRECONDITION_FAILED - inequivalent arg 'durable'", MismatchError),
    (530, "NOT_ALLOWED - vhost / is down", BrokerRefusedError),
    (540, "NOT_IMPLEMENTED - cannot delete queue", BrokerRefusedError),
    (541, "INTERNAL_ERROR", BrokerRefusedError),
    (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", ConnectionLostError),
]


@pytest.mark.parametrize(("code", "text", "kind"), CODES)
@pytest.mark.parametrize("operation", NEEDS)
def test_the_code_decides_the_error(
    operation: Operation, code: int, text: str, kind: type[RabbitChxError]
) -> None:
    error = make_refusal(WHERE, operation, code, text)
    assert type(error) is kind
    assert error.reply_code == code
    assert str(error).startswith(f"{WHERE}: the broker answered {code} {text}: ")
