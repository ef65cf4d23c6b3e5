"""The publisher on asyncio: the same rows, faults and counts, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed, bodies_with, through

from rabbit_chx import AsyncPublisher
from rabbit_chx.errors import (
    NotFoundError,
    PublishError,
    RowError,
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


def test_each_task_has_the_error_of_its_own_rows(channel: BlockingChannel, vhost_url: str) -> None:
    """Whichever task has its turn first flushes the rows of all."""
    channel.exchange_declare("unbound", CHX)

    async def run() -> list[PublishReport | BaseException]:
        async with AsyncPublisher(vhost_url, "unbound") as publisher:
            calls = (publisher.publish_many([str(n)] * 20, ["b"] * 20) for n in range(3))
            return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(run())
    assert [type(outcome) for outcome in outcomes] == [PublishError] * 3
    assert {outcome.report.returned for outcome in outcomes if isinstance(outcome, PublishError)} == {20}


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


def test_connections_that_are_cut(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    way = proxy()
    bodies = bodies_with({1_300: way.cut, 4_000: way.cut}, ROWS)
    report = publish(through(vhost_url, way.port), "x", itertools.repeat("k", ROWS), bodies, backoff_s=0.05)
    found = consumed()
    firsts = list(dict.fromkeys(int(m.body) for m in found))
    assert firsts == list(range(ROWS)), "no row is missing, and none overtakes another"
    assert (report.confirmed, report.reconnects) == (ROWS, 2)
    losses = [vars(record)["exchange"] for record in caplog.records if "; reconnecting" in record.message]
    assert losses == ["x"] * 2
    assert len(found) - ROWS <= report.republished <= 2_000


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
