"""The adapter for pika: opens a connection, runs operations one at a time, and never waits without an end."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import pika
import pika.data  # type: ignore[import-untyped]
import pika.frame
from pika import credentials as pika_credentials
from pika import exceptions as pika_errors
from pika.adapters.utils import connection_workflow

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.broker.operations import ExchangeBind, ExchangeDeclare, QueueBind, QueueDeclare, Refusal
from rabbit_chx.connection.transport import tls_context
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from rabbit_chx.broker.operations import Operation, Steps

__all__ = ["REPLY_TIMEOUT_S", "PikaConnection", "pika_parameters"]

REPLY_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 5.0
_MAX_FRAME_MAX = 131_072  # what pika allows
_PROPERTIES_START = 7 + 12  # behind the frame's own header, class, weight and body size

T = TypeVar("T")


class PikaConnection:
    """One connection to a broker; not to be shared between threads.

    Heartbeats are off unless the settings ask for them: between two calls nobody would answer them, and the broker
    would close a connection that is merely idle. Every call has its own time limit instead.

    Args:
        settings: where to, and how.
        reply_timeout_s: seconds that the broker may take for each answer.

    Raises:
        AccessRefusedError: user, password or vhost permission is refused.
        NotFoundError: there is no such vhost.
        BrokerTimeoutError: somebody is there, but the connection was not open in time.
        UnreachableError: nobody answers there, or not in AMQP, or TLS cannot be agreed on.
        InputError: the TLS files cannot be used.
    """

    def __init__(self, settings: ConnectionSettings, reply_timeout_s: float = REPLY_TIMEOUT_S) -> None:
        self._where = settings.masked_url
        self._channel: BlockingChannel | None = None
        parameters = pika_parameters(replace(settings, heartbeat_s=settings.heartbeat_s or 0))
        try:
            self._connection = _BoundedConnection(parameters, self._where, reply_timeout_s)
        except (pika_errors.AMQPError, connection_workflow.AMQPConnectorException, OSError) as cause:
            error = _opening_error(settings, cause)
        else:
            #: The version that the broker named itself by, such as ``4.3.6``.
            self.server_version = self._connection.server_version
            return
        raise error

    def run(self, steps: Steps[T]) -> T:
        """Perform a sequence of operations.

        Returns:
            What the sequence returns.

        Raises:
            RabbitChxError: what the sequence makes of a refusal.
            ConnectionLostError: the connection ended meanwhile.
            BrokerTimeoutError: an answer did not come in time; the connection is closed.
        """
        refusal: Refusal | None = None
        try:
            while True:
                refusal = self._perform(steps.send(refusal))
        except StopIteration as done:
            result: T = done.value
            return result

    @contextlib.contextmanager
    def channel(self, *, raw_headers: bool = False) -> Iterator[BlockingChannel]:
        """A channel for what no operation stands for, such as consuming; pika's errors come out of the block as ours.

        Args:
            raw_headers: give each message's properties an attribute ``raw``: their bytes, as the broker sent them.

        Raises:
            RabbitChxError: the broker refused something.
            ConnectionLostError: the connection ended.
        """
        if raw_headers:
            self._connection.keep_raw_properties()
        try:
            channel = self._connection.channel()
            yield channel
            channel.close()
        except (pika_errors.ChannelClosedByBroker, pika_errors.ConnectionClosedByBroker) as refusal:
            error = error_for(refusal.reply_code, refusal.reply_text, where=self._where)
        except (pika_errors.AMQPError, OSError) as cause:
            if isinstance(cause, RabbitChxError):
                raise
            error = ConnectionLostError(
                f"{self._where}: the connection was lost ({_said(cause)}): connect anew"
            )
        else:
            return
        raise error

    def process(self, seconds: float) -> None:
        """Wait so long, in seconds, or until something has come; callbacks of consumers run in here."""
        limit: Any = seconds  # pika's stubs know whole seconds only
        self._connection.process_data_events(time_limit=limit)

    def close(self) -> None:
        """Close the connection; may be called again, also after an error."""
        self._connection.reply_timeout_s = min(self._connection.reply_timeout_s, _CLOSE_TIMEOUT_S)
        with contextlib.suppress(
            Exception
        ):  # after Ctrl-C within pika, its state may fit none of its own checks
            self._connection.close()

    def _perform(self, operation: Operation) -> Refusal | None:
        if not isinstance(operation, QueueBind | ExchangeBind):
            _check_arguments(operation)
        if not self._connection.is_open:
            raise ConnectionLostError(f"{self._where}: the connection was lost before: connect anew")
        try:
            if self._channel is None:
                self._channel = self._connection.channel()
            with _unlogged_answers_of_absence(operation):
                _call(self._channel, operation)
        except (pika_errors.ChannelClosedByBroker, pika_errors.ConnectionClosedByBroker) as refusal:
            self._channel = None
            return Refusal(refusal.reply_code, refusal.reply_text)
        except (pika_errors.AMQPError, OSError) as cause:
            if isinstance(cause, RabbitChxError):
                raise
            raise ConnectionLostError(
                f"{self._where}: the connection was lost ({_said(cause)}): connect anew"
            ) from None
        return None


def _call(channel: BlockingChannel, operation: Operation) -> None:
    match operation:
        case ExchangeDeclare(exchange, kind, durable, arguments, passive):
            any_type: Any = kind  # pika's stubs know only the types of the specification
            channel.exchange_declare(
                exchange, any_type, passive=passive, durable=durable, arguments=dict(arguments or {})
            )
        case QueueDeclare(queue, durable, arguments, passive):
            channel.queue_declare(queue, passive=passive, durable=durable, arguments=dict(arguments or {}))
        case QueueBind(queue, exchange, binding_key):
            channel.queue_bind(queue, exchange, routing_key=binding_key)
        case ExchangeBind(destination, exchange, binding_key):
            channel.exchange_bind(destination, exchange, routing_key=binding_key)
        case _:
            assert_never(operation)


@contextlib.contextmanager
def _unlogged_answers_of_absence(operation: Operation) -> Iterator[None]:
    """Hides that pika warns of every 404, but which to a passive declare is simply the answer."""
    if isinstance(operation, QueueBind | ExchangeBind) or not operation.passive:
        yield
        return
    log = logging.getLogger("pika.channel")
    log.addFilter(_is_no_absence)
    try:
        yield
    finally:
        log.removeFilter(_is_no_absence)


def _is_no_absence(record: logging.LogRecord) -> bool:
    return "Received remote Channel.Close (404)" not in record.getMessage()


def _check_arguments(operation: ExchangeDeclare | QueueDeclare) -> None:
    # Before the call: pika's channel cannot be used any more after arguments that it could not encode.
    try:
        pika.data.encode_table([], dict(operation.arguments or {}))
    except (pika_errors.AMQPError, TypeError, ValueError, AttributeError) as cause:
        name = operation.queue if isinstance(operation, QueueDeclare) else operation.exchange
        raise InputError(f"the arguments of {name!r} cannot be sent by pika: {_said(cause)}") from None


class _BoundedConnection(pika.BlockingConnection):
    """A BlockingConnection whose waits end.

    pika's own calls wait for an answer for ever, as long as heartbeats come. All of them wait in `_flush_output`;
    ending the stream from a timer is how pika itself ends a connection that stays blocked.
    """

    _impl: Any

    def __init__(self, parameters: pika.ConnectionParameters, where: str, reply_timeout_s: float) -> None:
        self.reply_timeout_s = reply_timeout_s
        self._where = where
        super().__init__(parameters)

    @property
    def server_version(self) -> str:
        return str((self._impl.server_properties or {}).get("version", "unknown"))

    def keep_raw_properties(self) -> None:
        """Keep what pika's reader loses: it makes one Python type of several, and takes the last of equal names."""
        impl, read_frame = self._impl, self._impl._read_frame  # noqa: SLF001

        def read_and_keep() -> Any:  # noqa: ANN401
            buffer = impl._frame_buffer  # noqa: SLF001
            size, value = read_frame()
            if isinstance(value, pika.frame.Header):
                properties: Any = value.properties
                properties.raw = bytes(buffer[_PROPERTIES_START : size - 1])
            return size, value

        impl._read_frame = read_and_keep  # noqa: SLF001

    def _flush_output(self, *waiters: Callable[[], bool]) -> None:
        timer = self._impl._adapter_call_later(self.reply_timeout_s, self._give_up)  # noqa: SLF001
        try:
            super()._flush_output(*waiters)  # type: ignore[misc]
        finally:
            self._impl._adapter_remove_timeout(timer)  # noqa: SLF001

    def _give_up(self) -> None:
        error = BrokerTimeoutError(
            f"{self._where}: no answer within {self.reply_timeout_s:g} s: the broker is there and does not go on; "
            "look at its log and alarms"
        )
        self._impl._terminate_stream(error)  # noqa: SLF001


class _PreferredCredentials(pika_credentials.PlainCredentials):
    """The first of our mechanisms that the broker offers; pika's own classes know one each."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(settings.username, settings.password.reveal())
        self._mechanisms = settings.auth_mechanisms

    def response_for(self, start: Any) -> Any:  # noqa: ANN401 - pika's stubs allow PLAIN alone here
        external = pika_credentials.ExternalCredentials()
        for mechanism in self._mechanisms:
            answer = super().response_for(start) if mechanism == "PLAIN" else external.response_for(start)
            if answer != (None, None):
                return answer
        return None, None


def pika_parameters(target: str | ConnectionSettings) -> pika.ConnectionParameters:
    """A URL or settings in pika's terms, for programs that use pika themselves.

    pika's own URLParameters refuses ``cacertfile`` and takes ``connection_timeout`` for unknown. Each attempt is
    bounded by the connection timeout, and there is one attempt. pika sends the host as the server name of TLS even
    where none is to be checked.

    Raises:
        UriError: the URL cannot be followed.
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


def _opening_error(settings: ConnectionSettings, cause: BaseException) -> RabbitChxError:
    said = _said(cause)
    if isinstance(cause, pika_errors.AuthenticationError):
        return AccessRefusedError(
            f"{settings.masked_url}: the broker offers none of the mechanisms "
            f"{', '.join(settings.auth_mechanisms)}: choose another auth_mechanism, or enable it there",
        )
    if isinstance(cause, pika_errors.ProbableAuthenticationError):
        return AccessRefusedError(
            f"{settings.masked_url}: the broker refuses the login ({said}): check user name and password",
            reply_code=403,
        )
    if isinstance(cause, pika_errors.ProbableAccessDeniedError):
        return _vhost_error(settings, said)
    if isinstance(cause, connection_workflow.AMQPConnectorStackTimeout) or "imed out" in said:
        return BrokerTimeoutError(
            f"{settings.masked_url}: not open within {settings.connection_timeout_s:g} s: "
            "check host, port and firewall"
        )
    return UnreachableError(f"{settings.masked_url}: {_what_went_wrong(cause, said)}")


def _vhost_error(settings: ConnectionSettings, said: str) -> RabbitChxError:
    if "not found" in said:
        return NotFoundError(
            f"{settings.masked_url}: there is no vhost {settings.vhost!r}: "
            "check the vhost in the URL, or create it",
            reply_code=530,
        )
    return AccessRefusedError(
        f"{settings.masked_url}: the broker refuses the vhost {settings.vhost!r} ({said}): "
        "check the user's permissions on it",
        reply_code=530,
    )


def _what_went_wrong(cause: BaseException, said: str) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the broker's certificate is not accepted ({cause.verify_message}): "
            "give its CA with cacertfile, or its name with server_name_indication"
        )
    if isinstance(cause, ssl.SSLError):
        return f"TLS cannot be agreed on ({said}): is it a TLS port?"
    if isinstance(cause, socket.gaierror):
        return f"the host name cannot be resolved ({said}): check the host in the URL"
    if isinstance(cause, pika_errors.IncompatibleProtocolError | pika_errors.StreamLostError):
        return f"no AMQP 0-9-1 is spoken there ({said}): check the port"
    return f"nobody answers there ({said}): check host and port, and that the broker runs"


def _said(cause: BaseException) -> str:
    """The words at the bottom of pika's nested errors, on one line."""
    inner = getattr(cause, "exception", None) or next(iter(cause.args), None)
    if isinstance(inner, BaseException):
        return _said(inner)
    return " ".join(str(cause).split()) or type(cause).__name__
