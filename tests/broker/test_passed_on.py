"""What one part hands out, each other part takes: headers of each wire type, and all properties, over pairs of parts on a real broker.

`tests/unit/amqp/test_client_fields.py` has the ends of each type's range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aio_pika
import pytest
from bounded import until
from group_stage import QUICK
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import (
    AmqpField,
    ConsistentHashExchange,
    ConsumerGroup,
    HashRing,
    Publisher,
    Release,
    SharedPublisher,
    StreamReader,
)
from rabbit_chx.consuming import GroupMessage
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
#: A header of each wire type, also inside lists and tables.
FIELDS: dict[str, AmqpField] = {
    "longstr": AmqpField("longstr", "é"),
    "binary": AmqpField("binary", b"\x00\xff"),
    "byte": AmqpField("byte", -128),
    "unsignedbyte": AmqpField("unsignedbyte", 255),
    "short": AmqpField("short", -(2**15)),
    "unsignedshort": AmqpField("unsignedshort", 2**16 - 1),
    "signedint": AmqpField("signedint", -(2**31)),
    "unsignedint": AmqpField("unsignedint", 2**32 - 1),
    "long": AmqpField("long", 2**63 - 1),
    "bool": AmqpField("bool", True),
    "double": AmqpField("double", 1.5),
    "float": AmqpField("float", 2.5),
    "decimal": AmqpField("decimal", (2, 4_000_000_000)),
    "timestamp": AmqpField("timestamp", 1_700_000_000),
    "void": AmqpField("void"),
    "array": AmqpField("array", [AmqpField("double", 1.5), AmqpField("double", 2.5)]),
    "table": AmqpField(
        "table", {"b": AmqpField("binary", b"x"), "l": AmqpField("array", [AmqpField("float", 0.5)])}
    ),
}
#: All but `user_id`, which has to be that of the connection.
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "identity",
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "600000",
    "timestamp": NOW,
    "type": "order",
    "app_id": "shop",
    "cluster_id": "east",
}


@dataclass(frozen=True)
class Given:
    """A message as a part hands it out."""

    body: bytes
    headers: Any
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """A broker with the queues of a test, and a channel."""

    broker: RunningBroker
    channel: BlockingChannel

    def send(self, queue: str) -> None:
        """Publish a message with all properties for each wire type of a header."""
        headers = [{"h": value} for value in FIELDS.values()]
        count = len(headers)
        columns: Any = {name: [value] * count for name, value in PROPERTIES.items()} | {"headers": headers}
        with Publisher(self.broker.url, "") as publisher:
            publisher.publish_many([queue] * count, list(FIELDS), properties=columns)


# -- what hands messages out


def of_group(site: Site, queue: str, count: int = len(FIELDS)) -> list[Given]:
    found: list[Given] = []

    async def story() -> None:
        async with ConsumerGroup(site.broker.url, [queue], member="m", journal=None, timing=QUICK) as group:

            async def handle(message: GroupMessage) -> None:
                # The broker counts in others how often it had to return the message.
                headers = {name: value for name, value in message.headers.items() if name == "h"}
                found.append(Given(message.body, headers, message.properties))
                if len(found) == count:
                    group.stop()

            await asyncio.wait_for(group.run(handle), 60)

    asyncio.run(story())
    return found


def of_pika(site: Site, queue: str) -> list[Given]:
    def get() -> Any:
        got = site.channel.basic_get(queue, auto_ack=True)
        return got[0] and got

    found = []
    for _ in FIELDS:
        _, properties, body = until(get, "it is in the queue")
        found.append(
            Given(body, properties.headers, {name: getattr(properties, name) for name in PROPERTIES})
        )
    return found


def of_aio_pika(site: Site, queue: str) -> list[Given]:
    """Its seconds of `expiration` are no value of the property, and it has no `cluster_id`."""
    names = PROPERTIES.keys() - {"expiration", "cluster_id"}

    async def story() -> list[Given]:
        async with await aio_pika.connect(site.broker.url) as connection:
            got = await (await connection.channel()).get_queue(queue)
            messages = [await got.get(no_ack=True, timeout=30) for _ in FIELDS]
            return [
                Given(each.body, each.headers, {name: getattr(each, name) for name in names})
                for each in messages
                if each is not None
            ]

    return asyncio.run(story())


# -- what takes them


def to_publisher(site: Site, queue: str, given: Given) -> None:
    columns: Any = {name: [value] for name, value in given.properties.items()} | {"headers": [given.headers]}
    with Publisher(site.broker.url, "") as publisher:
        publisher.publish_many([queue], [given.body], properties=columns)


def to_publisher_of_all_rows(site: Site, queue: str, given: Given) -> None:
    properties: Any = {**given.properties, "headers": given.headers}
    with Publisher(site.broker.url, "", properties=properties) as publisher:
        publisher.publish_many([queue], [given.body])


def to_shared_publisher(site: Site, queue: str, given: Given) -> None:
    properties: Any = dict(given.properties)
    with SharedPublisher(site.broker.url, "") as publisher:
        publisher.submit(queue, given.body, headers=given.headers, **properties).result(60)


async def _await_publish(site: Site, queue: str, given: Given) -> None:
    properties: Any = dict(given.properties)
    async with SharedPublisher(site.broker.url, "") as publisher:
        await publisher.publish(queue, given.body, headers=given.headers, **properties)


def to_shared_publisher_in_a_loop(site: Site, queue: str, given: Given) -> None:
    asyncio.run(_await_publish(site, queue, given))


@pytest.fixture
def site(vhost: RunningBroker, bare_channel: BlockingChannel) -> Site:
    """Two queues as a group needs them, and two from which messages can be got one by one."""
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    for queue in ("in", "out"):
        bare_channel.queue_declare(f"group.{queue}", durable=True, arguments=arguments)
        bare_channel.queue_declare(queue, durable=True)
    return Site(vhost, bare_channel)


@pytest.mark.parametrize(
    "take", [to_publisher, to_publisher_of_all_rows, to_shared_publisher, to_shared_publisher_in_a_loop]
)
@pytest.mark.parametrize("hand_out", [of_group, of_pika, of_aio_pika])
def test_a_message_that_is_handed_out_is_published_as_it_is_and_routed(
    site: Site, hand_out: Callable[[Site, str], list[Given]], take: Callable[[Site, str, Given], None]
) -> None:
    ring = HashRing.from_bindings([("a", 1), ("b", 1)], release=Release("4.3.6"))
    x = ConsistentHashExchange("x", ring, {"hash-header": "h"})
    begin, end = ("group.in", "group.out") if hand_out is of_group else ("in", "out")
    site.send(begin)
    given = hand_out(site, begin)
    assert [each.body.decode() for each in given] == list(FIELDS)
    for each in given:
        take(site, end, each)
        assert x.route("k", headers=each.headers, properties=each.properties) in ("a", "b")
    assert hand_out(site, end) == given


def test_the_rows_of_a_stream_are_published_with_their_ids_and_headers(site: Site) -> None:
    """The columns as they are; each value is a text. A decimal crashes the broker's channel to a stream (4.3.6, mc_amqpl.erl, ``from_091/2``)."""
    fields = {name: value for name, value in FIELDS.items() if name != "decimal"}
    site.channel.queue_declare("rows", durable=True, arguments={"x-queue-type": "stream"})
    columns: Any = {
        "message_id": list(fields),
        "headers": [{"h": value} for value in fields.values()],
    }
    with Publisher(site.broker.url, "") as publisher:
        publisher.publish_many(["rows"] * len(fields), list(fields), properties=columns)
        with StreamReader(site.broker.stream_url, "rows", include=("message_id", "headers")) as reader:
            for batch in reader:
                properties: Any = {name: batch[name] for name in ("message_id", "headers")}
                publisher.publish_many(["group.out"] * batch.num_rows, batch["value"], properties=properties)
    found = of_group(site, "group.out", len(fields))
    assert [each.body.decode() for each in found] == list(fields)
    assert {each.body.decode(): each.headers.get("h") for each in found}["double"] == "1.5"
