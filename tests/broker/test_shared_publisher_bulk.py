"""`SharedPublisher.publish_many`: reports, turns, cancelled calls, errors and the end of a publisher."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed, through
from sharded import in_a_loop
from tcp_proxy import Proxy

from rabbit_chx import Limits, SharedPublisher, errors
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import HashRing

pytestmark = pytest.mark.broker

_SOON_S = 60.0


class Gate:
    """Bodies of which the last one comes once `open` is called; `reached` is set when they are read up to it."""

    def __init__(self, *bodies: str) -> None:
        self.reached = threading.Event()
        self._bodies = bodies
        self._is_open = threading.Event()

    def __iter__(self) -> Iterator[str]:
        yield from self._bodies[:-1]
        self.reached.set()
        assert self._is_open.wait(_SOON_S)
        yield self._bodies[-1]

    def open(self) -> None:
        self._is_open.set()

    async def wait(self) -> None:
        """Wait until the bodies are read."""
        assert await asyncio.to_thread(self.reached.wait, _SOON_S)


@pytest.mark.parametrize("form", [list, iter])
def test_calls_of_two_event_loops_have_the_report_of_publisher(
    consumed: Consumed, vhost_url: str, form: Callable[[list[str]], Any]
) -> None:
    halves = [[f"{loop}.{i}" for i in range(1_203)] for loop in range(2)]
    limits = Limits(max_in_flight=100)
    made = SharedPublisher(vhost_url, "nowhere", limits=limits, properties={"app_id": "a"})
    with closing(made) as publisher:
        for keys in halves:
            properties: Any = {"message_id": form(keys)}
            call = publisher.publish_many(
                form(keys), form(keys), properties=properties, exchanges=["x"] * 1_203
            )
            report = asyncio.run(call)
            assert (report.rows, report.confirmed, report.complete) == (1_203, 1_203, True)
        assert publisher.stats().submitted == 0
    found = [(m.key, m.body.decode(), m.properties.message_id, m.properties.app_id) for m in consumed()]
    assert sorted(found) == sorted((key, key, key, "a") for keys in halves for key in keys)


@in_a_loop
async def test_calls_of_several_tasks_take_turns_on_one_connection_and_not_after_a_fork(
    consumed: Consumed, vhost_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SharedPublisher(vhost_url, "x") as publisher:
        await publisher.publish_many(["k"], ["b"])
        connection = publisher._bulk._publisher._connection  # type: ignore[union-attr]
        reports = await asyncio.gather(*(publisher.publish_many(["k"] * n, ["b"] * n) for n in range(1, 6)))
        assert [report.confirmed for report in reports] == [1, 2, 3, 4, 5]
        assert publisher._bulk._publisher._connection is connection  # type: ignore[union-attr]
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            with pytest.raises(errors.InputError, match="after the fork"):
                await publisher.publish_many(["k"], ["b"])
    assert len(consumed()) == 16


@in_a_loop
async def test_each_call_has_the_error_of_its_own_rows_and_the_next_one_works(
    channel: BlockingChannel, consumed: Consumed, vhost_url: str
) -> None:
    channel.exchange_declare("unbound", CHX)
    rows = ["r"] * 20
    async with SharedPublisher(vhost_url, "x") as publisher:
        outcomes = await asyncio.gather(
            publisher.publish_many(rows, rows),
            publisher.publish_many(rows, rows, exchanges=["unbound"] * 20),
            publisher.publish_many(rows, rows, exchanges=["gone"] * 20),
            publisher.publish_many([*rows, None], [*rows, "b"]),  # type: ignore[list-item]
            publisher.publish_many(rows, rows),
            return_exceptions=True,
        )
    assert [type(outcome) for outcome in outcomes] == [
        PublishReport,
        *[errors.PublishError] * 3,
        PublishReport,
    ]
    returned, refused, bad = (outcome for outcome in outcomes if isinstance(outcome, errors.PublishError))
    assert (returned.report.returned, returned.report.confirmed) == (20, 0)
    assert isinstance(refused.__cause__, errors.NotFoundError)
    assert isinstance(bad.__cause__, errors.RowError)
    assert "row 20: the routing key is missing" in str(bad)
    assert len(consumed()) == 40 + bad.report.confirmed


@in_a_loop
async def test_single_messages_and_the_event_loop_go_on_meanwhile(consumed: Consumed, vhost_url: str) -> None:
    gate = Gate("first", "last")
    async with SharedPublisher(vhost_url, "x") as publisher:
        call = asyncio.create_task(publisher.publish_many(["k"] * 2, gate))
        await gate.wait()
        for i in range(10):
            await publisher.publish("k", str(i))
        assert not call.done()
        gate.open()
        assert (await call).confirmed == 2
        assert publisher.stats().confirmed == 10
    assert len(consumed()) == 12


@in_a_loop
async def test_the_rows_of_a_cancelled_call_are_sent_before_the_close_unless_it_still_waits(
    consumed: Consumed, vhost_url: str
) -> None:
    gate = Gate("running 1", "running 2")
    async with SharedPublisher(vhost_url, "x") as publisher:
        running = asyncio.create_task(publisher.publish_many(["k"] * 2, gate))
        await gate.wait()
        waiting = asyncio.create_task(publisher.publish_many(["k"], ["waiting"]))
        await asyncio.sleep(0)
        for call in (running, waiting):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        gate.open()
        assert (await publisher.publish_many(["k"], ["next"])).rows == 1
        gate = Gate("last 1", "last 2")
        last = asyncio.create_task(publisher.publish_many(["k"] * 2, gate))
        await gate.wait()
        last.cancel()
        asyncio.get_running_loop().call_later(0.2, gate.open)
    found = [message.body for message in consumed()]
    assert found == [b"running 1", b"running 2", b"next", b"last 1", b"last 2"]


@in_a_loop
async def test_close_ends_a_call_that_takes_too_long(vhost_url: str, proxy: Proxy) -> None:
    publisher = SharedPublisher(through(vhost_url, proxy.port), "", limits=Limits(confirm_timeout_s=600))
    rows = ["k"] * 10
    with pytest.raises(errors.PublishError):  # no queue has this name
        await publisher.publish_many(rows, rows)
    gate = Gate("1", "2")
    running = asyncio.create_task(publisher.publish_many(["k"] * 2, gate))
    await gate.wait()
    waiting = asyncio.create_task(publisher.publish_many(["k"], ["b"]))
    proxy.freeze()
    gate.open()
    await asyncio.sleep(0)
    await asyncio.to_thread(publisher.close, 0.3)
    with pytest.raises(errors.PublishError, match="was closed before all messages were answered") as caught:
        await running
    assert (caught.value.report.rows, caught.value.report.unknown) == (2, 2)
    with pytest.raises(errors.InputError, match="is closed"):
        await waiting
    with pytest.raises(errors.InputError, match="is closed"):
        await publisher.publish_many(rows, rows)


@in_a_loop
async def test_a_ring_that_has_changed_is_an_error(
    channel: BlockingChannel, consumed: Consumed, vhost_url: str
) -> None:
    rings = iter([HashRing.from_buckets(["q0"])] * 3 + [HashRing.from_buckets(["q1"])] * 9)
    channel.queue_declare("q0", durable=True)
    publisher = SharedPublisher(vhost_url, "x", routing="client", ring=lambda: next(rings))
    assert (await publisher.publish_many(["k"], ["b"])).confirmed == 1
    with pytest.raises(errors.PublishError) as caught:
        await publisher.publish_many(["k"], ["b"])
    assert isinstance(caught.value.__cause__, errors.MismatchError)
    with pytest.raises(errors.MismatchError):
        publisher.close()
    consumed()
