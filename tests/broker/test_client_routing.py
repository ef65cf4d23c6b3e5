"""Rows that the client routes, on a real broker: in the queues that the exchange would have chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from canary import CANARY, canary_user
from declared import with_login
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed
from quick_rings import quick_prefix

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import AccessRefusedError, PublishError
from rabbit_chx.publishing import Publisher, PublishReport
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

KEYS = [f"key {i}" for i in range(3_000)]


@pytest.fixture
def reader(vhost: RunningBroker, channel: BlockingChannel) -> Iterator[Broker]:
    """Reads the ring of `x`, and what it hashes."""
    assert channel.is_open
    with Broker(vhost.url, vhost.management_url, ring_source=quick_prefix(vhost)) as broker:
        yield broker


def test_each_row_is_where_the_exchange_would_have_put_it(
    vhost_url: str, reader: Broker, consumed: Consumed
) -> None:
    with Publisher(vhost_url, "x") as publisher:
        publisher.publish_many(KEYS, KEYS)
    by_exchange = {message.body: message.queue for message in consumed()}
    with Publisher(vhost_url, "x", routing="client", ring=lambda: reader.exchange("x")) as publisher:
        assert publisher.publish_many(KEYS, KEYS).complete
    messages = consumed()
    assert {message.body: message.queue for message in messages} == by_exchange
    assert len(messages) == len(KEYS)
    assert all(message.key == message.queue for message in messages)


def test_the_user_needs_write_on_the_default_exchange(vhost: RunningBroker, reader: Broker) -> None:
    management, ring = Management(str(vhost.management_url)), reader.ring("x")
    name = ConnectionSettings.from_uri(vhost.url).vhost

    def publish(write: str) -> PublishReport:
        with (
            canary_user(management, name, write=write) as user,
            Publisher(with_login(vhost.url, user, CANARY), "x", routing="client", ring=ring) as publisher,
        ):
            return publisher.publish_many(KEYS, KEYS)

    assert publish(r"^amq\.default$").complete
    with pytest.raises(PublishError, match=r"amq\.default") as caught:
        publish("^x$")
    assert isinstance(caught.value.__cause__, AccessRefusedError)
