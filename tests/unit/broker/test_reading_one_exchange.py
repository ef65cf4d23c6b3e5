"""One exchange of a live broker: its answers, and the requests that each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import starmap
from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx.broker import reading, sharding
from rabbit_chx.broker.live_broker import QueueCounts
from rabbit_chx.broker.live_routing import (
    alternate_of,
    dead_ends_of,
    find_live_exchange,
    key_map_of,
    mirror_of,
    ring_of,
    slots_of,
)
from rabbit_chx.broker.reading import find_exchange, read_ring, read_topology
from rabbit_chx.broker.usage import read_rates_of
from rabbit_chx.errors import (
    BrokerRefusedError,
    InputError,
    MismatchError,
    NotDeterminedError,
    NotFoundError,
)
from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.records.ring_records import RecordedStart, make_record, record_arguments, record_name
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, Release
from rabbit_chx.topology import LiveTopology
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
TYPES = ("x-consistent-hash", "x-modulus-hash", "direct")
PARK = {"definition": {"alternate-exchange": "parking"}}
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
            "overview": {"exchange_types": [{"name": type_} for type_ in TYPES]},
            "nodes": [],
            "policies v": [{"name": "park", "pattern": "[[:alpha:]]", **PARK}],
            "policies v park": PARK,
            "vhosts v": {"name": "v"},
            "operator-policies v": [],
            "bindings v": [*bindings],
            "queues v": [{"name": "q1", "message_stats": {"publish_details": {"rate": 2}}}, {"name": "q2"}],
        }

    def get(self, *path: str, query: Mapping[str, str] | None = None, **_: object) -> Any:
        self.requests.append(" ".join(path))
        if "page" in (query or {}) and path[0] == "exchanges":
            return {"items": self.own}
        try:
            return self._answers[self.requests[-1]]
        except KeyError:
            raise NotFoundError("404", reply_code=404) from None

    get_list = get

    def answer(self, path: str, answer: Any) -> None:
        """Answer a path otherwise."""
        self._answers[path] = answer


def broker_of(api: Any, read_rings: Any = None) -> Any:
    broker = SimpleNamespace(api=api, vhost="v", has_management=True, file_records={})
    broker.has_source = read_rings is not None
    broker.read_rings = read_rings
    broker.amqp = SimpleNamespace(count=lambda _: QueueCounts(2, 0))
    return broker


def live(api: Any, name: str = "orders", read_rings: Any = None, **how: Any) -> LiveTopology:
    return read_topology(broker_of(api, read_rings), only=name, release=RELEASE, **how)


ALONE = [
    "exchanges v orders",
    "overview",
    "exchanges v",  # the page with the record
    "exchanges v orders bindings source",
]


def test_the_ring_of_queues_takes_few_requests_and_no_list_of_the_vhost() -> None:
    api = Api(ORDERS, bound("orders", "q1"), bound("orders", "q2", key="2"))
    topology = live(api)
    ring = ring_of(topology, "orders")
    assert ring == HashRing.from_bindings([("q1", 1), ("q2", 2)], RELEASE)
    assert (ring.provenance, slots_of(topology, "orders").queues) == (None, {})
    mirror = mirror_of(topology, "orders")
    assert isinstance(mirror, ConsistentHashExchange)
    assert mirror.hashed_on.name == b"tenant"
    assert api.requests == ALONE
    broker = broker_of(api)
    rates = read_rates_of(broker.api, "v", find_exchange(broker, "orders"))
    assert (rates.exchange, rates.queues) == (5.0, {"q1": 2.0})


def test_advice_takes_the_policies_and_the_tag_of_the_user() -> None:
    api = Api(ORDERS, bound("orders", "q1"), bound("orders", "q2", key="2"))
    topology = live(api, detail="advice")
    policies = ["policies v", "operator-policies v"]
    assert api.requests == [*ALONE[:2], *policies, *ALONE[2:], "vhosts v"]
    assert evidence_of(topology).ways_to_learn.can_trace
    # The broker says which policy applies, whatever Python makes of its pattern.
    assert alternate_of(topology, find_live_exchange(topology, "orders")) == "parking"


def test_a_new_record_takes_the_mark() -> None:
    api, ring = Api(ORDERS, bound("orders", "q1")), HashRing.from_buckets(["q1"], RELEASE)
    topology = live(api, read_rings=lambda names, _: dict.fromkeys(names, ring), detail="record")
    assert topology.rings["orders"] is ring
    mark = "queues v rabbit-chx.mark"
    policies = ["policies v", "operator-policies v"]
    assert api.requests == [*ALONE[:2], *policies, "nodes", *ALONE[2:], "vhosts v", mark]


def test_slots_take_the_lists_of_exchanges_and_bindings() -> None:
    api = Api(ORDERS, bound("orders", "slot", "exchange"), bound("slot", "q1", key=""))
    topology = live(api)
    assert slots_of(topology, "orders").owners == {ExchangeRef("slot"): "q1"}
    assert dead_ends_of(topology, "orders") == {}
    assert api.requests == [*ALONE, "exchanges v", "bindings v"]


def test_bindings_that_no_client_can_name_matter_only_to_their_exchange() -> None:
    odd = {**bound("x", "q1"), "routing_key": None}
    slotted = bound("orders", "slot", "exchange"), bound("slot", "q1", key="")
    topology = live(Api(ORDERS, *slotted, odd))
    assert slots_of(topology, "orders").owners == {ExchangeRef("slot"): "q1"}
    with pytest.raises(
        NotDeterminedError, match=r"'orders' has bindings that no client can name.* 'orders' to 'q1'"
    ):
        live(Api(ORDERS, {**odd, "source": "orders"}))


def test_a_ring_source_needs_no_bindings() -> None:
    api, ring = Api(ORDERS), HashRing.from_buckets(["q1"], RELEASE)
    topology = live(api, read_rings=lambda names, _: dict.fromkeys(names, ring))
    assert ring_of(topology, "orders") is ring
    assert api.requests == ["exchanges v orders", "overview"]
    with pytest.raises(MismatchError, match="or the ring source asks another broker"):
        live(api, read_rings=lambda *_: {})


def test_without_the_plugin_no_ring_source_is_asked() -> None:
    api = Api(ORDERS)
    api.answer("overview", {"exchange_types": [{"name": "direct"}]})
    topology = live(api, read_rings=None)
    assert topology.rings["orders"].buckets == ()
    for read in (ring_of, mirror_of):
        with pytest.raises(BrokerRefusedError, match="whose plugin is not enabled"):
            read(live(api, read_rings=lambda *_: 1 / 0), "orders")


def test_another_type_has_its_own_map_or_is_refused() -> None:
    modulus = live(Api({**ORDERS, "type": "x-modulus-hash"}, bound("orders", "q1")))
    assert key_map_of(modulus, "orders").destinations == ("q1",)
    direct = live(Api({**ORDERS, "type": "direct"}))
    says = "'orders' in vhost 'v' is of type direct, which does not hash"
    for use in (mirror_of, key_map_of):
        with pytest.raises(MismatchError, match=says):
            use(direct, "orders")
    with pytest.raises(MismatchError, match="is of type direct, not x-consistent-hash"):
        ring_of(direct, "orders")


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
    mirror = mirror_of(live(api, "bills"), "bills")

    assert isinstance(mirror, ModulusHashExchange)
    assert (mirror.destinations, mirror.provenance) == (("q1", "q2", "q2"), "read")
    assert len(api.requests) == 3


def test_the_record_of_a_ring_is_read() -> None:
    api = Api(ORDERS)
    assert evidence_of(live(api)).records == {}
    ring = HashRing.from_bindings([("q2", 1), ("q1", 1)], RELEASE)
    recorded_start = RecordedStart("rabbit@one", "v", "a", "b")
    record = replace(
        make_record("orders", ring, starmap(RingMember, ring.bindings or ())), recorded_start=recorded_start
    )
    api.own = [{"name": record_name("orders"), "arguments": record_arguments(record)}]
    assert evidence_of(live(api)).records == {"orders": record}


@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, False)], ids=str)
def test_a_ring_is_read_over_amqp_alone_only_by_a_source(
    monkeypatch: pytest.MonkeyPatch, sides: tuple[bool, bool]
) -> None:
    ring = HashRing.from_buckets(["q1"], RELEASE)
    monkeypatch.setattr(reading, "read_topology", lambda *_, **__: None)
    monkeypatch.setattr(reading, "ring_of", lambda *_: ring)
    broker: Any = SimpleNamespace(has_management=sides[0], has_source=sides[1])
    assert read_ring(broker, "orders", RELEASE) is ring


def test_shards_that_no_policy_makes_any_more_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    names = shard_names("images", ["rabbit@a"], 2)
    api = Api(
        {"name": "images", "type": "x-modulus-hash"},
        bound("images", names[1], key="7"),
        bound("images", "other"),
    )
    api.answer("queues v", {"items": [{"name": names[0], "type": "quorum"}], "page_count": 1})
    monkeypatch.setattr(sharding, "read_nodes", lambda _: {})
    found = sharding.read_sharded_exchange(broker_of(api), "images", RELEASE, counts=False)
    assert found.shards == (
        Shard(names[0], "rabbit@a", 0, "quorum"),
        Shard(names[1], "rabbit@a", 1, None, ("7",)),
    )
