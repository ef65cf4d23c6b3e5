"""An exchange with queues on a broker that faults happen to, and the user who publishes to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pika
from bounded import until
from canary import CANARY, canary_user
from declared import with_login
from exchange_types import CHX
from fire_queues import BINDINGS, EXCHANGE, QUEUES
from row_reader import rows_waiting
from tcp_proxy import Proxy

from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import BrokerRefusedError, NotFoundError
from rabbit_chx.testing import RunningBroker

_LISTING_S = 30.0  # the management plugin shows a connection a few seconds after it was opened


@dataclass
class Site:
    """A vhost with the exchange and the queues of `fire_queues`.

    Attributes:
        broker: the broker, with the vhost in its URL, as a user who may do everything.
        management: its HTTP API.
        vhost: the vhost.
        user: who publishes; the password is the canary.
        queues: the queues that are there.
    """

    broker: RunningBroker
    management: Management
    vhost: str
    user: str
    queues: tuple[str, ...] = QUEUES

    @property
    def url(self) -> str:
        """The URL of the user who publishes."""
        return with_login(self.broker.url, self.user, CANARY)

    @cached_property
    def proxy(self) -> Proxy:
        """A line to the broker that can be cut."""
        return Proxy(self.broker.url)

    def declare(
        self, arguments: Mapping[str, Any] | None = None, bindings: Iterable[tuple[str, int]] = BINDINGS
    ) -> None:
        """Declare the exchange, its durable queues with these arguments, and their bindings, as far as they are not there."""
        with self.channel() as channel:
            channel.exchange_declare(EXCHANGE, CHX, durable=True)
            for queue, weight in bindings:
                channel.queue_declare(queue, durable=True, arguments=arguments)
                channel.queue_bind(queue, EXCHANGE, str(weight))
        time.sleep(1)  # Mnesia has a new exchange on disk half a second after it has confirmed it

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all that it holds."""
        with self.channel() as channel:
            channel.queue_delete(name)
        self.queues = tuple(queue for queue in self.queues if queue != name)

    def delete_exchange(self) -> None:
        """Delete the exchange."""
        self.management.request("DELETE", "exchanges", self.vhost, EXCHANGE)

    def delete_user(self) -> None:
        """Delete the user who publishes."""
        self.management.request("DELETE", "users", self.user)

    def unbind(self) -> None:
        """Remove all bindings of the exchange."""
        with self.channel() as channel:
            for queue, weight in BINDINGS:
                channel.queue_unbind(queue, EXCHANGE, str(weight))

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of a user who may do everything."""
        with pika.BlockingConnection(pika_parameters(self.broker.url)) as connection:
            yield connection.channel()

    def wait_for_rows(self, least: int, within_s: float, running: Callable[[], bool] = lambda: True) -> None:
        """Wait until the queues hold so many rows."""

        def are_there() -> bool:
            there = self.rows_there()
            assert there >= least or running(), f"it ended with {there:,} rows"
            return there >= least

        until(are_there, f"{least:,} rows", within_s)

    def rows_there(self) -> int:
        """Return how many rows the queues hold."""
        return rows_waiting(self.broker.url, self.queues)

    def connections(self) -> list[dict[str, Any]]:
        """The connections of the user who publishes."""
        listed = self.management.request("GET", "vhosts", self.vhost, "connections")
        return [entry for entry in listed if entry.get("user") == self.user]

    def close_connections(self) -> int:
        """Close all connections of the user who publishes by the management API; return how many there were."""
        listed = until(self.connections, "the management API shows a connection", _LISTING_S)
        for entry in listed:
            force_close(self.management, entry["name"])
        return len(listed)

    def wait_for_no_connection(self, within_s: float) -> None:
        """Wait until the user who publishes has no connection."""
        until(lambda: not self.connections(), "no connection", within_s, 0.5)


def force_close(management: Management, connection: str) -> bool:
    """Close a connection of that name as an operator does; return whether it was there.

    The list of connections is some seconds behind. A connection of the list that has ended is answered with 404, or with 500 if it
    ends while the broker looks for it (3.10.8).
    """
    try:
        management.request("DELETE", "connections", connection)
    except BrokerRefusedError as refused:
        if not isinstance(refused, NotFoundError) and "was answered 500" not in str(refused):
            raise
        return False
    return True


@contextmanager
def site_on(broker: RunningBroker) -> Iterator[Site]:
    """Make a user and a site on a vhost that has neither.

    Args:
        broker: the broker, with the vhost in its URL.
    """
    assert broker.management_url is not None
    management = Management(broker.management_url)
    vhost = unquote(broker.url.rpartition("/")[2])
    with canary_user(management, vhost) as user:
        site = Site(broker, management, vhost, user)
        try:
            yield site
        finally:
            if "proxy" in vars(site):
                site.proxy.close()
