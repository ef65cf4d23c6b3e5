"""The adapter for aio-pika: it opens a connection and runs one step at a time. Every wait has a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, assert_never

import aio_pika
import pamqp.commands
import pamqp.encode
from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp.replies import error_for
from rabbit_chx.broker.aio_pika_settings import aio_pika_arguments
from rabbit_chx.broker.pika_settings import REPLY_TIMEOUT_S
from rabbit_chx.connection.failures import unreachable
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.topology.sequences.operations import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueCounts,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
    Refusal,
)
from rabbit_chx.topology.sequences.steps import Pipeline, SendingCheck

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.topology.sequences.operations import Operation

__all__ = ["AioPikaConnection"]

_CLOSE_TIMEOUT_S = 5.0
_LONGEST_NAME = 128
_CODES = {
    aiormq_errors.ChannelAccessRefused: 403,
    aiormq_errors.ChannelNotFoundEntity: 404,
    aiormq_errors.ChannelLockedResource: 405,
    aiormq_errors.ChannelPreconditionFailed: 406,
}


class AioPikaConnection:
    """One connection to a broker; `open` makes it.

    Args:
        settings: the settings of the connection.
        connection: aio-pika's connection.
        reply_timeout_s: how many seconds the broker may take for each answer.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        connection: Any,  # noqa: ANN401
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> None:
        self._where = settings.masked_url
        self._connection = connection
        self._reply_timeout_s = reply_timeout_s
        self._channel: Any = None
        properties = connection.transport.connection.server_properties
        #: The version that the broker named itself by, such as ``4.3.6``.
        self.server_version = _text(properties.get("version", "unknown"))
        #: The name of its cluster; None where it did not tell.
        self.cluster_name = _text(properties["cluster_name"]) if "cluster_name" in properties else None

    @classmethod
    async def open(cls, settings: ConnectionSettings) -> AioPikaConnection:
        """Connect.

        Args:
            settings: the settings of the connection.

        Raises:
            AccessRefusedError: the broker refuses the user, the password or the vhost.
            NotFoundError: there is no such vhost.
            BrokerTimeoutError: the connection was not open in time.
            UnreachableError: nothing answers at the address, or not in AMQP, or TLS cannot be agreed on.
            InputError: aio-pika cannot follow a setting, or the TLS files cannot be used.
        """
        arguments = aio_pika_arguments(settings)
        if settings.heartbeat_s is None:
            arguments["heartbeat"] = 0  # every call has a time limit in its place
        try:
            async with asyncio.timeout(settings.connection_timeout_s):
                connection = await aio_pika.connect(**arguments)
        except (aiormq_errors.AMQPError, OSError, TimeoutError, RuntimeError) as cause:
            error = _opening_error(settings, cause)
        else:
            return cls(settings, connection)
        raise error

    async def perform(self, step: Operation | Pipeline | SendingCheck) -> QueueCounts | Refusal | None:
        """Perform an operation, or a pipeline of them, and return the answer. What is only to be checked is not sent.

        Args:
            step: the operation or pipeline.

        Raises:
            ConnectionLostError: the connection ended.
            BrokerTimeoutError: the answer did not come in time.
            InputError: aio-pika cannot send the arguments.
        """
        operations = (step,) if not isinstance(step, Pipeline | SendingCheck) else step.operations
        for operation in operations:
            _check(operation)
        if isinstance(step, SendingCheck):
            return None
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                answer = await self._sent(operations)
        except TimeoutError:
            raise BrokerTimeoutError(
                f"{self._where}: no answer within {self._reply_timeout_s:g} s: the broker is connected, but does not reply; "
                "look at its log and alarms"
            ) from None
        except (aiormq_errors.AMQPError, OSError, RuntimeError) as cause:
            raise self._lost(cause) from None
        except (TypeError, ValueError) as cause:
            raise _unsendable(operations[-1], cause) from None
        if isinstance(answer, Refusal):
            return answer
        if isinstance(step, QueueDeclare):
            return QueueCounts(answer.message_count or 0, answer.consumer_count or 0)
        return None

    async def _sent(self, operations: tuple[Operation, ...]) -> Any:  # noqa: ANN401  # aiormq's own types
        """Return the answer to the last of some operations, or a refusal."""
        try:
            if self._channel is None or self._channel.is_closed:
                channel = await self._connection.channel(publisher_confirms=False)
                self._channel = await channel.get_underlay_channel()
            for operation in operations[:-1]:
                await _call(self._channel, operation, {"nowait": True})
            return await _call(self._channel, operations[-1], {})
        except (aiormq_errors.ChannelClosed, aiormq_errors.ConnectionClosed) as refusal:
            self._channel = None
            return _refusal(refusal)
        except aiormq_errors.ChannelInvalidStateError as cause:
            if len(operations) == 1 or self._connection.is_closed:
                raise
            # The refusal of one came while the next ones were sent, and aiormq does not tell it.
            self._channel = None
            return Refusal(504, _said(cause))

    def _lost(self, cause: BaseException) -> ConnectionLostError:
        return ConnectionLostError(f"{self._where}: the connection was lost ({_said(cause)}): connect again")

    async def close(self) -> None:
        """Close the connection; may be called again, also after an error."""
        # Without heartbeats, aiormq takes a connection that was quiet for 3 s for stuck. It would then not say good-bye to the
        # broker, and log a warning. One answer of the broker shows that it is not.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._connection.channel(publisher_confirms=False)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._connection.close()


def _check(operation: Operation) -> None:
    """Refuse what pamqp cannot encode: some types of arguments, and names with other than a few characters."""
    exchanges = (getattr(operation, "exchange", None), getattr(operation, "destination", None))
    try:
        pamqp.commands.Queue.Declare(queue=getattr(operation, "queue", None) or "")
        for exchange in exchanges:
            pamqp.commands.Exchange.Declare(exchange=exchange or "")
        pamqp.encode.field_table(_table(operation))
        if long := [
            name for name in _table(operation) if len(name) > _LONGEST_NAME
        ]:  # pamqp 4.0 cuts them off
            raise ValueError(f"{long[0][:20]!r}... is longer than {_LONGEST_NAME} characters")  # noqa: TRY301  # one wording for both
    except (TypeError, ValueError) as cause:
        raise _unsendable(operation, cause) from None


def _unsendable(operation: Operation, cause: BaseException) -> InputError:
    name = getattr(operation, "queue", None) or getattr(operation, "exchange", None)
    return InputError(
        f"{name!r} or its arguments cannot be sent by aio-pika: {_said(cause)}: use Broker, which sends with pika"
    )


def _table(operation: Operation) -> dict[str, Any]:
    return dict(getattr(operation, "arguments", None) or {})


async def _call(  # noqa: PLR0911  # one for each operation
    channel: Any,  # noqa: ANN401
    operation: Operation,
    how: dict[str, bool],
) -> Any:  # noqa: ANN401  # aiormq's own types
    table = _table(operation)
    match operation:
        case ExchangeDeclare(exchange, kind, durable):
            return await channel.exchange_declare(
                exchange,
                exchange_type=kind,
                passive=operation.passive,
                durable=durable,
                auto_delete=operation.auto_delete,
                internal=operation.internal,
                arguments=table,
                **how,
            )
        case QueueDeclare(queue, durable):
            return await channel.queue_declare(
                queue,
                passive=operation.passive,
                durable=durable,
                exclusive=operation.exclusive,
                auto_delete=operation.auto_delete,
                arguments=table,
                **how,
            )
        case QueueBind(queue, exchange, key):
            return await channel.queue_bind(queue, exchange, key, arguments=table, **how)
        case ExchangeBind(destination, exchange, key):
            return await channel.exchange_bind(destination, exchange, key, arguments=table, **how)
        case QueueUnbind(queue, exchange, key):
            return await channel.queue_unbind(queue, exchange, key, arguments=table)
        case ExchangeUnbind(destination, exchange, key):
            return await channel.exchange_unbind(destination, exchange, key, arguments=table)
        case QueueDelete(queue, if_unused, if_empty):
            return await channel.queue_delete(queue, if_unused, if_empty)
        case ExchangeDelete(exchange, if_unused):
            return await channel.exchange_delete(exchange, if_unused=if_unused)
        case _:
            assert_never(operation)


def _refusal(error: BaseException) -> Refusal:
    """Return the broker's answer. aiormq has the code in the type of its error, or before the text."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    if code is not None:
        return Refusal(code, _said(error))
    first, *rest = error.args or (0,)
    if isinstance(first, int):
        return Refusal(int(first), " ".join(map(_text, rest)))
    return Refusal(541, _said(error))


def _opening_error(  # noqa: PLR0911  # one for each fault
    settings: ConnectionSettings, cause: BaseException
) -> RabbitChxError:
    """Return our error for aio-pika's failure to open a connection."""
    said = _said(cause)
    if isinstance(cause.__cause__, OSError):  # aiormq keeps the words of an error of the system, not its type
        return unreachable(settings, cause.__cause__, said)
    if isinstance(cause, aiormq_errors.InvalidFrameError) and "Connection.Close" in said:
        return _opening_refusal(settings, cause)
    if isinstance(cause, TimeoutError):
        return BrokerTimeoutError(
            f"{settings.masked_url}: not open within {settings.connection_timeout_s:g} s: check host, port and firewall"
        )
    if isinstance(cause, (aiormq_errors.ProbableAuthenticationError, aiormq_errors.AuthenticationError)):
        return AccessRefusedError(
            f"{settings.masked_url}: the broker refuses the login ({said}): check user name, password and auth_mechanism",
            reply_code=403,
        )
    if isinstance(cause, aiormq_errors.ConnectionClosed):
        refusal = _refusal(cause)
        return error_for(refusal.reply_code, refusal.reply_text, where=settings.masked_url)
    if isinstance(cause, aiormq_errors.IncompatibleProtocolError):
        return UnreachableError(
            f"{settings.masked_url}: no AMQP 0-9-1 is spoken there ({said}): check the port"
        )
    return unreachable(settings, cause, said)


def _opening_refusal(settings: ConnectionSettings, cause: BaseException) -> RabbitChxError:
    """Return the error for a vhost that the broker refuses.

    aiormq 7.2 tells of it as a frame that it did not expect, without the code and the words; they are in the frame alone.
    """
    trace = cause.__traceback__
    while trace is not None:
        close = trace.tb_frame.f_locals.get("frame")
        code, text = getattr(close, "reply_code", None), getattr(close, "reply_text", None)
        if isinstance(code, int) and isinstance(text, str):
            return error_for(code, text, where=settings.masked_url)
        trace = trace.tb_next
    return BrokerRefusedError(
        f"{settings.masked_url}: the broker refuses the vhost {settings.vhost!r}: check the vhost in the URL, the user's permissions "
        "on it, and the limits of connections",
        reply_code=530,
    )


def _said(cause: BaseException) -> str:
    return " ".join(" ".join(map(_text, cause.args)).split()) or type(cause).__name__


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
