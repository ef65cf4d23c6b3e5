"""What is missing is found first, and nothing is made if something differs: without a broker."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from model_broker import ModelBroker
from model_client import ModelClient

from rabbit_chx import ExchangeRef, HashRing, Release
from rabbit_chx.errors import ApplyError, InputError, MismatchError, NotFoundError, PlanOutdatedError
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition, RingMember, Topology
from rabbit_chx.topology.live import declaring
from rabbit_chx.topology.live.declaring import Declared, declare_exchange, make_wanted_ring
from rabbit_chx.topology.live.live_broker import Operation, QueueCounts, make_refusal
from rabbit_chx.topology.live.reading import LiveExchange

NEWEST = Release("4.3.6")
EXCHANGE = ExchangeDefinition("x", "x-consistent-hash")
X = Operation("declare", EXCHANGE)
Q2, Q1 = (Operation("declare", QueueDefinition(name)) for name in ("q2", "q1"))
BINDS = [Operation("bind", BindingDefinition("x", *bound)) for bound in (("q2", "1"), ("q1", "2"))]
TO_QUEUES = (("q2", 1), ("q1", 2))
WANTED = make_wanted_ring(TO_QUEUES, NEWEST)


class Script(ModelClient):
    """A broker by AMQP alone, on which some objects exist, and others differ. A name is what was looked at passively."""

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
    assert script.declare(*TO_QUEUES) == ["x", "q2", "q1", X, Q2, Q1, *BINDS]
    assert script.declared == Declared((EXCHANGE.ref, "q2", "q1"), (("q2", "1"), ("q1", "2")), WANTED)


def test_what_exists_is_compared_where_it_is_found() -> None:
    assert Script("x", "q1", "q2").declare(*TO_QUEUES) == ["x", X, "q2", Q2, "q1", Q1, *BINDS]


def test_nothing_is_created_if_something_else_differs() -> None:
    script = Script("q1", differs=Q1)
    with pytest.raises(MismatchError, match="x-max-length") as caught:
        script.declare(*TO_QUEUES)
    assert caught.value.queue == "q1"
    assert script.done == ["x", "q2", "q1", Q1]


def test_destination_exchanges_are_looked_at_once_and_never_created() -> None:
    slot = ExchangeRef("slot")
    bound = Operation("bind", BindingDefinition("x", slot, "1"))
    assert Script("x", "slot").declare((slot, 1)) == ["x", X, "slot", bound]
    with pytest.raises(NotFoundError) as caught:
        Script("x").declare((slot, 1))
    assert caught.value.exchange == "slot"


@pytest.mark.parametrize(
    ("listed", "buckets", "refused_"),
    [(["q2"], ["q2"], False), (["q2", "q1"], ["q2"], True), ([], ["q2"], True)],
)
def test_bindings_without_buckets_are_refused(
    monkeypatch: pytest.MonkeyPatch, listed: list[str], buckets: list[str], *, refused_: bool
) -> None:
    weights = dict(TO_QUEUES)
    ring = HashRing.from_buckets([name for name in buckets for _ in range(weights[name])], NEWEST)
    live = SimpleNamespace(
        check_type=lambda: None,
        hash_arguments={},
        bindings=[(name, str(weights[name])) for name in listed],
        ring=ring,
    )
    monkeypatch.setattr(LiveExchange, "of", lambda *_: live)
    broker: Any = SimpleNamespace(has_management=True, has_source=True, where="here", vhost="/")
    with pytest.raises(MismatchError, match="bindings without buckets") if refused_ else nullcontext():
        to_bind, _ = declaring._compare_existing(EXCHANGE, WANTED, broker, allow_existing=False)
        assert to_bind == (("q1", "2"),)


def test_a_delivery_limit_that_loses_messages_is_refused_before_4_0() -> None:
    limit = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    for version in ("3.13.7", "4.0.0"):
        is_refused = version < "4"
        script = Script()
        with pytest.raises(InputError, match="without it") if is_refused else nullcontext():
            declare_exchange(EXCHANGE, [("q1", 1)], script, Release(version), queue_arguments=limit)
        assert bool(script.done) is not is_refused


def test_a_ring_with_buckets_of_a_queue_that_is_deleted_is_refused() -> None:
    ring = HashRing.from_buckets(["gone", "q"], NEWEST)
    declaring._refuse_buckets_without_queue("x", ring, [QueueDefinition("new")])
    with pytest.raises(MismatchError, match="queue 'gone' does not exist, and has buckets of exchange 'x'"):
        declaring._refuse_buckets_without_queue("x", ring, [QueueDefinition("gone")])


def test_a_ring_that_is_read_again_is_compared_with_the_wanted_one() -> None:
    script = Script("x")
    script._model.create(EXCHANGE)
    script.has_source = True
    empty = make_wanted_ring((), NEWEST)
    assert declaring._read_again("x", empty, script) == empty
    with pytest.raises(MismatchError, match="bindings were added to exchange 'x'"):
        declaring._read_again("x", WANTED, script)


def holding(*ring: RingMember) -> ModelBroker:
    """Return a broker with both queues and the exchange with this ring."""
    queues = QueueDefinition("q2"), QueueDefinition("q1")
    return ModelBroker.holding(Topology((replace(EXCHANGE, ring=ring),), queues), NEWEST)


def test_a_binding_that_exists_keeps_its_arguments() -> None:
    model = holding(RingMember("q2", "1", {"a": 1}))
    declaring._apply_recorded(EXCHANGE, [], WANTED, ModelClient(model))
    assert [*model.bindings] == [
        BindingDefinition("x", "q2", "1", {"a": 1}),
        BindingDefinition("x", "q1", "2"),
    ]


def test_what_another_program_has_declared_meanwhile_is_not_ours() -> None:
    model = holding(RingMember("q2", "1"), RingMember("q1", "2"))
    with pytest.raises(PlanOutdatedError, match="another program has declared exchange 'x' meanwhile"):
        declaring._apply_recorded(EXCHANGE, [], WANTED, ModelClient(model))


@pytest.mark.parametrize(
    ("cause", "kind"), [(NotFoundError("no such queue"), NotFoundError), (OSError(), ApplyError)]
)
def test_a_refusal_in_the_middle_is_the_error_of_what_was_refused(
    monkeypatch: pytest.MonkeyPatch, cause: Exception, kind: type[Exception]
) -> None:
    def apply_plan(*_: object) -> None:
        raise ApplyError("applied in part", None) from cause

    monkeypatch.setattr(declaring, "apply_plan", apply_plan)
    model = ModelClient(ModelBroker(NEWEST))
    with pytest.raises(kind):
        declaring._apply_recorded(EXCHANGE, [], make_wanted_ring((), NEWEST), model)
