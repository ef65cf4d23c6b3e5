"""Inspect an exchange or a queue before publishing: it exists, and an exchange has a type."""

from __future__ import annotations

import contextlib
import re

from pamqp import commands

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, MismatchError, NotFoundError
from rabbit_chx.publishing.encoder import exchange_name

HASHING_TYPES = (HASH_EXCHANGE, MODULUS_EXCHANGE)
#: A type that each broker has.
_BUILT_IN = "direct"


def inspect_exchange(
    settings: ConnectionSettings, exchange: str, type_: str = HASHING_TYPES[0]
) -> tuple[str | None, bool]:
    """Return the type of an exchange, and whether it has an alternate exchange, over short connections; a NotFoundError if it does not exist.

    The type is None if the user may not configure the exchange, since only a refused declaration reports it. An alternate exchange gets
    unroutable messages instead of the publisher. One that a policy sets is not visible here.

    A passive declare checks only the name. A second declare reports the type; it changes nothing on an existing exchange, and of the
    differences the broker reports the type first (rabbitmq-server v4.3.0, rabbit_exchange.erl, assert_equivalence/6). If the user may not
    declare, the type stays unknown. If the exchange is deleted between the two, the second creates it again.

    Args:
        settings: the broker.
        exchange: the name.
        type_: the expected type; another one is found by another declare.
    """
    exchange_name(exchange)
    found = type_
    alternate_exchange = False
    with contextlib.closing(Connection(settings)) as connection:
        where = f"{settings.masked_url}: exchange {exchange!r}"
        _look_up(connection, _DeclareAnyExchange(exchange=exchange, passive=True), where, exchange=exchange)
        try:
            connection.request(_DeclareAnyExchange(exchange=exchange, exchange_type=type_, durable=True))
        except AccessRefusedError:
            return None, False
        except MismatchError as cause:
            if match := re.search(r"'type' for exchange .* but current is '*([^' ]+)", str(cause)):
                found = match[1]
            alternate_exchange = "'alternate-exchange' for exchange" in str(cause)
        except BrokerRefusedError as cause:
            # Without its plugin, the broker does not know the type. Some types need arguments.
            found = _BUILT_IN if "unknown exchange type" in str(cause) and type_ != _BUILT_IN else type_
            if found == type_ and type_ in (*HASHING_TYPES, _BUILT_IN):
                cause.exchange = exchange
                raise
    if found == type_:
        return type_, alternate_exchange
    return inspect_exchange(settings, exchange, found)


def check_queue(settings: ConnectionSettings, queue: str) -> None:
    """Raise a NotFoundError if a queue does not exist. A user who may not ask may publish nevertheless."""
    where = f"{settings.masked_url}: queue {queue!r}"
    with contextlib.closing(Connection(settings)) as connection, contextlib.suppress(AccessRefusedError):
        _look_up(connection, _DeclareAnyQueue(queue=queue, passive=True), where, queue=queue)


def _look_up(
    connection: Connection, declaration: _DeclareAnyQueue | _DeclareAnyExchange, where: str, **what: str
) -> None:
    """Send a passive declaration; a NotFoundError with the remedy if nothing has that name."""
    try:
        connection.request(declaration)
    except NotFoundError as cause:
        remedy = "check its name and the vhost, or declare it first"
        raise NotFoundError(
            f"{where} does not exist: {remedy}", **what, reply_code=cause.reply_code
        ) from None


class _DeclareAnyQueue(commands.Queue.Declare):
    """queue.declare without pamqp's restriction of names, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""


class _DeclareAnyExchange(commands.Exchange.Declare):
    """exchange.declare without pamqp's restriction of exchange names, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""
