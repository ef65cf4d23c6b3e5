"""The asyncio publisher and cancelled calls. The broker is scripted: it answers when the test decides."""

from __future__ import annotations

import asyncio

import pytest
from amqp_broker import ACK, ack, confirm, nothing
from scripted_peer import Peer

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing import AsyncPublisher


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
        assert (report.rows, report.confirmed) == (3, 3)
    assert peer.bodies == ["cancelled", "cancelled", "after"]


async def test_tasks_share_one_connection(peer: Peer) -> None:
    async with AsyncPublisher(peer.settings, "orders", max_in_flight=4) as publisher:
        reports = await asyncio.gather(
            *(publisher.publish_many(["k"] * 10, [f"{task}"] * 10) for task in range(5))
        )
    assert all(report.complete for report in reports)
    assert sorted(peer.bodies) == sorted(f"{task}" for task in range(5) for _ in range(10))
    assert peer.connections == 1


async def test_a_closed_publisher_is_refused(peer: Peer) -> None:
    async with AsyncPublisher(peer.settings, "orders") as publisher:
        pass
    with pytest.raises(PublishError, match="the connection is closed: open a new one") as caught:
        await publisher.publish_many(["k"], ["b"])
    assert isinstance(caught.value.__cause__, InputError)
