"""The shared publisher on a real broker: outcomes, rows that close the channel, lost connections, outages."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from decimal import Decimal
from typing import Any

import pika
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from publishing_support import Consumed, through
from tcp_proxy import Proxy

from rabbit_chx import AmqpField, Broker, Limits, Retries, SharedPublisher
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import (
    AccessRefusedError,
    ChannelClosedError,
    NackedError,
    NotFoundError,
    UnknownOutcomeError,
    UnreachableError,
    UnroutableError,
)
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


@pytest.mark.parametrize(
    ("fault", "code", "kind"),
    [
        ("missing exchange", 404, NotFoundError),
        ("too large", 406, ChannelClosedError),
        ("user id", 406, ChannelClosedError),
        pytest.param(
            "decimal into a stream", 541, ChannelClosedError, marks=pytest.mark.chx_broker(">=4.3")
        ),  # older releases store it
    ],
)
def test_a_message_that_closes_the_channel_is_the_only_one_with_an_error(
    channel: BlockingChannel, vhost_url: str, fault: str, code: int, kind: type[Exception]
) -> None:
    rows, poison = 200, {0, 120, 199}
    channel.exchange_declare("rows", ExchangeType("fanout"))
    channel.queue_declare("rows")
    channel.queue_bind("rows", "rows")
    bodies: list[Any] = [b"%d" % row for row in range(rows)]
    special: dict[str, Any] = {}
    if fault == "missing exchange":
        special["exchange"] = "gone"
    elif fault == "too large":
        poison = {120}
        bodies[120] = bytes(140 << 20)
    elif fault == "user id":
        special["user_id"] = "somebody"
    else:
        channel.queue_declare("rows.stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("rows.stream", "rows")
        special["headers"] = {"price": Decimal("1.25")}
    with SharedPublisher(vhost_url, "rows", limits=Limits(max_in_flight_bytes=1 << 30)) as publisher:
        futures = [
            publisher.submit("k", body, **(special if row in poison else {}))
            for row, body in enumerate(bodies)
        ]
        errors = {row: error for row, future in enumerate(futures) if (error := error_of(future)) is not None}
        stats = publisher.stats()
    assert set(errors) == poison
    for error in errors.values():
        assert isinstance(error, kind)
        assert error.reply_code == code  # type: ignore[attr-defined]
    assert (stats.confirmed, stats.nacked) == (rows - len(poison), len(poison))
    found = {bytes(body) for _, _, body in _take(channel, "rows")}
    assert found >= {body for row, body in enumerate(bodies) if row not in poison}


def _take(channel: BlockingChannel, queue: str) -> list[Any]:
    taken: list[Any] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append(got)
    return taken


def test_a_missing_permission_is_the_error_of_the_message(vhost: Any, channel: BlockingChannel) -> None:
    channel.exchange_declare("internal", ExchangeType("fanout"), internal=True)
    with SharedPublisher(vhost.url, "x") as publisher:
        futures = [publisher.submit("k", "b", exchange="internal" if i == 5 else None) for i in range(10)]
        errors = [error_of(future) for future in futures]
    assert [place for place, error in enumerate(errors) if error is not None] == [5]
    assert isinstance(errors[5], AccessRefusedError)


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
        wanted = {"free": type(None), "full": NackedError, "nowhere": UnroutableError}
        futures = [(key, publisher.submit(key, str(i), **properties)) for i in range(100) for key in wanted]
        for key, future in futures:
            assert type(error_of(future)) is wanted[key]
        # The bodies are equal: only the properties tell which message was returned.
        pairs = [
            (i, publisher.submit("nowhere" if i % 2 else "free", "", message_id=str(i))) for i in range(100)
        ]
        assert all((error_of(future) is None) == (i % 2 == 0) for i, future in pairs)
        large = publisher.submit("nowhere", "x" * 300_000)
        assert isinstance(error_of(large), UnroutableError)
    assert len(_take(channel, "narrow.free")) == 150


@pytest.mark.parametrize("how", ["cut", "finish", "abandon"])
def test_a_lost_connection_loses_nothing(
    consumed: Consumed, vhost_url: str, proxy: Callable[..., Proxy], how: str
) -> None:
    line = proxy()
    with SharedPublisher(through(vhost_url, line.port), "x", retries=Retries(backoff_s=0.05)) as publisher:
        futures = []
        for i in range(6_000):
            if i in (1_000, 3_000, 5_000):
                getattr(line, how)()
            futures.append(publisher.submit(f"k{i % 50}", str(i)))
        assert [error_of(future) for future in futures] == [None] * 6_000
        stats = publisher.stats()
    assert stats.reconnects >= 1
    found = [int(message.body) for message in consumed()]
    assert set(found) == set(range(6_000))
    assert len(found) <= 6_000 + stats.republished


def test_an_outage_is_the_error_of_its_messages_and_the_next_ones_are_sent(
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
        assert isinstance(error_of(sent), UnknownOutcomeError)
        error = error_of(unsent)
        assert isinstance(error, UnreachableError)
        assert "was not sent" in str(error)
        assert not publisher.healthy()
        line.leave_frozen()
        line.accept()
        assert error_of(publisher.submit("k", "after")) is None
    assert {message.body for message in consumed()} in ({b"before", b"after"}, {b"before", b"sent", b"after"})


def test_it_becomes_healthy_again_without_a_message(
    vhost_url: str, proxy: Callable[..., Proxy], channel: object
) -> None:
    del channel
    line = proxy()
    with SharedPublisher(
        through(vhost_url, line.port), "x", retries=Retries(reconnect_timeout_s=0.1, backoff_s=0.05)
    ) as publisher:
        assert error_of(publisher.submit("k", "b")) is None
        line.refuse()
        line.cut()
        assert isinstance(error_of(publisher.submit("k", "b")), UnreachableError | UnknownOutcomeError)
        line.accept()
        await_health(publisher)


def test_a_login_that_is_refused(vhost_url: str) -> None:
    with SharedPublisher(vhost_url.replace("guest:guest@", "guest:wrong-secret@"), "x") as publisher:
        error = error_of(publisher.submit("k", "b"))
    assert isinstance(error, AccessRefusedError)
    assert "wrong-secret" not in str(error)


def test_a_queue_that_is_unbound_and_bound_again(channel: BlockingChannel, vhost_url: str) -> None:
    channel.exchange_declare("turns", CHX)
    channel.queue_declare("turns")
    with SharedPublisher(vhost_url, "turns") as publisher:
        assert isinstance(error_of(publisher.submit("k", "b")), UnroutableError)
        channel.queue_bind("turns", "turns", "1")
        assert error_of(publisher.submit("k", "b")) is None
        with pika.BlockingConnection(pika_parameters(vhost_url)) as other:
            other.channel().exchange_delete("turns")
        assert isinstance(error_of(publisher.submit("k", "b")), NotFoundError)
        channel.exchange_declare("turns", CHX)
        channel.queue_bind("turns", "turns", "1")
        assert error_of(publisher.submit("k", "b")) is None


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
        errors = {body: error_of(future) for part in outcomes for body, future in part.items()}
        stats = publisher.stats()
    assert stats.reconnects >= 2
    confirmed = {body for body, error in errors.items() if error is None}
    assert len(confirmed) == len(errors) > 1_000, Counter(map(repr, errors.values())).most_common(3)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        found = Counter(got[2].decode() for queue in ("a", "b") for got in _take(channel, queue))
    assert found.keys() == confirmed
    assert found.total() <= len(confirmed) + stats.republished
