"""What counts towards the delivery limit of a quorum queue, as docs/publish/consuming.md states it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from quick_rings import quick_broker

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

LIMIT = 3
TIMEOUT_MS, DEFAULT_TIMEOUT_MS = 500, 1_800_000
TICK_MS, DEFAULT_TICK_MS = 200, 60_000


def nack(channel: Any, tag: int) -> None:
    channel.basic_nack(tag, requeue=True)


def reject(channel: Any, tag: int) -> None:
    channel.basic_reject(tag, requeue=True)


def close_channel(channel: Any, _tag: int) -> None:
    channel.close()


def lose_connection(channel: Any, _tag: int) -> None:
    channel.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def time_out(channel: Any, _tag: int) -> None:
    """Wait until the broker closes the channel (before 4.3), or cancels the consumer."""
    cancelled: list[object] = []
    channel.add_on_cancel_callback(cancelled.append)
    end = time.monotonic() + 60
    overlooks = channel.connection._impl.server_properties["version"].startswith("4.3")
    while channel.is_open and not cancelled:
        assert time.monotonic() < end, "no timeout"
        channel.connection.process_data_events(2)
        if overlooks and not cancelled:
            # RabbitMQ 4.3.6 may overlook a timeout until the next operation on the queue; a nack does not count there.
            other = channel.connection.channel()
            method, *_ = other.basic_get("c")
            if method is not None:
                other.basic_nack(method.delivery_tag, requeue=True)
            other.close()


@pytest.fixture
def url(rabbit: Rabbit) -> Iterator[str]:
    with temporary_vhost(rabbit.broker) as vhost:
        yield vhost.url


@pytest.fixture
def _short_timeout(rabbit: Rabbit) -> Iterator[None]:
    """Set the broker's consumer timeout; before 4.3 channels check it at their tick."""

    def set_ms(timeout: int, tick: int) -> None:
        for name, value in (("consumer_timeout", timeout), ("channel_tick_interval", tick)):
            quick_broker(rabbit.broker).run(
                "rabbitmqctl", "-q", "eval", f"application:set_env(rabbit, {name}, {value})."
            )

    set_ms(TIMEOUT_MS, TICK_MS)
    yield
    set_ms(DEFAULT_TIMEOUT_MS, DEFAULT_TICK_MS)


def _count_after(url: str, give_back: Callable[[Any, int], None], times: int) -> int | None:
    """Return the ``x-delivery-count`` of a message that was returned so often; None if the broker has dropped it."""
    with contextlib.ExitStack() as stack:
        for returns in range(times + 1):
            connection = pika.BlockingConnection(pika_parameters(url))
            stack.callback(_close, connection)
            channel = connection.channel()
            if not returns:
                # What the broker drops is in another queue, so that no time decides what was dropped.
                dropped = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dropped"}
                limited = {"x-queue-type": "quorum", "x-delivery-limit": LIMIT, **dropped}
                channel.queue_declare("dropped", durable=True)
                channel.queue_declare("c", durable=True, arguments=limited)
                channel.confirm_delivery()
                channel.basic_publish("", "c", b"1")
            method, properties = (_consume if give_back is time_out else _get)(channel)
            if method is None:
                return None
            if returns == times:
                return int((properties.headers or {}).get("x-delivery-count", 0))
            give_back(channel, method.delivery_tag)
    raise AssertionError


def _get(channel: Any) -> tuple[Any, Any]:
    """Get the message; None if the broker has dropped it."""
    end = time.monotonic() + 60
    while (taken := channel.basic_get("c"))[0] is None and not _is_dropped(channel):
        assert time.monotonic() < end, "the message is nowhere"
        time.sleep(0.05)
    return taken[:2]


def _consume(channel: Any) -> tuple[Any, Any]:
    """Consume the message; None if the broker has dropped it."""
    channel.basic_qos(prefetch_count=1)
    taken: list[tuple[Any, Any]] = []
    channel.basic_consume("c", lambda _, method, properties, __: taken.append((method, properties)))
    end = time.monotonic() + 60
    while not taken and not _is_dropped(channel):
        assert time.monotonic() < end, "the message is nowhere"
        channel.connection.process_data_events(0.05)
    return taken[0] if taken else (None, None)


def _is_dropped(channel: Any) -> bool:
    return bool(channel.queue_declare("dropped", passive=True).method.message_count)


def _close(connection: pika.BlockingConnection) -> None:
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.mark.parametrize("give_back", [nack, reject, close_channel, lose_connection])
def test_what_counts_towards_the_limit(
    rabbit: Rabbit, url: str, give_back: Callable[[Any, int], None]
) -> None:
    """From 4.3 on `basic.nack` does not count."""
    _check(url, give_back, is_counted=give_back is not nack or rabbit.release.numbers < (4, 3, 0))


@pytest.mark.usefixtures("_short_timeout")
def test_whether_a_consumer_timeout_counts_towards_the_limit(rabbit: Rabbit, url: str) -> None:
    """Before 4.3 it closes the channel, which counts. From 4.3 on it does not count."""
    _check(url, time_out, is_counted=rabbit.release.numbers < (4, 3, 0))


def _check(url: str, give_back: Callable[[Any, int], None], *, is_counted: bool) -> None:
    assert _count_after(url, give_back, LIMIT) == (LIMIT if is_counted else 0)
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        for queue in ("c", "dropped"):
            channel.queue_delete(queue)
    assert _count_after(url, give_back, LIMIT + 1) == (None if is_counted else 0)
