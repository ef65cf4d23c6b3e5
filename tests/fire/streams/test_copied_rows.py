"""Another client publishes rows of a named publisher again, into the same stream, with their message ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pika
import pytest
from bounded import until
from copied_rows import EXCHANGE, TOPIC, copy_rows
from delivery_checker import Judge
from fire_streams import StreamRun, bodies_of, stored

from rabbit_chx.broker import pika_parameters
from rabbit_chx.streams import StreamPublisher
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

PROMISE = "Each row is stored once by the publisher, also when the same rows are published again; the copies stay where they are."
ROWS = 5_000
COPIES = 200


def replay(home: RunningBroker, _broker: RunningBroker) -> None:
    """Publish what a consumer has read, with its properties."""
    copy_rows(home.url, "s", COPIES, offset=100)


def shovel(home: RunningBroker, broker: RunningBroker) -> None:
    """Let a shovel move the first rows into the stream that it reads."""
    broker.run("rabbitmq-plugins", "enable", "rabbitmq_shovel")
    with pika.BlockingConnection(pika_parameters(home.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, TOPIC, durable=True)
        channel.queue_bind("s", EXCHANGE, "#")
    vhost = pika_parameters(home.url).virtual_host
    uri = f"amqp:///{quote(vhost, safe='')}"
    shovelled = {
        "src-protocol": "amqp091", "src-uri": uri, "src-queue": "s",
        "src-queue-args": {"x-queue-type": "stream"}, "src-consumer-args": {"x-stream-offset": "first"},
        "src-prefetch-count": 100, "src-delete-after": COPIES,
        "dest-protocol": "amqp091", "dest-uri": uri, "dest-exchange": EXCHANGE,
    }  # fmt: skip
    before = len(stored(home.stream_url))
    broker.run("rabbitmqctl", "set_parameter", "-p", vhost, "shovel", "copies", json.dumps(shovelled))
    until(lambda: len(stored(home.stream_url)) >= before + COPIES, "the copies are stored")


@pytest.mark.parametrize(
    ("copy", "who"),
    [
        pytest.param(replay, "an AMQP consumer", id="replay", marks=pytest.mark.representative),
        pytest.param(
            shovel,
            "a shovel",
            id="shovel",
            marks=[pytest.mark.restarts, pytest.mark.own_broker],
        ),
    ],
)
def test_rows_are_copied_once(
    copy: Callable[[RunningBroker, RunningBroker], None],
    who: str,
    home: RunningBroker,
    broker: RunningBroker,
    kept: Judge,
) -> None:
    run = StreamRun()
    with StreamPublisher(home.stream_url, stream="s", name="load") as publisher:
        run.give(publisher, ROWS)
        copy(home, broker)
        run.give(publisher, ROWS)
    copy_rows(home.url, "s", COPIES)
    for _ in range(2):
        with StreamPublisher(home.stream_url, stream="s", name="load") as again:
            rows = 2 * ROWS
            report = again.publish_many(["k"] * rows, bodies_of(1, rows), ids=range(1, rows + 1))
        assert (report.known, report.repaired) == (rows, 0)
    kept(
        run,
        fault=f"{who} publishes {COPIES} rows again with their message ids; all rows are published again twice",
        promise=PROMISE,
        repeats=2 * COPIES,
    )
    assert len(stored(home.stream_url)) == 2 * ROWS + 2 * COPIES
