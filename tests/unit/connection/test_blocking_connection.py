"""The socket loop against a broker that is scripted: it lives, and never confirms. No real one can be made to."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from broker_frames import said
from pamqp import commands
from scripted_peer import Peer

from rabbit_chx.connection import blocking_connection
from rabbit_chx.connection.blocking_connection import Connection, Transport
from rabbit_chx.connection.session import Session
from rabbit_chx.errors import ConnectionLostError


class HastySession(Session):
    """A session whose negotiated seconds of heartbeats are hundredths, so that no test waits for a whole second."""

    heartbeat_s: Any

    def _on_tune(self, method: commands.Connection.Tune) -> None:
        super()._on_tune(method)
        self.heartbeat_s /= 100
        self.longest_silence_s /= 100


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replaces the module `time` of the connection: `now` advances only when a test changes it. Its heartbeats are every hundredth of a second."""
    played = SimpleNamespace(now=time.monotonic())
    played.monotonic = lambda: played.now
    monkeypatch.setattr(blocking_connection, "time", played)
    monkeypatch.setattr(blocking_connection, "Session", HastySession)
    return played


def test_heartbeats_go_on_while_the_caller_does_other_work(clock: SimpleNamespace) -> None:
    lock = threading.RLock()
    with Peer(heartbeat_s=1) as peer, contextlib.closing(Connection(peer.settings, lock)) as idle:
        sent = idle.bytes_sent
        for beats in range(1, 4):
            with lock:  # not in the middle of a heartbeat
                clock.now += 0.6 * idle.session.heartbeat_s
            peer.hear(beats)
        peer.say(said(commands.Channel.Flow(active=True)))
        peer.reach(idle, "the flow was processed")
        with lock:
            idle.poll(0)
        assert idle.bytes_sent == sent, "signs of life and answers are not progress"


def test_a_connection_stays_open_while_data_arrives(clock: SimpleNamespace) -> None:
    lock = threading.RLock()
    with Peer(heartbeat_s=1) as peer, contextlib.closing(Connection(peer.settings, lock)) as idle:
        for i in range(1, 6):
            with lock:
                clock.now += 1.5 * idle.session.heartbeat_s
            peer.reach(idle, str(i))
            with lock:
                idle.poll(0)
        with lock:
            clock.now += 2.1 * idle.session.heartbeat_s
            with pytest.raises(ConnectionLostError, match="not even a heartbeat"):
                idle.poll(0)


def test_an_interruption_in_the_socket_loop_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = pytest.raises(ConnectionLostError, match=r"interrupted \(KeyboardInterrupt\)")
    with Peer() as peer, contextlib.closing(Connection(peer.settings)) as interrupted:
        with monkeypatch.context() as patched:
            patched.setattr(Transport, "receive", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                interrupted.poll(0)
        with given_up:
            interrupted.poll(0)
