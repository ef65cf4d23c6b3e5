"""The check before publishing that an exchange exists and has the type x-consistent-hash or x-modulus-hash."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from pamqp import commands

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, MismatchError, NotFoundError
from rabbit_chx.publishing.encoder import exchange_name

_TYPE, _MODULUS = "x-consistent-hash", "x-modulus-hash"


@dataclass(frozen=True, slots=True)
class HashExchangeFacts:
    """Properties of a hash exchange that AMQP reports.

    Attributes:
        version: the broker's version, such as ``"4.3.6"``.
        alternate_exchange: whether an argument of the exchange names an alternate exchange, which gets unroutable messages instead of the
            publisher. One that a policy sets is not visible here.
    """

    version: str
    alternate_exchange: bool


def look_at_hash_exchange(settings: ConnectionSettings, exchange: str) -> HashExchangeFacts:
    """Check over a short connection that the exchange exists and has the type x-consistent-hash, else over another x-modulus-hash.

    A passive declare checks only the name. A second declare checks the type; it changes nothing on an existing exchange, and of the
    differences the broker reports the type first (rabbitmq-server v4.3.0, rabbit_exchange.erl, assert_equivalence/6). If the user may not
    declare, the type stays unchecked. If the exchange is deleted between the two, the second creates it again.
    """
    exchange_name(exchange)
    try:
        return _look_at(settings, exchange, _TYPE)
    except (AccessRefusedError, NotFoundError):
        raise
    except BrokerRefusedError as cause:
        # From 4.3 on the other type needs no plugin.
        if f"is of type {_MODULUS}" not in str(cause) and "unknown exchange type" not in str(cause):
            raise
        try:
            return _look_at(settings, exchange, _MODULUS)
        except BrokerRefusedError:
            raise cause from None


def _look_at(settings: ConnectionSettings, exchange: str, type_: str) -> HashExchangeFacts:
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
            connection.request(_DeclareAnyName(exchange=exchange, exchange_type=type_, durable=True))
        except AccessRefusedError:
            pass  # the user may publish but not configure, which is sufficient
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
    """exchange.declare without pamqp's restriction of exchange names, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""
