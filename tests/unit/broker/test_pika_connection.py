"""Addresses where no broker answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import trustme

from rabbit_chx.broker import Broker
from rabbit_chx.errors import BrokerTimeoutError, UnreachableError


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], object]], int]]:
    """Serves connections with a function; gives the port."""
    listeners: list[socket.socket] = []

    def accept(listener: socket.socket, answer: Callable[[socket.socket], object]) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, contextlib.suppress(OSError):
                    answer(client)

    def start(answer: Callable[[socket.socket], object]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=accept, args=(listener, answer), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def connect(url: str) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught, Broker(url):
        pass
    assert "c4nary" not in f"{caught.value!s} {caught.value.__cause__!s} {caught.value.__context__!s}"
    return caught.value


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    error = connect(f"amqp://u:c4nary@127.0.0.1:{port}")

    assert f"amqp://u:***@127.0.0.1:{port}/%2F: nobody answers there" in str(error)
    assert "refused" in str(error)


def test_a_host_that_is_not_there() -> None:
    assert "cannot be resolved" in str(connect("amqp://u:c4nary@no-such-host.invalid"))


def test_a_server_that_says_nothing(serve: Callable[[Callable[[socket.socket], object]], int]) -> None:
    port = serve(lambda client: client.recv(100) and client.recv(100))

    start = time.monotonic()
    error = connect(f"amqp://u:c4nary@127.0.0.1:{port}?connection_timeout=300")

    assert isinstance(error, BrokerTimeoutError)
    assert "not open within 0.3 s" in str(error)
    assert time.monotonic() - start < 5


def test_a_server_of_something_else(serve: Callable[[Callable[[socket.socket], object]], int]) -> None:
    port = serve(lambda client: client.recv(100) and client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"))

    assert "no AMQP 0-9-1 is spoken there" in str(connect(f"amqp://u:c4nary@127.0.0.1:{port}"))


def test_tls_to_a_server_without(serve: Callable[[Callable[[socket.socket], object]], int]) -> None:
    port = serve(lambda client: client.recv(1000) and client.send(b"AMQP\0\0\x09\x01"))

    assert "is it a TLS port?" in str(connect(f"amqps://u:c4nary@127.0.0.1:{port}"))


def test_a_certificate_of_an_unknown_authority(
    serve: Callable[[Callable[[socket.socket], object]], int],
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    port = serve(lambda client: context.wrap_socket(client, server_side=True).close())

    error = connect(f"amqps://u:c4nary@127.0.0.1:{port}")

    assert "certificate is not accepted" in str(error)
    assert "cacertfile" in str(error)
