"""One exchange of a live broker: its answers, and the requests that each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import starmap
from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx.broker import live_exchange
from rabbit_chx.broker.live_exchange import LiveExchange, read_ring
from rabbit_chx.errors import InputError, MismatchError, NotDeterminedError, NotFoundError
from rabbit_chx.records.ring_records import RecordedStart, make_record, record_arguments, record_name
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, Release
from rabbit_chx.topology.objects import RingMember
from rabbit_chx.topology.plugin_objects import Shard, shard_names

RELEASE = Release("4.3.6")
ORDERS = {
    "name": "orders",
    "type": "x-consistent-hash",
    "arguments": {"hash-header": "tenant", "x": 1},
    "policy": "park",
    "message_stats": {"publish_in_details": {"rate": 5}},
}
SLOT = {"name": "slot", "type": "fanout", "internal": True, "arguments": {}}


def bound(source: str, destination: str, kind: str = "queue", key: str = "1") -> dict[str, Any]:
    return {"source": source, "destination": destination, "destination_type": kind, "routing_key": key}


class Api:
    """A management API with fixed answers, which records the paths of requests."""

    def __init__(self, exchange: dict[str, Any], *bindings: dict[str, Any]) -> None:
        self.requests: list[str] = []
        self.own: list[dict[str, Any]] = []  # the exchanges of this program
        name = exchange["name"]
        self._answers = {
            f"exchanges v {name}": exchange,
            f"exchanges v {name} bindings source": [entry for entry in bindings if entry["source"] == name],
            f"exchanges v {name} bindings destination": [],
            "exchanges v": [exchange, SLOT],
            "overview": {},
            "nodes": [],
            "policies v": [],
            "operator-policies v": [],
            "bindings v": [*bindings],
            "policies v park": {"definition": {"alternate-exchange": "parking"}},
            "queues v": [{"name": "q1", "message_stats": {"publish_details": {"rate": 2}}}, {"name": "q2"}],
        }

    def get(self, *path: str, query: Mapping[str, str] | None = None, **_: object) -> Any:
        self.requests.append(" ".join(path))
        if "page" in (query or {}):
            return {"items": self.own}
        try:
            return self._answers[self.requests[-1]]
        except KeyError:
            raise NotFoundError("404", reply_code=404) from None

    get_list = get


def live(api: Any, name: str = "orders", read_rings: Any = None) -> LiveExchange:
    ways: Any = SimpleNamespace(api=api, vhost="v", has_source=read_rings is not None, file_records={})
    ways.read_rings = read_rings
    ways.overview = dict
    return LiveExchange(ways, name, RELEASE)


def test_an_exchange_of_queues_takes_a_request_for_each_part() -> None:
    api = Api(ORDERS, bound("orders", "q1"), bound("orders", "q2", key="2"))
    exchange = live(api)
    for _ in range(2):
        assert exchange.ring == HashRing.from_bindings([("q1", 1), ("q2", 2)], RELEASE)
        assert (exchange.ring.provenance, exchange.slots.queues) == (None, {})
        assert exchange.hash_arguments == {"hash-header": "tenant"}
        mirror = exchange.mirror()
        assert isinstance(mirror, ConsistentHashExchange)
        assert mirror.hashed_on.name == b"tenant"
    assert api.requests == ["exchanges v orders", "exchanges v", "exchanges v orders bindings source"]
    assert exchange.alternate == "parking"
    assert api.requests[3:] == ["policies v park"]
    rates = exchange.publish_rates()
    assert (rates.exchange, rates.queues) == (5.0, {"q1": 2.0})


def test_slots_take_the_lists_of_exchanges_and_bindings() -> None:
    api = Api(ORDERS, bound("orders", "slot", "exchange"), bound("slot", "q1", key=""))
    assert live(api).slots.owners == {ExchangeRef("slot"): "q1"}
    assert api.requests[3:] == ["exchanges v", "bindings v"]


def test_bindings_that_no_client_can_name_matter_only_to_their_exchange() -> None:
    odd = {**bound("x", "q1"), "routing_key": None}
    slotted = bound("orders", "slot", "exchange"), bound("slot", "q1", key="")
    assert live(Api(ORDERS, *slotted, odd)).slots.owners == {ExchangeRef("slot"): "q1"}
    with pytest.raises(
        NotDeterminedError, match=r"'orders' has bindings that no client can name.* 'orders' to 'q1'"
    ):
        _ = live(Api(ORDERS, {**odd, "source": "orders"})).ring


def test_a_ring_source_needs_no_bindings() -> None:
    api, ring = Api(ORDERS), HashRing.from_buckets(["q1"], RELEASE)
    assert live(api, read_rings=lambda names, _: dict.fromkeys(names, ring)).ring is ring
    assert api.requests == ["exchanges v orders"]
    with pytest.raises(MismatchError, match="or the ring source asks another broker"):
        _ = live(api, read_rings=lambda *_: {}).ring


def test_another_type_has_its_own_map_or_is_refused() -> None:
    modulus = live(Api({**ORDERS, "type": "x-modulus-hash"}, bound("orders", "q1")))
    assert modulus.key_map().destinations == ("q1",)
    direct = live(Api({**ORDERS, "type": "direct"}))
    says = "'orders' in vhost 'v' is of type direct, which does not hash"
    for use in (direct.mirror, direct.key_map):
        with pytest.raises(MismatchError, match=says):
            use()
    with pytest.raises(MismatchError, match="is of type direct, not x-consistent-hash"):
        _ = direct.ring


def test_a_name_that_does_not_exist_or_is_not_valid() -> None:
    with pytest.raises(NotFoundError, match="there is no exchange 'other' in vhost 'v'"):
        live(Api(ORDERS), "other")
    with pytest.raises(InputError, match="line break"):
        live(Api(ORDERS), "a\nb")


def test_a_modulus_exchange_is_read_from_its_bindings_alone() -> None:
    api = Api(
        {"name": "bills", "type": "x-modulus-hash", "arguments": {}},
        bound("bills", "q2"),
        bound("bills", "q1"),
        {**bound("bills", "q2"), "arguments": {"x": 1}},
    )
    mirror = live(api, "bills").mirror()

    assert isinstance(mirror, ModulusHashExchange)
    assert (mirror.destinations, mirror.provenance) == (("q1", "q2", "q2"), "read")
    assert len(api.requests) == 2


def test_the_record_of_a_ring_is_read() -> None:
    api = Api(ORDERS)
    assert live(api).record is None
    ring = HashRing.from_bindings([("q2", 1), ("q1", 1)], RELEASE)
    recorded_start = RecordedStart("rabbit@one", "v", "a", "b")
    record = replace(
        make_record("orders", ring, starmap(RingMember, ring.bindings or ())), recorded_start=recorded_start
    )
    api.own = [{"name": record_name("orders"), "arguments": record_arguments(record)}]
    assert live(api).record == record


@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, False)], ids=str)
def test_a_ring_is_read_over_amqp_alone_only_by_a_source(
    monkeypatch: pytest.MonkeyPatch, sides: tuple[bool, bool]
) -> None:
    ring = HashRing.from_buckets(["q1"], RELEASE)
    monkeypatch.setattr(live_exchange, "LiveExchange", lambda *_: SimpleNamespace(ring=ring))
    broker: Any = SimpleNamespace(
        has_management=sides[0], has_source=sides[1], amqp=SimpleNamespace(count=None)
    )
    assert read_ring(broker, "orders", RELEASE) is ring


def test_shards_that_no_policy_makes_any_more_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    names = shard_names("images", ["rabbit@a"], 2)
    exchange = SimpleNamespace(name="images", vhost="v", type="x-modulus-hash", policy_definition={})
    exchange.bindings = [(names[1], "7"), ("other", "")]
    monkeypatch.setattr(live_exchange, "LiveExchange", lambda *_: exchange)
    monkeypatch.setattr(live_exchange, "read_nodes", lambda _: {})
    listed = {"items": [{"name": names[0], "type": "quorum"}], "page_count": 1}
    broker: Any = SimpleNamespace(api=SimpleNamespace(get=lambda *_, **__: listed))
    found = live_exchange.read_sharded_exchange(broker, "images", RELEASE, counts=False)
    assert found.shards == (
        Shard(names[0], "rabbit@a", 0, "quorum"),
        Shard(names[1], "rabbit@a", 1, None, ("7",)),
    )
