"""The words of refusals, and names, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    NotFoundError,
    RabbitChxError,
)
from rabbit_chx.topology.sequences.operations import (
    ExchangeDeclare,
    Operation,
    QueueBind,
    QueueDeclare,
    Refusal,
    check_declared_name,
    refused,
)

X = ExchangeDeclare("x")
Q1 = QueueDeclare("q1")
WHERE = "amqp://guest:***@host:5672/%2F"


@pytest.mark.parametrize(
    ("operation", "refusal", "kind", "words"),
    [
        (
            replace(Q1, passive=True),
            Refusal(403, "ACCESS_REFUSED - access to queue 'q1' refused"),
            AccessRefusedError,
            "q1",
        ),
        (
            replace(Q1, passive=True),
            Refusal(405, "RESOURCE_LOCKED - exclusive queue 'q1'"),
            BrokerRefusedError,
            "RESOURCE_LOCKED",
        ),
        (
            QueueBind("q2", "x", "1"),
            Refusal(404, "NOT_FOUND - no queue 'q2'"),
            NotFoundError,
            "no queue 'q2'",
        ),
        (X, Refusal(320, "CONNECTION_FORCED - bye"), ConnectionLostError, "bye"),
        (
            X,
            Refusal(406, "PRECONDITION_FAILED - unknown exchange type"),
            BrokerRefusedError,
            "rabbitmq-plugins enable",
        ),
        (
            X,
            Refusal(503, "COMMAND_INVALID - unknown exchange type"),
            BrokerRefusedError,
            "rabbitmq-plugins enable",
        ),
    ],
)
def test_refusals_become_errors(
    operation: Operation, refusal: Refusal, kind: type[RabbitChxError], words: str
) -> None:
    error = refused(WHERE, operation, refusal)

    assert type(error) is kind
    assert words in str(error)
    assert WHERE in str(error)
    assert error.reply_code == refusal.reply_code


@pytest.mark.parametrize("name", ["", "a\nb", "a\r", "é" * 128, "\ud800"])
def test_names_that_would_not_arrive_as_they_are(name: str) -> None:
    with pytest.raises(InputError):
        check_declared_name(name, "queue")


@pytest.mark.parametrize("name", ["a", "-", " ", "é" * 127, "amq.x", "\0"])
def test_names_that_arrive(name: str) -> None:
    check_declared_name(name, "queue")
