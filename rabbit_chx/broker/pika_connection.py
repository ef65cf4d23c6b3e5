"""The adapter for pika: it opens a connection and runs one operation at a time. Every wait has a time limit."""

from __future__ import annotations

import ast
import contextlib
import logging
import re
import struct
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pika
import pika.data  # type: ignore[import-untyped]
import pika.frame
from pika import credentials as pika_credentials
from pika import exceptions as pika_errors
from pika.adapters.utils import connection_workflow

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import error_for
from rabbit_chx.broker.live_broker import Operation, QueueCounts, make_refusal
from rabbit_chx.connection.failures import (
    ClientFailure,
    connect_error,
    connect_timeout_error,
    login_error,
    no_mechanism,
    not_amqp,
    vhost_error,
)
from rabbit_chx.connection.tokens import log_in, tls_context
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, InputError, RabbitChxError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.text import error_text
from rabbit_chx.topology.argument_table import plain
from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition, QueueDefinition

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel


REPLY_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 5.0
#: The reply code of a broker that ends, or whose operator closes the connection: nothing answers at once.
_FORCED = 320
#: The bytes of a frame beside the arguments in it: its head and end, and three names of at most 255 bytes.
_FRAME_ROOM = 800
_PERSISTENT, _TRANSIENT = 2, 1  # modes of delivery
_MAX_FRAME_MAX = 131_072  # pika's limit
_FRAME_HEADER = struct.Struct(">BxxI")  # its type, and the size of its payload
_PROPERTIES_START = 7 + 12  # after the frame's own header, class, weight and body size
_WITHOUT_PROPERTIES = struct.pack(">I", 12 + 2)  # the size of the payload, with the flags of no property
_NO_PROPERTIES = b"\0\0\xce"
#: The part of the broker's answer that pika keeps while it opens a connection.
_ANSWER = re.compile(r"ConnectionClosedByBroker: \(([0-9]+)\) ('.*'|\".*\")", re.DOTALL)
_FAILURES: tuple[ClientFailure, ...] = (
    (pika_errors.AuthenticationError, lambda settings, _: no_mechanism(settings)),
    (pika_errors.ProbableAuthenticationError, login_error),
    (pika_errors.ProbableAccessDeniedError, vhost_error),
    ((connection_workflow.AMQPConnectorStackTimeout, TimeoutError), connect_timeout_error),
    ((pika_errors.IncompatibleProtocolError, pika_errors.StreamLostError), not_amqp),
)

_T = TypeVar("_T")


class _PreferredCredentials(pika_credentials.PlainCredentials):
    """The first of our mechanisms that the broker offers; each of pika's classes supports a single mechanism."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(settings.username, settings.password.reveal())
        self._mechanisms = settings.auth_mechanisms

    def response_for(self, start: Any) -> Any:
        external = pika_credentials.ExternalCredentials()
        for mechanism in self._mechanisms:
            answer = super().response_for(start) if mechanism == "PLAIN" else external.response_for(start)
            if answer != (None, None):
                return answer
        return None, None


def pika_parameters(target: str | ConnectionSettings) -> pika.ConnectionParameters:
    """Return a URL or settings as pika parameters, for programs that use pika themselves.

    pika's URLParameters refuses ``cacertfile`` and does not support ``connection_timeout``. pika makes one attempt, which the connection
    timeout bounds. It sends the host as the TLS server name even if the name is not verified.

    Args:
        target: an AMQP URI, or the settings of a connection.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: the TLS files cannot be used.
    """
    settings = ConnectionSettings.from_uri(target) if isinstance(target, str) else target
    optional: dict[str, Any] = {}
    if settings.tls is not None:
        optional["ssl_options"] = pika.SSLOptions(tls_context(settings.tls), settings.tls.server_name)
    if settings.channel_max is not None:
        optional["channel_max"] = settings.channel_max
    if settings.frame_max is not None:
        optional["frame_max"] = min(settings.frame_max, _MAX_FRAME_MAX)
    if settings.connection_name is not None:
        optional["client_properties"] = {"connection_name": settings.connection_name}
    return pika.ConnectionParameters(
        host=settings.host,
        port=settings.port,
        virtual_host=settings.vhost,
        credentials=_PreferredCredentials(settings),
        heartbeat=settings.heartbeat_s,
        connection_attempts=1,
        socket_timeout=settings.connection_timeout_s,
        stack_timeout=settings.connection_timeout_s,
        blocked_connection_timeout=REPLY_TIMEOUT_S,
        **optional,
    )


def _socket_name(connection: Any) -> str:
    """Return both addresses of a connection, as RabbitMQ names it (rabbit_net.erl, ``connection_string/2``, v4.3.6)."""
    socket = connection._impl._transport._sock  # noqa: SLF001  # pika does not show it
    ends = []
    for host, port, *_ in (socket.getsockname(), socket.getpeername()):
        ends.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return " -> ".join(ends)


class PikaConnection:
    """One connection to a broker. Do not share it between threads.

    Heartbeats are off unless the settings enable them. pika answers them only within a call, so the broker would close an idle connection.
    Instead, every call has a time limit.

    Args:
        settings: the settings of the connection.
        reply_timeout_s: the time limit in seconds of each answer of the broker.

    Raises:
        AccessRefusedError: the broker refuses the user, the password or the vhost.
        NotFoundError: the vhost does not exist.
        BrokerTimeoutError: the connection was not open in time.
        UnreachableError: the address does not answer, or not in AMQP, or the TLS handshake fails.
        InputError: the TLS files cannot be used.
    """

    def __init__(self, settings: ConnectionSettings, reply_timeout_s: float = REPLY_TIMEOUT_S) -> None:
        self._where = settings.masked_url
        self._settings = settings
        self._reply_timeout_s = reply_timeout_s
        self._open()

    def _open(self) -> None:
        self._channel: BlockingChannel | None = None
        #: The reply code and text with which the broker closed the connection.
        self._closed_with: tuple[int, str] | None = None
        log_in(self._settings, self._log_in)

    def _open_again(self) -> None:
        """Open another connection, if the broker has closed the last one as its answer to an operation.

        Raises:
            ConnectionLostError: it was lost, or the broker ended.
        """
        if self._closed_with is None:
            raise ConnectionLostError(f"{self._where}: the connection was lost before: connect again")
        if self._closed_with[0] == _FORCED:
            raise error_for(*self._closed_with, where=self._where)
        self._open()

    def _log_in(self, settings: ConnectionSettings) -> None:
        self._secret = settings.password
        parameters = pika_parameters(replace(settings, heartbeat_s=settings.heartbeat_s or 0))
        try:
            self._connection = _BoundedConnection(parameters, self._where, self._reply_timeout_s)
        except (pika_errors.AMQPError, connection_workflow.AMQPConnectorException, OSError) as cause:
            error = _make_opening_error(settings, cause)
        else:
            #: The broker's version by its server properties, such as ``4.3.6``.
            self.server_version = self._connection.server_property("version") or "unknown"
            #: The negotiated largest frame, in bytes.
            self.frame_max = int(self._connection._impl.params.frame_max) or _MAX_FRAME_MAX  # noqa: SLF001
            #: The name of its cluster; None if the server properties do not contain it.
            self.cluster_name = self._connection.server_property("cluster_name")
            #: The name that the broker gives the connection, unless its addresses were translated on the way.
            self.socket_name = _socket_name(self._connection)
            return
        raise error

    def perform(self, operation: Operation) -> None:
        """Perform an operation, and wait for the answer.

        Raises:
            RabbitChxError: the broker refuses it; see :func:`~rabbit_chx.broker.live_broker.make_refusal`.
            ConnectionLostError: the connection is closed.
            BrokerTimeoutError: the answer did not arrive in time; the connection is closed.
            InputError: pika cannot send the arguments.
        """
        self.check_sendable([operation])
        try:
            self._ask(lambda channel: _call(channel, operation))
        except _RefusedError as error:
            refusal = make_refusal(self._where, operation, *error.args)
        else:
            return
        raise refusal

    def perform_together(self, operations: Sequence[Operation]) -> bool:
        """Perform operations, at least one, in order, and wait only for the last answer.

        Return False if the broker refused one of them. It does not report which one; earlier operations are done.

        Raises:
            ConnectionLostError: the connection is closed.
            BrokerTimeoutError: the answer did not arrive in time; the connection is closed.
            InputError: pika cannot send the arguments.
        """
        self.check_sendable(operations)

        def send(channel: BlockingChannel) -> None:
            inner = channel._impl  # type: ignore[attr-defined]  # noqa: SLF001  # the blocking channel waits each time
            for operation in operations[:-1]:
                _call(inner, operation)
            _call(channel, operations[-1])

        try:
            self._ask(send)
        except _RefusedError:
            return False
        return True

    def check_sendable(self, operations: Sequence[Operation]) -> None:
        """Raise InputError for arguments that pika cannot send, or that do not fit into a frame. Nothing is sent."""
        for operation in operations:
            _check_arguments(operation, self.frame_max)

    def count(self, queue: str) -> QueueCounts:
        """Return the counts of a queue, by a passive declaration.

        Raises:
            RabbitChxError: the broker refuses it, for example because the queue does not exist.
            ConnectionLostError: the connection is closed.
            BrokerTimeoutError: the answer did not arrive in time; the connection is closed.
        """
        answer: Any = self._ask_passively(
            lambda channel: channel.queue_declare(queue, passive=True), queue=queue
        )
        return QueueCounts(answer.method.message_count, answer.method.consumer_count)

    def check_exchange(self, exchange: str) -> None:
        """Check that an exchange exists, of any type, by a passive declaration.

        Raises:
            NotFoundError: the exchange does not exist.
            ConnectionLostError: the connection is closed.
            BrokerTimeoutError: the answer did not arrive in time; the connection is closed.
        """
        self._ask_passively(
            lambda channel: channel.exchange_declare(exchange, passive=True), exchange=exchange
        )

    def renew_mark(self, queue: QueueDefinition) -> None:
        """Delete a queue and declare it again, with one persistent and one transient message.

        Raises:
            AccessRefusedError: the user may not publish to the default exchange, and nothing was changed; or may not declare the queue.
            RabbitChxError: the broker refuses something else.
            ConnectionLostError: the connection is closed.
        """
        with self.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", f"{queue.name}.none", b"")  # unroutable: it shows the permission
            channel.queue_delete(queue.name)
            _call(channel, Operation("declare", queue))
            for mode in (_PERSISTENT, _TRANSIENT):
                # A nack is that of a policy; the count of messages shows it.
                with contextlib.suppress(pika_errors.NackError):
                    channel.basic_publish("", queue.name, b"", pika.BasicProperties(delivery_mode=mode))

    def _ask_passively(self, ask: Callable[[BlockingChannel], _T], **about: str) -> _T:
        try:
            with self.refusal_unlogged(404), self.refusal_unlogged(403):
                return self._ask(ask)
        except _RefusedError as error:
            code, text = error.args
        raise error_for(code, text, where=self._where, **about)

    def _ask(self, ask: Callable[[BlockingChannel], _T]) -> _T:
        """Call a function with the channel, which is opened if necessary.

        Raises:
            _RefusedError: the broker closed the channel or the connection instead of answering.
        """
        try:
            if time.monotonic() >= self._secret.renew_at:
                with contextlib.suppress(pika_errors.AMQPConnectionError):
                    self._renew_token()
                if not self._connection.is_open:  # the token has expired since the last call
                    self._open()
            if not self._connection.is_open:
                self._open_again()
            if self._channel is None:
                self._channel = self._connection.channel()
            return ask(self._channel)
        except (pika_errors.ChannelClosedByBroker, pika_errors.ConnectionClosedByBroker) as refusal:
            self._channel = None
            self._connection.forget(refusal)
            if isinstance(refusal, pika_errors.ConnectionClosedByBroker):
                self._closed_with = refusal.reply_code, refusal.reply_text
            raise _RefusedError(refusal.reply_code, refusal.reply_text) from None
        except (pika_errors.AMQPError, OSError) as cause:
            if isinstance(cause, RabbitChxError):
                raise
            raise ConnectionLostError(
                f"{self._where}: the connection was lost ({_words_of(cause)}): connect again"
            ) from None

    @contextlib.contextmanager
    def channel(self, *, raw_headers: bool = False) -> Iterator[BlockingChannel]:
        """Open a channel, for example to consume. An error of pika in the block is raised as a RabbitChxError.

        Args:
            raw_headers: True: the properties of each message of this connection have only an attribute ``raw``, their bytes as the broker
                sent them.

        Raises:
            RabbitChxError: the broker refuses something.
            ConnectionLostError: the connection is closed.
        """
        with self.own_errors():
            channel = self.open_channel(raw_headers=raw_headers)
            yield channel
            channel.close()

    def open_channel(self, *, raw_headers: bool = False) -> BlockingChannel:
        """Open a channel that stays open, for use within `own_errors`. The argument is that of `channel`."""
        self._renew_token()
        if raw_headers:
            self._connection.keep_raw_properties()
        return self._connection.channel()

    @contextlib.contextmanager
    def own_errors(self) -> Iterator[None]:
        """Raise an error of pika in the block as a RabbitChxError, ConnectionLostError for a closed connection."""
        try:
            yield
        except (pika_errors.ChannelClosedByBroker, pika_errors.ConnectionClosedByBroker) as refusal:
            self._connection.forget(refusal)
            if isinstance(refusal, pika_errors.ConnectionClosedByBroker):
                self._closed_with = refusal.reply_code, refusal.reply_text
            error = error_for(refusal.reply_code, refusal.reply_text, where=self._where)
        except (pika_errors.AMQPError, OSError) as cause:
            if isinstance(cause, RabbitChxError):
                raise
            error = ConnectionLostError(
                f"{self._where}: the connection was lost ({_words_of(cause)}): connect again"
            )
        else:
            return
        raise error

    @staticmethod
    @contextlib.contextmanager
    def refusal_unlogged(code: int | None) -> Iterator[None]:
        """Suppress pika's warning about a channel that the broker closes with this reply code, if that is an expected answer."""
        words = f"Received remote Channel.Close ({code})"

        def is_other(record: logging.LogRecord) -> bool:
            return words not in record.getMessage()

        log = logging.getLogger("pika.channel")
        log.addFilter(is_other)
        try:
            yield
        finally:
            log.removeFilter(is_other)

    def process(self, seconds: float) -> None:
        """Process events for at most `seconds`, or until one arrives; callbacks of consumers run in this call."""
        self._renew_token(may_wait=False)
        limit: Any = seconds  # pika's stubs have whole seconds only
        self._connection.process_data_events(time_limit=limit)

    def _renew_token(self, *, may_wait: bool = True) -> None:
        if time.monotonic() >= self._secret.renew_at:
            before = self._secret
            password = self._settings.password
            self._secret = (
                password.current(self._settings.connection_timeout_s) if may_wait else password.latest()
            )
            if self._secret != before:
                self._connection.update_secret(self._secret.reveal(), "token renewal")  # type: ignore[attr-defined]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is evaluated after each answer of the broker.

        Raises:
            AMQPError: the connection is closed; an error of pika, as within `channel`.
            BrokerTimeoutError: it does not hold in time; the connection is closed.
        """
        self._renew_token()
        if not condition():
            self._connection._flush_output(condition)  # noqa: SLF001

    def close(self) -> None:
        """Close the connection; idempotent, also after an error."""
        self._connection.reply_timeout_s = min(self._connection.reply_timeout_s, _CLOSE_TIMEOUT_S)
        # After Ctrl-C within pika, its state may violate its own checks.
        with contextlib.suppress(Exception):
            self._connection.close()


def _make_opening_error(settings: ConnectionSettings, cause: BaseException) -> RabbitChxError:
    words = _words_of(cause)
    answer = _ANSWER.fullmatch(words)
    if answer is not None:
        return error_for(int(answer[1]), str(ast.literal_eval(answer[2])), where=settings.masked_url)
    return connect_error(settings, TimeoutError() if "imed out" in words else cause, words, _FAILURES)


def _words_of(cause: BaseException) -> str:
    """Return the text of the innermost of pika's nested errors, on one line."""
    inner = getattr(cause, "exception", None) or next(iter(cause.args), None)
    if isinstance(inner, BaseException):
        return _words_of(inner)
    return error_text(cause)


class _RefusedError(Exception):
    """The broker closed the channel or the connection: its reply code and reply text."""


def _call(channel: Any, operation: Operation) -> None:  # pika's two kinds of channels
    """Perform an operation. A blocking channel waits for the answer; its inner channel only sends."""
    subject = operation.subject
    arguments = _table(operation)
    match subject:
        case BindingDefinition(source, destination, key):
            if isinstance(destination, ExchangeRef):
                method = getattr(channel, f"exchange_{operation.action}")
                name = destination.name
            else:
                method = getattr(channel, f"queue_{operation.action}")
                name = destination
            method(name, source, key, arguments)
        case QueueDefinition(name) if operation.action == "delete":
            channel.queue_delete(name, operation.if_unused, operation.if_empty)
        case QueueDefinition(name):
            channel.queue_declare(
                name, False, subject.durable, subject.exclusive, subject.auto_delete, arguments
            )
        case ExchangeDefinition(name) if operation.action == "delete":
            channel.exchange_delete(name, operation.if_unused)
        case ExchangeDefinition(name, kind):
            channel.exchange_declare(
                name, kind, False, subject.durable, subject.auto_delete, subject.internal, arguments
            )


def _table(operation: Operation) -> dict[str, Any]:
    subject = operation.subject
    if operation.action == "delete":
        return {}
    return plain(subject.declared_arguments if isinstance(subject, QueueDefinition) else subject.arguments)


def _check_arguments(operation: Operation, frame_max: int) -> None:
    # Before the call, because pika's channel is unusable after arguments that it could not encode.
    subject = operation.subject
    name = subject.destination if isinstance(subject, BindingDefinition) else subject.name
    try:
        size = pika.data.encode_table([], _table(operation))
    except (pika_errors.AMQPError, TypeError, ValueError, AttributeError) as cause:
        raise InputError(f"the arguments of {name!r} cannot be sent by pika: {_words_of(cause)}") from None
    if size > frame_max - _FRAME_ROOM:
        raise InputError(
            f"the arguments of {name!r} have {size:,} bytes, and the broker takes frames of {frame_max:,}: shorten them, or raise frame_max in its "
            "configuration, and in the URL if it has it"
        )


class _BoundedConnection(pika.BlockingConnection):
    """A BlockingConnection whose waits have a time limit.

    pika's own calls wait for an answer without limit, as long as heartbeats arrive. All of them wait in `_flush_output`. A timer ends the
    stream, as pika does for a connection that stays blocked.
    """

    _impl: Any
    _server_channel_closures: deque[BaseException]
    _keeps_raw_properties = False

    def __init__(self, parameters: pika.ConnectionParameters, where: str, reply_timeout_s: float) -> None:
        self.reply_timeout_s = reply_timeout_s
        self._where = where
        # pika 1.5 warns about the class, which 2.0 removes; its successor does not exist before 1.5. The filter is for this module alone, and no
        # context manager, which would also end the filters that other threads set meanwhile.
        warnings.filterwarnings(
            "ignore", "BlockingConnection is deprecated", DeprecationWarning, re.escape(__name__)
        )
        super().__init__(parameters)

    def server_property(self, name: str) -> str | None:
        value = (self._impl.server_properties or {}).get(name)
        return value.decode(errors="replace") if isinstance(value, bytes) else value and str(value)

    def forget(self, refusal: BaseException) -> None:
        """Prevent that `process_data_events` of pika 1.5 raises a refusal that another call has raised. Earlier versions do not."""
        with contextlib.suppress(AttributeError, ValueError):
            self._server_channel_closures.remove(refusal)

    def keep_raw_properties(self) -> None:
        """Keep the properties of messages as bytes, and let pika decode none.

        Its decoder maps several types to one, keeps the last of equal names, and ends the connection over a header with a time in milliseconds.
        """
        if self._keeps_raw_properties:
            return
        self._keeps_raw_properties = True
        impl = self._impl
        receive, process = impl._on_data_available, impl._process_frame  # noqa: SLF001
        received, impl._frame_buffer = bytearray(impl._frame_buffer), b""  # noqa: SLF001  # the begin of a frame
        kept: deque[bytes] = deque()  # of the frames that pika decodes next

        def receive_and_keep(data: bytes) -> None:
            received.extend(data)
            start = 0
            frames = bytearray()
            while len(received) - start >= _FRAME_HEADER.size:
                kind, size = _FRAME_HEADER.unpack_from(received, start)
                end = start + _FRAME_HEADER.size + size + 1
                if len(received) < end:
                    break
                if kind == pika.spec.FRAME_HEADER:
                    properties = start + _PROPERTIES_START
                    kept.append(bytes(received[properties : end - 1]))
                    frames += received[start : start + 3] + _WITHOUT_PROPERTIES
                    frames += received[start + _FRAME_HEADER.size : properties] + _NO_PROPERTIES
                else:
                    frames += received[start:end]
                start = end
            del received[:start]
            receive(bytes(frames))

        def process_with_raw(frame: Any) -> None:
            if isinstance(frame, pika.frame.Header):
                properties: Any = frame.properties
                properties.raw = kept.popleft()
            process(frame)

        impl._on_data_available, impl._process_frame = receive_and_keep, process_with_raw  # noqa: SLF001

    def _flush_output(self, *waiters: Callable[[], bool]) -> None:
        timer = self._impl._adapter_call_later(self.reply_timeout_s, self._give_up)  # noqa: SLF001
        try:
            super()._flush_output(*waiters)  # type: ignore[misc]
        finally:
            self._impl._adapter_remove_timeout(timer)  # noqa: SLF001

    def _give_up(self) -> None:
        error = BrokerTimeoutError(
            f"{self._where}: no answer within {self.reply_timeout_s:g} s: the broker is connected, but does not reply; "
            "look at its log and alarms"
        )
        if self._impl._transport is None:  # noqa: SLF001  # the broker gave up at the same moment, so that there is no stream to end
            self._cleanup()  # type: ignore[attr-defined]
            raise error
        self._impl._terminate_stream(error)  # noqa: SLF001
