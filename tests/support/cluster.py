"""A cluster of brokers in Docker containers, on a network of its own.

After a cut of 100 seconds 4.3.6 (Khepri) was together at once. On Mnesia a long cut is a partition that does not heal by
itself: on 3.10.8 a cut of 10 seconds healed, and one of 100 seconds did not. Then restart the node that was cut off.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from reaper import session_label, watch_containers

from rabbit_chx.broker.management import Management
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.testing import containers
from rabbit_chx.testing.running_broker import RunningBroker, in_vhost

_TOGETHER_TIMEOUT_S = 120

# The nodes find each other by the names of their containers, which Docker resolves on a network of ours.
_JOIN = """
umask 077
mkdir -p /etc/rabbitmq/conf.d
rm -f /var/lib/rabbitmq/.erlang.cookie
printf %s {cookie} >/var/lib/rabbitmq/.erlang.cookie
umask 022
cat >/etc/rabbitmq/conf.d/20-cluster.conf <<'END'
cluster_formation.peer_discovery_backend = classic_config
{peers}
END
"""


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster for tests.

    Attributes:
        nodes: its nodes, each a broker that may be restarted, killed, shut down, paused and cut off by itself.
        names: the nodes' Erlang names, such as ``"rabbit@rabbit-chx-3f2a-1"``, in the order of `nodes`.
    """

    nodes: tuple[RunningBroker, ...]
    names: tuple[str, ...]

    @property
    def version(self) -> str:
        """The version of the first node, such as ``"4.3.6"``."""
        return self.nodes[0].version

    def wait_until_together(self) -> None:
        """Wait until each node sees all nodes running, such as after one came back.

        Raises:
            AssertionError: the nodes are not together in time; the message contains what each node sees.
        """
        deadline = time.monotonic() + _TOGETHER_TIMEOUT_S
        while True:
            # All at once: while a node is frozen, each of them answers only after seconds.
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                views = dict(zip(self.names, pool.map(_running_nodes, self.nodes), strict=True))
            if all(view == set(self.names) for view in views.values()):
                return
            assert time.monotonic() < deadline, f"not together after {_TOGETHER_TIMEOUT_S} s: {views}"
            time.sleep(0.2)

    def in_vhost(self, vhost: str) -> list[RunningBroker]:
        """Return the nodes with a vhost in their URLs."""
        return [in_vhost(node, vhost) for node in self.nodes]


@contextmanager
def docker_cluster(series: str = "4.3", nodes: int = 3) -> Iterator[RunningCluster]:
    """Start a cluster in containers of its own on a network of its own; all of it is removed at the end.

    Args:
        series: the release series; the image is ``rabbitmq:SERIES-management``.
        nodes: how many nodes it has.

    Raises:
        MissingExtraError: testcontainers is not installed.
        NoBrokerError: there is no Docker or no image; the message says which.
        AssertionError: the nodes do not come together.
    """
    watch_containers()
    containers.require_docker()
    image = containers.official_image(series)
    containers.require_image(image)
    with ExitStack() as removal:
        cluster = _start(image, nodes, removal)
        cluster.wait_until_together()
        yield cluster


def _start(image: str, count: int, removal: ExitStack) -> RunningCluster:
    """Start the nodes and return the cluster once each serves; `removal` gets what to remove, the network last."""
    network = f"rabbit-chx-{secrets.token_hex(4)}"
    # If we die, `reaper` removes what has this label.
    containers.docker("network", "create", "--label", session_label(), network)
    removal.callback(containers.docker, "network", "rm", network)
    names = [f"{network}-{number}" for number in range(1, count + 1)]
    cookie = secrets.token_hex(16)
    servers = []
    for name in names:
        servers.append(server := containers.ContainerServer(name, network))
        removal.callback(server.remove)
        # The first is a cluster when the others come.
        server.create(image, _script(cookie, dict.fromkeys((names[0], name))))
        if len(servers) == 1:
            server.wait()
    nodes = tuple(server.broker(image) for server in servers)
    return RunningCluster(nodes, tuple(f"rabbit@{name}" for name in names))


def _script(cookie: str, peers: Iterable[str]) -> str:
    """Return the script that a node's container runs, with the shared secret and the nodes to join."""
    listed = "\n".join(
        f"cluster_formation.classic_config.nodes.{number} = rabbit@{name}"
        for number, name in enumerate(peers, 1)
    )
    return _JOIN.format(cookie=cookie, peers=listed) + containers.SERVE


def _running_nodes(broker: RunningBroker) -> set[str]:
    """Return the Erlang names of the nodes that a broker sees running; none if its HTTP API does not answer."""
    if broker.management_url is None:
        return set()
    try:
        listed = Management(broker.management_url).request("GET", "nodes")
    except RabbitChxError:
        return set()
    return {entry["name"] for entry in listed if entry.get("running")}
