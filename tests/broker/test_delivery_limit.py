"""What counts towards the delivery limit of a quorum queue, and that a message that ends its members does not take others along."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import pika
import pytest

from rabbit_chx.broker import pika_parameters
from rabbit_chx.routing import Release
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

LIMIT = 3


def nack(channel: Any, tag: int) -> None:
    channel.basic_nack(tag, requeue=True)


def reject(channel: Any, tag: int) -> None:
    channel.basic_reject(tag, requeue=True)


def close_channel(channel: Any, _tag: int) -> None:
    channel.close()


def lose_connection(channel: Any, _tag: int) -> None:
    channel.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def _count_after(url: str, give_back: Callable[[Any, int], None], times: int) -> int | None:
    """Return the ``x-delivery-count`` of a message that was returned so often; None where it is gone."""
    with contextlib.ExitStack() as stack:
        for returns in range(times + 1):
            connection = pika.BlockingConnection(pika_parameters(url))
            stack.callback(_close, connection)
            channel = connection.channel()
            if not returns:
                limited = {"x-queue-type": "quorum", "x-delivery-limit": LIMIT}
                channel.queue_declare("c", durable=True, arguments=limited)
                channel.confirm_delivery()
                channel.basic_publish("", "c", b"1")
            end = time.monotonic() + 5
            method, properties, _ = channel.basic_get("c")
            while method is None and time.monotonic() < end:
                time.sleep(0.05)
                method, properties, _ = channel.basic_get("c")
            if method is None or properties is None or method.delivery_tag is None:
                return None
            if returns == times:
                return int((properties.headers or {}).get("x-delivery-count", 0))
            give_back(channel, method.delivery_tag)
    raise AssertionError


def _close(connection: pika.BlockingConnection) -> None:
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.mark.parametrize("give_back", [nack, reject, close_channel, lose_connection])
def test_what_counts_towards_the_limit(vhost: RunningBroker, give_back: Callable[[Any, int], None]) -> None:
    """From 4.3 on `basic.nack` does not count; all other returns do, on each release."""
    is_counted = give_back is not nack or Release(vhost.version).numbers < (4, 3, 0)
    assert _count_after(vhost.url, give_back, LIMIT) == (LIMIT if is_counted else 0)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        connection.channel().queue_delete("c")
    assert _count_after(vhost.url, give_back, LIMIT + 1) == (None if is_counted else 0)
