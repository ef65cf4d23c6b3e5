"""Two vhosts of a broker: a hash exchange of the second is federated with that of the first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pika
from bounded import until
from quick_rings import quick_prefix

from rabbit_chx import Broker, Publisher, Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.topology import plan

TEXT = """
[[exchanges]]
name = "h"
type = "x-consistent-hash"
ring = [{ queue = "x.{1..3}", weight = 10 }]
[[queues]]
name = "x.{1..3}"
"""
QUEUES = ("x.1", "x.2", "x.3")
ROWS = 300


@dataclass(frozen=True)
class Federated:
    """Two vhosts of one broker; the exchange `h` of the second is federated with that of the first."""

    up: RunningBroker
    down: RunningBroker
    link: ExchangeRef

    def counted(self, exchange: str = "h", expected: int = ROWS) -> list[int]:
        """Publish rows upstream, and return how many stayed there and how many came downstream."""
        with Publisher(self.up.url, exchange=exchange) as publisher:
            publisher.publish_many([f"k{n}" for n in range(ROWS)], [b"m"] * ROWS)
        counts = [0, 0]
        deadline = time.monotonic() + 30
        while sum(counts) < expected and time.monotonic() < deadline:
            counts = [count + purged(side) for count, side in zip(counts, (self.up, self.down), strict=True)]
            time.sleep(0.2)
        return counts


def purged(broker: RunningBroker) -> int:
    """Empty all queues of a vhost; return how many messages they had."""
    with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
        channel = connection.channel()
        return sum(channel.queue_purge(queue).method.message_count or 0 for queue in QUEUES)


def opened(broker: RunningBroker) -> Broker:
    """Return a broker, with a ring source, that is not open yet."""
    return Broker(broker.url, broker.management_url, ring_source=quick_prefix(broker))


def await_link(broker: RunningBroker) -> ExchangeRef:
    """Return the exchange of the link once it has a place in the ring."""

    def places() -> list[ExchangeRef]:
        with opened(broker) as live:
            return [place for place in live.ring("h").destinations if isinstance(place, ExchangeRef)]

    return until(places, "the federation link has started", every_s=1)[0]


def federate(broker: RunningBroker, exchange: str) -> None:
    """Federate an exchange of the downstream vhost."""
    name, definition = pika_parameters(broker.url).virtual_host, '{"federation-upstream-set": "all"}'
    policy = ("f", f"^{exchange}$", definition)
    broker.run("rabbitmqctl", "set_policy", "-p", name, "--apply-to", "exchanges", *policy)


@contextmanager
def federated_vhosts(broker: RunningBroker, up: RunningBroker) -> Iterator[Federated]:
    """Federate, until the block ends. `up` is the broker with the upstream vhost in its URL."""
    broker.run("rabbitmq-plugins", "enable", "-q", "rabbitmq_federation")
    with temporary_vhost(broker) as down:
        for side in (up, down):
            with opened(side) as live:
                live.apply(plan(Topology.from_toml(TEXT), live.topology()))
        name = pika_parameters(down.url).virtual_host
        # A URI without a host is a direct connection inside the node.
        uri = f"amqp:///{pika_parameters(up.url).virtual_host}"
        broker.run(
            "rabbitmqctl", "set_parameter", "-p", name, "federation-upstream", "up", f'{{"uri": "{uri}"}}'
        )
        federate(down, "h")
        yield Federated(up, down, await_link(up))
        broker.run("rabbitmqctl", "clear_policy", "-p", name, "f")
    broker.run("rabbitmq-plugins", "disable", "-q", "rabbitmq_federation")
