"""What is declared is planned: what is left to bind of a ring that is wanted, and what is refused, by a model of a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from model_broker import ModelBroker
from model_client import ModelClient

from rabbit_chx.broker import declaring
from rabbit_chx.broker.declaring import Declared, declare_exchange, make_wanted_ring
from rabbit_chx.errors import ApplyError, BrokerRefusedError, InputError, MismatchError, NotFoundError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, OrderKnowledge, Release
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition, RingMember, Topology
from rabbit_chx.topology.objects import MARK

OLD, NEW = Release("3.10.5"), Release("4.3.6")
WANTED: list[tuple[Destination, int]] = [("a", 1), ("b", 2), (ExchangeRef("c"), 1)]
BINDINGS = (("a", "1"), ("b", "2"), (ExchangeRef("c"), "1"))
X = ExchangeDefinition("x", "x-consistent-hash")
#: What may be known of the broker: the ring and the bindings, the ring alone, the bindings alone.
SIGHTS = ("both", "source", "management")


def holding(*ring: RingMember, buckets: list[Any] | None = None) -> ModelBroker:
    """Return a broker with the destinations and the exchange with this ring. `buckets`: those that it has instead of those of the bindings."""
    queues = [QueueDefinition(name) for name in "abcd"]
    exchanges = [ExchangeDefinition("c", "fanout"), replace(X, ring=ring)]
    model = ModelBroker.holding(Topology((*exchanges,), (*queues,)), NEW)
    if buckets is not None:
        bindings = model.rings["x"].bindings
        model.rings["x"] = HashRing(tuple(buckets), NEW, OrderKnowledge("replayed"), bindings)
    return model


def declare(model: ModelBroker, sees: str, bindings: Any = WANTED, **how: Any) -> Declared:
    client = ModelClient(model, has_source=sees != "management")
    client.has_management = sees != "source"
    client.check_exchange = client_check(model)  # type: ignore[method-assign]
    return declare_exchange(X, bindings, client, NEW, **how)


def client_check(model: ModelBroker) -> Any:
    def check_exchange(exchange: str) -> None:
        if exchange not in model.exchanges:
            raise NotFoundError("no such exchange", exchange=exchange, reply_code=404)

    return check_exchange


@pytest.mark.parametrize("sees", SIGHTS)
@pytest.mark.parametrize("size", range(4))
def test_a_ring_that_begins_so_gets_the_rest(size: int, sees: str) -> None:
    model = holding(*(RingMember(*binding) for binding in BINDINGS[:size]))
    done = declare(model, sees)
    assert (done.created, done.bound) == ((), BINDINGS[size:])
    assert model.rings["x"].buckets == ("a", "b", "b", ExchangeRef("c"))
    assert done.ring == (model.rings["x"] if done.ring.is_determined else HashRing.unordered(BINDINGS, NEW))
    assert declare(model, sees).bound == ()


@pytest.mark.parametrize("sees", SIGHTS)
@pytest.mark.parametrize(
    "live",
    [
        [("b", "2")],
        [("a", "2")],
        [("a", "1"), (ExchangeRef("c"), "1")],
        [*BINDINGS, ("d", "1")],
        [("a", "1"), ("b", "2"), ("c", "1")],
    ],
    ids=["order", "weight", "gap", "more", "kind"],
)
def test_another_ring_is_refused_with_both_named(live: list[tuple[Destination, str]], sees: str) -> None:
    model = holding(*(RingMember(*binding) for binding in live))
    before = dict(model.bindings)
    with pytest.raises(MismatchError) as caught:
        declare(model, sees)
    said = str(caught.value)
    assert "exchange 'x' has the ring <HashRing " in said
    assert (
        "4.3.6 (khepri), 4 buckets: a x1, b x2, exchange c x1> takes another change than new bindings ("
        in said
    )
    assert caught.value.exchange == "x"
    assert model.bindings == before


@pytest.mark.parametrize("sees", ["both", "source"])
@pytest.mark.parametrize(
    ("members", "buckets"),
    [
        ("ab", ["b", "b", "a"]),
        ("ab", ["a", None, "b", "b"]),
        ("ab", ["a", "b"]),
        ("a", ["a", "b", "b"]),
    ],
    ids=["order", "hole", "less", "more"],
)
def test_buckets_that_are_not_those_of_the_bindings_are_refused(
    members: str, buckets: list[Any], sees: str
) -> None:
    by_name = {str(place): RingMember(place, key) for place, key in BINDINGS}
    model = holding(*(by_name[name] for name in members), buckets=buckets)
    if sees == "both" or buckets != [
        "a",
        "b",
        "b",
    ]:  # the source alone does not show that a binding is missing
        with pytest.raises(MismatchError, match="exchange 'x' has the ring"):
            declare(model, sees)


def test_a_binding_without_buckets_is_refused_where_bindings_are_listed() -> None:
    model = holding(RingMember("a"), RingMember("b", "2"), buckets=["a"])
    with pytest.raises(MismatchError, match="exchange 'x' has the ring"):
        declare(model, "both")


@pytest.mark.parametrize("sees", ["both", "source"])
def test_a_ring_with_buckets_of_a_queue_that_is_deleted_is_refused(sees: str) -> None:
    model = holding(RingMember("a"), RingMember("b", "2"))
    model.lose("a")
    client = Deleting(model, sees)
    with pytest.raises(
        MismatchError, match=r"exchange 'x' has the ring .* a x1, b x2>, and .* takes another change"
    ):
        declare_exchange(X, WANTED[:2], client, NEW)


class Deleting(ModelClient):
    """A client that finds no queue that was deleted."""

    def __init__(self, model: ModelBroker, sees: str) -> None:
        super().__init__(model, has_source=True)
        self.has_management = sees == "both"

    def count(self, queue: str) -> Any:
        if queue not in (*self._model.queues, MARK):
            raise NotFoundError("no such queue", queue=queue, reply_code=404)
        return super().count(queue)


def test_what_has_other_properties_is_named() -> None:
    model = holding(RingMember("a"), RingMember("d"))
    model.queues["b"] = QueueDefinition("b", arguments={"x-max-length": 5})
    with pytest.raises(
        MismatchError, match=r"queue b cannot be changed in place .*x-max-length 5 -> unset"
    ) as caught:
        declare(model, "both")
    assert (caught.value.exchange, caught.value.queue) == (None, "b")
    model.exchanges["x"] = replace(X, arguments={"hash-header": "k"})
    with pytest.raises(
        MismatchError, match=r"exchange x cannot be changed in place .*hash-header 'k' -> unset"
    ) as caught:
        declare(model, "both")
    assert (caught.value.exchange, caught.value.queue) == ("x", None)


def test_an_exchange_with_a_binding_that_no_client_can_make_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = ModelClient._listed

    def with_odd(client: ModelClient, kind: str, *path: str) -> Any:
        odd = {
            "source": "x",
            "destination": "",
            "destination_type": "queue",
            "routing_key": "1",
            "arguments": {},
        }
        found = listed(client, kind, *path)
        return [*found, odd] if kind == "bindings" else found

    monkeypatch.setattr(ModelClient, "_listed", with_odd)
    with pytest.raises(MismatchError, match="'x' has a binding that no client can make"):
        declare(holding(), "management")


def test_a_binding_that_exists_keeps_its_arguments() -> None:
    model = holding(RingMember("a", "1", {"k": 1}))
    declare(model, "both", WANTED[:2])
    assert [*model.bindings] == [BindingDefinition("x", "a", "1", {"k": 1}), BindingDefinition("x", "b", "2")]


def test_a_ring_that_other_programs_change_meanwhile_is_an_error() -> None:
    model = holding(RingMember("a"))

    def change() -> None:
        if len(model.bindings) > 1:
            model.rings["x"] = HashRing.from_buckets(["d"], NEW)

    client = ModelClient(model, observe=change)
    client.has_management = False
    with pytest.raises(BrokerRefusedError, match="the ring of x is"):
        declare_exchange(X, WANTED[:2], client, NEW)


@pytest.mark.parametrize(
    ("cause", "kind"), [(NotFoundError("no such queue"), NotFoundError), (OSError(), ApplyError)]
)
def test_a_refusal_in_the_middle_is_the_error_of_what_was_refused(
    monkeypatch: pytest.MonkeyPatch, cause: Exception, kind: type[Exception]
) -> None:
    def apply_plan(*_: object) -> None:
        raise ApplyError("applied in part", None) from cause

    monkeypatch.setattr(declaring, "apply_plan", apply_plan)
    with pytest.raises(kind):
        declare(holding(), "both")


@pytest.mark.parametrize(
    ("default", "given", "made"),
    [
        ("quorum", None, {"x-queue-type": "quorum"}),
        ("quorum", "classic", {"x-queue-type": "classic"}),
        (None, None, {}),
        (None, "stream", {"x-queue-type": "stream"}),
    ],
)
def test_a_queue_without_a_type_gets_the_default_of_the_vhost(
    default: str | None, given: str | None, made: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ModelClient._listed

    def with_default(client: ModelClient, kind: str, *path: str) -> Any:
        return (
            {"name": "/", "default_queue_type": default} if kind == "vhosts" else listed(client, kind, *path)
        )

    monkeypatch.setattr(ModelClient, "_listed", with_default)
    arguments = {} if given is None else {"x-queue-type": given}
    model = ModelBroker(NEW)
    client = Deleting(model, "both" if default else "source")
    client.check_exchange = client_check(model)  # type: ignore[method-assign]
    for _ in range(2):
        declare_exchange(X, [("new", 1)], client, NEW, queue_arguments=arguments)
    assert dict(model.queues["new"].declared_arguments) == made


def test_a_destination_has_one_weight() -> None:
    assert make_wanted_ring([("a", 1), ("a", "1")], NEW).bindings == (("a", "1"),)
    for other in (2, "01"):
        with pytest.raises(InputError, match="'a' is bound twice, with the weights 1 and"):
            make_wanted_ring([("a", 1), ("b", 1), ("a", other)], OLD)
