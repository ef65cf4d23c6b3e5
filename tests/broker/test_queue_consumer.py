"""Taking messages out of queues: all that is not acknowledged is there again, in its place."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from bounded import until
from canary import CANARY, canary_user
from declared import with_login
from pika.adapters.blocking_connection import BlockingChannel
from tcp_proxy import Proxy

from rabbit_chx import AmqpField, Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.fields import properties_in
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import AccessRefusedError, BrokerTimeoutError, ConnectionLostError, MismatchError
from rabbit_chx.publishing.encoder import Headers
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import release_is_in
from spark_connector import draining
from spark_connector.draining import QueueConsumer, UnsettledMessage

pytestmark = pytest.mark.broker

EVERYTHING = 1 << 30


@pytest.fixture
def queues(vhost: RunningBroker, bare_channel: BlockingChannel) -> BlockingChannel:
    """A channel on which the empty queues `classic` and `quorum` are declared.

    From 4.3 on the latter drops a message whose delivery failed once. Before, each return counts, so it has no limit.
    """
    bare_channel.queue_declare("classic", durable=True)
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    if release_is_in(vhost.version, ">=4.0"):
        arguments["x-delivery-limit"] = 1 if puts_back(vhost, "quorum") else -1
    bare_channel.queue_declare("quorum", durable=True, arguments=arguments)
    return bare_channel


def puts_back(broker: RunningBroker, queue: str) -> bool:
    """Return whether a queue puts returned messages back in their place. A quorum queue before 4.3 returns them in any order."""
    return queue == "classic" or release_is_in(broker.version, ">=4.3")


@pytest.fixture
def settings(queues: BlockingChannel, vhost_url: str) -> ConnectionSettings:
    """Of the vhost with the queues."""
    assert queues.is_open
    return ConnectionSettings.from_uri(vhost_url)


#: A time in milliseconds that a publisher took for seconds, which pika does not decode.
HEADERS = (("at", AmqpField("timestamp", 1_700_000_000_000)),)


def fill(
    settings: ConnectionSettings, queue: str, count: int, size: int = 0, headers: Headers | None = None
) -> None:
    with Publisher(settings, exchange="", properties={"headers": headers}) as publisher:
        publisher.publish_many([queue] * count, [b"%d" % n + b"." * size for n in range(count)])


def numbers(deliveries: list[UnsettledMessage]) -> list[int]:
    return [int(delivery.body.rstrip(b".")) for delivery in deliveries]


def until_ready(settings: ConnectionSettings, queue: str, count: int) -> None:
    """Wait until a queue has so many messages: a quorum queue gives back a moment later than it says."""
    with closing(QueueConsumer(settings)) as consumer:
        until(lambda: consumer.ready(queue) == count, f"{queue} has {count} messages")


@pytest.mark.parametrize("queue", ["classic", "quorum"])
def test_what_is_given_back_often_is_as_before(
    settings: ConnectionSettings, vhost: RunningBroker, queue: str
) -> None:
    """A quorum queue of 4.3 that drops what fails once drops nothing: no delivery has failed."""
    is_in_place = puts_back(vhost, queue)
    fill(settings, queue, 3_000, headers=HEADERS)
    for number in range(4):
        with closing(QueueConsumer(settings)) as consumer:
            taken = consumer.take(queue, 2_500, EVERYTHING)  # by several consumers
            if is_in_place:
                assert numbers(taken) == list(range(2_500))
                assert {delivery.redelivered for delivery in taken} == {number > 0}
            assert len(set(numbers(taken))) == 2_500
            until_ready(settings, queue, 500)
        until_ready(settings, queue, 3_000)
    headers = [dict(properties_in(delivery.properties).get("headers", ())) for delivery in taken]
    assert is_in_place != any(b"x-delivery-count" in names for names in headers)
    assert {names[b"at"] for names in headers} == {HEADERS[0][1]}
    with closing(QueueConsumer(settings)) as consumer:
        assert sorted(numbers(consumer.take(queue, 3_000, EVERYTHING))) == list(range(3_000))


def test_what_is_more_than_was_wanted_is_not_kept(settings: ConnectionSettings) -> None:
    """The sizes of the first messages let expect more than there is room for."""
    fill(settings, "classic", 300)
    fill(settings, "classic", 700, size=50_000)
    with closing(QueueConsumer(settings)) as consumer:
        taken = consumer.take("classic", 1_000, 1_000_000)
        assert 300 < len(taken) < 330
        assert sum(len(delivery.body) for delivery in taken) < 1_060_000
        consumer.acknowledge(taken[-1])
        # Not at once: a queue tells its counts before it takes messages back (rabbit_amqqueue_process.erl, prioritise_call).
        until_ready(settings, "classic", 1_000 - len(taken))


@pytest.mark.parametrize("queue", ["classic", "quorum"])
def test_few_messages_are_fetched_and_given_back(settings: ConnectionSettings, queue: str) -> None:
    """Each counts against the delivery limit of a quorum queue before 4.3."""
    fill(settings, queue, 300, 10_000)
    again = []
    with closing(QueueConsumer(settings)) as consumer:
        while taken := consumer.take(queue, 1_000, 100_000):
            again += [delivery.redelivered for delivery in taken]
            consumer.acknowledge(taken[-1])
            until_ready(settings, queue, 300 - len(again))
    assert len(again) == 300
    assert sum(again) <= 60


def test_a_queue_that_has_no_more_ends_at_once(
    settings: ConnectionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "_PATIENCE_S", 60.0)
    fill(settings, "quorum", 3)
    began = time.monotonic()
    with closing(QueueConsumer(settings)) as consumer:
        assert len(consumer.take("quorum", 10, EVERYTHING)) == 3
        assert consumer.take("quorum", 10, EVERYTHING) == consumer.take("classic", 10, EVERYTHING) == []
    assert time.monotonic() - began < 30


def test_others_come_first(
    settings: ConnectionSettings, queues: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "_PATIENCE_S", 0.5)
    queues.queue_declare("single", durable=True, arguments={"x-single-active-consumer": True})
    queues.basic_qos(prefetch_count=1)
    for queue, kind, words in (
        ("single", BrokerTimeoutError, r"'single' has 4 messages, and gives none .* consumer goes"),
        ("classic", AccessRefusedError, "one consumer has the queue for itself: stop it first"),
    ):
        fill(settings, queue, 5)
        queues.basic_consume(queue, lambda *_: None, exclusive=queue == "classic")
        with closing(QueueConsumer(settings)) as consumer, pytest.raises(kind, match=words):
            consumer.take(queue, 5, EVERYTHING)
    assert queues.queue_declare("single", passive=True).method.consumer_count == 1


@pytest.mark.parametrize("queue", ["classic", "quorum"])
def test_a_lost_connection_gives_back(
    settings: ConnectionSettings, vhost: RunningBroker, queue: str, proxy: Proxy
) -> None:
    fill(settings, queue, 2_000)
    with closing(QueueConsumer(replace(settings, port=proxy.port))) as consumer:
        taken = consumer.take(queue, 1_000, EVERYTHING)
        proxy.cut()
        with pytest.raises(ConnectionLostError):
            consumer.acknowledge(taken[-1])
    until_ready(settings, queue, 2_000)
    with closing(QueueConsumer(settings)) as consumer:
        found = numbers(consumer.take(queue, 2_000, EVERYTHING))
        assert (found if puts_back(vhost, queue) else sorted(found)) == list(range(2_000))


def test_heartbeats_go_on_while_the_caller_is_busy(settings: ConnectionSettings) -> None:
    fill(settings, "classic", 5)
    with closing(QueueConsumer(replace(settings, heartbeat_s=1))) as consumer:
        taken = consumer.take("classic", 5, EVERYTHING)
        with consumer.keep_alive():
            time.sleep(6)  # the broker gives up a connection that is silent for two heartbeats
        consumer.acknowledge(taken[-1])
    until_ready(settings, "classic", 0)


def test_the_end_of_the_channel_is_met_by_the_acknowledgement(settings: ConnectionSettings) -> None:
    """The broker ends it while the caller is busy, as it does with messages that are held for too long."""
    fill(settings, "classic", 5)
    with closing(QueueConsumer(settings)) as consumer:
        taken = consumer.take("classic", 5, EVERYTHING)
        consumer._channel.basic_ack(99)
        with consumer.keep_alive():
            time.sleep(3)
        with pytest.raises(MismatchError, match="unknown delivery tag 99"):
            consumer.acknowledge(taken[-1])
    until_ready(settings, "classic", 5)


def test_the_right_to_read_is_enough(
    settings: ConnectionSettings, queues: BlockingChannel, vhost: RunningBroker
) -> None:
    expected = {"classic": 0, "quorum": 7, "stream": 0}
    queues.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    fill(settings, "quorum", 7)
    management = Management(str(vhost.management_url))
    with canary_user(management, settings.vhost, read=".*") as user:
        reader = ConnectionSettings.from_uri(with_login(vhost.url, user, CANARY))
        with closing(QueueConsumer(reader)) as consumer:
            assert {kind: consumer.ready(kind) for kind in expected} == expected
            assert [kind for kind in expected if consumer.is_stream(kind)] == ["stream"]
            assert len(consumer.take("quorum", 7, EVERYTHING)) == 7
