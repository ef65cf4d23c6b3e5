"""Open a connection with aio-pika, and translate aiormq's errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

import aio_pika
from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.frames import error_for
from rabbit_chx.connection.blocking_connection import RENEWAL_S
from rabbit_chx.connection.failures import (
    ClientFailure,
    connect_error,
    connect_timeout_error,
    no_mechanism,
    not_amqp,
    raise_if_cancelled,
    vhost_error,
)
from rabbit_chx.connection.session import decode_all
from rabbit_chx.connection.tokens import aio_pika_arguments, log_in_async
from rabbit_chx.errors import RabbitChxError

_log = logging.getLogger(__name__)

#: What a call of aio-pika or aiormq may raise at the end of its channel or connection: any class. aiormq raises what ended the connection, also
#: `Exception` itself, or CancelledError although nobody cancels the task (7.2.4, base.py, ``FutureStore.reject_all``).
LOST = (Exception, asyncio.CancelledError)

_RENEWAL_S = 30.0
#: The class and the method of ``connection.update-secret``, which follow the 7 bytes of the frame header.
_UPDATE_SECRET = bytes((0, 10, 0, 70))
_HEARTBEAT_S = 10  # the default if the settings have none
_CODES = {
    aiormq_errors.ChannelAccessRefused: 403,
    aiormq_errors.ChannelNotFoundEntity: 404,
    aiormq_errors.ChannelLockedResource: 405,
    aiormq_errors.ChannelPreconditionFailed: 406,
    aiormq_errors.ConnectionFrameError: 501,
    aiormq_errors.ConnectionSyntaxError: 502,
    aiormq_errors.ConnectionCommandInvalid: 503,
    aiormq_errors.ConnectionChannelError: 504,
    aiormq_errors.ConnectionUnexpectedFrame: 505,
    aiormq_errors.ConnectionResourceError: 506,
    aiormq_errors.ConnectionNotAllowed: 530,
    aiormq_errors.ConnectionNotImplemented: 540,
}


def _frame_error(settings: ConnectionSettings, words: str) -> RabbitChxError:
    """Return the error for a frame in place of the expected one: a refused vhost, or damaged bytes."""
    return vhost_error(settings, words) if "Connection.Close" in words else not_amqp(settings, words)


_FAILURES: tuple[ClientFailure, ...] = (
    (aiormq_errors.InvalidFrameError, _frame_error),
    (aiormq_errors.AuthenticationError, lambda settings, _: no_mechanism(settings)),
    (aiormq_errors.IncompatibleProtocolError, not_amqp),
    (TimeoutError, connect_timeout_error),
)


async def open_aio_pika(settings: ConnectionSettings) -> Any:  # aio-pika's own type
    """Open a connection with aio-pika, without automatic reconnects; raise an InputError for a setting that aio-pika does not support.

    A task sends new tokens until the connection is closed.
    """
    password = settings.password
    if password.is_token:
        # aiormq logs the bytes of each frame that it sends, at DEBUG.
        logging.getLogger("aiormq.connection").addFilter(_has_no_token)
    connection, settings = await log_in_async(settings, _open)
    decode_all(connection.transport.connection._reader_task.task)  # noqa: SLF001  # aiormq has no other name for it (7.2.4)
    if password.is_token:
        renewal = asyncio.create_task(_renew_tokens(connection, settings, password))
        connection.transport.connection.closing.add_done_callback(lambda _: renewal.cancel())
    return connection


async def _open(settings: ConnectionSettings) -> tuple[Any, ConnectionSettings]:
    arguments = aio_pika_arguments(settings)
    if settings.heartbeat_s is None:
        arguments["heartbeat"] = _HEARTBEAT_S
    attempts: list[aio_pika.Connection] = []

    def create_connection(*args: Any, **named: Any) -> aio_pika.Connection:  # aio-pika's arguments
        attempts.append(aio_pika.Connection(*args, **named))
        return attempts[-1]

    try:
        async with asyncio.timeout(settings.connection_timeout_s):
            connection: Any = await aio_pika.connect(**arguments, connection_class=create_connection)
    except LOST as cause:
        raise_if_cancelled(cause)
        error = _connect_error(settings, cause)
    else:
        return connection, settings
    for connection in attempts:  # otherwise the garbage collector closes them, without a running loop
        with ignore_loss():
            await connection.close()
    raise error


async def _renew_tokens(connection: Any, settings: ConnectionSettings, password: Secret) -> None:
    secret = settings.password
    try:
        while True:
            await asyncio.sleep(max(secret.renew_at - time.monotonic(), RENEWAL_S))
            before = secret
            secret = password.latest()
            if secret != before:
                await connection.update_secret(secret.reveal(), reason="token renewal", timeout=_RENEWAL_S)
    except LOST as cause:
        raise_if_cancelled(cause)
        _log.warning(
            "%s: the token cannot be renewed (%s): the connection is closed",
            settings.masked_url,
            type(cause).__name__,
        )
        with ignore_loss():
            await connection.close()


@contextlib.contextmanager
def ignore_loss() -> Iterator[None]:
    """Ignore the errors of aiormq in the block, also a timeout; the end of a channel or connection is reported by its callback."""
    try:
        yield
    except LOST as error:
        raise_if_cancelled(error)


def _has_no_token(record: logging.LogRecord) -> bool:
    frames = record.args if isinstance(record.args, tuple) else ()
    return not any(getattr(frame, "payload", b"")[7:11] == _UPDATE_SECRET for frame in frames)


def parse_refusal(error: BaseException) -> tuple[int, str] | None:
    """Return the code and text of the broker's reply; None if the error contains none, as after a close by this side.

    aiormq has the code in the type of its error, or before the text. It closes with ``ConnectionClosed`` and ``ChannelClosed`` of its own.
    """
    if not isinstance(error, aiormq_errors.ChannelClosed | aiormq_errors.ConnectionClosed):
        return None
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    if code is not None:
        return code, error_text(error)
    first, *rest = error.args or (None,)
    if isinstance(first, int):
        return (first, " ".join(map(decode_text, rest))) if first else None
    return None if first is None else (541, error_text(error))


def error_text(cause: BaseException) -> str:
    """Return the text of an error of aiormq or of the system."""
    return " ".join(" ".join(map(decode_text, cause.args)).split()) or type(cause).__name__


def decode_text(value: object) -> str:
    """Return text of the broker or aiormq, given as str or bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _connect_error(settings: ConnectionSettings, cause: BaseException) -> RabbitChxError:
    words = error_text(cause)
    answer = _find_refusal(cause, words)
    if answer is not None:
        return error_for(*answer, where=settings.masked_url)
    if isinstance(cause.__cause__, asyncio.IncompleteReadError):
        return not_amqp(settings, words)
    # aiormq keeps the text of an OSError, not its type.
    system = cause.__cause__ if isinstance(cause.__cause__, OSError) else cause
    return connect_error(settings, system, words, _FAILURES)


def _find_refusal(cause: BaseException, words: str) -> tuple[int, str] | None:
    """Return the code and text with which the broker refuses a connection; None if it sent none."""
    if isinstance(cause, aiormq_errors.ProbableAuthenticationError):
        return 403, words
    if isinstance(cause, aiormq_errors.ConnectionClosed):
        return parse_refusal(cause)
    if isinstance(cause, aiormq_errors.InvalidFrameError):
        # aiormq 7.2 reports a refused vhost as an unexpected frame; only the frame contains code and text.
        trace = cause.__traceback__
        while trace is not None:
            close = trace.tb_frame.f_locals.get("frame")
            code = getattr(close, "reply_code", None)
            text = getattr(close, "reply_text", None)
            if isinstance(code, int) and isinstance(text, str):
                return code, text
            trace = trace.tb_next
    return None
