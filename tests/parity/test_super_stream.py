"""A super stream published by rstream, the official client for Python: each message is in the mirror's partition."""

from __future__ import annotations

import asyncio
import subprocess
import time
from functools import partial
from typing import Any

import pika
import pytest
import rstream

from rabbit_chx.broker import pika_parameters
from rabbit_chx.routing import SuperStream
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

MESSAGES = 2_000
PARTITIONS = 5
STREAM_PORT = 5552
FIRST_WITH_SUPER_STREAMS_BY_PROTOCOL = (3, 13, 0)
PUBLISH_TIMEOUT_S = 60
ARRIVAL_TIMEOUT_S = 30


def test_rstream_hashes_as_the_mirror_does(rabbit: Rabbit) -> None:
    if rabbit.release.numbers < FIRST_WITH_SUPER_STREAMS_BY_PROTOCOL:
        pytest.skip(f"RabbitMQ {rabbit.release.version} does not let a stream client create super streams")
    keys = [f"k{number}" for number in range(MESSAGES - 4)] + ["", "é", "日本語", "😀" * 100]
    asyncio.run(asyncio.wait_for(publish(*address(rabbit), keys), PUBLISH_TIMEOUT_S))
    stream = SuperStream([f"invoices-{number}" for number in range(PARTITIONS)])
    found = consumed(rabbit, stream.partitions)
    assert found == {number: stream.partition_for(key, client="rstream") for number, key in enumerate(keys)}
    assert found != {number: stream.partition_for(key) for number, key in enumerate(keys)}
    rabbit.count(len(found))


def address(rabbit: Rabbit) -> tuple[str, int]:
    """Where the container's port of streams is open to this machine."""
    container = (rabbit.broker.ring_via or ())[-1]
    asked = subprocess.run(
        ("docker", "port", container, f"{STREAM_PORT}/tcp"), capture_output=True, text=True, check=True
    )
    host, _, port = asked.stdout.strip().partition(":")
    return host, int(port)


async def publish(host: str, port: int, keys: list[str]) -> None:
    confirmed = asyncio.Semaphore(0)

    async def routing_key(message: Any) -> Any:
        return message.application_properties["key"]

    async def note(status: Any) -> None:
        assert status.is_confirmed
        confirmed.release()

    async with rstream.SuperStreamProducer(
        host,
        port,
        username="guest",
        password="guest",  # noqa: S106 - of a broker of our own
        routing_extractor=routing_key,
        routing=rstream.RouteType.Hash,
        super_stream="invoices",
        super_stream_creation_option=rstream.SuperStreamCreationOption(n_partitions=PARTITIONS),
        load_balancer_mode=True,  # keeps it from following the name that the broker gives itself
    ) as producer:
        for number, key in enumerate(keys):
            message = rstream.AMQPMessage(body=b"%d" % number, application_properties={"key": key})
            await producer.send(message, on_publish_confirm=note)
        for _ in keys:
            await confirmed.acquire()


def consumed(rabbit: Rabbit, partitions: tuple[str, ...]) -> dict[int, str]:
    found: dict[int, str] = {}

    def note(partition: str, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        found[int(body)] = partition

    with pika.BlockingConnection(pika_parameters(rabbit.broker.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        for partition in partitions:
            channel.basic_consume(partition, partial(note, partition), arguments={"x-stream-offset": "first"})
        deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
        while len(found) < MESSAGES and time.monotonic() < deadline:
            connection.process_data_events(1)
    return found
