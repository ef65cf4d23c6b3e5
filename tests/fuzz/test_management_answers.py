"""Answers of the management API in which each value at each place is, one at a time, of each JSON type: a value, or an error of the project.

`management_answers.json` is what RabbitMQ 4.3 answers, shortened. The answers are scripted, because no broker answers so; a proxy and another service do.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import starmap
from typing import Any

import pytest
from blocks import ROOT
from fuzzing import told

from rabbit_chx.broker.live_broker import QueueCounts
from rabbit_chx.broker.live_routing import alternate_of, find_live_exchange, key_map_of, mirror_of
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.reading import (
    OVERVIEW,
    find_exchange,
    read_bindings,
    read_consumer_tags,
    read_release,
    read_topology,
)
from rabbit_chx.broker.sharding import read_sharded_exchange
from rabbit_chx.broker.usage import read_rates_of
from rabbit_chx.errors import BrokerRefusedError, NotFoundError, RabbitChxError
from rabbit_chx.planning.plan import plan
from rabbit_chx.records.ring_records import RecordedStart, make_record, record_arguments
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import check
from rabbit_chx.topology.objects import MARK, RingMember

VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**400, "", "x", "\ud800", [], {}, [{}], {"x": []})
RING = HashRing.from_bindings([("q1", 1), (ExchangeRef("slot"), 2)], Release("4.3.6"))
STAMP = RecordedStart("rabbit@one", "/", "a", "b")
RECORD = record_arguments(
    replace(make_record("orders", RING, starmap(RingMember, RING.bindings or ())), recorded_start=STAMP)
)
ANSWERS: Mapping[str, Any] = json.loads((ROOT / "tests/fuzz/management_answers.json").read_text())
for exchange in (*ANSWERS["exchanges"], *ANSWERS["exchanges?page"]["items"]):
    if exchange["name"] == "rabbit-chx.ring.orders":
        exchange["arguments"] = RECORD


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
    frame_max = 131_072

    def __init__(self, api: Answers) -> None:
        self.api, self.amqp = api, self

    def overview(self) -> Any:
        return self.api.get("overview", fields=OVERVIEW)

    def check_lock_in(self, queues: Sequence[Mapping[str, Any]]) -> None:
        """There is one broker."""

    def count(self, queue: str) -> QueueCounts:
        return QueueCounts(2 if queue == MARK else 0, 0)


def read_all(broker: Any) -> None:
    topology = read_topology(broker)
    assert plan(topology.as_wanted(), topology).checksum
    check(topology, topology.as_wanted())


def read_exchange(name: str) -> Callable[[Any], None]:
    def read(broker: Any) -> None:
        live = read_topology(broker, only=name, detail="record")
        key_map_of(live, name)
        mirror_of(live, name)
        alternate = alternate_of(live, find_live_exchange(live, name))
        assert alternate is None or isinstance(alternate, str)
        read_rates_of(broker.api, broker.vhost, find_exchange(broker, name))

    return read


def read_shards(broker: Any) -> None:
    release = read_release(broker.api)
    assert read_sharded_exchange(broker, "images", release, counts=True).shards


READERS: Mapping[str, Callable[[Any], object]] = {
    "topology": read_all,
    "ring": read_exchange("orders"),
    "modulus": read_exchange("bills"),
    "super stream": read_exchange("super"),
    "shards": read_shards,
    "bindings": lambda broker: read_bindings(broker.api, "/"),
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


MARKS = {"topology": pytest.mark.slow, "ring": pytest.mark.extended}


@pytest.mark.parametrize(
    "reader",
    [pytest.param(name, marks=MARKS.get(name, ())) for name in READERS],
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
    with pytest.raises(
        BrokerRefusedError, match=r"GET queues// is not a list of objects: \[1\]\.arguments is a text"
    ):
        read_topology(broker)
