"""What passes is no error: a limit of connections, a slow line, a full queue that is consumed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pika
import pytest
from publishing_support import Consumed, bodies_with, through

from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import ConnectionLimitError, PublishError
from rabbit_chx.publishing import AsyncPublisher, Publisher, PublishReport
from rabbit_chx.testing import RunningBroker, skip_unless_ci

pytestmark = pytest.mark.broker

ROWS = 20_000


def test_a_connection_limit_passes(
    consumed: Consumed, broker: RunningBroker, vhost: RunningBroker, proxy: Callable[[], Any]
) -> None:
    if broker.ring_via is None or not broker.owned:
        skip_unless_ci("sets a limit with rabbitmqctl, so it needs a broker that the tests started")
    way = proxy()
    name = vhost.url.rpartition("/")[2]

    def limit(connections: int) -> None:
        broker.run("rabbitmqctl", "set_vhost_limits", "-p", name, f'{{"max-connections": {connections}}}')

    def full() -> None:
        limit(0)
        way.cut()
        threading.Timer(3, limit, (-1,)).start()

    try:
        with Publisher(through(vhost.url, way.port), "x", backoff_s=0.2) as publisher:
            report = publisher.publish_many(["k"] * ROWS, bodies_with({5_000: full}, ROWS))
        assert (report.confirmed, report.reconnects) == (ROWS, 1)
        assert len({message.body for message in consumed()}) == ROWS
        limit(0)
        with pytest.raises(ConnectionLimitError, match=r"530 .*limit \(0\) is reached"):
            Publisher(vhost.url, "x")
        threading.Timer(2, limit, (-1,)).start()
        with Publisher(vhost.url, "x", retry_first_connection=True) as publisher:
            assert publisher.publish_many(["k"], ["b"]).confirmed == 1
    finally:
        limit(-1)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_large_message_on_a_slow_line_is_no_stall(
    consumed: Consumed, vhost_url: str, proxy: Callable[..., Any], kind: str
) -> None:
    way = proxy(bytes_per_s=400_000)
    url, bodies = through(vhost_url, way.port), [b"x" * (1 << 20)] * 2
    patience: dict[str, Any] = {"confirm_timeout_s": 1.0, "reconnect_timeout_s": 0}
    if kind == "blocking":
        with Publisher(url, "x", **patience) as publisher:
            report = publisher.publish_many(["a", "b"], bodies)
    else:

        async def publish() -> PublishReport:
            async with AsyncPublisher(url, "x", **patience) as publisher:
                return await publisher.publish_many(["a", "b"], bodies)

        report = asyncio.run(publish())
    assert report.confirmed == 2
    assert report.seconds > 3, "the line was fast, so this shows nothing"
    assert len(consumed()) == 2


def test_a_full_queue_with_a_consumer_is_waited_for(vhost_url: str) -> None:
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        channel = connection.channel()
        full: Any = {"x-max-length": 200, "x-overflow": "reject-publish"}
        channel.queue_declare("full", arguments=full)
        done = threading.Event()

        def take() -> None:
            with pika.BlockingConnection(pika_parameters(vhost_url)) as own:
                at_work = own.channel()
                while not done.wait(0.01):  # 100 messages a second: a window takes ten
                    at_work.basic_get("full", auto_ack=True)

        consumer = threading.Thread(target=take)
        consumer.start()
        try:
            with Publisher(vhost_url, "", nack_retries=2, backoff_s=0.2) as publisher:
                report = publisher.publish_many(["full"] * 900, [str(i) for i in range(900)])
        finally:
            done.set()
            consumer.join()
        assert (report.confirmed, report.nacked) == (900, 0)
        assert report.retried > 900, "each row was refused once or more, so this took longer than two retries"
        assert "sent again after a refusal" in str(report)
        with (
            Publisher(vhost_url, "", nack_retries=1, backoff_s=0.1) as publisher,
            pytest.raises(PublishError, match=r"basic.nack.*one of them has the key 'full'") as caught,
        ):
            publisher.publish_many(["full"] * 500, ["b"] * 500)
    assert caught.value.report.nacked > 0


@pytest.mark.parametrize("rows", [3, 5_000])
def test_the_last_word_on_progress_is_the_final_count(consumed: Consumed, vhost_url: str, rows: int) -> None:
    told: list[PublishReport] = []
    with Publisher(vhost_url, "x", progress=told.append) as publisher:
        report = publisher.publish_many(["k"] * rows, ["b"] * rows)
    assert told[-1] == report
    assert report.confirmed == rows == len(consumed())
    told.clear()
    with (
        Publisher(vhost_url, "nope", progress=told.append) as publisher,
        pytest.raises(PublishError) as caught,
    ):
        publisher.publish_many(["k"] * rows, ["b"] * rows)
    assert told[-1] == caught.value.report
