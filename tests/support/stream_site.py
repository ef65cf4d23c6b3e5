"""An exchange with streams on a broker that faults happen to, and what is in the streams at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import pytest
import spark_jobs
from canary import CANARY
from cluster import RunningCluster
from declared import with_login
from delivery_checker import Attempt, History
from fire_queues import EXCHANGE, ring_of
from fire_site import Site, site_on
from fire_streams import COORDINATOR_S, addresses_of

from rabbit_chx import HashRing, StreamReader
from rabbit_chx.testing import RunningBroker

#: Options of the connector: rows alone, and in sub-entries, which end nowhere with a batch of Arrow.
each_form = pytest.mark.parametrize(
    "entries", [{}, {"subEntryRows": "7", "compression": "lz4"}], ids=["single", "sub-entries"]
)


def of_form(fault: str, entries: Mapping[str, str]) -> str:
    """Return the words for a fault, with the form of the rows."""
    return f"{fault}{', in sub-entries' if entries else ''}"


class StreamSite(Site):
    """A site whose queues are streams, written to over the stream protocol.

    Attributes:
        cluster: the cluster that it is on; None for a single broker.
    """

    cluster: RunningCluster | None = None

    @property
    def stream_urls(self) -> list[str]:
        """The URLs of all nodes, as a user who may do everything."""
        nodes = [self.broker] if self.cluster is None else self.cluster.in_vhost(self.vhost)
        return [node.stream_url for node in nodes]

    @property
    def addresses(self) -> dict[str, str]:
        """Where the addresses that the nodes advertise are for us."""
        return {} if self.cluster is None else addresses_of(self.cluster)

    @property
    def url(self) -> str:
        """The URLs of all nodes, as the user who writes."""
        return ",".join(with_login(url, self.user, CANARY) for url in self.stream_urls)

    @property
    def ring(self) -> HashRing:
        """The ring of the exchange."""
        ring = ring_of(self.broker.version)
        return HashRing.from_buckets(ring.buckets, ring.release)

    @property
    def options(self) -> dict[str, str]:
        """The options of a write that stores each row once."""
        return {
            "exchange": EXCHANGE,
            "ring": self.ring.to_json(),
            "delivery": "exactly-once",
            "verify": "full",
            **self.reach,
        }

    @property
    def reach(self) -> dict[str, str]:
        """The option that says where nodes are, if it is needed."""
        return {"addresses": json.dumps(self.addresses)} if self.addresses else {}

    def rows_in(self, stream: str) -> list[int]:
        """Return the numbers of the rows of a stream, in their order."""
        with StreamReader(self.stream_urls, stream, addresses=self.addresses) as reader:
            bodies = (text for batch in reader for text in batch["value"].to_pylist())
            return [int(body.split()[0]) for body in bodies if body]

    def rows_there(self) -> int:
        """Return how many rows the streams have, about."""
        rows = 0
        for stream in self.queues:
            with StreamReader(self.stream_urls, stream, addresses=self.addresses) as reader:
                rows += reader.end_offset - reader.start_offset
        return rows

    def history(self, rows: int, confirmed: Collection[int] | int) -> History:
        """Return what is judged: no copy is allowed."""
        return History(
            attempted=[Attempt(row, spark_jobs.key_of(row)) for row in range(rows)],
            acked=confirmed,
            found={stream: self.rows_in(stream) for stream in self.queues},
            queue_for=lambda key: str(self.ring.destination_for(key)),
            republished=0,
        )


@contextmanager
def stream_site_on(broker: RunningBroker, cluster: RunningCluster | None = None) -> Iterator[StreamSite]:
    """Make a user, the exchange and its streams on a vhost that has none of them.

    Args:
        broker: the broker, with the vhost in its URL.
        cluster: its nodes, where it is one of some.
    """
    with site_on(broker) as plain:
        site = StreamSite(plain.broker, plain.management, plain.vhost, plain.user)
        site.cluster = cluster
        site.declare({"x-queue-type": "stream"})
        time.sleep(COORDINATOR_S)
        yield site
