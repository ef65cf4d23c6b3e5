"""The order of operations and the words of refusals, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rabbit_chx.broker.operations import (
    ExchangeBind,
    ExchangeDeclare,
    Operation,
    QueueBind,
    QueueDeclare,
    Refusal,
    check_declared_name,
    declare_ring,
    refused,
)
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rabbit_chx.broker.operations import OperationSequence

X = ExchangeDeclare("x")
Q2, Q1 = QueueDeclare("q2"), QueueDeclare("q1")
BINDS = (QueueBind("q2", "x", "1"), QueueBind("q1", "x", "2"))
ABSENT = Refusal(404, "NOT_FOUND - no such thing")
WHERE = "amqp://guest:***@host:5672/%2F"


def play(steps: OperationSequence[None], answer: Callable[[Operation], Refusal | None]) -> list[Operation]:
    done: list[Operation] = []
    refusal: Refusal | None = None
    try:
        while True:
            done.append(steps.send(refusal))
            refusal = answer(done[-1])
    except StopIteration:
        return done


def passive(operation: ExchangeDeclare | QueueDeclare) -> Operation:
    return replace(operation, passive=True)


def test_on_an_empty_broker_all_is_looked_at_then_created_then_bound_in_order() -> None:
    def nothing_there(operation: Operation) -> Refusal | None:
        return ABSENT if getattr(operation, "passive", False) else None

    done = play(declare_ring(WHERE, X, [Q2, Q1], BINDS), nothing_there)

    assert done == [passive(X), passive(Q2), passive(Q1), X, Q2, Q1, *BINDS]


def test_what_exists_is_compared_where_it_is_found() -> None:
    done = play(declare_ring(WHERE, X, [Q2, Q1], BINDS), lambda _: None)

    assert done == [passive(X), X, passive(Q2), Q2, passive(Q1), Q1, *BINDS]


def test_nothing_is_created_if_something_else_differs() -> None:
    done: list[Operation] = []

    def last_queue_differs(operation: Operation) -> Refusal | None:
        done.append(operation)
        if operation == Q1:
            return Refusal(406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q1'")
        return ABSENT if operation in {passive(X), passive(Q2)} else None

    with pytest.raises(MismatchError, match="x-max-length") as caught:
        play(declare_ring(WHERE, X, [Q2, Q1], BINDS), last_queue_differs)

    assert caught.value.queue == "q1"
    assert X not in done
    assert Q2 not in done


def test_destination_exchanges_are_looked_at_once_and_never_created() -> None:
    binds = (ExchangeBind("slot", "x", "1"), ExchangeBind("slot", "x", "2"))
    looked = ExchangeDeclare("slot", passive=True)

    assert play(declare_ring(WHERE, X, [], binds), lambda _: None) == [passive(X), X, looked, *binds]
    with pytest.raises(NotFoundError) as caught:
        play(declare_ring(WHERE, X, [], binds), lambda o: ABSENT if o == looked else None)
    assert caught.value.exchange == "slot"


@pytest.mark.parametrize(
    ("operation", "refusal", "kind", "words"),
    [
        (
            passive(Q1),
            Refusal(403, "ACCESS_REFUSED - access to queue 'q1' refused"),
            AccessRefusedError,
            "q1",
        ),
        (
            passive(Q1),
            Refusal(405, "RESOURCE_LOCKED - exclusive queue 'q1'"),
            BrokerRefusedError,
            "RESOURCE_LOCKED",
        ),
        (BINDS[0], Refusal(404, "NOT_FOUND - no queue 'q2'"), NotFoundError, "no queue 'q2'"),
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
