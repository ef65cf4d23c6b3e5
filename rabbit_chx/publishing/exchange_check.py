"""The check of an exchange before publishing: it exists, and it hashes consistently."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from pamqp import commands

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, MismatchError, NotFoundError
from rabbit_chx.publishing.encoder import exchange_name

_TYPE = "x-consistent-hash"


@dataclass(frozen=True, slots=True)
class HashExchangeFacts:
    """What AMQP alone tells of an x-consistent-hash exchange.

    Attributes:
        version: the broker's version, such as ``"4.3.6"``.
        alternate_exchange: whether an argument of the exchange names an alternate exchange. That one takes what no queue takes, and such
            messages are not returned. An alternate exchange that a policy sets does not show here.
    """

    version: str
    alternate_exchange: bool


def look_at_hash_exchange(settings: ConnectionSettings, exchange: str) -> HashExchangeFacts:
    """Check over a short connection that the exchange is there and hashes consistently.

    A passive declare tells only that the exchange exists. So a second declare follows, which changes nothing on an exchange that exists; of
    the differences, the broker names the type first (rabbitmq-server v4.3.0, rabbit_exchange.erl, assert_equivalence/6). Where the user may
    not declare, the type stays unchecked. If somebody deletes the exchange between the two, the second creates it again.

    Args:
        settings: the address to connect to, and how.
        exchange: the exchange's name.
    """
    exchange_name(exchange)
    where = f"{settings.masked_url}: exchange {exchange!r}"
    alternate_exchange = False
    with contextlib.closing(Connection(settings)) as connection:
        try:
            connection.request(_DeclareAnyName(exchange=exchange, passive=True))
        except NotFoundError as cause:
            raise NotFoundError(
                f"{where} does not exist: check its name and the vhost, or declare it first",
                exchange=exchange,
                reply_code=cause.reply_code,
            ) from None
        try:
            connection.request(_DeclareAnyName(exchange=exchange, exchange_type=_TYPE, durable=True))
        except AccessRefusedError:
            pass  # may publish, may not configure: that is all right
        except MismatchError as cause:
            if match := re.search(r"'type' for exchange .* but current is '*([^' ]+)", str(cause)):
                raise MismatchError(
                    f"{where} is of type {match[1]}, not {_TYPE}: name the right exchange, "
                    "or set preflight=false to write to this one",
                    exchange=exchange,
                    reply_code=cause.reply_code,
                ) from None
            alternate_exchange = "'alternate-exchange' for exchange" in str(cause)
        except BrokerRefusedError as cause:
            cause.exchange = exchange
            raise
        return HashExchangeFacts(str(connection.session.server.get("version", "unknown")), alternate_exchange)


class _DeclareAnyName(commands.Exchange.Declare):
    """exchange.declare without pamqp's own rule for the names of exchanges, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""
