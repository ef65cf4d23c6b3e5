"""What is missing is found first, and nothing is made if something differs: without a broker."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from model_broker import ModelBroker
from model_client import ModelClient

from rabbit_chx import ExchangeRef, Release
from rabbit_chx.broker.declaring import Declared, declare_exchange, make_wanted_ring
from rabbit_chx.broker.live_broker import APPLY_LOCK, Operation, QueueCounts, make_refusal
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.records.ring_records import record_name
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition

NEWEST = Release("4.3.6")
EXCHANGE = ExchangeDefinition("x", "x-consistent-hash")
X = Operation("declare", EXCHANGE)
Q2, Q1 = (Operation("declare", QueueDefinition(name, "")) for name in ("q2", "q1"))
BINDS = [Operation("bind", BindingDefinition("x", *bound)) for bound in (("q2", "1"), ("q1", "2"))]
TO_QUEUES = (("q2", 1), ("q1", 2))
WANTED = make_wanted_ring(TO_QUEUES, NEWEST)
#: A record of the ring is looked for before the first change: it would not be that of the new ring.
RECORD = record_name("x")


class Script(ModelClient):
    """A broker by AMQP alone, on which some objects exist, and others differ. A name is what was looked at passively; the lock is left out."""

    has_management = False

    def __init__(self, *there: str, differs: Operation | None = None) -> None:
        super().__init__(ModelBroker(NEWEST), has_source=False)
        self._there, self._differs = there, differs
        self.done: list[Any] = []
        self.declared: Declared | None = None

    def declare(self, *bindings: Any) -> list[Any]:
        self.declared = declare_exchange(EXCHANGE, bindings, self, NEWEST, allow_existing=True)
        return self.done

    def perform(self, operation: Operation) -> None:
        if operation.subject.name == APPLY_LOCK:
            return
        if isinstance(operation.subject, ExchangeDefinition):
            operation = replace(operation, subject=replace(operation.subject, ring=None))
        self.done.append(operation)
        if operation == self._differs:
            text = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q1'"
            raise make_refusal(self.where, operation, 406, text)

    def check_exchange(self, exchange: str) -> None:
        self.done.append(exchange)
        if exchange not in self._there:
            raise NotFoundError("no such thing", exchange=exchange, reply_code=404)

    def count(self, queue: str) -> QueueCounts:
        assert queue in ("q1", "q2")
        self.check_exchange(queue)
        return QueueCounts(0, 0)


def test_on_an_empty_broker_all_is_looked_at_then_created_then_bound_in_order() -> None:
    script = Script()
    assert script.declare(*TO_QUEUES) == ["x", "q2", "q1", RECORD, X, Q1, Q2, *BINDS]
    assert script.declared == Declared((EXCHANGE.ref, "q2", "q1"), (("q2", "1"), ("q1", "2")), WANTED)


def test_what_exists_is_compared_where_it_is_found() -> None:
    assert Script("x", "q1", "q2").declare(*TO_QUEUES) == ["x", X, "q2", Q2, "q1", Q1, RECORD, *BINDS]


def test_nothing_is_created_if_something_else_differs() -> None:
    script = Script("q1", differs=Q1)
    with pytest.raises(MismatchError, match="x-max-length") as caught:
        script.declare(*TO_QUEUES)
    assert caught.value.queue == "q1"
    assert script.done == ["x", "q2", "q1", Q1]


def test_destination_exchanges_are_looked_at_once_and_never_created() -> None:
    slot = ExchangeRef("slot")
    bound = Operation("bind", BindingDefinition("x", slot, "1"))
    assert Script("x", "slot").declare((slot, 1)) == ["x", X, "slot", RECORD, bound]
    with pytest.raises(NotFoundError) as caught:
        Script("x").declare((slot, 1))
    assert caught.value.exchange == "slot"


def test_a_delivery_limit_that_loses_messages_is_refused_before_4_0() -> None:
    limit = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    for version in ("3.13.7", "4.0.0"):
        is_refused = version < "4"
        script = Script()
        with pytest.raises(InputError, match="without it") if is_refused else nullcontext():
            declare_exchange(EXCHANGE, [("q1", 1)], script, Release(version), queue_arguments=limit)
        assert bool(script.done) is not is_refused
