"""Two methods of AMQP as pamqp writes them, without pamqp's own rules for names, which RabbitMQ does not have."""

from __future__ import annotations

from pamqp import commands

__all__ = ["ConnectionOpen", "ExchangeDeclare"]


class ConnectionOpen(commands.Connection.Open):
    """connection.open, for a vhost of any name."""

    def validate(self) -> None:
        """Take it as it is; the broker knows."""


class ExchangeDeclare(commands.Exchange.Declare):
    """exchange.declare, for an exchange of any name."""

    def validate(self) -> None:
        """Take it as it is; the broker knows."""
