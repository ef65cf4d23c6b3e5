"""Sockets: how long a name may take, what ends a connection, and which bytes the peer has not taken yet."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from unittest.mock import Mock

import pytest
from bounded import until
from descriptors import no_descriptor_left, one_descriptor_left

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.blocking_connection import Transport, bytes_not_taken
from rabbit_chx.errors import ConnectionLostError, UnreachableError


def connected_to(listener: socket.socket) -> contextlib.closing[Transport]:
    settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
    return contextlib.closing(Transport(settings, time.monotonic() + 60))


@pytest.mark.timeout(30)
def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver is scripted: on loopback none hangs."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(100) and [])
    words = r"cannot be resolved \(the resolver has not answered in time\)"
    with pytest.raises(UnreachableError, match=words):
        Transport(ConnectionSettings(host="slow.example"), time.monotonic() + 0.1)
    over.set()


@pytest.mark.parametrize(
    ("fault", "lost"), [(TimeoutError("timed out"), False), (OSError(errno.ETIMEDOUT, "Timed out"), True)]
)
def test_no_bytes_are_not_the_end_of_the_connection(*, fault: OSError, lost: bool) -> None:
    """The fault is scripted: the system gives a real connection up only after minutes."""
    with socket.create_server(("127.0.0.1", 0)) as listener, connected_to(listener) as transport:
        real = transport._socket
        transport._socket = Mock(recv=Mock(side_effect=fault))
        with pytest.raises(ConnectionLostError) if lost else contextlib.nullcontext():
            assert transport.receive(0.1) == b""
        transport._socket = real


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_the_peer_has_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with connected_to(listener) as transport:
            peer, _ = listener.accept()
            with peer:
                sent = transport.send(memoryview(bytes(1 << 20)))
                assert 0 < transport.bytes_not_taken <= sent
                while sent:
                    sent -= len(peer.recv(65_536))
                until(lambda: transport.bytes_not_taken == 0, "the kernels have talked", 60, 0.01)
        assert transport.bytes_not_taken == 0, "a closed socket holds nothing"
    assert bytes_not_taken(listener) == 0


def test_a_connection_takes_one_descriptor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with one_descriptor_left(), connected_to(listener) as transport:
            transport.wait(0.1)
        none_left = pytest.raises(UnreachableError, match=r"no file descriptor left .*Errno 24")
        with no_descriptor_left(), none_left, connected_to(listener):
            pass
