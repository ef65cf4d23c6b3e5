"""Closes by the broker that are about a message: what they concern, and the error of the message. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rabbit_chx.errors import (
    BrokerRefusedError,
    ChannelClosedError,
    ConnectionLostError,
    MismatchError,
    RabbitChxError,
)
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.outcomes import RowBatch


def describe_row(batch: RowBatch) -> str:
    """Return the number and the routing key of a message, for an error."""
    key = batch.rows.keys[0].decode(errors="backslashreplace")
    return f"row {batch.numbers[0]} (routing key {key!r:.80})"


def close_error(cause: RabbitChxError, what: str, exchange: str) -> BrokerRefusedError:
    """Return the error for a message, `what`, that closed the channel or the connection: of the type of the close, if it tells more.

    A publish compares nothing with the properties of an exchange or a queue, so its 406 is about the message.
    """
    is_telling = isinstance(cause, BrokerRefusedError) and type(cause) not in (
        BrokerRefusedError,
        MismatchError,
    )
    kind = type(cause) if is_telling else ChannelClosedError
    message = f"{what}, sent to exchange {exchange!r:.80}: {cause}"
    return kind(message, exchange=exchange, reply_code=cause.reply_code)  # type: ignore[return-value]  # checked above


def find_named(
    cause: RabbitChxError, rows: Sequence[RowBatch], passed: AbstractSet[bytes | None]
) -> int | None:
    """Return the index of the message that closed the channel, if the text of the close names one; all are single, in order.

    `passed` are the exchanges that have taken a message on this connection. A message to another exchange closes the channel if it is the
    first one to it. If an exchange is deleted later, the close may be over any message to it: only the last one is surely in no queue.
    A channel asks for a permission once (rabbit_channel.erl, check_topic_authorisation/5), and the limit of a body does not change.
    """
    named = [index for index, batch in enumerate(rows) if _names_row(cause, batch.rows)]
    if not named:
        return None
    exchanges = rows[named[0]].rows.exchanges
    is_deleted = is_of_exchange(cause) and exchanges is not None and exchanges[0] in passed
    return named[-1 if is_deleted else 0]


def _names_row(cause: RabbitChxError, row: Rows) -> bool:
    """Return whether the text of a close names this message: its exchange and key, or the size of its body.

    rabbitmq-server v4.3.6, rabbit_channel.erl: check_resource_access/4, check_topic_authorisation/5 and check_msg_size/3.
    """
    text = str(cause)
    if cause.reply_code == 406:
        return f"message size {len(row.bodies[0])} is larger" in text
    if row.exchanges is None or cause.reply_code not in (403, 404):
        return False
    exchange, key = (names[0].decode(errors="replace") for names in (row.exchanges, row.keys))
    return f"exchange '{exchange}' " in text and (is_of_exchange(cause) or f"topic '{key}' " in text)


def is_close(cause: RabbitChxError) -> bool:
    """Return whether the broker closed the channel or the connection, and may have done so because of a message."""
    return cause.reply_code is not None and not isinstance(cause, ConnectionLostError)


def is_of_exchange(cause: RabbitChxError) -> bool:
    """Return whether a close concerns every message to the exchange: it is missing, internal, or not permitted."""
    return cause.reply_code == 404 or (cause.reply_code == 403 and "access to topic" not in str(cause))
