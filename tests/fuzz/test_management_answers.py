"""Answers of the management API in which each value at each place is, one at a time, of each JSON type: a value, or an error of the project.

The answers are what RabbitMQ 4.3 answers, shortened. They are scripted, because no broker answers so; a proxy and another service do.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from fuzzing import told

from rabbit_chx.broker.management import Management
from rabbit_chx.errors import BrokerRefusedError, NotFoundError, RabbitChxError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import check
from rabbit_chx.topology.live.live_broker import QueueCounts
from rabbit_chx.topology.live.reading import (
    LiveExchange,
    read_bindings,
    read_consumer_tags,
    read_topology,
)
from rabbit_chx.topology.live.reading_shards import read_sharded_exchange
from rabbit_chx.topology.planning.plan import plan
from rabbit_chx.topology.ring_records import BrokerStart, make_settled_record, record_arguments

VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**400, "", "x", "\ud800", [], {}, [{}], {"x": []})
HASHING = {"name": "orders", "type": "x-consistent-hash", "durable": True, "auto_delete": False}
RECORD = {"name": "rabbit-chx.ring.orders", "type": "fanout", "durable": True, "internal": True}
MODULUS = {"name": "bills", "type": "x-modulus-hash", "durable": True, "arguments": {}}
SUPER = {"name": "super", "type": "direct", "durable": True, "arguments": {"x-super-stream": True}}
RING = HashRing.from_bindings([("q1", 1), (ExchangeRef("slot"), 2)], Release("4.3.6"))
# The nodes have not started since: the record is from a later time than the test.
START = BrokerStart("rabbit@one", "a", {"rabbit@one": time.time() + 1e6})
OWN_ARGUMENTS = record_arguments(
    replace(make_settled_record("orders", RING, RING.bindings or ()), start=START)
)
SHARD = "sharding: images - rabbit@one - 0"


def queue(name: str, **more: object) -> dict[str, Any]:
    sound = {"name": name, "type": "quorum", "durable": True, "auto_delete": False, "exclusive": False}
    arguments = {"x-queue-type": "quorum", "x-max-length": 5, "x-overflow": "reject-publish"}
    return {**sound, "arguments": arguments, "policy": "limits", "messages": 3, **more}


def binding(
    source: str, place: str, key: str, kind: str = "queue", order: int | None = None
) -> dict[str, Any]:
    ends = {"source": source, "destination": place, "destination_type": kind, "routing_key": key}
    arguments = {} if order is None else {"x-stream-partition-order": order}
    return {**ends, "vhost": "/", "arguments": arguments, "properties_key": key}


BOUND = [
    binding("orders", "q1", "1"),
    binding("orders", "slot", "2", "exchange"),
    binding("slot", "q2", ""),
    binding("bills", "q1", "3"),
    binding("super", "q1", "a", order=1),
    binding("super", "q2", "b", order=0),
]
ORDERS = {**HASHING, "arguments": {"hash-header": "tenant", "alternate-exchange": "lost"}, "policy": "limits"}
RATE = {"publish_in_details": {"rate": 1.5}}
EXCHANGES = [
    {"name": "", "type": "direct", "durable": True, "arguments": {}},
    ORDERS,
    MODULUS,
    SUPER,
    {"name": "slot", "type": "fanout", "durable": True, "internal": True, "arguments": {}},
    {**RECORD, "arguments": OWN_ARGUMENTS},
    {**RECORD, "name": "rabbit-chx.start", "arguments": {"start": "a"}},
]
POLICY = {
    "name": "limits",
    "pattern": "^q",
    "apply-to": "queues",
    "priority": 1,
    "definition": {"max-length": 100, "overflow": "reject-publish"},
}
ANSWERS: Mapping[str, Any] = {
    "overview": {
        "rabbitmq_version": "4.3.6",
        "cluster_name": "rabbit@one",
        "exchange_types": [{"name": "x-consistent-hash", "enabled": True}],
    },
    "feature-flags": [{"name": "khepri_db", "state": "enabled"}],
    "deprecated-features": [
        {
            "name": "transient_nonexcl_queues",
            "deprecation_phase": "permitted_by_default",
            "state": "permitted",
        }
    ],
    "exchanges": EXCHANGES,
    "exchanges?page": {"items": EXCHANGES[-2:], "page_count": 1},
    "exchanges/orders": {**ORDERS, "message_stats": RATE},
    "exchanges/bills": MODULUS,
    "exchanges/super": SUPER,
    "exchanges/images": {**MODULUS, "name": "images", "policy": "limits"},
    "exchanges/orders/bindings": BOUND[:2],
    "exchanges/bills/bindings": BOUND[3:4],
    "exchanges/super/bindings": BOUND[4:],
    "exchanges/images/bindings": [binding("images", SHARD, "1")],
    "queues": [
        queue("q1", messages_by_priority={"4": 1}, message_stats={"publish_details": {"rate": 1}}),
        queue("q2"),
    ],
    "queues?page": {"items": [queue(SHARD)], "page_count": 1},
    "bindings": BOUND,
    "policies": [POLICY],
    "policies/limits": {**POLICY, "definition": {"shards-per-node": 1, "routing-key": "1"}},
    "operator-policies": [{**POLICY, "name": "operators", "definition": {"expires": 1000}}],
    "vhosts": {"name": "/", "default_queue_type": "quorum"},
    "nodes": [{"name": "rabbit@one", "running": True, "uptime": 5000}],
    "consumers": [{"consumer_tag": "t", "queue": {"name": "q1", "vhost": "/"}}],
}


class Answers(Management):
    """A management API with these answers; what it reads, it checks as always."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__("http://guest:guest@localhost:15672")
        self._answers, self.read = answers, set[str]()

    def _answer(self, method: str, target: str, request_line: str, body: object) -> bytes:  # noqa: ARG002
        path, _, query = target.removeprefix("/api/").replace("%2F/", "").partition("?")
        path = path.removesuffix("/source").removesuffix("/%2F")
        name = f"{path}?page" if "page=" in query else path
        self.read.add(name)
        if name not in self._answers:
            raise NotFoundError(f"{name} is not found: none", reply_code=404)
        return json.dumps(self._answers[name]).encode()


class OneBroker:
    """A broker whose management API is scripted, and that has no ring source."""

    where, vhost, has_management, has_source = "one", "/", True, False
    file_records: Mapping[str, Any] = {}
    consumer_timeout_ms = None

    def __init__(self, api: Answers) -> None:
        self.api, self.amqp = api, self

    def overview(self) -> Any:
        from rabbit_chx.topology.live.reading import OVERVIEW

        return self.api.get("overview", fields=OVERVIEW)

    def count(self, _: str) -> QueueCounts:
        return QueueCounts(0, 0)


def read_all(broker: Any) -> None:
    topology = read_topology(broker)
    assert plan(topology.objects, topology).checksum
    check(topology, topology.objects)


def read_exchange(name: str) -> Callable[[Any], None]:
    def read(broker: Any) -> None:
        exchange = LiveExchange(broker.api, "/", name)
        exchange.key_map()
        exchange.mirror()
        assert exchange.alternate is None or isinstance(exchange.alternate, str)
        exchange.publish_rates()

    return read


def read_shards(broker: Any) -> None:
    release = LiveExchange(broker.api, "/", "images").release
    assert read_sharded_exchange(broker, "images", release, counts=True).shards


READERS: Mapping[str, Callable[[Any], object]] = {
    "topology": read_all,
    "ring": read_exchange("orders"),
    "modulus": read_exchange("bills"),
    "super stream": read_exchange("super"),
    "shards": read_shards,
    "bindings": read_bindings,
    "consumers": lambda broker: read_consumer_tags(["q1"], broker),
}


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (key,)
        yield from ((key, *rest) for rest in places(inner))


def replaced(answers: Any, path: tuple[Any, ...], value: object) -> Any:
    """Return a copy with another value at a path."""
    if not path:
        return value
    copied = copy.copy(answers)
    copied[path[0]] = replaced(answers[path[0]], path[1:], value)
    return copied


@pytest.mark.parametrize(
    "reader",
    [pytest.param(name, marks=[pytest.mark.extended] * (name == "topology")) for name in READERS],
)
def test_each_value_of_each_type_is_read_or_refused(reader: str) -> None:
    read, sound = READERS[reader], Answers(ANSWERS)
    with suppress(RabbitChxError):
        read(OneBroker(sound))
    for path in places({name: answer for name, answer in ANSWERS.items() if name in sound.read}):
        for value in VALUES:
            with told((path, value)), suppress(RabbitChxError):
                read(OneBroker(Answers(replaced(ANSWERS, path, value))))


@pytest.mark.parametrize("reader", [name for name in READERS if name != "super stream"])
def test_what_a_broker_answers_is_read(reader: str) -> None:
    READERS[reader](OneBroker(Answers(ANSWERS)))


def test_a_queue_whose_arguments_are_no_object_is_named() -> None:
    broker: Any = OneBroker(Answers(replaced(ANSWERS, ("queues", 1, "arguments"), "x")))
    says = (
        r"GET queues// is not a list of objects: \[1\]\.arguments is 'x', not an object: check that the URL"
    )
    with pytest.raises(BrokerRefusedError, match=says):
        read_topology(broker)
