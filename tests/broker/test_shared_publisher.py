"""The shared publisher on a real broker: outcomes of single messages. Connections are lost in simulation/ and in fire/publisher."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from publishing_support import Consumed
from taken import taken

from rabbit_chx import AmqpField, SharedPublisher, errors

pytestmark = pytest.mark.broker

_SOON_S = 60.0


def error_of(future: Future[None]) -> BaseException | None:
    return future.exception(_SOON_S)


def test_threads_and_tasks_share_it(consumed: Consumed, vhost_url: str) -> None:
    def in_a_thread(publisher: SharedPublisher, name: str) -> None:
        for i in range(100):
            publisher.submit(f"{name}.{i % 5}", f"{name} {i}").result(_SOON_S)

    async def in_a_loop(publisher: SharedPublisher) -> None:
        async def one(task: int) -> None:
            for i in range(50):
                await publisher.publish(f"task{task}.{i % 5}", f"task{task} {i}")

        await asyncio.gather(*(one(task) for task in range(8)))

    with SharedPublisher(vhost_url, "x") as publisher:
        threads = [threading.Thread(target=in_a_thread, args=(publisher, f"thread{n}")) for n in range(8)]
        threads.append(threading.Thread(target=lambda: asyncio.run(in_a_loop(publisher))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_SOON_S)
        assert publisher.healthy()
        stats = publisher.stats()
    assert (stats.submitted, stats.confirmed, stats.republished) == (1200, 1200, 0)
    found = consumed()
    assert len({message.body for message in found}) == len(found) == 1200
    last: dict[str, int] = {}
    for message in found:
        name, number = message.body.split()
        assert int(number) > last.get(message.key, -1), name
        last[message.key] = int(number)


def test_each_unroutable_or_rejected_message_fails_its_own_future(
    channel: BlockingChannel, vhost_url: str
) -> None:
    channel.exchange_declare("narrow", ExchangeType("direct"))
    channel.queue_declare(
        "narrow.full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    channel.queue_declare("narrow.free", durable=True)
    channel.queue_bind("narrow.full", "narrow", "full")
    channel.queue_bind("narrow.free", "narrow", "free")
    properties: dict[str, Any] = {
        "headers": {"a": 1, "b": [True, "x"], "c": {"d": AmqpField("double", 2.5)}},
        "timestamp": 1_700_000_000,
        "priority": 3,
    }
    with SharedPublisher(vhost_url, "narrow") as publisher:
        assert error_of(publisher.submit("full", "first")) is None
        wanted = {"free": type(None), "full": errors.NackedError, "nowhere": errors.UnroutableError}
        futures = [(key, publisher.submit(key, str(i), **properties)) for i in range(100) for key in wanted]
        for key, future in futures:
            assert type(error_of(future)) is wanted[key]
        # The bodies are equal: only the properties tell which message was returned.
        pairs = [
            (i, publisher.submit("nowhere" if i % 2 else "free", "", message_id=str(i))) for i in range(100)
        ]
        assert all((error_of(future) is None) == (i % 2 == 0) for i, future in pairs)
        large = publisher.submit("nowhere", "x" * 300_000)
        assert isinstance(error_of(large), errors.UnroutableError)
    assert len(list(taken(channel, "narrow.free"))) == 150


def test_headers_that_do_not_fit_into_the_negotiated_frame_fail_their_message_only(
    consumed: Consumed, vhost_url: str
) -> None:
    with SharedPublisher(f"{vhost_url}?frame_max=8192", "x") as publisher:
        futures = [
            publisher.submit("k", str(size), headers={"text": "x" * size}) for size in (8_000, 9_000, 30)
        ]
        assert [type(error_of(future)) for future in futures] == [type(None), errors.RowError, type(None)]
        assert publisher.stats().reconnects == 0
    assert sorted(message.body for message in consumed()) == [b"30", b"8000"]
