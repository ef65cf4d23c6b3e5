"""AMQP, the management API and ``rabbitmqctl`` are shown to be ways to one broker before an answer leans on two of them.

Each way names its cluster. Where nobody has set a name, each node reports its own, and the ways may be nodes of one cluster.

Different clusters may have equal names, as those of containers have. So the lock of a connection that makes changes has a random argument,
which the other ways must show before the first change. The lock is in the vhost, so that is shown, too. Nothing is written before an answer:
there the management API must list this connection, by the addresses of its socket or by the random name that it gave itself. Another new
connection proves nothing: those of services come and go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rabbit_chx.broker.live_broker import APPLY_LOCK, LOCK_ID
from rabbit_chx.broker.reading import OVERVIEW, WITHOUT_STATISTICS, read_nodes
from rabbit_chx.broker.ring_source import DiagnosticsRing, RingSource, rings_by
from rabbit_chx.errors import ManagementNeededError, MismatchError
from rabbit_chx.records.ring_records import RingRecord
from rabbit_chx.topology.model import is_named_after

if TYPE_CHECKING:
    from rabbit_chx.broker.management import Management
    from rabbit_chx.routing import HashRing, Release

#: What tells the rings of a broker: a source that reads them, or the record of one ring in a file.
OrderSource: TypeAlias = RingSource | RingRecord
#: A node of a cluster may list a new queue or connection some milliseconds after the node that has it.
_LOOKS = 4
_PAUSE_S = 0.5
#: A broker shows the name that a connection gave itself with its next statistics, every 5 s (tested on 3.10.8 and 4.3.6).
_NAMED_WITHIN_S = 8.0
#: The addresses of AMQP and of the management API that were shown to be of one broker, while this process runs.
_SAME_BROKER: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class OwnConnection:
    """How the management API may show a connection.

    Attributes:
        name: the random name that the connection gave itself, which also ``rabbitmqctl`` must list.
        socket: the name that the broker gives it: its addresses, unless they were translated on the way.
        known: the connections of the user that the API listed before this one was opened; None if it does not tell them.
        listing: returns those that it lists now.
        name_of: returns the name that a listed connection gave itself; None if the API does not show it.
    """

    name: str
    socket: str
    known: Collection[str] | None
    listing: Callable[[], Collection[str] | None]
    name_of: Callable[[str], str | None]

    @property
    def peer(self) -> str:
        """The address of the broker."""
        return self.socket.partition(" -> ")[2]

    def is_listed(self, *, has_names: bool) -> bool | None:
        """Return whether the management API lists the connection; None if it does not show that. `has_names`: it shows names of connections."""
        candidates = set[str]()
        started = time.monotonic()
        look = 0
        while self.known is not None:
            listed = self.listing()
            if listed is None:
                break
            if look < _LOOKS:
                candidates |= {*listed} - {*self.known}
            candidates &= {*listed}  # this connection stays
            names = {candidate: self.name_of(candidate) for candidate in candidates}
            if self.socket in candidates or self.name in names.values():
                return True
            candidates = {candidate for candidate, name in names.items() if name is None}
            look += 1
            if look >= _LOOKS and not candidates:
                return False
            is_late = look >= _LOOKS and time.monotonic() - started >= _NAMED_WITHIN_S
            if is_late or (candidates and not has_names):
                break
            time.sleep(_PAUSE_S)
        return None


class Ways:
    """The management API and the ring source beside a connection.

    Args:
        where: the address of the connection, without password.
        vhost: its vhost.
        cluster: the name of the cluster as the connection shows it; None if its server properties do not contain it.
        version: the version of its node.
        management: the management API; None without one.
        source: the ring source; None without one.
        own: the connection; None without one.

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
        source: OrderSource | None,
        own: OwnConnection | None = None,
    ) -> None:
        self._own = own
        self._is_unlisted = False
        self.where = where
        self.vhost = vhost
        self.lock_id = ""
        self.file_records: Mapping[str, RingRecord] = (
            {source.exchange: source} if isinstance(source, RingRecord) else {}
        )
        self._cluster = cluster
        self._version = version
        self._management = management
        self._is_compared = False
        self._source = None if isinstance(source, RingRecord) else source
        self.has_management = management is not None
        self.has_source = self._source is not None

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
                f"{self.where}: AMQP does not return bindings, arguments and policies: pass `--management-url "
                "http://user:password@host:15672` (`management_url='http://user:password@host:15672'`)"
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
        own = self._cluster
        named = overview.get("cluster_name")
        nodes = dict[str, float | None]()
        # Nodes of one cluster may have different versions, so its name precedes them.
        if own is None or named is None:
            own = f"RabbitMQ {self._version}"
            named = f"RabbitMQ {overview['rabbitmq_version']}"
        elif own != named:
            queues = api.get_list("queues", self.vhost, query=WITHOUT_STATISTICS, fields={})
            nodes = read_nodes(api, queues)
        self._compare(own, api.masked_url, named, nodes)
        if not self._is_compared:
            self._find_connection(api.masked_url, has_statistics=not overview.get("disable_stats"))
        self._is_compared = True
        return overview

    @property
    def not_compared(self) -> str:
        """Why the addresses of AMQP and of the management API were not compared, as a sentence; empty if they were, or only one was used."""
        if not self._is_unlisted:
            return ""
        return (
            f"{self._given_api().masked_url} does not show the names of this user's connections, so that it and {self.where} were not compared: "
            "both have to be addresses of one broker"
        )

    def _find_connection(self, other: str, *, has_statistics: bool) -> None:
        """Refuse a management API that does not list the connection. Without statistics it shows no names of connections.

        Raises:
            MismatchError: it is that of another broker.
        """
        if self._own is None:
            return
        addresses = (self._own.peer, other)
        if addresses in _SAME_BROKER:
            return
        is_listed = self._own.is_listed(has_names=has_statistics)
        if is_listed is False:
            self._refuse_unlisted(other)
        if is_listed:
            _SAME_BROKER.add(addresses)
        self._is_unlisted = not is_listed

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
        if self._own is not None and self._own.name not in source.connections:
            self._refuse_unlisted(source.command)
        if self.lock_id and source.lock_id != self.lock_id:
            rings = rings_by(source, self.vhost, exchanges, release)
            if source.lock_id != self.lock_id:
                self._refuse_without_lock(source.command)
        return rings

    def forget_connection(self) -> None:
        """Expect no way to list the connection any more, as it is about to close."""
        self._own = None

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
