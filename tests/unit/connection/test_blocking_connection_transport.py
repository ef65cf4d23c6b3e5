"""Sockets: how long a name may take, what ends a connection, and which bytes the peer has not taken yet."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from typing import Any

import pytest
from descriptors import no_descriptor_left, one_descriptor_left

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.blocking_connection import Transport, bytes_not_taken
from rabbit_chx.errors import ConnectionLostError, UnreachableError


@pytest.mark.timeout(30)
def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver is scripted: on loopback none hangs."""
    over = threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        over.wait(100)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(
        UnreachableError, match=r"cannot be resolved \(the resolver has not answered in time\)"
    ):
        Transport(ConnectionSettings(host="slow.example"), time.monotonic() + 0.1)
    over.set()


class Silent:
    """A socket with a scripted fault: the system gives a real connection up only after minutes."""

    def __init__(self, fault: OSError) -> None:
        self._fault = fault

    def settimeout(self, _seconds: float) -> None:
        """Whatever."""

    def recv(self, _count: int) -> bytes:
        """Fail."""
        raise self._fault


@pytest.mark.parametrize(
    ("fault", "lost"), [(TimeoutError("timed out"), False), (OSError(errno.ETIMEDOUT, "Timed out"), True)]
)
def test_no_bytes_are_not_the_end_of_the_connection(fault: OSError, lost: bool) -> None:  # noqa: FBT001
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
        with contextlib.closing(Transport(settings, time.monotonic() + 60)) as transport:
            real, scripted = transport._socket, Silent(fault)
            transport._socket = scripted  # type: ignore[assignment]
            with pytest.raises(ConnectionLostError) if lost else contextlib.nullcontext():
                assert transport.receive(0.1) == b""
            transport._socket = real


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_the_peer_has_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
        with contextlib.closing(Transport(settings, time.monotonic() + 60)) as transport:
            peer, _ = listener.accept()
            with peer:
                sent = transport.send(memoryview(bytes(1 << 20)))
                held = transport.bytes_not_taken
                assert 0 < held <= sent
                taken = 0
                while taken < sent:
                    taken += len(peer.recv(65_536))
                deadline = time.monotonic() + 60
                while transport.bytes_not_taken and time.monotonic() < deadline:
                    time.sleep(0.01)  # the kernels' own talk
                assert transport.bytes_not_taken == 0
        assert transport.bytes_not_taken == 0, "a closed socket holds nothing"


def test_a_socket_that_cannot_tell_holds_nothing() -> None:
    closed = socket.socket()
    closed.close()
    assert bytes_not_taken(closed) == 0


def test_a_connection_takes_one_descriptor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
        with (
            one_descriptor_left(),
            contextlib.closing(Transport(settings, time.monotonic() + 60)) as transport,
        ):
            transport.wait(0.1)
        with (
            no_descriptor_left(),
            pytest.raises(UnreachableError, match=r"no file descriptor left .*Errno 24"),
        ):
            Transport(settings, time.monotonic() + 60)
