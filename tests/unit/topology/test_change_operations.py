"""Each kind of change as operations."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PlannedChange,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.operations import (
    ApiRequest,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
    is_repeatable,
    steps_of,
)

EXCHANGE = ExchangeDefinition(
    "x", "topic", auto_delete=True, internal=True, arguments={"n": [1, {"a": True}]}
)
CLASSIC = QueueDefinition("q", durable=False, auto_delete=True, arguments={"x-max-length": 5})
QUORUM = QueueDefinition("q", "quorum")
TO_QUEUE = BindingDefinition("x", "q", "k", {"x-match": "all"})
TO_EXCHANGE = BindingDefinition("x", ExchangeRef("y"), "#")
POLICY = PolicyDefinition("p", "^q", "queues", {"max-length": 5}, 3)
X = ExchangeDeclare("x", "topic", True, {"n": [1, {"a": True}]}, auto_delete=True, internal=True)

CASES: dict[str, tuple[PlannedChange, tuple[Any, ...]]] = {
    "an exchange": (PlannedChange("create", None, EXCHANGE), (X,)),
    "a queue": (
        PlannedChange("create", None, CLASSIC),
        (QueueDeclare("q", False, {"x-max-length": 5, "x-queue-type": "classic"}, auto_delete=True),),
    ),
    "an exclusive queue": (
        PlannedChange("create", None, QueueDefinition("q", exclusive=True)),
        (QueueDeclare("q", True, {"x-queue-type": "classic"}, exclusive=True),),
    ),
    "a deleted exchange": (PlannedChange("delete", EXCHANGE, None), (ExchangeDelete("x", if_unused=True),)),
    "a deleted queue": (
        PlannedChange("delete", CLASSIC, None),
        (QueueDelete("q", if_unused=True, if_empty=True),),
    ),
    "a deleted quorum queue": (PlannedChange("delete", QUORUM, None), (QueueDelete("q"),)),
    "a replaced queue": (
        PlannedChange("replace", CLASSIC, QUORUM),
        (
            QueueDelete("q", if_unused=True, if_empty=True),
            QueueDeclare("q", True, {"x-queue-type": "quorum"}),
        ),
    ),
    "a binding": (
        PlannedChange("bind", None, TO_QUEUE),
        (QueueBind("q", "x", "k", {"x-match": "all"}),),
    ),
    "a binding of an exchange": (
        PlannedChange("bind", None, TO_EXCHANGE),
        (ExchangeBind("y", "x", "#", {}),),
    ),
    "an unbound queue": (
        PlannedChange("unbind", TO_QUEUE, None),
        (QueueUnbind("q", "x", "k", {"x-match": "all"}),),
    ),
    "an unbound exchange": (PlannedChange("unbind", TO_EXCHANGE, None), (ExchangeUnbind("y", "x", "#", {}),)),
    "a policy": (
        PlannedChange("update", PolicyDefinition("p", "^q"), POLICY),
        (
            ApiRequest(
                "PUT",
                ("policies", "shop", "p"),
                body={"pattern": "^q", "apply-to": "queues", "definition": {"max-length": 5}, "priority": 3},
            ),
        ),
    ),
    "a deleted policy": (
        PlannedChange("delete", POLICY, None),
        (ApiRequest("DELETE", ("policies", "shop", "p")),),
    ),
}


@pytest.mark.parametrize(("change", "steps"), CASES.values(), ids=CASES)
def test_a_change_as_operations(change: PlannedChange, steps: tuple[Any, ...]) -> None:
    assert steps_of(change, "shop", allow_loss=False) == steps


def test_what_may_be_lost_is_deleted_without_conditions() -> None:
    (step,) = steps_of(PlannedChange("delete", CLASSIC, None), "shop", allow_loss=True)
    assert step == QueueDelete("q")


@pytest.mark.parametrize(("change", "_"), CASES.values(), ids=CASES)
def test_creations_and_binds_may_be_done_again(change: PlannedChange, _: object) -> None:
    assert is_repeatable(change) is (change.action in {"create", "bind"})


def test_a_policy_does_not_go_over_a_channel() -> None:
    assert not is_repeatable(PlannedChange("create", None, POLICY))
