"""The socket loop against a broker that is scripted: it lives, and never confirms. No real one can be made to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from pamqp import commands, frame
from pamqp.base import Frame as Method
from scripted_peer import Clock, HastySession, Peer

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import HEARTBEAT_FRAME
from rabbit_chx.connection import blocking_connection
from rabbit_chx.connection.blocking_connection import Connection, Transport
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, PublishError
from rabbit_chx.publishing import Publisher

HANDSHAKE: tuple[tuple[Method, int], ...] = (
    (commands.Connection.Start(mechanisms="PLAIN"), 0),
    (commands.Connection.Tune(0, 131_072, 1), 0),
    (commands.Connection.OpenOk(), 0),
    (commands.Channel.OpenOk(), 1),
    (commands.Confirm.SelectOk(), 1),
)


@pytest.fixture
def never_confirming() -> Iterator[ConnectionSettings]:
    """Where a broker listens that reads everything and says nothing but heartbeats."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()
    heartbeats = 0

    def serve() -> None:
        nonlocal heartbeats
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(b"".join(frame.marshal(method, channel) for method, channel in HANDSHAKE))
            client.settimeout(0.1)
            while not over.is_set():
                client.sendall(HEARTBEAT_FRAME)
                with contextlib.suppress(TimeoutError):
                    heartbeats += client.recv(65_536).count(HEARTBEAT_FRAME)

    thread = threading.Thread(target=serve)
    thread.start()
    yield ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1], heartbeat_s=1)
    over.set()
    thread.join()
    listener.close()
    assert heartbeats >= 4, "whoever waits for four seconds must show in each that it lives"


def test_heartbeats_are_no_progress(never_confirming: ConnectionSettings) -> None:
    publisher = Publisher(never_confirming, "x", confirm_timeout_s=4, max_reconnects=0)
    with contextlib.closing(publisher):
        publisher.send(["k"], ["b"])
        started = time.monotonic()
        with pytest.raises(
            PublishError, match="answered nothing for 4 s, and 1 messages are unconfirmed"
        ) as caught:
            publisher.flush()
        assert time.monotonic() - started < 20  # and not for as long as there are heartbeats
    assert isinstance(caught.value.__cause__, BrokerTimeoutError)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The connection's time goes where the test says; its heartbeats are every hundredth of a second."""
    clock = Clock()
    monkeypatch.setattr(blocking_connection, "time", clock)
    monkeypatch.setattr(blocking_connection, "Session", HastySession)
    return clock


def test_heartbeats_go_on_while_the_caller_is_elsewhere(clock: Clock) -> None:
    lock = threading.RLock()
    with Peer(heartbeat_s=1) as peer, contextlib.closing(Connection(peer.settings, lock)) as idle:
        sent = idle.bytes_sent
        for beats in range(1, 4):
            with lock:  # not in the middle of a heartbeat
                clock.now += 0.6 * idle.session.heartbeat_s
            peer.hear(beats)
        assert idle.bytes_sent == sent, "a sign of life is no progress"


def test_a_connection_lives_as_long_as_something_comes(clock: Clock) -> None:
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
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Peer() as peer, contextlib.closing(Connection(peer.settings)) as interrupted:
        with monkeypatch.context() as patched:
            patched.setattr(Transport, "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                interrupted.poll(0)
        with pytest.raises(
            ConnectionLostError, match=r"given up after an interruption \(KeyboardInterrupt\)"
        ):
            interrupted.poll(0)
