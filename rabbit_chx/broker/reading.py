"""Read a vhost, its records and its mark from the management API and a ring source. Nothing is declared."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from rabbit_chx.broker.live_broker import (
    APPLY_LOCK,
    PLUGIN_FAILED,
    LiveBroker,
    LockedError,
    ManagementApi,
    QueueCounts,
    Shape,
    try_count,
)
from rabbit_chx.broker.usage import read_usage
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.planning.refusals import DEPRECATED_FEATURES
from rabbit_chx.planning.slot_layout import queues_behind_slots
from rabbit_chx.records.live_rings import Evidence, evidence_of, read_pending
from rabbit_chx.records.ring_records import (
    RecordedStart,
    RestartMark,
    RingRecord,
    record_name,
    records_in,
    ring_by_record,
    stamp_in,
)
from rabbit_chx.routing import Destination, HashRing, Release
from rabbit_chx.routing.bindings import OrderKnowledge
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.text import outline
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
from rabbit_chx.topology.modulus import hashes
from rabbit_chx.topology.objects import (
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
    vhost_objects,
)

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


def read_topology(broker: LiveBroker, *, refuses_changes: bool = False) -> LiveTopology:
    """Read the exchanges, queues, bindings, both kinds of policies and rings of a vhost, and the number of parked messages.

    Rings are read by the ring source, or recorded. Otherwise their order is not known.

    Args:
        broker: the broker.
        refuses_changes: True: a topology that another connection changes is an error.

    Raises:
        LockedError: `refuses_changes`, and another connection applies a plan.
        NotFoundError: the vhost does not exist.
        AccessRefusedError: the user may not read it.
        RingSourceError: the rings could not be read.
        UnreachableError: the address does not answer.
    """
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
            mark=_read_mark_of(topology, operators, queues, broker, nodes),
            is_administrator=bool(of_vhost),
        ),
    )
    topology = _without_rings(replace(topology, facts=facts), objects.sources_left_out)
    return _with_rings(topology, broker, refuses_changes=refuses_changes)


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
    except BrokerRefusedError as error:
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
    topology: LiveTopology,
    operators: Iterable[PolicyDefinition],
    queues: Sequence[Mapping[str, Any]],
    broker: LiveBroker,
    nodes: Mapping[str, float | None],
) -> RestartMark:
    """Return the mark of a vhost with these queues, which may not have one."""
    mark = RestartMark(RecordedStart(topology.cluster, broker.vhost))
    if entry := next((queue for queue in queues if queue.get("name") == MARK), None):
        # From 4.0 on a broker does not answer for a minute who counts a queue whose node is down.
        is_down = entry.get("state") == "down"
        count = None if is_down else broker.amqp.count
        mark = read_mark(broker.api, broker.vhost, topology.cluster, count)
        if is_down:
            mark = replace(mark, fault=UnreachableError("it is down: wait until its node runs", queue=MARK))
    policies = policies_of_mark(topology.policies, operators)
    return replace(
        with_queues(mark, queues, topology.release), cluster=listed_nodes(nodes), policies=policies
    )


def _with_rings(topology: LiveTopology, broker: LiveBroker, *, refuses_changes: bool) -> LiveTopology:
    """Return a topology with the rings that the ring source reads, or that records prove."""
    if not broker.has_source:
        recorded = _rings_by_records(topology, broker)
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


def _rings_by_records(topology: LiveTopology, broker: LiveBroker) -> dict[str, HashRing]:
    """Return the rings that records on the broker or in a file prove; the order of others is not known, with the reason."""

    @cache
    def read_again() -> Evidence:
        return _evidence_in(list_exchanges(broker.api, broker.vhost))

    return {
        exchange.name: find_ring(
            exchange.name,
            topology.rings[exchange.name],
            exchange.ring or (),
            evidence_of(topology),
            file_record=broker.file_records.get(exchange.name),
            read_again=read_again,
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


def read_mark(
    api: ManagementApi, vhost: str, cluster: str | None, count: Callable[[str], QueueCounts] | None
) -> RestartMark:
    """Read the mark of a vhost. Its messages are counted over AMQP, its persistent ones by the statistics of the broker."""
    try:
        entry = api.get("queues", vhost, MARK, fields={"messages_persistent?": int, **_QUEUE})
    except NotFoundError:
        return RestartMark(RecordedStart(cluster, vhost))
    node = entry.get("node")
    recorded_start = stamp_in(
        table_in(entry, "arguments"), cluster, vhost, node if isinstance(node, str) else None
    )
    mark = RestartMark(recorded_start, nodes=_nodes_of([entry]), persistent=entry.get("messages_persistent"))
    if count is None:
        return replace(mark, fault=InputError("there is no connection over AMQP"))
    try:
        return replace(mark, messages=count(MARK).messages)
    except RabbitChxError as error:
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
    except AccessRefusedError:
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
                except InputError as error:
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
    except (AccessRefusedError, NotFoundError):
        return {}
    return found


def _read_queues_left(api: ManagementApi, vhost: str, used: int) -> int | None:
    """Read how many queues the limit of a vhost leaves beside those `used`; None without a limit, or if the user may not read it."""
    try:
        listed = api.get_list("vhost-limits", vhost, fields={"value": {"max-queues?": float}})
    except (AccessRefusedError, NotFoundError):
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
    ready = {entry.get("name"): entry.get("messages_ready") for entry in queues}
    counted = {
        name: queue if ready.get(name) is None else replace(queue, ready=ready[name])
        for name, queue in usage.queues.items()
    }
    for name in _queues_that_hash(topology) & counted.keys():
        queue = counted[name]
        is_suspect = bool(queue.ready) and (usage.consumers_of(name) == 0 or len(queue.priorities) > 1)
        if is_suspect and queue.state in RUNNING and (now := try_count(broker.amqp, name)) is not None:
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
    except NotFoundError:
        listed = []
    except AccessRefusedError:
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
    except AccessRefusedError:
        return {}
    return {flag["name"]: flag["state"] for flag in listed}


def _release_by(version: str, flags: Mapping[str, str]) -> Release:
    if "khepri_db" not in flags:
        return _release(version)
    return _release(version, "khepri" if flags["khepri_db"] == "enabled" else "mnesia")


def _release(version: str, store: Literal["khepri", "mnesia"] | None = None) -> Release:
    try:
        return Release(version, store)
    except InputError:
        raise BrokerRefusedError(
            f"the management API names no version of a broker that is known here, but {outline(version)}: check that its URL is that of the broker"
        ) from None
