"""The publisher on asyncio: the same rows, faults and counts, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed, bodies_with, through

from rabbit_chx import AsyncPublisher
from rabbit_chx.connection.asyncio_connection import AsyncConnection
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    NotFoundError,
    PublishError,
    RowError,
    UnreachableError,
)
from rabbit_chx.publishing import PublishReport

pytestmark = pytest.mark.broker

ROWS = 6_000


def publish(url: Any, exchange: str, keys: Any, bodies: Any, **options: Any) -> PublishReport:
    """What `publish_many` reports of these rows."""
    columns = {name: options.pop(name) for name in ("properties", "exchanges") if name in options}

    async def run() -> PublishReport:
        async with AsyncPublisher(url, exchange, **options) as publisher:
            return await publisher.publish_many(keys, bodies, **columns)

    return asyncio.run(run())


async def async_iterator(values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


@pytest.mark.parametrize("form", [list, async_iterator], ids=["list", "async iterator"])
def test_any_form_of_rows(consumed: Consumed, vhost_url: str, form: Callable[[list[str]], Any]) -> None:
    keys = [f"k{i}" for i in range(1_203)]
    report = publish(
        vhost_url, "x", form(keys), form(keys), max_in_flight=100, properties={"message_id": form(keys)}
    )
    assert report.confirmed == 1_203
    assert sorted((m.key, m.body.decode(), m.properties.message_id) for m in consumed()) == sorted(
        zip(keys, keys, keys, strict=True)
    )


def test_bodies_of_every_size_in_a_narrow_window(consumed: Consumed, vhost_url: str) -> None:
    sizes = [0, 1, 131_063, 131_064, 131_065, 300_000, 5_000_000, 0, 2]
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    keys = [str(i) for i in range(len(sizes))]
    assert publish(vhost_url, "x", keys, bodies, max_in_flight=2, max_in_flight_bytes=200_000).complete
    assert sorted(m.body for m in consumed()) == sorted(bodies)


def test_tasks_that_share_one(consumed: Consumed, vhost_url: str) -> None:
    async def run() -> PublishReport:
        async with AsyncPublisher(vhost_url, "x", max_in_flight=100) as publisher:
            await asyncio.gather(*(publisher.send([str(n)] * 300, ["b"] * 300) for n in range(10)))
            return await publisher.flush()

    assert asyncio.run(run()).confirmed == 3_000
    assert Counter(m.key for m in consumed()) == dict.fromkeys(map(str, range(10)), 300)


def test_a_loss_reaches_every_task_whose_rows_it_concerns(channel: BlockingChannel, vhost_url: str) -> None:
    """Whichever task has its turn first flushes the rows of all."""
    channel.exchange_declare("unbound", CHX)

    async def run() -> list[PublishReport | BaseException]:
        async with AsyncPublisher(vhost_url, "unbound") as publisher:
            calls = (publisher.publish_many([str(n)] * 20, ["b"] * 20) for n in range(3))
            return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(run())
    assert [type(outcome) for outcome in outcomes] == [PublishError] * 3
    assert {outcome.report.returned for outcome in outcomes if isinstance(outcome, PublishError)} == {60}


def test_tasks_that_share_one_have_one_report(consumed: Consumed, vhost_url: str) -> None:
    async def run() -> list[PublishReport]:
        async with AsyncPublisher(vhost_url, "x") as publisher:
            calls = (publisher.publish_many([str(n)] * 20, ["b"] * 20) for n in range(3))
            return await asyncio.gather(*calls)

    assert {report.confirmed for report in asyncio.run(run())} == {60}
    assert len(consumed()) == 60


def test_the_loop_goes_on_meanwhile(consumed: Consumed, vhost_url: str) -> None:
    async def run() -> int:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.005)
                beats += 1

        async with AsyncPublisher(vhost_url, "x") as publisher:
            other = asyncio.create_task(beat())
            await publisher.publish_many(["k"] * 20_000, ["b"] * 20_000)
            other.cancel()
        return beats

    assert asyncio.run(run()) >= 5
    assert len(consumed()) == 20_000


def test_it_connects_when_it_is_first_used_and_not_once_it_is_closed(
    consumed: Consumed, vhost_url: str
) -> None:
    async def run() -> None:
        publisher = AsyncPublisher(vhost_url, "x")
        assert (await publisher.publish_many(["k"], ["b"])).confirmed == 1
        await publisher.close()
        await publisher.close()
        with pytest.raises(PublishError, match="the connection is closed: open a new one"):
            await publisher.send(["k"], ["b"])

    asyncio.run(run())
    assert len(consumed()) == 1


def test_what_is_not_confirmed(channel: BlockingChannel, consumed: Consumed, vhost_url: str) -> None:
    channel.exchange_declare("unbound", CHX)
    with pytest.raises(PublishError, match="no queue took 700") as caught:
        publish(vhost_url, "unbound", ["k"] * 700, ["b"] * 700)
    assert (caught.value.report.confirmed, caught.value.report.returned) == (0, 700)
    with pytest.raises(PublishError, match="no exchange 'nope'") as caught:
        publish(vhost_url, "nope", ["k"] * 700, ["b"] * 700)
    assert isinstance(caught.value.__cause__, NotFoundError)
    with pytest.raises(PublishError, match="row 1200: the routing key") as caught:
        publish(vhost_url, "x", ["k"] * 1_200 + [None], ["b"] * 1_201)
    assert isinstance(caught.value.__cause__, RowError)
    assert caught.value.report.confirmed == len(consumed()) > 0


def test_connections_that_are_cut(consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]) -> None:
    way = proxy()
    bodies = bodies_with({1_300: way.cut, 4_000: way.cut}, ROWS)
    report = publish(through(vhost_url, way.port), "x", itertools.repeat("k", ROWS), bodies, backoff_s=0.05)
    found = consumed()
    firsts = list(dict.fromkeys(int(m.body) for m in found))
    assert firsts == list(range(ROWS)), "no row is missing, and none overtakes another"
    assert (report.confirmed, report.reconnects) == (ROWS, 2)
    assert len(found) - ROWS <= report.republished <= 2_000


def test_a_broker_that_falls_silent_is_left(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    silent, other = proxy(), proxy()
    urls = [through(vhost_url, way.port) + "?heartbeat=1" for way in (silent, other)]
    report = publish(
        urls, "x", itertools.repeat("k", ROWS), bodies_with({3_000: silent.freeze}, ROWS), backoff_s=0.05
    )
    assert (report.confirmed, report.reconnects) == (ROWS, 1)
    assert len({m.body for m in consumed()}) == ROWS


def test_heartbeats_go_on_while_the_input_stalls(consumed: Consumed, vhost_url: str) -> None:
    async def bodies() -> AsyncIterator[str]:
        yield "before"
        await asyncio.sleep(5)  # the broker gives up after three intervals without a sign of life
        yield "after"

    report = publish(vhost_url + "?heartbeat=1", "x", ["k", "k"], bodies(), max_in_flight=1)
    assert (report.confirmed, report.reconnects) == (2, 0)
    assert len(consumed()) == 2


def test_confirms_that_do_not_come(vhost_url: str, proxy: Callable[[], Any]) -> None:
    way = proxy()

    async def run() -> None:
        async with AsyncPublisher(
            through(vhost_url, way.port) + "?heartbeat=0", "x", confirm_timeout_s=1, max_reconnects=0
        ) as publisher:
            way.freeze()
            await publisher.publish_many(["k"] * 3, ["b"] * 3)

    with pytest.raises(
        PublishError, match="answered nothing for 1 s, and 3 messages are unconfirmed"
    ) as caught:
        asyncio.run(run())
    assert isinstance(caught.value.__cause__, BrokerTimeoutError)
    assert caught.value.report.unknown == 3


@pytest.mark.parametrize("in_flight", [100, 1_000])
def test_a_call_that_is_cancelled(consumed: Consumed, vhost_url: str, in_flight: int) -> None:
    async def run() -> tuple[int, PublishReport]:
        under_way = asyncio.Event()

        def look(report: PublishReport) -> None:
            if report.confirmed:
                under_way.set()

        async with AsyncPublisher(vhost_url, "x", max_in_flight=in_flight, progress=look) as publisher:
            task = asyncio.create_task(publisher.send(["k"] * 500_000, ["b"] * 500_000))
            await under_way.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            handed_over = publisher.report.rows
            first = await publisher.flush()
            assert (await publisher.publish_many(["k"] * 10, ["b"] * 10)).confirmed == 10
            return handed_over, first

    handed_over, report = asyncio.run(run())
    assert report.rows == report.confirmed == handed_over < 500_000
    assert len(consumed()) == handed_over + 10


def test_a_reconnect_that_is_cancelled(consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]) -> None:
    way = proxy()

    async def run() -> PublishReport:
        async with AsyncPublisher([through(vhost_url, way.port), vhost_url], "x", backoff_s=5) as publisher:
            await publisher.publish_many(["k"], ["before"])
            way.freeze()
            await publisher.send(["k"] * 3, ["1", "2", "3"])
            way.cut()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publisher.flush(), 0.5)  # it waits before it reconnects
            assert publisher.report.unknown == 3
            return await publisher.flush()

    report = asyncio.run(run())
    assert (report.confirmed, report.republished, report.reconnects) == (3, 3, 1)
    assert sorted(m.body for m in consumed()) == [b"1", b"2", b"3", b"before"]


def test_close_during_a_reconnect_leaves_no_connection(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = proxy()
    opened: list[AsyncConnection] = []

    async def run() -> None:
        publisher = AsyncPublisher(through(vhost_url, way.port), "x", backoff_s=0)
        await publisher.publish_many(["k"], ["before"])
        open_one = AsyncConnection.connect

        async def open_and_close(settings: Any) -> AsyncConnection:
            opened.append(await open_one(settings))
            await publisher.close()
            return opened[-1]

        monkeypatch.setattr(AsyncConnection, "connect", open_and_close)
        way.cut()
        with pytest.raises(PublishError, match="the connection is closed"):
            await publisher.publish_many(["k"], ["after"])
        assert [connection._closed for connection in opened] == [True]

    asyncio.run(run())
    assert [m.body for m in consumed()] == [b"before"]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (("guest:guest@", "guest:wrong-secret@"), AccessRefusedError, "403 ACCESS_REFUSED.*check user name"),
        (("127.0.0.1", "no-such-host.invalid"), UnreachableError, "host name cannot be resolved"),
    ],
)
def test_no_way_in(vhost_url: str, change: tuple[str, str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        publish(vhost_url.replace(*change), "x", ["k"], ["b"])
    assert "secret" not in str(caught.value)


def test_nobody_there_and_somebody_silent(vhost_url: str, proxy: Callable[[], Any]) -> None:
    with pytest.raises(UnreachableError, match=r"nobody answers there.*check host and port"):
        publish(through(vhost_url, 1), "x", ["k"], ["b"])
    silent = proxy()
    silent.freeze()
    with pytest.raises(BrokerTimeoutError, match="did not finish the AMQP handshake within 1 s"):
        publish(through(vhost_url, silent.port) + "?connection_timeout=1000", "x", ["k"], ["b"])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, only 127.0.0.1 is this machine")
def test_an_address_that_swallows_packets_leaves_time_for_the_next(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = proxy().port
    resolve = socket.getaddrinfo

    def two_addresses(host: str, *rest: Any, **options: Any) -> list[Any]:
        hosts = ("127.0.0.2", "127.0.0.1") if host == "two.test" else (host,)
        return [found for host in hosts for found in resolve(host, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    url = f"{through(vhost_url, port).replace('127.0.0.1', 'two.test')}?connection_timeout=3000"
    with contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(4):  # its queue is full, so that it drops who comes next
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        assert publish(url, "x", ["k"], ["b"]).confirmed == 1
    assert len(consumed()) == 1


def test_progress_is_told_now_and_then(consumed: Consumed, vhost_url: str) -> None:
    told: list[PublishReport] = []
    started = time.monotonic()
    report = publish(vhost_url, "x", ["k"] * 30_000, ["b"] * 30_000, progress=told.append)
    assert 1 <= len(told) <= 2 + 4 * (time.monotonic() - started), (
        "with the first batch, in between, and at the end"
    )
    assert [progress.rows for progress in told] == sorted(progress.rows for progress in told)
    assert report.confirmed == len(consumed()) == 30_000
