"""Sockets: how long the name of a host may take, and what the peer has not taken yet."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from typing import Any

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.transport import Transport, bytes_not_taken
from rabbit_chx.errors import UnreachableError


def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted: a resolver that hangs cannot be had on loopback."""
    over = threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        over.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()
    with pytest.raises(
        UnreachableError, match=r"cannot be resolved \(the resolver has not answered in time\)"
    ):
        Transport(ConnectionSettings(host="slow.example"), time.monotonic() + 0.1)
    assert time.monotonic() - started < 5
    over.set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_the_peer_has_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
        with contextlib.closing(Transport(settings, time.monotonic() + 5)) as transport:
            peer, _ = listener.accept()
            with peer:
                sent = transport.send(memoryview(bytes(1 << 20)))
                held = transport.bytes_not_taken
                assert 0 < held <= sent
                taken = 0
                while taken < sent:
                    taken += len(peer.recv(65_536))
                deadline = time.monotonic() + 5
                while transport.bytes_not_taken and time.monotonic() < deadline:
                    time.sleep(0.01)  # the kernels' own talk
                assert transport.bytes_not_taken == 0
        assert transport.bytes_not_taken == 0, "a closed socket holds nothing"


def test_a_socket_that_cannot_tell_holds_nothing() -> None:
    closed = socket.socket()
    closed.close()
    assert bytes_not_taken(closed) == 0
