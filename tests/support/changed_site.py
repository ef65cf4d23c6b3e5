"""A vhost in which plans are applied, beside objects of somebody else, which no plan may touch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pika.exceptions
from bounded import until
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix

from rabbit_chx import Broker, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.applying import Applied
from rabbit_chx.broker.live_broker import APPLY_LOCK
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.topology import LiveTopology, Plan, plan

_LOCK_GOES_S = 10.0
_NOT_FOUND = 404
_THEIRS = Topology.from_toml(
    """
    [[exchanges]]
    name = "theirs"
    type = "x-consistent-hash"
    ring = [{ queue = "theirs.2", weight = 2 }, { queue = "theirs.1" }]
    [[exchanges]]
    name = "theirs.news"
    type = "headers"
    [[queues]]
    name = "theirs.{1..2}"
    [[bindings]]
    source = "theirs.news"
    queue = "theirs.1"
    arguments = { x-match = "any", site = "a" }
    [[policies]]
    name = "theirs"
    pattern = "^theirs[.]none$"
    definition = { max-length = 5 }
    """
)


class ChangedSite:
    """A vhost.

    Attributes:
        broker: the broker, with the vhost in its URL.
        channel: a channel of pika.
        source: the command prefix that reads rings.
    """

    def __init__(self, inside: RunningBroker, channel: BlockingChannel) -> None:
        assert inside.management_url is not None
        self.broker, self.channel = inside, channel
        self.source = quick_prefix(inside)
        self._management = Management(inside.management_url)
        self._vhost = ConnectionSettings.from_uri(inside.url).vhost

    def connected(self) -> Broker:
        """Return a broker that is not open yet."""
        return Broker(self.broker.url, self.broker.management_url, self.source)

    def live(self) -> LiveTopology:
        """Return what is there, what is somebody else's too."""
        with self.connected() as broker:
            return broker.topology()

    def apply(self, wanted: Topology | Plan, **allowed: Any) -> Applied:
        """Plan, if that is not done, and apply; everything but losses is allowed, if nothing is said."""
        allowed = {"allow_moved": 1.0, "allow_delete": True, **allowed}
        with self.connected() as broker:
            made = plan(wanted, broker.topology()) if isinstance(wanted, Topology) else wanted
            return broker.apply(made, **allowed)

    def wait_until_unlocked(self) -> None:
        """Wait until the broker has noticed that who applied a plan is gone, and has done all that came from there."""

        def is_gone() -> bool:
            try:
                self.channel.connection.channel().queue_declare(APPLY_LOCK, passive=True)
            except pika.exceptions.ChannelClosedByBroker as closed:
                return closed.reply_code == _NOT_FOUND
            return False

        until(is_gone, f"{APPLY_LOCK} is gone", _LOCK_GOES_S)

    def planned(self, wanted: Topology) -> Plan:
        """Return the plan of what is wanted."""
        return plan(wanted, self.live())

    def exported(self) -> Any:
        """Return the definitions of the vhost as the broker exports them, and all rings."""
        definitions = self._management.request("GET", "definitions", self._vhost)
        live = self.live()
        return definitions, {name: ring.buckets for name, ring in live.rings.items()}, live

    def request(self, method: str, kind: str, *path: str, body: Any = None) -> Any:
        """Ask the management API of something in the vhost."""
        return self._management.request(method, kind, self._vhost, *path, body=body)

    def admin(self, method: str, *path: str, body: Any = None) -> Any:
        """Ask the management API of something outside the vhost."""
        return self._management.request(method, *path, body=body)

    def check_done(self, wanted: Topology) -> None:
        """A second plan is empty, and its application changes nothing. What is somebody else's is as it was."""
        before = self.exported()
        again = plan(wanted, before[2])
        assert (again.changes, again.refusals) == ((), ())
        assert self.apply(wanted).changes == ()
        assert self.exported() == before
        self.check_theirs(before[2])

    def mend_theirs(self) -> None:
        """Bring the ring of somebody else's back into order, which a restart on Mnesia has lost."""
        self.apply(_THEIRS)

    def check_theirs(self, live: LiveTopology | None = None) -> None:
        """What is somebody else's is as it was."""
        again = plan(_THEIRS, self.live() if live is None else live)
        assert (again.changes, again.refusals) == ((), ())


@contextmanager
def changed_site(broker: RunningBroker) -> Iterator[ChangedSite]:
    """Make a vhost with somebody else's objects; it is deleted at the end.

    Args:
        broker: the broker.
    """
    with temporary_vhost(broker) as inside:
        connection = pika.BlockingConnection(pika_parameters(f"{inside.url}?heartbeat=0"))
        site = ChangedSite(inside, connection.channel())
        site.apply(_THEIRS)
        yield site
        with suppress(pika.exceptions.AMQPError):  # a test may have broken the broker
            connection.close()
