"""The asyncio connection against a scripted peer: no real broker stops to speak, or speaks, when a test wants it to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from scripted_peer import Clock, HastySession, Peer

from rabbit_chx.connection import asyncio_connection
from rabbit_chx.connection.asyncio_connection import AsyncConnection
from rabbit_chx.errors import ConnectionLostError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The connection's time goes where the test says; its heartbeats are every hundredth of a second."""
    clock = Clock()
    monkeypatch.setattr(asyncio_connection, "time", clock)
    monkeypatch.setattr(asyncio_connection, "Session", HastySession)
    return clock


@contextlib.asynccontextmanager
async def opened(peer: Peer) -> AsyncIterator[AsyncConnection]:
    connection = await AsyncConnection.connect(peer.settings)
    try:
        yield connection
    finally:
        await connection.close()


async def test_heartbeats_go_on_while_the_caller_is_elsewhere(clock: Clock) -> None:
    with Peer(heartbeat_s=1) as peer:
        async with opened(peer) as idle:
            sent = idle.bytes_sent
            for beats in range(1, 4):
                clock.now += 0.6 * idle.session.heartbeat_s
                await asyncio.to_thread(peer.hear, beats)
            assert idle.bytes_sent == sent, "a sign of life is no progress"


async def test_a_connection_stays_open_while_data_arrives(clock: Clock) -> None:
    with Peer(heartbeat_s=1) as peer:
        async with opened(peer) as idle:
            for i in range(1, 6):
                clock.now += 1.2 * idle.session.heartbeat_s
                await asyncio.to_thread(peer.reach, idle, str(i))
                beats = peer.heartbeats
                clock.now += 0.6 * idle.session.heartbeat_s
                # With its own heartbeats, it looks for those of the broker.
                await asyncio.to_thread(peer.hear, beats + 1)
            clock.now += 2.1 * idle.session.heartbeat_s
            with pytest.raises(ConnectionLostError, match="not even a heartbeat"):
                await idle.poll(5)
