"""The shared publisher on a real broker: outcomes, rows that close the channel, lost connections, outages."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from publishing_support import Consumed, through
from tcp_proxy import Proxy

from rabbit_chx import AmqpField, Broker, Limits, Retries, SharedPublisher, errors
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

_SOON_S = 60.0


def error_of(future: Future[None]) -> BaseException | None:
    return future.exception(_SOON_S)


def await_health(publisher: SharedPublisher) -> None:
    """Wait until messages can be sent."""
    deadline = time.monotonic() + _SOON_S
    while not publisher.healthy() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert publisher.healthy()


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


def _take(channel: BlockingChannel, queue: str) -> list[Any]:
    taken: list[Any] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append(got)
    return taken


def test_each_unroutable_or_rejected_message_fails_its_own_future(
    channel: BlockingChannel, vhost_url: str
) -> None:
    channel.exchange_declare("narrow", ExchangeType("direct"))
    channel.queue_declare("narrow.full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_declare("narrow.free")
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
    assert len(_take(channel, "narrow.free")) == 150


def test_lost_connections_lose_nothing(
    consumed: Consumed, vhost_url: str, proxy: Callable[..., Proxy]
) -> None:
    line = proxy()
    breaks = {1_000: line.cut, 3_000: line.finish, 5_000: line.abandon}
    with SharedPublisher(through(vhost_url, line.port), "x", retries=Retries(backoff_s=0.05)) as publisher:
        futures = []
        for i in range(6_000):
            breaks.get(i, int)()
            futures.append(publisher.submit(f"k{i % 50}", str(i)))
        assert [error_of(future) for future in futures] == [None] * 6_000
        stats = publisher.stats()
    assert stats.reconnects >= 1
    found = [int(message.body) for message in consumed()]
    assert set(found) == set(range(6_000))
    assert len(found) <= 6_000 + stats.republished


def test_an_outage_is_the_error_of_its_messages_and_then_it_is_healthy_without_a_message(
    consumed: Consumed, vhost_url: str, proxy: Callable[..., Proxy]
) -> None:
    line = proxy()
    with SharedPublisher(
        through(vhost_url, line.port),
        "x",
        retries=Retries(reconnect_timeout_s=0.5, backoff_s=0.05),
        limits=Limits(confirm_timeout_s=5, blocked_timeout_s=5),
    ) as publisher:
        assert error_of(publisher.submit("k", "before")) is None
        line.refuse()
        line.freeze()
        sent = publisher.submit("k", "sent")
        deadline = time.monotonic() + _SOON_S
        while not publisher._outbox._open[1].is_sent and time.monotonic() < deadline:
            time.sleep(0.001)
        line.cut()
        unsent = publisher.submit("k", "unsent")
        assert isinstance(error_of(sent), errors.UnknownOutcomeError)
        error = error_of(unsent)
        assert isinstance(error, errors.UnreachableError)
        assert "was not sent" in str(error)
        assert not publisher.healthy()
        line.leave_frozen()
        line.accept()
        await_health(publisher)
        assert error_of(publisher.submit("k", "after")) is None
    assert {message.body for message in consumed()} in ({b"before", b"after"}, {b"before", b"sent", b"after"})


@pytest.mark.slow
@pytest.mark.restarts
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_what_32_threads_hear_is_what_is_in_the_queues_though_the_broker_stops(
    vhost: RunningBroker, how: str
) -> None:
    """They wait for room only, not for confirms; the broker stops twice."""
    threads, stopped = 32, threading.Event()
    outcomes: list[dict[str, Future[None]]] = [{} for _ in range(threads)]
    with Broker(vhost.url, vhost.management_url) as control:
        control.declare("x", {"a": 1, "b": 1}, queue_arguments={"x-queue-type": "quorum"})

    def submit(publisher: SharedPublisher, number: int) -> None:
        for i in itertools.takewhile(lambda _: not stopped.is_set(), itertools.count()):
            outcomes[number][f"{number} {i}"] = publisher.submit(f"{number}.{i % 7}", f"{number} {i}")

    with SharedPublisher(vhost.url, "x", block_s=120) as publisher:
        workers = [threading.Thread(target=submit, args=(publisher, number)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for _ in range(2):
            await_health(publisher)
            time.sleep(1)
            if how == "kill":
                vhost.kill()
                time.sleep(1)
                vhost.start()
            else:
                vhost.restart()
        await_health(publisher)
        time.sleep(1)
        stopped.set()
        for worker in workers:
            worker.join(_SOON_S)
        outcome_of = {body: error_of(future) for part in outcomes for body, future in part.items()}
        stats = publisher.stats()
    assert stats.reconnects >= 2
    confirmed = {body for body, error in outcome_of.items() if error is None}
    assert len(confirmed) == len(outcome_of) > 1_000, Counter(map(repr, outcome_of.values())).most_common(3)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        found = Counter(got[2].decode() for queue in ("a", "b") for got in _take(channel, queue))
    assert found.keys() == confirmed
    assert found.total() <= len(confirmed) + stats.republished
