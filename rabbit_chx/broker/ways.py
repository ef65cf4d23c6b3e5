"""AMQP, the management API and ``rabbitmqctl`` are shown to be ways to one broker before an answer leans on two of them.

Each way names its cluster. Where nobody has set a name, each node reports its own, and the ways may be nodes of one cluster.

Different clusters may have equal names, as those of containers have. So the lock of a connection that makes changes has a random argument,
which the other ways must show before the first change. The lock is in the vhost, so that is shown, too. Nothing is written before an answer:
there the management API must list a connection that it did not list before this one was opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rabbit_chx.broker.live_broker import APPLY_LOCK, LOCK_ID
from rabbit_chx.broker.reading import OVERVIEW, WITHOUT_STATISTICS, read_nodes
from rabbit_chx.broker.ring_source import DiagnosticsRing, RingSource, rings_by
from rabbit_chx.errors import ManagementNeededError, MismatchError
from rabbit_chx.fixes import Argument, Fix
from rabbit_chx.records.ring_records import RingRecord
from rabbit_chx.topology.model import is_named_after

if TYPE_CHECKING:
    from rabbit_chx.broker.management import Management
    from rabbit_chx.routing import HashRing, Release

#: What tells the rings of a broker: a source that reads them, or the record of one ring in a file.
Source: TypeAlias = RingSource | RingRecord
#: A node of a cluster may list a new queue some milliseconds after the node that declared it.
_LOOKS, _PAUSE_S = 4, 0.5


class Ways:
    """The management API and the ring source beside a connection.

    Args:
        where: the address of the connection, without password.
        vhost: its vhost.
        cluster: the name of the cluster as the connection shows it; None if its server properties do not contain it.
        version: the version of its node.
        management: the management API; None without one.
        source: the ring source; None without one.
        listing: returns the connections of the user that the management API lists; it was called before the connection was opened, and
            returned `known`. None: there is no connection.
        known: the connections that were listed then; None if the API does not tell them.
        client: a random name of the connection, which ``rabbitmqctl`` must list; empty without a connection.

    Attributes:
        lock_id: the argument of the lock that the connection holds; empty without a lock.
    """

    def __init__(
        self,
        where: str,
        vhost: str,
        cluster: str | None,
        version: str,
        *,
        management: Management | None,
        source: Source | None,
        listing: Callable[[], Collection[str] | None] | None = None,
        known: Collection[str] | None = None,
        client: str = "",
    ) -> None:
        self._listing, self._known, self._client = listing, known, client
        self.where, self.vhost, self.lock_id = where, vhost, ""
        self.file_records: Mapping[str, RingRecord] = (
            {source.exchange: source} if isinstance(source, RingRecord) else {}
        )
        self._cluster, self._version = cluster, version
        self._management, self._is_compared = management, False
        self._source = None if isinstance(source, RingRecord) else source
        self.has_management, self.has_source = management is not None, self._source is not None

    @property
    def api(self) -> Management:
        """The management API.

        Raises:
            ManagementNeededError: the management URL is not set.
            MismatchError: it is that of another cluster.
        """
        if not self._is_compared:
            self.overview()
        return self._given_api()

    def _given_api(self) -> Management:
        if self._management is None:
            raise ManagementNeededError(
                Fix(
                    f"{self.where}: AMQP does not return bindings, arguments and policies: pass ",
                    Argument("management_url", "http://user:password@host:15672"),
                )
            )
        return self._management

    def overview(self) -> dict[str, Any]:
        """Return the overview of the management API.

        Raises:
            ManagementNeededError: the management URL is not set.
            MismatchError: it is that of another cluster, which does not describe this broker.
        """
        api = self._given_api()
        overview: dict[str, Any] = api.get("overview", fields=OVERVIEW)
        own, named, nodes = self._cluster, overview.get("cluster_name"), dict[str, float | None]()
        # Nodes of one cluster may have different versions, so its name precedes them.
        if own is None or named is None:
            own, named = f"RabbitMQ {self._version}", f"RabbitMQ {overview['rabbitmq_version']}"
        elif own != named:
            queues = api.get_list("queues", self.vhost, query=WITHOUT_STATISTICS, fields={})
            nodes = read_nodes(api, queues)
        self._compare(own, api.masked_url, named, nodes)
        if not self._is_compared:
            self._find_connection(api.masked_url)
        self._is_compared = True
        return overview

    @property
    def not_compared(self) -> str:
        """Why the addresses of AMQP and of the management API were not compared, as a sentence; empty if they were, or only one was used."""
        if not self._is_compared or self._listing is None or self._known is not None:
            return ""
        return (
            f"{self._given_api().masked_url} does not list the connections of this user, so that it and {self.where} were not compared: both have "
            "to be addresses of one broker"
        )

    def _find_connection(self, other: str) -> None:
        """Refuse a management API that does not list the connection.

        Raises:
            MismatchError: it is that of another broker.
        """
        for look in range(_LOOKS if self._listing is not None and self._known is not None else 0):
            time.sleep(_PAUSE_S if look else 0)
            listed = self._listing() if self._listing is not None else None
            if listed is None or not {*listed} <= {*(self._known or ())}:
                return
        if self._listing is not None and self._known is not None:
            self._refuse_unlisted(other)

    def check_lock_in(self, queues: Sequence[Mapping[str, Any]]) -> None:
        """Refuse the queues that the management API lists if they are those of another broker, while the connection holds the lock.

        Raises:
            MismatchError: they do not contain the lock.
        """
        for look in range(_LOOKS if self.lock_id else 0):
            locks = [entry.get("arguments") or {} for entry in queues if entry.get("name") == APPLY_LOCK]
            if any(arguments.get(LOCK_ID) == self.lock_id for arguments in locks):
                return
            time.sleep(_PAUSE_S if look else 0)
            queues = self.api.get_list("queues", self.vhost, query=WITHOUT_STATISTICS, fields={})
        if self.lock_id:
            self._refuse_without_lock(self.api.masked_url)

    def read_rings(self, exchanges: Sequence[str], release: Release) -> dict[str, HashRing]:
        """Return the rings that the source reads. For saved output, and for a source of the caller's own, the caller vouches.

        Raises:
            MismatchError: the source asks another broker.
            RingSourceError: a ring could not be read.
        """
        source = self._source
        assert source is not None  # rings are not read if `has_source` is False
        rings = rings_by(source, self.vhost, exchanges, release)
        if not isinstance(source, DiagnosticsRing):
            return rings
        if self._cluster is not None and source.cluster_name is not None:
            self._compare(self._cluster, source.command, source.cluster_name, source.nodes)
        if self._client and self._client not in source.connections:
            self._refuse_unlisted(source.command)
        if self.lock_id and source.lock_id != self.lock_id:
            rings = rings_by(source, self.vhost, exchanges, release)
            if source.lock_id != self.lock_id:
                self._refuse_without_lock(source.command)
        return rings

    def forget_connection(self) -> None:
        """Expect no way to list the connection any more, as it is about to close. `inspect` reads some parts later."""
        self._client = ""

    @property
    def consumer_timeout_ms(self) -> int | None:
        """The default consumer timeout of the broker, as the last `read_rings` found it."""
        return getattr(self._source, "consumer_timeout_ms", None)

    def _compare(self, own: str, other: str, named: str, nodes: Collection[str]) -> None:
        """Refuse another way, which names a cluster and its nodes, unless the connection is to one of them."""
        if own != named and not any(is_named_after(own, node) for node in nodes):
            raise MismatchError(
                f"{self.where} is {own}, and {other} is {named}: pass the addresses of one broker (or connect again, if its cluster was "
                "renamed)"
            )

    def _refuse_unlisted(self, other: str) -> None:
        raise MismatchError(
            f"{self.where} and {other} are two brokers, although both are called {self._cluster}: the second does not list the connection to the "
            "first; pass the addresses of one broker"
        )

    def _refuse_without_lock(self, other: str) -> None:
        raise MismatchError(
            f"{self.where} and {other} are two brokers, although both are called {self._cluster}: the queue {APPLY_LOCK} that was declared "
            f"in vhost {self.vhost!r} of the first is not in the second, and nothing was changed; pass the addresses of one broker"
        )
