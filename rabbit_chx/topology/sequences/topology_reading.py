"""A whole vhost, read from the management API and a ring source. Nothing is declared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import BrokerRefusedError, TopologyError
from rabbit_chx.routing import HashRing
from rabbit_chx.topology.definitions import read_lists
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.sequences.exchange_reading import OVERVIEW, release_read
from rabbit_chx.topology.sequences.operations import QueueCounts, QueueDeclare
from rabbit_chx.topology.sequences.steps import ApiRequest, RingRequest
from rabbit_chx.topology.slots import queues_behind_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rabbit_chx.routing import Release
    from rabbit_chx.topology.sequences.steps import Access, OperationSequence, Sequence

__all__ = ["APPLY_LOCK", "rings_read", "topology_read"]

#: The exclusive queue that an application holds while it changes the broker. It is no part of a topology.
APPLY_LOCK = "rabbit-chx.apply"
#: What is read, and the field that names one of it.
_LISTS = {"exchanges": "name", "queues": "name", "bindings": "destination", "policies": "name"}
#: What the statistics of queues would cost, nobody asks for here (parameters since 3.10; older releases ignore them).
_WITHOUT_STATISTICS = {"disable_stats": "true", "enable_queue_totals": "true"}


def topology_read(access: Access) -> Sequence[Topology]:
    """Read the exchanges, queues, bindings, policies and rings of a vhost, and how many messages are parked.

    Rings are read by the ring source. Without one they are assumed from the bindings as they are listed.

    Args:
        access: what the sequence may ask.

    Raises:
        NotFoundError: there is no such vhost.
        AccessRefusedError: the user may not read it.
        RingSourceError: the rings could not be read.
        UnreachableError: nothing answers at the address.
    """
    overview = yield OVERVIEW
    release = yield from release_read(str(overview["rabbitmq_version"]))
    lists: dict[str, Any] = {}
    for name, known_by in _LISTS.items():
        query = _WITHOUT_STATISTICS if name == "queues" else None
        lists[name] = yield ApiRequest(
            "GET", (name, access.vhost), query, listed=True, fields={known_by: str}
        )
    lists["queues"] = [
        {**one, "exclusive": one.get("exclusive") is True}  # of quorum queues and streams it is an empty text
        for one in lists["queues"]
        if one["name"] != APPLY_LOCK
    ]
    lists["bindings"] = [one for one in lists["bindings"] if one["destination"] != APPLY_LOCK]
    try:
        topology = Topology(
            **read_lists(lists, access.vhost, release),
            cluster=overview.get("cluster_name"),
            messages={
                one["name"]: one["messages"]
                for one in lists["queues"]
                if isinstance(one.get("messages"), int)  # not of a queue whose node is down
            },
        )
    except TopologyError as error:
        raise BrokerRefusedError(
            f"{access.where}: the management API lists what no broker has: {'; '.join(map(str, error.problems))}"
        ) from None
    topology = replace(topology, messages={**topology.messages, **(yield from _parked(topology))})
    if access.has_source:
        names = [one.name for one in topology.exchanges if one.type == HASH_EXCHANGE]
        topology = topology.with_rings((yield from rings_read(names, release)))
    return topology


def _parked(topology: Topology) -> OperationSequence[Mapping[str, int]]:
    """Count what is in each parking queue, over AMQP: the management API counts every few seconds."""
    found = {}
    for queue in queues_behind_slots(topology):
        answer = yield QueueDeclare(queue, passive=True)
        if isinstance(answer, QueueCounts):
            found[queue] = answer.messages
    return found


def rings_read(exchanges: Iterable[str], release: Release) -> Sequence[Mapping[str, HashRing]]:
    """Read the rings of exchanges by the ring source, by the exchange. One that is not there is left out.

    Args:
        exchanges: their names.
        release: the release whose rules apply.

    Raises:
        RingSourceError: the rings could not be read.
    """
    names = tuple(exchanges)
    if not names:
        return {}
    found = yield RingRequest(names)
    return {
        name: HashRing.from_buckets(buckets, release, next_bucket=getattr(buckets, "next_bucket", None))
        for name, buckets in found.items()
    }
