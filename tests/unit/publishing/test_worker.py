"""The thread that serves an outbox: its pauses, polls and counts. A scripted peer answers."""

from __future__ import annotations

import math
import socket
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest
from amqp_broker import ack, nothing
from bounded import until
from broker_frames import said
from pamqp import commands
from scripted_peer import Peer

from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import (
    AccessRefusedError,
    ConnectionLostError,
    InputError,
    UnknownOutcomeError,
    UnreachableError,
)
from rabbit_chx.publishing import Retries, SharedPublisher, worker
from rabbit_chx.publishing.delivery import Delivery

_SOON_S = 60.0


def test_an_idle_publisher_pauses_between_connections_that_end_at_once(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    third = threading.Event()

    def rest(_: object, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 3:
            third.set()
            time.sleep(0.01)

    monkeypatch.setattr(worker.Worker, "_rest", rest)
    monkeypatch.setattr(Delivery, "serve", Mock(side_effect=ConnectionLostError("closed by an operator")))
    publisher = SharedPublisher(peer.settings, "orders")
    assert third.wait(_SOON_S)
    publisher.close(0.0)
    assert [math.ceil(math.log2(pause)) for pause in pauses[:3]] == [0, 1, 2]  # each is halved at most


def test_a_refused_login_is_not_repeated_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that asks another server for each login would be overloaded, or lock the user."""
    login = Mock(side_effect=AccessRefusedError("wrong password", reply_code=403))
    monkeypatch.setattr(worker, "Connection", login)
    publisher = SharedPublisher("amqp://localhost", "orders")
    began = time.monotonic()
    while time.monotonic() < began + 1.2:
        assert isinstance(publisher.submit("k", "b").exception(_SOON_S), AccessRefusedError)
    publisher.close(0.0)
    assert login.call_count <= 5


def test_messages_that_expire_during_an_outage_are_not_counted_as_sent_again(peer: Peer) -> None:
    peer.answer = nothing
    with SharedPublisher(peer.settings, "orders", retries=Retries(backoff_s=0.5)) as publisher:
        futures = [publisher.submit("k", str(i)) for i in range(3)]
        peer.until(lambda: len(peer.messages) == 3)
        for message in publisher._outbox._open.values():
            message.expires_at = time.monotonic() + 0.05
        lost = publisher._worker._connection
        assert lost is not None
        assert peer._client is not None
        peer._client.shutdown(socket.SHUT_RDWR)
        assert [type(future.exception(_SOON_S)) for future in futures] == [UnknownOutcomeError] * 3
        until(lambda: peer.connections == 2, "it has connected again", every_s=0.001)
        peer.answer = ack
        assert publisher.submit("k", "after").exception(_SOON_S) is None
        stats = publisher.stats()
        assert (stats.republished, stats.reconnects) == (0, 1)
        assert lost._transport._socket.fileno() == -1, "the lost connection is closed"
    assert len(peer.messages) == 4


def test_no_poll_outlasts_the_time_of_a_message(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the broker blocks publishers, nothing else ends a poll."""
    left: dict[int, float] = {}  # seconds that the open messages had when the last poll returned
    waits: list[tuple[float, float]] = []
    poll = Connection.poll

    def noted(connection: Any, wait_s: float, *arguments: Any) -> Any:
        open_ = publisher._outbox._open
        waits.extend((left_s, wait_s) for number, left_s in left.items() if number in open_)
        left.clear()
        try:
            return poll(connection, wait_s, *arguments)
        finally:
            now = time.monotonic()
            left.update({number: message.expires_at - now for number, message in list(open_.items())})

    with SharedPublisher(peer.settings, "orders") as publisher:
        assert publisher.submit("k", "0").exception(_SOON_S) is None
        publisher._outbox._longest_s = 1.0
        peer.say(said(commands.Connection.Blocked("memory"), 0))
        until(lambda: not publisher.healthy(), "it is blocked", every_s=0.001)
        monkeypatch.setattr(Connection, "poll", noted)
        assert isinstance(publisher.submit("k", "1").exception(_SOON_S), ConnectionLostError)
        peer.say(said(commands.Connection.Unblocked(), 0))
    assert waits
    assert all(wait_s <= max(left_s, worker._SHORTEST_POLL_S) for left_s, wait_s in waits)


def test_no_attempt_to_connect_outlasts_the_time_of_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def refuse(settings: Any, **_: object) -> None:
        limits.append(settings.connection_timeout_s)
        raise UnreachableError("nobody answers")

    monkeypatch.setattr(worker, "Connection", refuse)
    times = {"reconnect_timeout_s": 1.0, "confirm_timeout_s": 0.2, "blocked_timeout_s": 0.2}
    with SharedPublisher("amqp://localhost?connection_timeout=30000", "orders", **times) as publisher:  # type: ignore[arg-type]
        assert isinstance(publisher.submit("k", "b").exception(_SOON_S), UnreachableError)
    assert 0 < min(limits) <= max(limits) <= sum(times.values())


def test_a_connection_that_fails_without_a_message_is_followed_by_a_rest_of_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it an idle publisher connects again and again."""
    login = Mock(side_effect=UnreachableError("nobody answers"))
    monkeypatch.setattr(worker, "Connection", login)
    publisher = SharedPublisher("amqp://localhost", "orders")
    time.sleep(0.4)
    publisher.close(0.0)
    assert login.call_count == 1


def test_a_system_without_a_further_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(
        UnreachableError, match=r"exchange 'orders': the system starts no further thread .*ulimit -u"
    ):
        SharedPublisher("amqp://localhost", "orders")


def test_seconds_of_an_error_are_rounded(peer: Peer) -> None:
    peer.answer = nothing
    publisher = SharedPublisher(peer.settings, "orders")
    future = publisher.submit("k", "b")
    peer.until(lambda: len(peer.messages) == 1)
    publisher._worker.close(0.0499997)
    with pytest.raises(UnknownOutcomeError, match=r"within 0\.05 s"):
        future.result(0)


@pytest.mark.parametrize("timeout_s", [-1, math.nan, "5"])
def test_the_time_of_a_close_is_checked(timeout_s: Any) -> None:
    with (
        SharedPublisher("amqp://192.0.2.1", "orders") as publisher,
        pytest.raises(InputError, match="timeout_s"),
    ):
        publisher.close(timeout_s)
