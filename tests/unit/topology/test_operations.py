"""The words of refusals, and names, without a broker."""

from __future__ import annotations

import pytest

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
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.operations import Operation, check_declared_name, refused

X = Operation("declare", ExchangeDefinition("x"))
Q = Operation("declare", QueueDefinition("q"))
TO_QUEUE = BindingDefinition("x", "q2", "1")
TO_EXCHANGE = BindingDefinition("x", ExchangeRef("d"), "1")
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
            Operation("bind", TO_QUEUE),
            (404, "NOT_FOUND - no queue 'q2'"),
            NotFoundError,
            "no queue 'q2'",
        ),
        (X, (320, "CONNECTION_FORCED - bye"), ConnectionLostError, "bye"),
        (
            X,
            (406, "PRECONDITION_FAILED - unknown exchange type"),
            BrokerRefusedError,
            "rabbitmq-plugins enable",
        ),
        (
            X,
            (503, "COMMAND_INVALID - unknown exchange type"),
            BrokerRefusedError,
            "rabbitmq-plugins enable",
        ),
    ],
)
def test_refusals_become_errors(
    operation: Operation, refusal: tuple[int, str], kind: type[RabbitChxError], words: str
) -> None:
    error = refused(WHERE, operation, *refusal)

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
    Operation("bind", TO_QUEUE): "write on queue q2 and read on exchange x",
    Operation("unbind", TO_QUEUE): "write on queue q2 and read on exchange x",
    Operation("bind", TO_EXCHANGE): "write on exchange d and read on exchange x",
    Operation("unbind", TO_EXCHANGE): "write on exchange d and read on exchange x",
    Operation("delete", Q.subject): "configure on queue q",
    Operation("delete", X.subject): "configure on exchange x",
}


@pytest.mark.parametrize("operation", NEEDS)
def test_a_permission_that_lacks_is_named(operation: Operation) -> None:
    """RabbitMQ 3.10 names the object only."""
    error = refused(
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
    assert str(refused(WHERE, exchange, *refusal)).endswith(
        "configure on exchange x, read on it, and write on exchange other"
    )
    assert str(refused(WHERE, queue, *refusal)).endswith(
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
    error = refused(WHERE, operation, code, text)
    assert type(error) is kind
    assert error.reply_code == code
    assert str(error).startswith(f"{WHERE}: the broker answered {code} {text}: ")
