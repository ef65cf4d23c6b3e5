"""The mover of a slot waits for a group as long as the group reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pika
import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.message_carrier import PikaCarrier
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.live.hand_over import HandOverMarker

pytestmark = pytest.mark.broker

_MARKER = HandOverMarker("flush", "events.slot.00", "1", "events.park")


@pytest.fixture
def carrier(vhost_url: str) -> Iterator[PikaCarrier]:
    """A carrier that has sent a marker behind twenty messages of the queue ``old``."""
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("old")
        for _ in range(20):
            channel.basic_publish("", "old", b"")
    with closing(PikaCarrier(ConnectionSettings.from_uri(vhost_url))) as made:
        made.send_marker("old", _MARKER)
        yield made


@pytest.fixture
def slow_reader(vhost_url: str) -> Iterator[None]:
    """It takes a message out of the queue each quarter of a second, and replies to the marker."""

    def read() -> None:
        with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
            channel = connection.channel()
            while True:
                connection.sleep(0.25)
                method, properties, _ = channel.basic_get("old", auto_ack=True)
                if method is None:
                    return
                if properties is not None and properties.reply_to:
                    headers = _MARKER.reply("flushed").headers()
                    channel.basic_publish(
                        "", properties.reply_to, b"", pika.BasicProperties(headers=dict(headers))
                    )

    thread = threading.Thread(target=read)
    thread.start()
    yield
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.usefixtures("slow_reader")
def test_a_reader_may_take_longer_than_the_time_without_reading(carrier: PikaCarrier) -> None:
    began = time.monotonic()
    assert carrier.wait_for_reply(
        _MARKER, "flushed", timeout_s=3.0, longest_s=60.0, queues=("old", "no queue")
    )
    assert time.monotonic() - began > 4, "the reader was too quick to show anything"


@pytest.mark.usefixtures("slow_reader")
def test_a_reader_that_takes_too_long_is_not_awaited(carrier: PikaCarrier) -> None:
    assert not carrier.wait_for_reply(_MARKER, "flushed", timeout_s=30.0, longest_s=1.0, queues=("old",))


def test_what_nobody_reads_is_not_awaited(carrier: PikaCarrier) -> None:
    assert not carrier.wait_for_reply(_MARKER, "flushed", timeout_s=1.0, longest_s=600.0, queues=("old",))


def test_a_marker_that_no_queue_takes(carrier: PikaCarrier) -> None:
    with pytest.raises(
        BrokerRefusedError, match="queue gone does not take the marker of a hand-over"
    ) as caught:
        carrier.send_marker("gone", _MARKER)
    assert caught.value.queue == "gone"
    carrier.send_marker("old", _MARKER)  # it connects again
