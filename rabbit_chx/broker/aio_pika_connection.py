"""The adapter for aio-pika: it opens a connection and runs one step at a time. Every wait has a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, assert_never

import pamqp.commands
import pamqp.encode
from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.pika_connection import REPLY_TIMEOUT_S
from rabbit_chx.connection.aio_pika_opening import aio_pika_opened, refusal_told_by, text_of, words_of
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, InputError
from rabbit_chx.topology.operations import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Operation,
    QueueBind,
    QueueCounts,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
    Refusal,
)
from rabbit_chx.topology.steps import Pipeline, SendingCheck

_CLOSE_TIMEOUT_S = 5.0
_LONGEST_NAME = 128


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
        self.server_version = text_of(properties.get("version", "unknown"))
        #: The name of its cluster; None where it did not tell.
        self.cluster_name = text_of(properties["cluster_name"]) if "cluster_name" in properties else None

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
        # Every call has a time limit in the place of heartbeats.
        return cls(settings, await aio_pika_opened(settings, default_heartbeat_s=0))

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
            # A refusal came while further operations were sent, and aiormq does not tell it.
            self._channel = None
            return Refusal(504, words_of(cause))

    def _lost(self, cause: BaseException) -> ConnectionLostError:
        return ConnectionLostError(
            f"{self._where}: the connection was lost ({words_of(cause)}): connect again"
        )

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
        # pamqp 4.0 cuts longer names off.
        if long := [name for name in _table(operation) if len(name) > _LONGEST_NAME]:
            raise ValueError(f"{long[0][:20]!r}... is longer than {_LONGEST_NAME} characters")  # noqa: TRY301  # one wording for both
    except (TypeError, ValueError) as cause:
        raise _unsendable(operation, cause) from None


def _unsendable(operation: Operation, cause: BaseException) -> InputError:
    name = getattr(operation, "queue", None) or getattr(operation, "exchange", None)
    return InputError(
        f"{name!r} or its arguments cannot be sent by aio-pika: {words_of(cause)}: use Broker, which sends with pika"
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
    return Refusal(*refusal_told_by(error))
