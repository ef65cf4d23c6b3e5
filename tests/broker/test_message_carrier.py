"""The mover of a slot waits for a group as long as the group reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, cast

import pika
import pytest
from bounded import Beside
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import AmqpField, Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.fields import properties_in
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.hand_over import PikaCarrier
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.slots import HandOverMarker

pytestmark = pytest.mark.broker

_MARKER = HandOverMarker("flush", "events.slot.00", "1", "events.park")


@pytest.fixture
def carrier(vhost_url: str, bare_channel: BlockingChannel) -> Iterator[PikaCarrier]:
    """A carrier that has sent a marker behind forty messages of the queue ``old``."""
    bare_channel.queue_declare("old", durable=True)
    for _ in range(40):
        bare_channel.basic_publish("", "old", b"")
    bare_channel.queue_declare("old", passive=True)  # they are in the queue
    with closing(PikaCarrier(ConnectionSettings.from_uri(vhost_url))) as made:
        made.send_marker("old", _MARKER)
        yield made


def read_slowly(url: str) -> None:
    """Take a message out of the queue each fifth of a second, for eight seconds, and reply to the marker."""
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        properties: Any = None
        while properties is None or not properties.reply_to:
            connection.sleep(0.2)
            _, properties, _ = channel.basic_get("old", auto_ack=True)
        headers: Any = _MARKER.reply("flushed").headers()
        channel.basic_publish("", properties.reply_to, b"", pika.BasicProperties(headers=headers))


def test_a_reader_may_take_longer_than_the_time_without_reading(carrier: PikaCarrier, vhost_url: str) -> None:
    reader = Beside(lambda: read_slowly(vhost_url))
    reader.start()
    wait = partial(carrier.wait_for_reply, _MARKER, "flushed", queues=("old", "no queue"))
    assert not wait(timeout_s=60.0, longest_s=1.0), "it takes too long"
    assert wait(timeout_s=5.0, longest_s=120.0)
    reader.finish()


def test_a_marker_that_nobody_reads_or_no_queue_takes(carrier: PikaCarrier) -> None:
    assert not carrier.wait_for_reply(_MARKER, "flushed", timeout_s=1.0, longest_s=600.0, queues=("old",))
    with pytest.raises(
        BrokerRefusedError, match="queue gone does not take the marker of a hand-over"
    ) as caught:
        carrier.send_marker("gone", _MARKER)
    assert caught.value.queue == "gone"
    carrier.send_marker("old", _MARKER)  # it connects again


def test_messages_whose_headers_pika_does_not_decode_are_moved(
    vhost_url: str, bare_channel: BlockingChannel
) -> None:
    """A time in milliseconds, which a publisher took for seconds, would end the connection of the mover each time."""
    for queue in ("parked", "goal"):
        bare_channel.queue_declare(queue, durable=True)
    bare_channel.queue_bind("goal", "amq.fanout")
    at = AmqpField("timestamp", 1_700_000_000_000)
    with Publisher(vhost_url, "") as publisher:
        publisher.publish_many(["parked"] * 2, ["1", "2"], properties={"headers": [{"at": at}] * 2})
    settings = ConnectionSettings.from_uri(vhost_url)
    with closing(PikaCarrier(settings)) as carrier:
        assert carrier.move_messages("parked", "amq.fanout", 9) == 2
        assert carrier.move_messages("parked", "amq.fanout", 9) == 0
    with closing(PikaConnection(settings)) as connection, connection.channel(raw_headers=True) as channel:
        for body in (b"1", b"2"):
            _, properties, moved = cast("Any", channel.basic_get("goal"))
            assert (properties_in(properties.raw)["headers"], moved) == (((b"at", at),), body)
