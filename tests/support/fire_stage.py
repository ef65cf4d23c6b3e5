"""A broker under fire: a hash exchange with four durable queues, a user whose password is the canary, and its publishers."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker_faults import faults_of
from canary import traces_of_canary
from delivery_checker import History
from fire_load import Load, Run
from fire_queues import BINDINGS, EXCHANGE, QUEUES
from fire_site import Site, site_on
from publishing_support import through
from quick_rings import quick_prefix
from row_reader import drained

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker


@dataclass
class Stage:
    """A site, and the runs on it.

    Attributes:
        site: exchange, queues and the user who publishes.
        folder: for all that the runs write.
        rings: the rings that were in force while rows came, as far as they are known.
    """

    site: Site
    folder: Path
    rings: list[HashRing] = field(default_factory=list)

    @property
    def broker(self) -> RunningBroker:
        """The broker, with the vhost of the test in its URL."""
        return self.site.broker

    def target(self, port: int | None = None, **settings: Any) -> ConnectionSettings:
        """Return where the publisher connects to.

        Args:
            port: that of a proxy; None for the broker's own.
            settings: what else is not by default, such as ``heartbeat_s``.
        """
        url = self.site.url if port is None else through(self.site.url, port)
        return replace(ConnectionSettings.from_uri(url), **settings)

    def publish(
        self,
        fault: Callable[[Run], None],
        *targets: ConnectionSettings,
        load: Load | None = None,
        columns: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """Publish under a fault.

        Args:
            fault: what happens.
            targets: where to connect to; nothing for the broker itself.
            load: the rows.
            columns: further columns of `publish_many`.
            options: arguments of the publisher.
        """
        run = Run(load or Load())
        with _logged(self.folder):
            run.publish(list(targets) or self.target(), EXCHANGE, fault, columns=columns, **options)
        self.write_down(run)
        return run

    def write_down(self, run: Run) -> None:
        """Write what a user could have on disk after a run: the report, and the error with all local variables."""
        (self.folder / "report.txt").write_text(f"{run.report!r}\n{run.report}\n")
        if run.error is not None:
            told = traceback.TracebackException.from_exception(run.error, capture_locals=True)
            (self.folder / "error.txt").write_text("".join(told.format()))

    def ring_now(self) -> HashRing:
        """Read the ring."""
        url, management_url = self.broker.url, self.broker.management_url
        with Broker(url, management_url=management_url, ring_source=quick_prefix(self.broker)) as broker:
            return broker.ring(EXCHANGE)

    def read_ring(self) -> None:
        """Read the ring, and keep it among those in force."""
        self.rings.append(self.ring_now())

    def history(
        self,
        run: Run,
        *,
        ordered: bool = True,
        elsewhere: Collection[int] = (),
        found: Mapping[str, Sequence[int]] | None = None,
    ) -> History:
        """Take all rows out of the queues, and return what the checker needs.

        Args:
            run: what was published.
            ordered: whether the first copies of each key have to be in order.
            elsewhere: rows that the fault took away.
            found: what a consumer took out meanwhile.
        """
        left = drained(self.broker.url, QUEUES)
        return History(
            attempted=run.attempted,
            acked=run.report.confirmed,
            found={queue: [*(found or {}).get(queue, ()), *rows] for queue, rows in left.found.items()},
            unread=left.unread,
            queue_for=self._places,
            ordered=ordered,
            republished=run.report.republished,
            elsewhere=elsewhere,
        )

    def rows_for(self, queue: str, run: Run) -> set[int]:
        """Return the rows that were handed over until the end of the fault, and that the first ring sends to a queue."""
        return {
            row.id
            for row in run.attempted[: run.handed_in_fault]
            if self.rings[0].destination_for(row.key) == queue
        }

    def _places(self, key: str) -> set[str]:
        return {str(ring.destination_for(key)) for ring in self.rings if ring.buckets}

    def kill_broker(self, _: Run) -> None:
        """Kill the broker, and start it again."""
        faults_of(self.broker).kill()
        time.sleep(1)
        faults_of(self.broker).start()

    def unbind(self, queue: str) -> None:
        """Remove a queue's binding, and keep the ring that is left."""
        with self.site.channel() as channel:
            channel.queue_unbind(queue, EXCHANGE, str(dict(BINDINGS)[queue]))
        self.rings.append(self.rings[-1].unbind(queue))


@contextmanager
def fire_stage(
    broker: RunningBroker, folder: Path, arguments: Mapping[str, Any] | None = None
) -> Iterator[Stage]:
    """Declare exchange and queues, make the user, and search all that was written for the password at the end.

    Args:
        broker: with a vhost of the test in its URL.
        folder: for all that the run writes.
        arguments: arguments of the queues.
    """
    with site_on(broker) as site:
        site.declare(arguments)
        stage = Stage(site, folder)
        stage.read_ring()
        yield stage
    assert traces_of_canary(folder) == [], "the password was written down"


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Write all that is logged into a file."""
    logger = logging.getLogger()
    handler = logging.FileHandler(folder / "log.txt")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
