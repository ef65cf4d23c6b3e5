"""Read a vhost, or one exchange of it, with records and mark from the management API and a ring source. Nothing is declared."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeAlias

from rabbit_chx import errors
from rabbit_chx.broker.live_broker import (
    APPLY_LOCK,
    PLUGIN_FAILED,
    LiveBroker,
    LockedError,
    ManagementApi,
    Shape,
    check_declared_name,
    try_count,
)
from rabbit_chx.broker.live_routing import ring_of, why_unrouted
from rabbit_chx.broker.usage import read_usage
from rabbit_chx.checks import is_whole
from rabbit_chx.planning.refusals import DEPRECATED_FEATURES
from rabbit_chx.planning.slot_layout import queues_behind_slots
from rabbit_chx.records.live_rings import Evidence, evidence_of, read_pending, read_without_record
from rabbit_chx.records.ring_records import (
    RecordedStart,
    RestartMark,
    RingRecord,
    record_name,
    records_in,
    ring_by_record,
    stamp_in,
)
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import OrderKnowledge
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.text import listed, outline
from rabbit_chx.topology.arguments import policies_of_mark
from rabbit_chx.topology.kinds import FLAG
from rabbit_chx.topology.model import (
    RUNNING,
    BrokerFacts,
    BrokerLimits,
    LiveTopology,
    QueueFacts,
    Usage,
    is_named_after,
)
from rabbit_chx.topology.modulus import hashes, is_super_stream
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MARK,
    MODULUS_EXCHANGE,
    PENDING_APPLY,
    QUEUE_TYPE,
    TRACE,
    TRIAL,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    is_own,
)
from rabbit_chx.topology.schema import (
    SCHEMA,
    ListedObject,
    VhostObjects,
    make_object,
    odd_objects,
    unordered_ring,
    vhost_objects,
)

#: What is read of one exchange: what its routing takes; also what advice about the order of its ring takes, which commands print; also the
#: mark, which a new record of the ring takes.
Detail: TypeAlias = Literal["ring", "advice", "record"]
#: The queues of this program, which are not part of a topology.
OWN_QUEUES = (APPLY_LOCK, MARK, TRACE, TRIAL)
_CHANGES = OrderKnowledge(None, "an apply changes its record at this moment")
#: The fields of the overview. Usually it also has the name of the cluster.
OVERVIEW: Mapping[str, Shape] = {
    "rabbitmq_version": str,
    "cluster_name?": str,
    "disable_stats?": bool,
    "exchange_types?": [{"name": str}],
}
#: Statistics of queues are costly, and nothing here needs them (parameters since 3.10).
WITHOUT_STATISTICS = {"disable_stats": "true"}
#: A broker that is asked for totals leaves out the queues of a killed node (tested on 4.3.6).
TOTALS = WITHOUT_STATISTICS | {"enable_queue_totals": "true"}
_COUNTED = {"columns": "name,messages,messages_ready,messages_unacknowledged"}
#: The queues or exchanges of a page, the largest number that the API permits.
PAGE = 500
#: The phase of a deprecated feature that the configuration may permit.
_UNCLEAR = "denied_by_default"
#: The states of a queue that takes no message: without its node, after a crash, and of a quorum queue without a majority.
DOWN = ("down", "crashed", "stopped", "minority")
#: Before 4.0 the broker lists no bindings of a classic queue whose node is down, and refuses to change or delete it (tested on 3.10.8, 4.0.5, 4.3.6).
KEEPS_ABSENT_SINCE = (4, 0, 0)
# The fields of the entries of each list. Of the lists in which a definitions file can put odd names, names are checked later (`schema`).
_EXCHANGE: Mapping[str, Shape] = {"type": str, "arguments?": dict, "policy?": str}
_QUEUE: Mapping[str, Shape] = {"type?": str, "arguments?": dict, "policy?": str, "state?": str}
_POLICY: Mapping[str, Shape] = {"apply-to?": str, "definition?": dict, "priority?": float}
_NODE: Mapping[str, Shape] = {"name": str, "running?": bool, "uptime?": float}
_CONSUMER: Mapping[str, Shape] = {"consumer_tag": str, "queue?": {"name?": str}}
_FEATURE: Mapping[str, Shape] = {"name": str, "deprecation_phase": str, "state?": str}


def read_topology(
    broker: LiveBroker,
    *,
    only: str | None = None,
    detail: Detail = "ring",
    release: Release | None = None,
    refuses_changes: bool = False,
) -> LiveTopology:
    """Read the exchanges, queues, bindings, both kinds of policies and rings of a vhost, and the number of parked messages.

    Rings are read by the ring source, or recorded. Otherwise their order is not known.

    Args:
        broker: the broker.
        only: the name of an exchange: only it is read, with its bindings, its ring and what that names. A ring of queues alone takes few
            requests, however large the vhost is.
        detail: what is read of that exchange.
        release: the broker's release, if it is known; it saves requests about that exchange.
        refuses_changes: True: a topology that another connection changes is an error.

    Raises:
        LockedError: `refuses_changes`, and another connection applies a plan.
        NotFoundError: the vhost does not exist, or the only exchange.
        NotDeterminedError: the only exchange has bindings that no client can name.
        InputError: its name is not valid in AMQP, or its release refuses the weight of a binding.
        AccessRefusedError: the user may not read it.
        RingSourceError: the rings could not be read.
        UnreachableError: the address does not answer.
    """
    if only is not None:
        return _read_one(broker, only, detail, release)
    api = broker.api
    vhost = broker.vhost
    overview = broker.overview()
    flags = _read_flags(api)
    release = _release_by(str(overview["rabbitmq_version"]), flags)
    objects = LiveObjects()
    entries = list_exchanges(api, vhost)
    exchanges = objects.read(ExchangeDefinition, [one for one in entries if not is_own(one["name"])])
    queues = with_totals(api, vhost, list_queues(api, vhost))
    broker.check_lock_in(queues)
    if refuses_changes and _has(queues, APPLY_LOCK):
        raise LockedError(broker.where)
    found, operators = _read_objects(broker, exchanges, queues, objects, release)
    of_vhost = read_vhost(api, vhost)
    nodes = read_nodes(api, queues=queues)
    cluster = name_cluster(overview.get("cluster_name"), nodes)
    topology = LiveTopology(**found.lists, cluster=cluster, vhost=vhost, rings=found.rings, release=release)
    oddities = odd_objects(objects.odd, "that no client can declare or name", "delete them")
    facts = BrokerFacts(
        queues=_read_queue_facts(topology, queues, broker),
        usage=_read_usage(topology, queues, broker),
        limits=_read_limits(broker, overview, flags, queues, of_vhost.get("default_queue_type")),
        operator_policies=tuple(operators),
        nodes=nodes,
        left_out=(*(finding.message for finding in oddities), *found.left_out),
        sources_left_out=found.sources_left_out | objects.sources_left_out,
        oddities=oddities,
        evidence=replace(
            _evidence_in(entries),
            mark=replace(
                _read_mark_of(broker, cluster, nodes, queues, release),
                policies=policies_of_mark(topology.policies, operators),
            ),
            is_administrator=bool(of_vhost),
        ),
    )
    topology = _without_rings(replace(topology, facts=facts), objects.sources_left_out)
    return _with_rings(topology, broker, refuses_changes=refuses_changes)


# -- One exchange, in few requests


def _read_one(broker: LiveBroker, name: str, detail: Detail, release: Release | None) -> LiveTopology:
    """Return a topology of one exchange, its bindings, its ring, and what that names."""
    api = broker.api
    entry = find_exchange(broker, name)
    overview = api.get("overview", fields=OVERVIEW)
    if release is None:
        release = read_release(api, str(overview["rabbitmq_version"]))
    plain_entry = {**entry, "name": name, "arguments": table_in(entry, "arguments")}
    exchange = make_object(ExchangeDefinition, plain_entry)
    facts = BrokerFacts(
        limits=BrokerLimits(exchange_types=exchange_types_in(overview)),
        exchange_policies={name: entry.get("policy") or None},
    )
    live = LiveTopology(
        exchanges=(exchange,),
        cluster=overview.get("cluster_name"),
        vhost=broker.vhost,
        release=release,
        facts=facts,
    )
    if detail != "ring":
        live = _with_policies(live, broker)
    if detail == "record":
        live = _with_nodes(live, broker)
    if exchange.type == HASH_EXCHANGE:
        return _with_hash_exchange(live, exchange, broker, detail)
    live = replace(live, bindings=tuple(read_bindings_of(broker, name)))
    if is_super_stream(exchange):
        queues = LiveObjects().read(QueueDefinition, list_queues(api, broker.vhost))
        live = replace(live, queues=tuple(queues))
    return live


def find_exchange(broker: LiveBroker, name: str) -> dict[str, Any]:
    """Return an exchange, as the management API describes it.

    Raises:
        NotFoundError: the exchange or the vhost does not exist.
        InputError: the name is not valid in AMQP.
    """
    check_declared_name(name, "exchange")
    api = broker.api
    try:
        return read_exchange(api, broker.vhost, name)
    except errors.NotFoundError:
        raise errors.NotFoundError(
            f"there is no exchange {name!r} in vhost {broker.vhost!r}: check its name and the vhost of the URL",
            exchange=name,
            reply_code=404,
        ) from None


def read_bindings_of(broker: LiveBroker, exchange: str) -> list[BindingDefinition]:
    """Return the bindings of an exchange; their order has no meaning.

    Raises:
        NotDeterminedError: no client can name one of them.
    """
    objects = LiveObjects()
    found = read_bindings(broker.api, broker.vhost, objects, source=exchange)
    if objects.odd:
        raise errors.NotDeterminedError(
            f"exchange {exchange!r} has bindings that no client can name: delete {listed(objects.odd)}",
            exchange=exchange,
        )
    return found.get(exchange, [])


def read_ring(broker: LiveBroker, exchange: str, release: Release) -> HashRing:
    """Read the ring of an exchange. Without a ring source or a record its order is not known.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: the exchange is of another type.
        RingSourceError: the ring could not be read.
    """
    if broker.has_management or not broker.has_source:
        return ring_of(read_topology(broker, only=exchange, release=release), exchange)
    check_declared_name(exchange, "exchange")
    broker.amqp.check_exchange(exchange)
    return _read_ring_by_source(broker, exchange, release)


def _read_ring_by_source(broker: LiveBroker, exchange: str, release: Release) -> HashRing:
    ring = broker.read_rings((exchange,), release).get(exchange)
    if ring is None:
        raise errors.MismatchError(
            f"exchange {exchange!r} in vhost {broker.vhost!r} is not of type {HASH_EXCHANGE}, or the ring source asks another broker: "
            "check the exchange and the ring source",
            exchange=exchange,
        )
    return ring


def _with_hash_exchange(
    live: LiveTopology, exchange: ExchangeDefinition, broker: LiveBroker, detail: Detail
) -> LiveTopology:
    """Return the topology of an ``x-consistent-hash`` exchange with its members and its ring, and with what these name."""
    name = exchange.name
    # A ring source shows the ring without records and bindings.
    if not broker.has_source or detail != "ring":
        # Before the bindings: an apply may change both.
        evidence = read_evidence(broker.api, broker.vhost, name)
        bindings = read_bindings_of(broker, name)
        members = tuple(RingMember(*binding.member, binding.arguments) for binding in bindings)
        exchange = replace(exchange, ring=members)
        live = replace(live, exchanges=(exchange,), facts=replace(live.facts, evidence=evidence))
    if _has_records(live, name, broker):
        live = _with_mark(live, broker, detail)
    if not broker.has_source:
        live = _with_recorded_ring(live, exchange, broker)
    elif why_unrouted(live, exchange):
        return live  # without the plugin there is no ring to read
    else:
        ring = _read_ring_by_source(broker, name, live.release or NEWEST_COMPARED)
        live = live.with_rings({name: ring})
    if any(isinstance(place, ExchangeRef) for place in live.rings[name].destinations):
        live = _with_objects_behind(live, name, broker)
    return live if detail == "ring" else _with_ways_to_learn(live, name, broker, detail)


def _with_recorded_ring(live: LiveTopology, exchange: ExchangeDefinition, broker: LiveBroker) -> LiveTopology:
    """Return the topology of an exchange with the ring that its record proves, or in an order that is not known."""
    unordered = unordered_ring(exchange.ring or (), live.release)
    live = replace(live, rings={exchange.name: unordered})
    return live.with_rings(
        _rings_by_records(live, broker, lambda: read_evidence(broker.api, broker.vhost, exchange.name))
    )


def _has_records(live: LiveTopology, exchange: str, broker: LiveBroker) -> bool:
    """Return True if there are records of a ring, which the mark has to prove."""
    return bool(evidence_of(live).records) or exchange in broker.file_records


def _with_objects_behind(live: LiveTopology, name: str, broker: LiveBroker) -> LiveTopology:
    """Return the topology of an exchange with the other exchanges of the vhost and their bindings."""
    others = [
        make_object(ExchangeDefinition, entry)
        for entry in list_exchanges(broker.api, broker.vhost)
        if isinstance(entry["name"], str) and entry["name"] not in ("", name)
    ]
    bindings = [
        binding
        for source, bound in read_bindings(broker.api, broker.vhost).items()
        if source != name
        for binding in bound
    ]
    return replace(live, exchanges=(*live.exchanges, *others), bindings=tuple(bindings))


def _with_policies(live: LiveTopology, broker: LiveBroker) -> LiveTopology:
    """Return the topology of an exchange with the policies of its vhost."""
    policies, operators = read_policies(broker.api, broker.vhost, LiveObjects())
    facts = replace(live.facts, operator_policies=tuple(operators))
    return replace(live, policies=tuple(policies), facts=facts)


def _with_nodes(live: LiveTopology, broker: LiveBroker) -> LiveTopology:
    """Return the topology of an exchange with the nodes of the cluster, and the name that all of them have."""
    nodes = read_nodes(broker.api)
    return replace(live, cluster=name_cluster(live.cluster, nodes), facts=replace(live.facts, nodes=nodes))


def _with_mark(live: LiveTopology, broker: LiveBroker, detail: Detail) -> LiveTopology:
    """Return the topology of an exchange with the mark, which proves records of its ring.

    All queues of the vhost are listed only if a restart of a node changes rings.
    """
    if detail != "record":
        live = _with_nodes(live, broker)
    release = live.release or NEWEST_COMPARED
    queues = None if release.follows(RESTART_KEEPS) else list_queues(broker.api, broker.vhost)
    mark = _read_mark_of(broker, live.cluster, live.facts.nodes, queues, release)
    if not mark.holds:
        if detail == "ring":
            live = _with_policies(live, broker)
        mark = replace(mark, policies=policies_of_mark(live.policies, live.facts.operator_policies))
    evidence = replace(evidence_of(live), mark=mark)
    return replace(live, facts=replace(live.facts, evidence=evidence))


def _with_ways_to_learn(live: LiveTopology, name: str, broker: LiveBroker, detail: Detail) -> LiveTopology:
    """Return the topology of an exchange, whose policies were read, with how its user may learn the order of the ring and keep it."""
    ring = live.rings[name]
    has_mark = _has_records(live, name, broker)
    needs_mark = detail == "record" and ring.order.is_certain
    if not ring.is_determined or read_without_record(live):
        is_administrator = bool(read_vhost(broker.api, broker.vhost))
        evidence = replace(evidence_of(live), is_administrator=is_administrator)
        live = replace(live, facts=replace(live.facts, evidence=evidence))
        needs_mark |= bool(policies_of_mark(live.policies, live.facts.operator_policies))
    return _with_mark(live, broker, detail) if needs_mark and not has_mark else live


# -- The lists of the management API, and what they show


def list_exchanges(api: ManagementApi, vhost: str) -> list[dict[str, Any]]:
    """Return the exchanges of a vhost, as the management API lists them."""
    return api.get_list("exchanges", vhost, fields=_EXCHANGE)


def read_exchange(api: ManagementApi, vhost: str, name: str) -> dict[str, Any]:
    """Return an exchange, as the management API describes it.

    RabbitMQ 3.10 answers 500 for a single exchange if it collects no statistics (``management_agent.disable_metrics_collector``), and lists it
    all the same.

    Raises:
        NotFoundError: there is none of this name.
    """
    try:
        entry: dict[str, Any] = api.get("exchanges", vhost, name, fields=_EXCHANGE)
    except errors.BrokerRefusedError as error:
        if error.reply_code != PLUGIN_FAILED:
            raise
        listed_entry = next((each for each in list_exchanges(api, vhost) if each["name"] == name), None)
        if listed_entry is None:
            raise
        return listed_entry
    return entry


def list_queues(api: ManagementApi, vhost: str) -> list[dict[str, Any]]:
    """Return the queues of a vhost, as the management API lists them, without statistics."""
    return api.get_list("queues", vhost, query=WITHOUT_STATISTICS, fields=_QUEUE)


def with_totals(api: ManagementApi, vhost: str, queues: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return listed queues with the numbers of their messages, except those whose node does not run."""
    entries = api.get_list("queues", vhost, query=TOTALS | _COUNTED, fields={})
    totals = {str(entry.get("name")): entry for entry in entries}
    return [{**queue, **totals.get(str(queue.get("name")), {})} for queue in queues]


def _has(queues: Iterable[Mapping[str, Any]], name: str) -> bool:
    return any(entry.get("name") == name for entry in queues)


def _read_objects(
    broker: LiveBroker,
    exchanges: Iterable[ExchangeDefinition],
    queues: Iterable[Mapping[str, Any]],
    objects: LiveObjects,
    release: Release,
) -> tuple[VhostObjects, list[PolicyDefinition]]:
    """Return the objects of a vhost with these exchanges and queues, and its operator policies."""
    bindings = read_bindings(broker.api, broker.vhost, objects)
    others = [entry for entry in queues if entry.get("name") not in OWN_QUEUES]
    found = objects.read(QueueDefinition, others)
    policies, operators = read_policies(broker.api, broker.vhost, objects)
    bound = [binding for of_one in bindings.values() for binding in of_one]
    return vhost_objects(exchanges, found, bound, policies, release=release), operators


def read_policies(
    api: ManagementApi, vhost: str, objects: LiveObjects
) -> tuple[list[PolicyDefinition], list[PolicyDefinition]]:
    """Return the policies and the operator policies of a vhost."""
    policies = objects.read(PolicyDefinition, api.get_list("policies", vhost, fields=_POLICY))
    operators = api.get_list("operator-policies", vhost, fields=_POLICY)
    return policies, objects.read(PolicyDefinition, operators, "operator policy")


def _read_queue_facts(
    topology: LiveTopology, queues: Iterable[Mapping[str, Any]], broker: LiveBroker
) -> QueueFacts:
    """Return what the list of queues shows about each queue of a topology, and what the broker counts."""
    sound = {queue.name for queue in topology.queues}
    named = {name: entry for entry in queues if isinstance(name := entry.get("name"), str) and name in sound}
    messages = {
        name: entry["messages"]
        for name, entry in named.items()
        if is_whole(entry.get("messages"), 0)  # not of a queue whose node is down
    }
    down = {name: entry["state"] for name, entry in named.items() if entry.get("state") in DOWN}
    for queue in topology.queues:
        if queue.type != "quorum" or queue.name in messages or queue.name in down:
            continue
        entry = named[queue.name]
        if "online" in entry and (fault := leader_fault(entry)):
            down[queue.name] = fault
    return QueueFacts(
        messages={**messages, **_count_parked(topology, broker)},
        down=down,
        # The list names the policy that applies, but not the operator policy (tested on 3.10.8, 4.0.5 and 4.3.6).
        applied_policies={name: entry.get("policy") for name, entry in named.items()},
    )


def leader_fault(entry: Mapping[str, Any]) -> str:
    """Return what a quorum queue lacks to take messages, by the members that the management API reports as online; empty if it has them.

    That its messages are not counted says nothing: 4.3 does not count those of some queues after an upgrade (rabbitmq-server #16974).
    """
    online = entry.get("online") or ()
    if 2 * len(online) <= len(entry.get("members") or ()):
        return "without a majority of its members online"
    return "" if entry.get("leader") in online else "without a leader online"


def exchange_types_in(overview: Mapping[str, Any]) -> frozenset[str]:
    """Return the types of exchanges that a broker has, by its overview."""
    return frozenset(type_["name"] for type_ in overview.get("exchange_types") or ())


def _read_limits(
    broker: LiveBroker,
    overview: Mapping[str, Any],
    flags: Mapping[str, str],
    queues: Sequence[Mapping[str, Any]],
    default_queue_type: str | None,
) -> BrokerLimits:
    """Read what a broker limits. A vhost has to have room for the lock of an apply, too."""
    used = len(queues) + (not _has(queues, APPLY_LOCK))
    return BrokerLimits(
        exchange_types=exchange_types_in(overview),
        denied_features=_read_denied_features(broker.api, flags),
        default_queue_type=default_queue_type,
        queues_left=_read_queues_left(broker.api, broker.vhost, used),
        frame_max=broker.amqp.frame_max,
    )


def _read_mark_of(
    broker: LiveBroker,
    cluster: str | None,
    nodes: Mapping[str, float | None],
    queues: Sequence[Mapping[str, Any]] | None,
    release: Release,
) -> RestartMark:
    """Return the mark of a vhost, which may not have one. `queues` are those of the vhost; None if they were not listed."""
    mark = RestartMark(RecordedStart(cluster, broker.vhost))
    listed_mark = [queue for queue in queues or () if queue.get("name") == MARK]
    if queues is None or listed_mark:
        is_down = any(queue.get("state") == "down" for queue in listed_mark)
        mark = read_mark(broker, cluster, is_down=is_down)
    if queues is not None:
        mark = with_queues(mark, queues, release)
    return replace(mark, cluster=listed_nodes(nodes))


def _with_rings(topology: LiveTopology, broker: LiveBroker, *, refuses_changes: bool) -> LiveTopology:
    """Return a topology with the rings that the ring source reads, or that records prove."""
    if not broker.has_source:
        recorded = _rings_by_records(
            topology, broker, lambda: _evidence_in(list_exchanges(broker.api, broker.vhost))
        )
        if refuses_changes and any(ring.order == _CHANGES for ring in recorded.values()):
            raise LockedError(broker.where)
        return topology.with_rings(recorded)
    hashing = tuple(exchange.name for exchange in topology.exchanges if exchange.ring is not None)
    if not (hashing or broker.lock_id or any(map(_is_modulus, topology.exchanges))):
        return topology
    rings = broker.read_rings(hashing, topology.release or NEWEST_COMPARED)
    limits = replace(topology.facts.limits, consumer_timeout_ms=broker.consumer_timeout_ms)
    return replace(topology.with_rings(rings), facts=replace(topology.facts, limits=limits))


def read_evidence(api: ManagementApi, vhost: str, exchange: str) -> Evidence:
    """Read what a broker keeps of the ring of one exchange, without the mark."""
    names = (record_name(exchange), PENDING_APPLY)
    query = {
        "page": "1",
        "page_size": str(PAGE),
        "name": f"^({'|'.join(map(re.escape, names))})$",
        "use_regex": "true",
    }
    answer = api.get("exchanges", vhost, query=query, fields={"items": [_EXCHANGE]})
    return _evidence_in([entry for entry in answer["items"] if entry["name"] in names])


def _evidence_in(exchanges: Sequence[Mapping[str, Any]]) -> Evidence:
    """Return what is kept of rings in some exchanges of the management API."""
    pending = (entry.get("arguments") or {} for entry in exchanges if entry["name"] == PENDING_APPLY)
    return Evidence(*records_in(exchanges), next(map(read_pending, pending), None))


def _rings_by_records(
    topology: LiveTopology, broker: LiveBroker, read_again: Callable[[], Evidence]
) -> dict[str, HashRing]:
    """Return the rings that records on the broker or in a file prove; the order of others is not known, with the reason.

    `read_again` reads what the broker keeps of rings again.
    """
    read_once = cache(read_again)
    return {
        exchange.name: find_ring(
            exchange.name,
            topology.rings[exchange.name],
            exchange.ring or (),
            evidence_of(topology),
            file_record=broker.file_records.get(exchange.name),
            read_again=read_once,
        )
        for exchange in topology.exchanges
        if exchange.name in topology.rings  # a member may have a key that is no weight
    }


def find_ring(
    exchange: str,
    unordered: HashRing,
    bound: Sequence[RingMember],
    evidence: Evidence,
    *,
    file_record: RingRecord | None,
    read_again: Callable[[], Evidence],
) -> HashRing:
    """Return the ring of an exchange that no ring source reads.

    Args:
        exchange: the exchange's name.
        unordered: its bindings, in an order that is not known.
        bound: the bindings, as the broker lists them.
        evidence: what the broker keeps, read before the bindings.
        file_record: the record in a file, in the place of that on the broker.
        read_again: reads what the broker keeps again: an apply may have replaced the record between the lists.
    """
    about = evidence.about(exchange)
    if any(about) and about != read_again().about(exchange):
        return replace(unordered, order=_CHANGES)
    if evidence.steps_of(exchange) is not None:
        doubt = f"{evidence.pending} has not ended; applying its file again repeats it"
        return replace(unordered, order=OrderKnowledge(None, doubt))
    stored = evidence.records.get(exchange)
    found = [
        ring_by_record(record, unordered, bound, evidence.mark)
        for record in (file_record, stored)
        if record is not None
    ]
    if not found:
        name = record_name(exchange)
        fault = evidence.damaged.get(name)
        ignored = OrderKnowledge(None, f"the record {name} is ignored: {fault}")
        return replace(unordered, order=ignored) if fault else unordered
    if not all(ring.order.is_certain for ring in found) or found[0].buckets == found[-1].buckets:
        return found[0]
    doubt = f"the record of {file_record and file_record.about} and that on the broker yield different rings"
    return replace(unordered, order=OrderKnowledge(None, doubt))


def read_mark(broker: LiveBroker, cluster: str | None, *, is_down: bool = False) -> RestartMark:
    """Read the mark of a vhost. Its messages are counted over AMQP, its persistent ones by the statistics of the broker.

    Args:
        broker: the broker.
        cluster: the name of its cluster.
        is_down: True if the list of queues shows it as down.
    """
    vhost = broker.vhost
    fields = {"messages_persistent?": int, **_QUEUE}
    try:
        entry = broker.api.get("queues", vhost, MARK, fields=fields)
    except errors.NotFoundError:
        return RestartMark(RecordedStart(cluster, vhost))
    node = entry.get("node")
    recorded_start = stamp_in(
        table_in(entry, "arguments"), cluster, vhost, node if isinstance(node, str) else None
    )
    mark = RestartMark(recorded_start, nodes=_nodes_of([entry]), persistent=entry.get("messages_persistent"))
    if is_down:
        # From 4.0 on a broker does not answer for a minute who counts a queue whose node is down.
        return replace(
            mark, fault=errors.UnreachableError("it is down: wait until its node runs", queue=MARK)
        )
    try:
        return replace(mark, messages=broker.amqp.count(MARK).messages)
    except errors.RabbitChxError as error:
        return replace(mark, fault=error)


def with_queues(
    mark: RestartMark, queues: Sequence[Mapping[str, Any]], release: Release | None
) -> RestartMark:
    """Return a mark with the nodes of each queue of the vhost, and the queues of which the broker lists no bindings."""
    lists_all = release is None or release.numbers >= KEEPS_ABSENT_SINCE
    absent = (
        str(queue.get("name"))
        for queue in queues
        if queue.get("state") == "down" and queue.get("type") == "classic"
    )
    return replace(mark, nodes=_nodes_of(queues), absent=frozenset(() if lists_all else absent))


def _nodes_of(queues: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return the nodes that have each queue, with its mirrors or members; none if they are not known."""
    return {
        name: frozenset(
            node
            for node in (entry.get("node"), *(entry.get("members") or ()), *(entry.get("slave_nodes") or ()))
            if isinstance(node, str)
        )
        for entry in queues
        if isinstance(name := entry.get("name"), str)
    }


def read_nodes(api: ManagementApi, queues: Iterable[Mapping[str, Any]] = ()) -> dict[str, float | None]:
    """Return the nodes of the cluster, each with its start in seconds since 1970; None if it does not run, or if that is not known.

    Listing nodes takes the tag ``monitoring``. Of another user they are the nodes of `queues`, entries of the management API.
    """
    try:
        nodes = api.get_list("nodes", query={"columns": "name,running,uptime"}, fields=_NODE)
    except errors.AccessRefusedError:
        return {node: None for of_queue in _nodes_of(queues).values() for node in of_queue}
    now = time.time()
    # A node without these columns has just started.
    return {
        node["name"]: now - (node.get("uptime") or 0) / 1000 if node.get("running", True) else None
        for node in nodes
    }


def listed_nodes(nodes: Mapping[str, float | None]) -> frozenset[str]:
    """Return the nodes that `read_nodes` has listed; none if the user may not list them."""
    is_listed = any(start is not None for start in nodes.values())
    return frozenset(nodes if is_listed else ())


def name_cluster(reported: str | None, nodes: Collection[str]) -> str | None:
    """Return the name of a cluster that all its nodes have: the one that was set, or else the first name of its nodes.

    Args:
        reported: the name that one node reports.
        nodes: the nodes of the cluster.
    """
    is_default = len(nodes) > 1 and any(is_named_after(reported or "", node) for node in nodes)
    return min(nodes) if is_default else reported


def read_bindings(
    api: ManagementApi, vhost: str, objects: LiveObjects | None = None, *, source: str | None = None
) -> dict[str, list[BindingDefinition]]:
    """Return the bindings of each exchange of a vhost, but the default one, or those of the exchange `source`.

    Bindings to queues of this program are not among them, nor those that no client can name, which `objects` names.
    """
    path = ("bindings", vhost) if source is None else ("exchanges", vhost, source, "bindings", "source")
    entries = api.get_list(*path, fields={"arguments?": dict})
    named = [
        entry for entry in entries if entry.get("destination") not in OWN_QUEUES and entry.get("source") != ""
    ]
    bindings: dict[str, list[BindingDefinition]] = {}
    for binding in (objects or LiveObjects()).read(BindingDefinition, named):
        bindings.setdefault(binding.source, []).append(binding)
    return bindings


def read_consumer_tags(queues: Iterable[str], broker: LiveBroker) -> dict[str, list[str]]:
    """Return the consumer tags of each queue from the management API, which lists a new consumer after some seconds."""
    tags: dict[str, list[str]] = {queue: [] for queue in queues}
    for entry in broker.api.get_list("consumers", broker.vhost, fields=_CONSUMER):
        queue = (entry.get("queue") or {}).get("name")
        if queue in tags:
            tags[queue].append(entry["consumer_tag"])
    return tags


class LiveObjects:
    """The objects of a vhost that AMQP can name. `odd` names those that only a definitions file can make, of which these are left out."""

    def __init__(self) -> None:
        self.odd: list[str] = []
        self.sources_left_out: set[str] = set()

    def read(
        self, model: type[ListedObject], entries: Iterable[Mapping[str, Any]], noun: str | None = None
    ) -> list[ListedObject]:
        """Return the objects of entries of the management API. `noun` is what one is called; None: the kind of the objects."""
        objects: list[ListedObject] = []
        for listed_entry in entries:
            entry = _plain_queue(listed_entry) if model is QueueDefinition else listed_entry
            faults = dict(_entry_faults(model, entry))
            # A flag of another type is the default: the exchange has a name.
            if all(SCHEMA[model.kind].json[field] is FLAG for field in faults):
                try:
                    objects.append(make_object(model, entry))
                except errors.InputError as error:
                    faults["arguments"] = str(error)
            if not faults:
                continue
            if isinstance(source := entry.get("source"), str):
                self.sources_left_out.add(source)
            ends = ("source", "destination") if model is BindingDefinition else ("name",)
            named = " to ".join(f"{entry.get(end)!r:.60}" for end in ends)
            self.odd.append(f"{noun or model.kind} {named} ({', '.join(faults.values())})")
        return objects


def _entry_faults(model: type[ListedObject], entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield why no client can declare an object of the management API, with the field."""
    for name, kind in SCHEMA[model.kind].json.items():
        value = entry.get(name, False if kind is FLAG else None)
        if fault := kind.fault(value):
            yield name, f"its {name} is {value!r:.60}: {fault[0]}"


def read_vhost(api: ManagementApi, vhost: str) -> dict[str, Any]:
    """Read the vhost itself; empty if the user lacks the tag administrator."""
    try:
        found: dict[str, Any] = api.get("vhosts", vhost, fields={"default_queue_type?": str})
    except (errors.AccessRefusedError, errors.NotFoundError):
        return {}
    return found


def _read_queues_left(api: ManagementApi, vhost: str, used: int) -> int | None:
    """Read how many queues the limit of a vhost leaves beside those `used`; None without a limit, or if the user may not read it."""
    try:
        listed = api.get_list("vhost-limits", vhost, fields={"value": {"max-queues?": float}})
    except (errors.AccessRefusedError, errors.NotFoundError):
        return None
    most = next((entry["value"].get("max-queues") for entry in listed), None)
    return None if most is None or most < 0 else int(most) - used


def _without_rings(topology: LiveTopology, names: Collection[str]) -> LiveTopology:
    """Return the topology without the rings of some exchanges: those that have members that no client can name."""
    exchanges = (
        replace(exchange, ring=None) if exchange.name in names else exchange
        for exchange in topology.exchanges
    )
    rings = {name: ring for name, ring in topology.rings.items() if name not in names}
    return replace(topology, exchanges=tuple(exchanges), rings=rings)


def _is_modulus(exchange: ExchangeDefinition) -> bool:
    return exchange.type == MODULUS_EXCHANGE


def _plain_queue(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a queue with the fields of a definitions file."""
    arguments = table_in(entry, "arguments")
    type_ = entry.get("type")
    if isinstance(type_, str) and type_:
        # The argument may be missing, empty, or "undefined", where the default applied.
        arguments = {**arguments, QUEUE_TYPE: type_}
    # Of quorum queues and streams `exclusive` is an empty text.
    return {**entry, "exclusive": entry.get("exclusive") is True, "arguments": arguments}


def table_in(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of an entry of the management API. Older releases write an empty one as a list."""
    return entry.get(name) or {}


def _count_parked(topology: LiveTopology, broker: LiveBroker) -> Mapping[str, int]:
    """Count the messages of each parking queue over AMQP, because the management API's counts are some seconds old."""
    counted = {queue: try_count(broker.amqp, queue) for queue in queues_behind_slots(topology)}
    return {queue: counts.messages for queue, counts in counted.items() if counts is not None}


def _read_usage(
    topology: LiveTopology, queues: Iterable[Mapping[str, Any]], broker: LiveBroker
) -> Usage | None:
    """Read the traffic and the consumers of a vhost with exchanges that hash; `queues` have newer numbers of messages.

    Of the queues that a finding would be about, messages and consumers are counted over AMQP: statistics are some seconds old.
    """
    if not any(map(hashes, topology.exchanges)):
        return None
    usage = read_usage(broker.api, broker.vhost)
    ready = {str(entry.get("name")): entry.get("messages_ready") for entry in queues}
    counted = {}
    for name, queue in usage.queues.items():
        newer = ready.get(name)
        counted[name] = queue if newer is None else replace(queue, ready=newer)
    for name in _queues_that_hash(topology) & counted.keys():
        queue = counted[name]
        is_suspect = usage.consumers_of(name) == 0 or len(queue.priorities) > 1
        if not queue.ready or not is_suspect or queue.state not in RUNNING:
            continue
        now = try_count(broker.amqp, name)
        if now is not None:
            counted[name] = replace(queue, ready=now.messages, consumers=now.consumers)
    return replace(usage, queues=counted)


def _queues_that_hash(topology: LiveTopology) -> set[str]:
    """Return the queues that get the keys of exchanges that hash, also by slots."""
    behind: dict[str, set[Destination]] = {}
    for binding in topology.bindings:
        behind.setdefault(binding.source, set()).add(binding.destination)
    found: set[str] = set()
    for exchange in filter(hashes, topology.exchanges):
        places = {member.destination for member in exchange.ring or ()} | behind.get(exchange.name, set())
        for place in places:
            ends = {place} if isinstance(place, str) else behind.get(place.name, set())
            found |= {end for end in ends if isinstance(end, str)}
    return found


def _read_denied_features(api: ManagementApi, flags: Mapping[str, str]) -> dict[str, bool]:
    """Read the deprecated features that the broker denies, or may deny, as `BrokerFacts` has them; `flags` are the states of feature flags.

    Releases before 3.13 do not list them. 4.3 lists a state; before that, the phase is the default, which the configuration may change.
    """
    try:
        listed = api.get_list("deprecated-features", fields=_FEATURE)
    except errors.NotFoundError:
        listed = []
    except errors.AccessRefusedError:
        listed = [{"name": name, "state": _UNCLEAR} for name in DEPRECATED_FEATURES]
    states = {feature["name"]: feature.get("state") or feature["deprecation_phase"] for feature in listed}
    allowed = ("permitted", "permitted_by_default")
    denied = {name: state != _UNCLEAR for name, state in states.items() if state not in allowed}
    return denied | {name: True for name, state in flags.items() if state == "disabled"}


def read_release(api: ManagementApi, version: str | None = None) -> Release:
    """Read the broker's version, and its metadata store from its feature flags (``khepri_db`` exists since 3.13).

    If the user may not read feature flags, the store is the version's default, marked as not known.
    """
    if version is None:
        version = str(api.get("overview", fields=OVERVIEW)["rabbitmq_version"])
    return _release_by(version, _read_flags(api))


def _read_flags(api: ManagementApi) -> dict[str, str]:
    """Read the state of each feature flag; empty if the user may not read them."""
    try:
        listed = api.get_list("feature-flags", fields={"name": str, "state": str})
    except errors.AccessRefusedError:
        return {}
    return {flag["name"]: flag["state"] for flag in listed}


def _release_by(version: str, flags: Mapping[str, str]) -> Release:
    if "khepri_db" not in flags:
        return _release(version)
    return _release(version, "khepri" if flags["khepri_db"] == "enabled" else "mnesia")


def _release(version: str, store: Literal["khepri", "mnesia"] | None = None) -> Release:
    try:
        return Release(version, store)
    except errors.InputError:
        raise errors.BrokerRefusedError(
            f"the management API names no version of a broker that is known here, but {outline(version)}: check that its URL is that of the broker"
        ) from None
