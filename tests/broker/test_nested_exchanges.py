"""Exchanges that hash behind one another, on a real broker: each message is in the predicted queue, and a starved queue has none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from bounded import until
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from rabbit_chx import Broker
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.nested_map import NestedMap
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)

pytestmark = pytest.mark.broker

MESSAGES = 2_000
RING, MODULUS = "x-consistent-hash", "x-modulus-hash"
HEADER, PROPERTY = {"hash-header": "h"}, {"hash-property": "message_id"}
#: The type, the number of destinations and the arguments of each level, and how many queues get no key.
SHAPES: dict[str, tuple[list[tuple[str, int, dict[str, str]]], int]] = {
    "2 x 2": ([(RING, 2, {}), (RING, 2, {})], 2),
    "2 x 3": ([(RING, 2, {}), (RING, 3, {})], 2),
    "4 x 4": ([(RING, 4, {}), (RING, 4, {})], 12),
    "three levels": ([(RING, 2, {}), (RING, 3, {}), (RING, 2, {})], 8),
    "a header": ([(RING, 3, HEADER), (RING, 3, HEADER)], 6),
    "a property": ([(RING, 2, PROPERTY), (RING, 2, PROPERTY)], 2),
    "a header behind the routing key": ([(RING, 2, {}), (RING, 2, HEADER)], 0),
    "modulus": ([(MODULUS, 2, {}), (MODULUS, 2, {})], 2),
    "modulus, 4 and 6": ([(MODULUS, 4, {}), (MODULUS, 6, {})], 12),
    "modulus behind a ring": ([(RING, 2, {}), (MODULUS, 2, {})], 0),
    "a ring behind modulus": ([(MODULUS, 2, {}), (RING, 2, {})], 0),
    "a ring, modulus, a ring": ([(RING, 2, {}), (MODULUS, 2, {}), (RING, 2, {})], 4),
}


def topology_of(levels: list[tuple[str, int, dict[str, str]]], name: str = "front") -> Topology:
    """Return exchanges behind one another."""
    (type_, count, arguments), *inner = levels
    names = [f"{name}.{number}" for number in range(count)]
    places = [ExchangeRef(each) for each in names] if inner else names
    ring = tuple(RingMember(place, "1") for place in places) if type_ == RING else None
    bound = () if type_ == RING else tuple(BindingDefinition(name, place) for place in places)
    below = [topology_of(inner, each) for each in names] if inner else []
    return Topology(
        (
            ExchangeDefinition(name, type_, arguments=arguments, ring=ring),
            *(one for each in below for one in each.exchanges),
        ),
        (*(() if inner else map(QueueDefinition, names)), *(one for each in below for one in each.queues)),
        (*bound, *(one for each in below for one in each.bindings)),
    )


def message_of(number: int) -> dict[str, Any]:
    """Return a message with different values to hash, as arguments of `route`."""
    return {
        "routing_key": f"key-{number}",
        "headers": {"h": f"h-{number}"},
        "properties": {"message_id": f"id-{number}"},
    }


def publish(channel: BlockingChannel, queues: list[str]) -> dict[str, int]:
    """Publish to the front exchange, and return how many messages each queue gets, without those that get none."""
    for message in map(message_of, range(MESSAGES)):
        properties = BasicProperties(headers=message["headers"], **message["properties"])
        channel.basic_publish("front", message["routing_key"], b"", properties)

    def counts() -> dict[str, int]:
        declared = {
            queue: channel.queue_declare(queue, passive=True).method.message_count for queue in queues
        }
        return {queue: count for queue, count in declared.items() if count}

    until(lambda: sum(counts().values()) == MESSAGES, "all messages are in queues")
    return counts()


@pytest.mark.parametrize("shape", SHAPES)
def test_each_message_is_in_the_predicted_queue(
    managed: Broker, channel: BlockingChannel, shape: str
) -> None:
    levels, starved = SHAPES[shape]
    wanted = topology_of(levels)
    made = plan(wanted, managed.topology())
    assert len([text for text in made.warnings if " gets no key of " in text]) == starved
    managed.apply(made)
    live = managed.topology()
    front, got = live.key_map("front"), publish(channel, [queue.name for queue in wanted.queues])
    assert isinstance(front, NestedMap)
    assert front.ground.is_known
    predicted = Counter(
        str(front.end_of(front.exchange.route(**message), message, is_whole=True))
        for message in map(message_of, range(MESSAGES))
    )
    assert got == predicted
    shares = front.shares()
    assert {str(queue) for queue, share in shares.items() if share} >= got.keys()
    assert all(abs(got.get(str(queue), 0) / MESSAGES - share) < 0.06 for queue, share in shares.items())
    found = {one.destination for one in check(live).findings if one.kind == "starved-destination"}
    assert found == {queue for queue, share in shares.items() if not share}
    assert len(found) == starved


def test_the_commands_follow_keys_to_the_queues(
    managed: Broker,
    vhost: RunningBroker,
    channel: BlockingChannel,
    answer: Callable[..., Any],
    tmp_path: Path,
) -> None:
    wanted = topology_of([(RING, 2, {}), (RING, 3, {})])
    managed.apply(plan(wanted, managed.topology()))
    live = ("--url", vhost.url, "--management-url", str(vhost.management_url))
    got = publish(channel, [queue.name for queue in wanted.queues])
    keys = [message_of(number)["routing_key"] for number in range(MESSAGES)]
    sample = f"key-{{0..{MESSAGES - 1}}}"

    def counted(rows: list[Mapping[str, Any]], name: str, figure: str) -> dict[str, float]:
        return {row[name]: row[figure] for row in rows if row[figure]}

    routed = answer("route", "front", *keys[:50], *live)
    assert routed["determined"] is True
    ends = {each["key"]: each["destination"] for each in routed["answers"]}
    found = managed.topology().key_map("front").counts(keys[:50])
    assert Counter(ends.values()) == {queue: count for queue, count in found.items() if count}
    assert got.keys() >= set(ends.values())

    shown = answer("show", "front", "--keys", sample, *live)
    (tmp_path / "ring.json").write_text(json.dumps(answer("show", "front", *live)))
    of_file = answer("route", str(tmp_path / "ring.json"), *keys[:50])
    assert {each["key"]: each["destination"] for each in of_file["answers"]} == ends

    loads = {queue: pytest.approx(count / MESSAGES) for queue, count in got.items()}
    assert counted(shown["queues"], "queue", "load") == loads
    assert {row["destination"]["exchange"] for row in shown["members"]} == {"front.0", "front.1"}
    assert {row["queue"] for row in shown["queues"] if not row["share"]} == {"front.0.1", "front.1.0"}

    behind = answer("show", "front.0", "--keys", sample, *live)
    of_first = {queue: count for queue, count in got.items() if queue.startswith("front.0")}
    assert behind["sample"]["messages"] == sum(of_first.values())
    part = {queue: pytest.approx(count / sum(of_first.values())) for queue, count in of_first.items()}
    assert counted(behind["members"], "destination", "load") == part
    assert {row["destination"] for row in behind["members"] if not row["share"]} == {"front.0.1"}

    compared = answer("compare", "front", "--keys", sample, *live)
    assert counted(compared["sample"]["destinations"], "destination", "messages") == got
    assert {row["destination"] for row in compared["shares"] if not row["share"]} == {
        "front.0.1",
        "front.1.0",
    }


def test_what_a_key_does_not_determine_is_not_known(
    managed: Broker,
    vhost: RunningBroker,
    channel: BlockingChannel,
    answer: Callable[..., Any],
) -> None:
    """Behind an exchange that hashes another value, in another order, or does not hash, no answer is certain that is not."""
    wanted = topology_of([(RING, 2, {}), (RING, 3, HEADER)])
    managed.apply(plan(wanted, managed.topology()))
    live = ("--url", vhost.url, "--management-url", str(vhost.management_url))
    alone = answer("route", "front", "k", *live, code=3)
    assert alone["determined"] is False
    (told,) = alone["answers"]
    assert told["destination"] is None
    assert told["needs"].startswith("the header 'h', which exchange front.")
    # A message without the header has a queue, too: all have the same value.
    (told,) = answer("route", "front", "k", "--header", "other=1", *live)["answers"]
    for _ in range(5):
        channel.basic_publish("front", "k", b"", BasicProperties(headers={"other": "1"}))
    queues = [queue.name for queue in wanted.queues]

    def got(queue: str) -> int:
        return channel.queue_declare(queue, passive=True).method.message_count or 0

    until(lambda: sum(map(got, queues)) == 5, "all messages are in queues")
    assert got(told["destination"]) == 5
    shown = answer("show", "front", "--keys", "k-{0..99}", *live)
    assert {row["load"] for row in shown["queues"]} == {None}
    assert all(row["share"] for row in shown["queues"])
    assert {row["queue"] for row in shown["heaviest"]} == {None}
    compared = answer("compare", "front", "--keys", "k-{0..99}", *live)["sample"]["destinations"]
    assert all(row["messages"] and "exchange" in row["destination"] for row in compared)


def test_behind_an_order_that_is_not_known_and_an_exchange_that_does_not_hash(
    managed: Broker,
    vhost: RunningBroker,
    channel: BlockingChannel,
    answer: Callable[..., Any],
) -> None:
    managed.apply(plan(topology_of([(RING, 2, {})], "one"), managed.topology()))
    managed.apply(plan(topology_of([(RING, 2, {})], "two"), managed.topology()))
    live = ("--url", vhost.url, "--management-url", str(vhost.management_url))
    channel.exchange_declare("before", RING, durable=True)  # type: ignore[arg-type]  # of a plugin
    channel.exchange_declare("copies", ExchangeType("fanout"), durable=True)
    for source, place in (("before", "one"), ("before", "copies"), ("copies", "two")):
        channel.exchange_bind(place, source, "1")
    behind = answer("show", "one", *live, code=3)
    assert behind["determined"] is False
    assert {row["share"] for row in behind["members"]} == {None}
    routed = answer("route", "one", "x", *live)
    assert routed["determined"] is True
    assert routed["answers"][0]["destination"] in ("one.0", "one.1")
    assert {one["exchange"]: one["determined"] for one in answer("check", "one", *live, code=3)["rings"]} == {
        "before": False,
        "one": True,
    }
    assert answer("show", "two", *live)["unfollowed"] == ["copies"]
    checked = answer("check", "two", *live)
    assert (checked["findings"], checked["unfollowed"]) == ([], ["copies"])
