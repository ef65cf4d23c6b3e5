"""100,000 messages through an x-modulus-hash exchange, a third with CC, a third with BCC: each is where the mirror says."""

from __future__ import annotations

import time
from functools import partial

import pika
import pytest
from exchange_types import FANOUT, MODULUS

from rabbit_chx.amqp import AmqpField
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.publishing import Publisher
from rabbit_chx.routing import Destination, ExchangeRef, ModulusHashExchange
from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

MESSAGES = 100_000
COPIES = ((), ("copy",), ("", "other copy"))
#: Names and keys that sort differently, a queue that is bound twice, and an exchange.
BINDINGS: tuple[tuple[Destination, str], ...] = (
    ("m.2", "1"), ("m.10", "2"), ("m.1", "10"), ("m.1", "9"), ("M", "5"), (ExchangeRef("m.5"), "3"),
)  # fmt: skip


def test_each_message_is_where_the_mirror_says(rabbit: Rabbit) -> None:
    keys = [f"key {number}" for number in range(MESSAGES)]
    copied = [COPIES[number % 3] for number in range(MESSAGES)]
    headers = [
        {("CC", "BCC")[number % 2]: AmqpField("array", [AmqpField("longstr", key) for key in copies])}
        if copies
        else None
        for number, copies in enumerate(copied)
    ]
    found: dict[int, Destination] = {}

    def note(place: Destination, _channel: object, _method: object, _properties: object, body: bytes) -> None:
        assert found.setdefault(int(body), place) == place

    with (
        temporary_vhost(rabbit.broker) as vhost,
        pika.BlockingConnection(pika_parameters(vhost.url)) as connection,
    ):
        channel = connection.channel()
        channel.exchange_declare("hashed", MODULUS, durable=True)
        for place in dict.fromkeys(place for place, _ in BINDINGS):
            queue = str(place)
            channel.queue_declare(queue, durable=True)
            if isinstance(place, ExchangeRef):
                channel.exchange_declare(place.name, FANOUT)
                channel.queue_bind(queue, place.name)
        for place, key in BINDINGS:
            if isinstance(place, ExchangeRef):
                channel.exchange_bind(place.name, "hashed", key)
            else:
                channel.queue_bind(place, "hashed", key)
        with Broker(vhost.url, vhost.management_url) as broker:
            exchange = broker.exchange("hashed")
        assert isinstance(exchange, ModulusHashExchange)
        assert exchange == ModulusHashExchange("hashed", BINDINGS, rabbit.release)
        assert exchange.provenance == "read"
        with Publisher(vhost.url, "hashed", persistent=False) as publisher:
            publisher.publish_many(keys, map(str, range(MESSAGES)), properties={"headers": headers})
        for place in exchange.shares():
            channel.basic_consume(str(place), partial(note, place), auto_ack=True)
        deadline = time.monotonic() + 60
        while len(found) < MESSAGES:
            assert time.monotonic() < deadline, f"{len(found):,} of {MESSAGES:,} messages are found"
            connection.process_data_events(1)
        connection.process_data_events(1)  # one too many would be here
    predicted = [
        exchange.route(key, cc=copies) if number % 2 == 0 else exchange.route(key, bcc=copies)
        for number, (key, copies) in enumerate(zip(keys, copied, strict=True))
    ]
    assert [found[number] for number in range(MESSAGES)] == predicted
    plain = range(0, MESSAGES, 3)
    indices = exchange.indices([keys[number] for number in plain]).tolist()
    assert [exchange.destinations[index] for index in indices] == [found[number] for number in plain]
    rabbit.count(MESSAGES)
