"""What is missing is found first, and nothing is made if something differs: without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from rabbit_chx.drive import drive
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.topology.operations import (
    ExchangeBind,
    ExchangeDeclare,
    Operation,
    QueueBind,
    QueueDeclare,
    Refusal,
)
from rabbit_chx.topology.steps import OperationSequence, look_at, performed

X = ExchangeDeclare("x")
Q2, Q1 = QueueDeclare("q2"), QueueDeclare("q1")
BINDS = (QueueBind("q2", "x", "1"), QueueBind("q1", "x", "2"))
ABSENT = Refusal(404, "NOT_FOUND - no such thing")
WHERE = "amqp://guest:***@host:5672/%2F"


def declared(
    where: str,
    exchange: ExchangeDeclare,
    queues: Sequence[QueueDeclare],
    bindings: Sequence[QueueBind | ExchangeBind],
) -> OperationSequence[None]:
    missing = yield from look_at(where, exchange, queues, bindings)
    yield from performed(where, (*missing, *bindings))


def play(steps: OperationSequence[None], answer: Callable[[Operation], Refusal | None]) -> list[Operation]:
    done: list[Operation] = []

    def do(operation: Operation) -> Refusal | None:
        done.append(operation)
        return answer(operation)

    drive(steps, do)
    return done


def passive(operation: ExchangeDeclare | QueueDeclare) -> Operation:
    return replace(operation, passive=True)


def test_on_an_empty_broker_all_is_looked_at_then_created_then_bound_in_order() -> None:
    def nothing_there(operation: Operation) -> Refusal | None:
        return ABSENT if getattr(operation, "passive", False) else None

    done = play(declared(WHERE, X, [Q2, Q1], BINDS), nothing_there)

    assert done == [passive(X), passive(Q2), passive(Q1), X, Q2, Q1, *BINDS]


def test_what_exists_is_compared_where_it_is_found() -> None:
    done = play(declared(WHERE, X, [Q2, Q1], BINDS), lambda _: None)

    assert done == [passive(X), X, passive(Q2), Q2, passive(Q1), Q1, *BINDS]


def test_nothing_is_created_if_something_else_differs() -> None:
    done: list[Operation] = []

    def last_queue_differs(operation: Operation) -> Refusal | None:
        done.append(operation)
        if operation == Q1:
            return Refusal(406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q1'")
        return ABSENT if operation in {passive(X), passive(Q2)} else None

    with pytest.raises(MismatchError, match="x-max-length") as caught:
        play(declared(WHERE, X, [Q2, Q1], BINDS), last_queue_differs)

    assert caught.value.queue == "q1"
    assert X not in done
    assert Q2 not in done


def test_destination_exchanges_are_looked_at_once_and_never_created() -> None:
    binds = (ExchangeBind("slot", "x", "1"), ExchangeBind("slot", "x", "2"))
    looked = ExchangeDeclare("slot", passive=True)

    assert play(declared(WHERE, X, [], binds), lambda _: None) == [passive(X), X, looked, *binds]
    with pytest.raises(NotFoundError) as caught:
        play(declared(WHERE, X, [], binds), lambda o: ABSENT if o == looked else None)
    assert caught.value.exchange == "slot"
