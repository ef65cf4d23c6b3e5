"""Each kind of change as operations, and each operation as a call of pika."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.broker.pika_connection import _call
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PlannedChange,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.operations import Operation, is_repeatable, operations_of

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
