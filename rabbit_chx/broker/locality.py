"""Which address of a cluster leads to the node of each queue.

AMQP does not tell a client which node it is connected to, and the listeners that a node tells are not the addresses by which its
clients reach it (containers, address translation). So this connects by each address under a name of its own, and asks the
management API on which node each of these connections is, and which node leads each queue.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerTimeoutError, InputError, UnreachableError

_LOOK_EVERY_S = 0.2


def queue_addresses(
    urls: Sequence[str | ConnectionSettings], management_url: str, *, timeout_s: float = 30.0
) -> dict[str, str]:
    """Return ``host:port`` by queue: the address whose node leads the queue, as it is now.

    A queue is left out if no address leads to its node. An address is left out if nothing answers there. Each address must lead
    to one node, so that of a load balancer tells nothing.

    Args:
        urls: the AMQP URIs of the nodes, of one vhost.
        management_url: the management API of any node. Its user needs the tag ``monitoring``; ``management`` is enough where it
            is also the user of the AMQP URIs.
        timeout_s: how long the management API may take to list the connections. It does so after some seconds.

    Raises:
        InputError: the addresses are of several vhosts, or there is none.
        UnreachableError: nothing answers at any of the addresses, or at the management API.
        BrokerRefusedError: the broker refuses a user.
        BrokerTimeoutError: the management API does not list the connections in time.
    """
    targets = [ConnectionSettings.from_uri(url) if isinstance(url, str) else url for url in urls]
    vhosts = {target.vhost for target in targets}
    if len(vhosts) != 1:
        raise InputError(f"the addresses are of {len(vhosts)} vhosts: give those of one vhost")
    management = Management(management_url)
    nodes = _nodes_behind(targets, management, timeout_s)
    listed = management.get_list(
        "queues", *vhosts, query={"columns": "name,leader,node"}, fields={"name": str}
    )
    leaders = {queue["name"]: _leader(queue) for queue in listed}
    return {queue: nodes[leader] for queue, leader in leaders.items() if leader in nodes}


def _leader(queue: Mapping[str, str]) -> str | None:
    """Return the node that leads a queue: a classic queue has no ``leader``, and on 3.10 a new quorum queue no ``node`` yet."""
    return queue.get("leader") or queue.get("node")


def _nodes_behind(
    targets: Sequence[ConnectionSettings], management: Management, timeout_s: float
) -> dict[str, str]:
    """Return the first address that leads to each node, by the node's name."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack:
        unreachable: UnreachableError | None = None
        for target in targets:
            name = f"rabbit-chx-locality-{secrets.token_hex(8)}"
            try:
                connection = PikaConnection(replace(target, connection_name=name))
            except UnreachableError as cause:
                unreachable = cause
            else:
                stack.callback(connection.close)
                addresses[name] = _address(target)
        if unreachable is not None and not addresses:
            raise unreachable
        node_of = _nodes_of(addresses, management, timeout_s)
    nodes: dict[str, str] = {}
    for name, address in addresses.items():
        nodes.setdefault(node_of[name], address)
    return nodes


def _address(target: ConnectionSettings) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{host}:{target.port}"


def _nodes_of(names: Mapping[str, str], management: Management, timeout_s: float) -> dict[str, str]:
    """Wait until the management API lists the connections of these names, and return their nodes."""
    deadline = time.monotonic() + timeout_s
    while True:
        listed = management.get_list("connections", query={"columns": "user_provided_name,node"}, fields={})
        node_of: dict[Any, Any] = {
            connection.get("user_provided_name"): connection.get("node") for connection in listed
        }
        if missing := [address for name, address in names.items() if not node_of.get(name)]:
            if time.monotonic() > deadline:
                raise BrokerTimeoutError(
                    f"{management.masked_url} does not list the connection to {missing[0]} within {timeout_s:g} s: check that it is "
                    "the management API of this cluster, and that its user has the tag monitoring"
                )
            time.sleep(_LOOK_EVERY_S)
        else:
            return {name: node_of[name] for name in names}
