"""Addresses where no broker answers, and the ends of a connection."""

from __future__ import annotations

import math
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import trustme
from broker_frames import HANDSHAKE
from client_ends import PIKA_ENDS
from loopback import HOST, LoopbackServer, dead_port
from pika import exceptions as pika_errors

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.broker.pika_connection import PikaConnection, _make_opening_error
from rabbit_chx.topology.objects import QueueDefinition

SETTINGS = ConnectionSettings(host="broker.example")
#: The class and the method of channel.open.
_CHANNEL_OPEN = bytes((0, 20, 0, 10))


class Answering(LoopbackServer):
    """Serves connections with a function."""

    def __init__(self, answer: Callable[[socket.socket], object]) -> None:
        self.serve = answer  # type: ignore[assignment, method-assign]
        super().__init__()


def reveal_unknown_authority(client: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    context.wrap_socket(client, server_side=True).close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("scheme", "answer", "kind", "says"),
    [
        ("amqp", lambda client: client.recv(100) and client.recv(100), errors.BrokerTimeoutError, "not open within 0.3 s"),
        ("amqp", lambda client: client.recv(100) and client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), errors.UnreachableError, "is AMQP 0-9-1 spoken there"),
        ("amqp", lambda client: client.recv(100), errors.UnreachableError, "starting behind a proxy, such as Docker's, closes connections like this: try again"),
        ("amqps", lambda client: client.recv(1000) and client.send(b"AMQP\0\0\x09\x01"), errors.UnreachableError, "this port answers without TLS: write amqp:// in place of amqps://"),
        ("amqps", reveal_unknown_authority, errors.UnreachableError, "certificate is not accepted.*cacertfile"),
        ("amqp", None, errors.UnreachableError, r"amqp://u:\*\*\*@127.0.0.1:\d+/%2F: no server answers there .*refused"),
        ("amqp", "no-such-host.invalid", errors.UnreachableError, "cannot be resolved"),
    ],
)  # fmt: skip
def test_what_is_no_broker_is_named_without_the_password(
    scheme: str, answer: Any, kind: type[errors.UnreachableError], says: str
) -> None:
    timeout_ms = 300 if kind is errors.BrokerTimeoutError else 10_000
    with Answering(answer) if callable(answer) else dead_port() as server:
        port = getattr(server, "port", server)
        host = answer if isinstance(answer, str) else HOST
        url = f"{scheme}://u:c4nary@{host}:{port}?connection_timeout={timeout_ms}"
        with pytest.raises(kind, match=says) as caught, Broker(url):
            pass
    assert "c4nary" not in f"{caught.value!s} {caught.value.__cause__!s} {caught.value.__context__!s}"


#: Pika keeps the answer of the broker as the text of an error alone. `amqp/replies.txt` has the errors.
_REFUSED, _NOT_FOUND = (
    repr(pika_errors.ConnectionClosedByBroker(*told))
    for told in ((403, "ACCESS_REFUSED - Login was refused"), (530, "NOT_ALLOWED - vhost it's not found"))
)
_LOST = "StreamLostError: ('lost',)"


@pytest.mark.parametrize(
    ("cause", "kind", "sentence"),
    [
        (pika_errors.ProbableAuthenticationError(_REFUSED), errors.AccessRefusedError, "answered 403 ACCESS_REFUSED - Login was refused: "),
        (pika_errors.ProbableAccessDeniedError(_REFUSED), errors.AccessRefusedError, "answered 403 ACCESS_REFUSED - Login was refused: "),
        (pika_errors.ProbableAuthenticationError(_NOT_FOUND), errors.NotFoundError, "answered 530 NOT_ALLOWED - vhost it's not found: "),
        (pika_errors.ProbableAccessDeniedError(_NOT_FOUND), errors.NotFoundError, "answered 530 NOT_ALLOWED - vhost it's not found: "),
        (pika_errors.AuthenticationError("PLAIN"), errors.AccessRefusedError, "offers other auth mechanisms, not PLAIN"),
        (pika_errors.ProbableAuthenticationError(_LOST), errors.AccessRefusedError, "refuses the login .StreamLost"),
        (pika_errors.ProbableAccessDeniedError(_LOST), errors.BrokerRefusedError, "refuses the vhost '/' .StreamLost"),
        (pika_errors.IncompatibleProtocolError("lost"), errors.UnreachableError, "lost; .* is AMQP 0-9-1 spoken there.* needs amqps://"),
        (pika_errors.AMQPConnectionError("timed out"), errors.BrokerTimeoutError, "not open within 10 s"),
    ],
)  # fmt: skip
def test_what_ends_an_opening_is_an_error_of_its_kind(
    cause: Exception, kind: type[errors.RabbitChxError], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        raise _make_opening_error(SETTINGS, cause)
    assert type(caught.value) is kind
    if code := re.match("answered ([0-9]+)", sentence):
        assert caught.value.reply_code == int(code[1])


def fall_silent(client: socket.socket) -> None:
    """Open a connection, and reply to nothing else."""
    client.sendall(b"".join(HANDSHAKE[:3]))
    while client.recv(1 << 16):
        pass


@pytest.mark.timeout(30)
def test_a_broker_that_does_not_reply_is_given_up() -> None:
    """Pika waits without end; what limits the wait has private names of pika, which a new version may change."""
    with Answering(fall_silent) as server:
        settings = ConnectionSettings(host=HOST, port=server.port)
        given_up = pytest.raises(errors.BrokerTimeoutError, match=r"no answer within 0\.3 s")
        with closing(PikaConnection(settings, 0.3)) as connection, given_up:
            connection.check_exchange("x")


def leave_at_a_channel(client: socket.socket) -> None:
    """Open a connection, and close it when it asks for a channel."""
    client.sendall(b"".join(HANDSHAKE[:3]))
    while (received := client.recv(1 << 16)) and _CHANNEL_OPEN not in received:
        pass


@pytest.mark.timeout(30)
def test_a_broker_that_gives_up_at_the_same_moment_did_not_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted: without a majority of its nodes 4.3 closes the connection after 30 seconds, which is also our limit."""
    with Answering(leave_at_a_channel) as server:
        settings = ConnectionSettings(host=HOST, port=server.port)
        with closing(PikaConnection(settings, 0.3)) as connection:
            impl: Any = connection._connection._impl
            end = impl._on_stream_terminated

            def end_at_the_limit(reason: Exception) -> None:
                end(reason)
                time.sleep(0.4)  # so that the limit passes before pika looks at its timers

            monkeypatch.setattr(impl, "_on_stream_terminated", end_at_the_limit)
            with pytest.raises(errors.BrokerTimeoutError, match=r"no answer within 0\.3 s"):
                connection.check_exchange("x")


@pytest.mark.parametrize("is_channel_open", [True, False])
@pytest.mark.parametrize("raised", PIKA_ENDS, ids=repr)
def test_each_error_of_pika_at_the_end_of_a_connection_is_ours(
    *, raised: BaseException, is_channel_open: bool
) -> None:
    """Scripted: each call of pika's connection and of its channel raises what pika raises at the end of a connection."""
    calls = ("channel", "queue_declare", "exchange_declare", "process_data_events", "_flush_output")
    ended = Mock(is_open=True, **{call: Mock(side_effect=raised) for call in calls})
    connection: Any = object.__new__(PikaConnection)
    vars(connection).update(
        _where="amqp://scripted",
        _settings=SETTINGS,
        _secret=SimpleNamespace(renew_at=math.inf),
        _reply_timeout_s=1.0,
        _connection=ended,
        frame_max=131_072,
    )
    queue = Operation("declare", QueueDefinition("q"))
    asks: list[Callable[[], object]] = [
        lambda: connection.perform(queue),
        lambda: connection.count("q"),
        lambda: connection.check_exchange("x"),
        lambda: connection.channel().__enter__(),
    ]
    for ask in asks:
        connection._channel = ended if is_channel_open else None
        with pytest.raises(errors.RabbitChxError, match=r"320|the connection was lost"):
            ask()
    with pytest.raises(errors.RabbitChxError), connection.own_errors():
        connection.process(0)
    with pytest.raises(errors.RabbitChxError), connection.own_errors():
        connection.wait_until(lambda: False)


def test_a_connection_that_the_broker_closed_over_an_operation_is_opened_again_or_its_reason_is_told() -> (
    None
):
    """Scripted: which operation fails inside a broker depends on its release."""
    connection = PikaConnection.__new__(PikaConnection)
    connection._where, connection._settings, connection._secret = "here", SETTINGS, SETTINGS.password
    connection._connection, connection._closed_with = Mock(is_open=False), (541, "INTERNAL_ERROR")
    connection._open = Mock()  # type: ignore[method-assign]
    connection._channel = Mock()
    assert connection._ask(lambda channel: channel) is connection._channel
    connection._open.assert_called_once_with()
    connection._closed_with = (320, "CONNECTION_FORCED - broker forced connection closure")
    with pytest.raises(errors.ConnectionLostError, match="answered 320 CONNECTION_FORCED"):
        connection._ask(lambda channel: channel)
    refusal = pika_errors.ConnectionClosedByBroker(
        530, "NOT_ALLOWED - queue limit in vhost '/' (1) is reached"
    )
    connection._connection.is_open = True
    with pytest.raises(errors.RabbitChxError, match="queue limit"), connection.own_errors():
        raise refusal
    assert connection._closed_with == (530, refusal.reply_text)
