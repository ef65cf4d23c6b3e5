"""Settings in pika's terms, and addresses where no broker answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest
import trustme
from pika.credentials import PlainCredentials

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.errors import BrokerTimeoutError, InputError, UnreachableError, UriError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_parameters_follow_the_url() -> None:
    parameters = pika_parameters(
        "amqp://u:p%40@[::1]:5673/a%2Fb?heartbeat=7&connection_timeout=1500&channel_max=9&frame_max=8192"
    )

    assert (parameters.host, parameters.port, parameters.virtual_host) == ("::1", 5673, "a/b")
    assert isinstance(parameters.credentials, PlainCredentials)
    assert (parameters.credentials.username, parameters.credentials.password) == ("u", "p@")
    assert (parameters.heartbeat, parameters.channel_max, parameters.frame_max) == (7, 9, 8192)
    assert (parameters.socket_timeout, parameters.stack_timeout) == (1.5, 1.5)
    assert parameters.connection_attempts == 1
    assert parameters.ssl_options is None


def test_parameters_follow_settings_that_no_url_has() -> None:
    parameters = pika_parameters(ConnectionSettings(connection_name="nightly", frame_max=10_000_000))

    assert parameters.client_properties == {"connection_name": "nightly"}
    assert parameters.frame_max == 131_072


def test_tls_parameters(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(ca_file)

    options = pika_parameters(f"amqps://h?cacertfile={ca_file}&server_name_indication=mq").ssl_options

    assert options is not None
    assert options.context.verify_mode is ssl.CERT_REQUIRED
    assert options.context.check_hostname
    assert len(options.context.get_ca_certs()) == 1
    assert options.server_hostname == "mq"


def test_a_ca_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="/no/such/file"):
        pika_parameters("amqps://h?cacertfile=/no/such/file")


def test_a_broker_needs_a_good_url_and_a_with_block() -> None:
    with pytest.raises(UriError):
        Broker("host")
    with pytest.raises(InputError, match="with Broker"):
        _ = Broker("amqp://u:c4nary@h").release
    assert repr(Broker("amqp://u:c4nary@h")) == "Broker('amqp://u:***@h:5672/%2F')"


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
