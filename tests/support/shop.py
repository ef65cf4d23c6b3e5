"""A vhost with an exchange whose ring the tests know."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.testing import RunningBroker

BINDINGS: list[tuple[Destination, int]] = [("q3", 2), ("q1", 10), ("q2", 1), (ExchangeRef("slot"), 3)]
BUCKETS = tuple(destination for destination, weight in BINDINGS for _ in range(weight))


@dataclass(frozen=True, slots=True)
class Shop:
    """A vhost with the exchange `orders`, which has the ring BUCKETS."""

    broker: RunningBroker
    management: Management
    settings: ConnectionSettings
    channel: BlockingChannel

    @property
    def live(self) -> tuple[str, ...]:
        """The options that name the broker."""
        return ("--url", self.broker.url, "--management-url", str(self.broker.management_url))

    @property
    def via(self) -> tuple[str, ...]:
        """The option that reads its ring."""
        return ("--ring-via", shlex.join(self.ring_via))

    @property
    def ring_via(self) -> tuple[str, ...]:
        """What stands before a command of the broker's tools."""
        return quick_prefix(self.broker)

    def scratch_vhosts(self) -> set[str]:
        """Vhosts made by us but that of the test, which has such a name as well."""
        names = {vhost["name"] for vhost in self.management.request("GET", "vhosts")}
        return {name for name in names if name.startswith("rabbit_chx-")} - {self.settings.vhost}


def declare(channel: BlockingChannel, exchange: str, arguments: dict[str, Any] | None = None) -> None:
    """Declare an exchange that has the ring BUCKETS."""
    channel.exchange_declare("slot", FANOUT, durable=True, internal=True)
    channel.queue_declare("q4", durable=True)
    channel.queue_bind("q4", "slot")
    channel.exchange_declare(exchange, CHX, durable=True, arguments=arguments)
    for destination, weight in BINDINGS:
        if isinstance(destination, ExchangeRef):
            channel.exchange_bind(destination.name, exchange, str(weight))
        else:
            channel.queue_declare(destination, durable=True)
            channel.queue_bind(destination, exchange, str(weight))
