"""Addresses where no broker answers, and the ends of a connection."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from client_ends import PIKA_ENDS
from pika import exceptions as pika_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.pika_connection import PikaConnection, _make_opening_error
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLimitError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.topology.live.live_broker import Operation
from rabbit_chx.topology.objects import QueueDefinition

SETTINGS = ConnectionSettings(host="broker.example")


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


def test_without_a_listener_the_error_names_the_url_without_its_password() -> None:
    with socket.socket() as holder:  # of the port, so that nobody else gets it
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        error = connect(f"amqp://u:c4nary@127.0.0.1:{port}")

    assert f"amqp://u:***@127.0.0.1:{port}/%2F: no server answers there" in str(error)
    assert "refused" in str(error)


def test_a_host_that_is_not_there() -> None:
    assert "cannot be resolved" in str(connect("amqp://u:c4nary@no-such-host.invalid"))


def reveal_unknown_authority(client: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    context.wrap_socket(client, server_side=True).close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("scheme", "answer", "kind", "says"),
    [
        ("amqp", lambda client: client.recv(100) and client.recv(100), BrokerTimeoutError, "not open within 0.3 s"),
        ("amqp", lambda client: client.recv(100) and client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), UnreachableError, "is AMQP 0-9-1 spoken there"),
        ("amqp", lambda client: client.recv(100), UnreachableError, "starting behind a proxy, such as Docker's, closes connections like this: try again"),
        ("amqps", lambda client: client.recv(1000) and client.send(b"AMQP\0\0\x09\x01"), UnreachableError, "is it a TLS port"),
        ("amqps", reveal_unknown_authority, UnreachableError, "certificate is not accepted.*cacertfile"),
    ],
)  # fmt: skip
def test_what_is_no_broker_is_named(
    serve: Callable[[Callable[[socket.socket], object]], int],
    scheme: str,
    answer: Callable[[socket.socket], object],
    kind: type[UnreachableError],
    says: str,
) -> None:
    timeout_ms = 300 if kind is BrokerTimeoutError else 10_000
    error = connect(f"{scheme}://u:c4nary@127.0.0.1:{serve(answer)}?connection_timeout={timeout_ms}")
    assert isinstance(error, kind)
    assert re.search(says, str(error))


@pytest.mark.parametrize(
    ("told", "kind", "sentence"),
    [
        ((403, "ACCESS_REFUSED - Login was refused"), AccessRefusedError, "answered 403 ACCESS_REFUSED - .*: check user name, pass"),
        ((530, "NOT_ALLOWED - vhost it's not found"), NotFoundError, "answered 530 .* vhost it's not found: check the vhost"),
        ((530, "NOT_ALLOWED - access to vhost 'v' refused for user 'u'"), AccessRefusedError, "grant the user permissions"),
        ((530, "NOT_ALLOWED - connection limit (5) is reached"), ConnectionLimitError, "close connections, or raise the limit"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "stage", [pika_errors.ProbableAuthenticationError, pika_errors.ProbableAccessDeniedError]
)
def test_what_the_broker_answers_before_it_is_open(
    stage: type[Exception], told: tuple[int, str], kind: type[RabbitChxError], sentence: str
) -> None:
    """Pika keeps the answer as the text of an error alone."""
    cause = stage(repr(pika_errors.ConnectionClosedByBroker(*told)))
    error = _make_opening_error(SETTINGS, cause)
    assert type(error) is kind
    assert error.reply_code == told[0]
    assert re.search(sentence, str(error))


@pytest.mark.parametrize(
    ("cause", "kind", "sentence"),
    [
        (pika_errors.AuthenticationError("PLAIN"), AccessRefusedError, "offers other auth mechanisms, not PLAIN"),
        (pika_errors.ProbableAuthenticationError("StreamLostError: ('lost',)"), AccessRefusedError, "refuses the login .StreamLost"),
        (pika_errors.ProbableAccessDeniedError("StreamLostError: ('lost',)"), BrokerRefusedError, "refuses the vhost '/' .StreamLost"),
        (pika_errors.IncompatibleProtocolError("lost"), UnreachableError, "lost; .* is AMQP 0-9-1 spoken there.* needs amqps://"),
        (pika_errors.AMQPConnectionError("timed out"), BrokerTimeoutError, "not open within 10 s"),
    ],
)  # fmt: skip
def test_what_ends_an_opening_without_an_answer(
    cause: Exception, kind: type[RabbitChxError], sentence: str
) -> None:
    error = _make_opening_error(SETTINGS, cause)
    assert type(error) is kind
    assert re.search(sentence, str(error))


class _Ended:
    """A script in place of pika's connection and its channel: each call raises what pika raises at the end of a connection."""

    is_open = True

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return self._raise

    def _raise(self, *_: object, **__: object) -> None:
        raise self._error

    def forget(self, _refusal: BaseException) -> None:
        """Do nothing: a script has no list."""


@pytest.mark.parametrize("is_channel_open", [True, False])
@pytest.mark.parametrize("raised", PIKA_ENDS, ids=repr)
def test_each_error_of_pika_at_the_end_of_a_connection_is_ours(
    raised: BaseException,
    is_channel_open: bool,  # noqa: FBT001
) -> None:
    connection: Any = object.__new__(PikaConnection)
    vars(connection).update(
        _where="amqp://scripted",
        _settings=SETTINGS,
        _secret=SimpleNamespace(renew_at=math.inf),
        _reply_timeout_s=1.0,
        _connection=_Ended(raised),
    )
    queue = Operation("declare", QueueDefinition("q"))
    calls: list[Callable[[], object]] = [
        lambda: connection.perform(queue),
        lambda: connection.count("q"),
        lambda: connection.check_exchange("x"),
        lambda: connection.channel().__enter__(),
    ]
    for call in calls:
        connection._channel = _Ended(raised) if is_channel_open else None
        with pytest.raises(RabbitChxError, match=r"320|the connection was lost"):
            call()
    with pytest.raises(RabbitChxError), connection.own_errors():
        connection.process(0)
    with pytest.raises(RabbitChxError), connection.own_errors():
        connection.wait_until(lambda: False)
