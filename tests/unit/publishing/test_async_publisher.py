"""The asyncio publisher and cancelled calls. The broker is scripted: it answers when the test decides."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest
from amqp_broker import ACK, ack, confirm, nothing, unroutable
from scripted_peer import Peer

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing import AsyncPublisher, PublishReport


async def test_a_cancelled_call_leaves_its_rows_on_their_way(peer: Peer) -> None:
    peer.answer = nothing
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        call = asyncio.create_task(publisher.publish_many(["k"] * 2, ["cancelled"] * 2))
        await asyncio.to_thread(peer.until, lambda: len(peer.messages) == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (publisher.report.rows, publisher.report.unknown) == (2, 2)
        peer.say(confirm(ACK, 2, multiple=True))
        peer.answer = ack
        report = await publisher.publish_many(["k"], ["after"])
        assert (report.rows, report.confirmed) == (1, 1)
        report = await publisher.flush()
        assert (report.rows, report.confirmed) == (2, 2)
    assert peer.bodies == ["cancelled", "cancelled", "after"]


async def test_tasks_share_one_connection(peer: Peer) -> None:
    async with AsyncPublisher(peer.settings, "orders", max_in_flight=4) as publisher:
        reports = await asyncio.gather(
            *(publisher.publish_many(["k"] * 10, [f"{task}"] * 10) for task in range(5))
        )
    assert all(report.complete for report in reports)
    assert sorted(peer.bodies) == sorted(f"{task}" for task in range(5) for _ in range(10))
    assert peer.connections == 1


async def test_each_task_has_the_report_and_the_error_of_its_own_rows(peer: Peer) -> None:
    peer.answer = lambda message: (unroutable if message.body == b"3" else ack)(message)
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        calls = (publisher.publish_many(["k"] * 2, [f"{task}"] * 2) for task in range(6))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    reports = [outcome.report if isinstance(outcome, PublishError) else outcome for outcome in outcomes]
    assert [report.rows for report in reports if isinstance(report, PublishReport)] == [2] * 6
    assert [task for task, outcome in enumerate(outcomes) if isinstance(outcome, PublishError)] == [3]


async def test_rows_of_send_are_reported_by_flush_and_not_by_a_call_of_another_task(peer: Peer) -> None:
    peer.answer = lambda message: (unroutable if message.body == b"sent" else ack)(message)
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        await asyncio.create_task(publisher.send(["k"] * 3, ["sent"] * 3))
        assert (await publisher.publish_many(["k"], ["own"])).rows == 1
        await publisher.send(["k"], ["later"])
        with pytest.raises(PublishError) as caught:
            await publisher.flush()
        assert (caught.value.report.rows, caught.value.report.returned) == (4, 3)
        assert (await publisher.flush()).rows == 0


async def test_a_bad_row_of_send_takes_no_report_of_another_task(peer: Peer) -> None:
    peer.answer = lambda message: (unroutable if message.body == b"0" else ack)(message)
    goes_on = asyncio.Event()

    async def keys() -> AsyncIterator[str]:
        for _ in range(3):
            yield "k"
        await goes_on.wait()
        yield "k"

    async with AsyncPublisher(peer.settings, "orders", max_in_flight=2) as publisher:
        many = asyncio.create_task(publisher.publish_many(keys(), map(str, range(4))))
        await asyncio.to_thread(peer.until, lambda: len(peer.messages) >= 2)
        bad = asyncio.create_task(publisher.send([None], ["b"]))  # type: ignore[list-item]
        await asyncio.sleep(0.05)
        goes_on.set()
        with pytest.raises(PublishError, match="the routing key is missing") as caught:
            await bad
        assert caught.value.report.rows == 0
        with pytest.raises(PublishError, match="no queue took 1 of the messages") as caught:
            await many
        assert (caught.value.report.rows, caught.value.report.confirmed) == (4, 3)


async def test_rows_that_an_error_of_another_task_has_reported_are_reported_by_flush(peer: Peer) -> None:
    peer.answer = unroutable
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        await publisher.send(["k"], ["lost"])
        with pytest.raises(PublishError, match="the routing key is missing"):
            await asyncio.create_task(publisher.send([None], ["b"]))  # type: ignore[list-item]
        with pytest.raises(PublishError, match="no queue took 1 of the messages"):
            await publisher.flush()
        assert (await publisher.flush()).rows == 0


async def test_tasks_that_have_ended_are_not_kept(peer: Peer) -> None:
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        tasks = weakref.WeakSet(asyncio.create_task(publisher.send(["k"], [str(i)])) for i in range(20))
        await asyncio.wait(list(tasks))
        gc.collect()
        assert len(tasks) <= 2
        assert (await publisher.flush()).confirmed == 20


async def test_an_iterator_of_columns_may_flush(peer: Peer) -> None:
    async with AsyncPublisher(peer.settings, "orders") as publisher:

        async def keys() -> AsyncIterator[str]:
            for _ in range(3):
                yield "k"
                await publisher.flush()

        report = await asyncio.wait_for(publisher.publish_many(keys(), ["b"] * 3), 10)
    assert report.complete


async def test_a_closed_publisher_is_refused(peer: Peer) -> None:
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        pass
    with pytest.raises(PublishError, match="the connection is closed: open a new one") as caught:
        await publisher.publish_many(["k"], ["b"])
    assert isinstance(caught.value.__cause__, InputError)


async def test_the_connection_of_a_collected_publisher_is_closed(peer: Peer) -> None:
    """Its timer would keep it, with heartbeats, as long as the event loop."""
    publisher = AsyncPublisher(peer.settings, "orders")
    await publisher.send(["k"], ["sent"])
    connection = weakref.ref(publisher._connection)
    with pytest.warns(ResourceWarning, match="AsyncPublisher of exchange 'orders' was not closed"):  # noqa: PT031
        del publisher
        gc.collect()
    async with asyncio.timeout(10):
        while connection() is not None:
            await asyncio.sleep(0.01)
            gc.collect()
    assert peer.bodies == ["sent"]


@pytest.mark.filterwarnings("ignore:unclosed")  # of asyncio, about the socket
def test_a_publisher_that_is_collected_after_its_event_loop_is_not_an_error(peer: Peer) -> None:
    async def leave_open() -> AsyncPublisher:
        publisher = AsyncPublisher(peer.settings, "orders")
        await publisher.send(["k"], ["sent"])
        return publisher

    publisher = asyncio.run(leave_open())
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031
        del publisher
        gc.collect()
