"""Read a vhost, an exchange, its slots and its rates from the management API and a ring source. Nothing is declared.

Publish rates are those of the management API's statistics. A message counts for the exchange that it was published to, and for the queues
that it reached. The exchanges in between, such as slots, have no rates (rabbitmq-server v4.3.6, rabbit_channel.erl, ``deliver_to_queues/3``
counts the exchange of the message; tested on 3.10.8, 4.0.5 and 4.3.6).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, NoReturn, Self, TypeAlias

from rabbit_chx.broker.live_broker import (
    APPLY_LOCK,
    BrokerWays,
    LiveBroker,
    LockedError,
    ManagementApi,
    QueueCounts,
    Shape,
    check_declared_name,
    shape_fault,
    try_count,
)
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    InputError,
    MismatchError,
    NotDeterminedError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.planning.refusals import DEPRECATED_FEATURES
from rabbit_chx.planning.slot_layout import queues_behind_slots
from rabbit_chx.records.evidence import Evidence, Means, evidence_of
from rabbit_chx.records.mark import Mark, Stamp, stamp_in
from rabbit_chx.records.pending_apply import Kept, history_of, read_pending
from rabbit_chx.records.ring_history import RingHistory
from rabbit_chx.records.ring_records import RingRecord, is_recorded, record_name, records_in, ring_by_record
from rabbit_chx.routing import (
    Binding,
    ConsistentHashExchange,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    Release,
)
from rabbit_chx.routing.ground import UNORDERED, Ground
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.release import NEWEST_COMPARED, QUORUM_V8_SINCE
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology.model import BrokerFacts, BrokerLimits, LiveTopology, QueueFacts, is_named_after
from rabbit_chx.topology.modulus import modulo_map_of, modulus_of
from rabbit_chx.topology.nested import Nesting
from rabbit_chx.topology.objects.kinds import FLAG
from rabbit_chx.topology.objects.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    QUEUE_TYPE,
    BindingDefinition,
    ExchangeDefinition,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.objects.own_names import MARK, PENDING_APPLY, TRACE, is_own
from rabbit_chx.topology.objects.schema import SCHEMA
from rabbit_chx.topology.objects.vhost_objects import ListedObject, make_object, odd_objects, vhost_objects
from rabbit_chx.topology.rules.policies import policies_of_mark
from rabbit_chx.topology.rules.reach import Reach
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots
from rabbit_chx.words import listed, outline

#: The queues of this program, which are not part of a topology.
OWN_QUEUES = (APPLY_LOCK, MARK, TRACE)
_CHANGES = Ground("assumed", "an apply changes its record at this moment")
#: The fields of the overview. Usually it also has the name of the cluster.
OVERVIEW: Mapping[str, Shape] = {
    "rabbitmq_version": str,
    "cluster_name?": str,
    "exchange_types?": [{"name": str}],
}
#: Statistics of queues are costly, and nothing here needs them (parameters since 3.10; older releases ignore them).
WITHOUT_STATISTICS = {"disable_stats": "true", "enable_queue_totals": "true"}
#: The queues or exchanges of a page, the largest number that the API permits.
PAGE = 500
_COLUMNS = "name,state,message_stats.publish_details.rate"
_LAST_MINUTE = {"msg_rates_age": "60", "msg_rates_incr": "5"}
_EXCHANGE_RATES = "name,message_stats.publish_in_details.avg_rate"
_BACKLOG = ("messages_ready", "messages_unacknowledged", "consumers")
_QUEUE_RATES = f"name,state,{','.join(_BACKLOG)},message_stats.publish_details.avg_rate"
#: The states of a queue that works.
_RUNNING = ("running", "idle")
#: The phase of a deprecated feature that the configuration may permit.
_UNCLEAR = "denied_by_default"
#: The states of a queue that takes no message: without its node, after a crash, and of a quorum queue without a majority.
_DOWN = ("down", "crashed", "stopped", "minority")
# The fields of the entries of each list. Of the lists in which a definitions file can put odd names, names are checked later (`schema`).
_NAMED: Mapping[str, Shape] = {"name": str}
_STATED: Mapping[str, Shape] = {"name": str, "state?": str}
_EXCHANGE: Mapping[str, Shape] = {"type": str, "arguments?": dict, "policy?": str}
_QUEUE: Mapping[str, Shape] = {"type?": str, "arguments?": dict, "policy?": str, "state?": str}
_POLICY: Mapping[str, Shape] = {"apply-to?": str, "definition?": dict, "priority?": float}
_NODE: Mapping[str, Shape] = {"name": str, "running?": bool, "uptime?": float}
_CONSUMER: Mapping[str, Shape] = {"consumer_tag": str, "queue?": {"name?": str}}
_FEATURE: Mapping[str, Shape] = {"name": str, "deprecation_phase": str, "state?": str}

RingReader: TypeAlias = Callable[[Sequence[str], Release], Mapping[str, HashRing]]


def read_topology(broker: LiveBroker, *, refuses_changes: bool = False) -> LiveTopology:
    """Read the exchanges, queues, bindings, both kinds of policies and rings of a vhost, and the number of parked messages.

    Rings are read by the ring source, or recorded. Without one they are assumed from the bindings as listed.

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
    overview = broker.overview()
    api, vhost = broker.api, broker.vhost
    flags = _read_flags(api)
    release = _release_by(str(overview["rabbitmq_version"]), flags)
    objects = LiveObjects()
    entries = api.get_list("exchanges", vhost, fields=_EXCHANGE)
    own = [entry for entry in entries if is_own(entry["name"])]
    exchanges = objects.read(ExchangeDefinition, [entry for entry in entries if not is_own(entry["name"])])
    queues = api.get_list("queues", vhost, query=WITHOUT_STATISTICS, fields=_QUEUE)
    broker.check_lock_in(queues)
    is_locked = any(entry.get("name") == APPLY_LOCK for entry in queues)
    if refuses_changes and is_locked:
        raise LockedError(broker.where)
    all_queues = queues
    queues = [entry for entry in queues if entry.get("name") not in OWN_QUEUES]
    bindings = read_bindings(api, vhost, objects)
    found = vhost_objects(
        exchanges,
        objects.read(QueueDefinition, map(_plain_queue, queues)),
        [binding for of_one in bindings.values() for binding in of_one],
        objects.read(PolicyDefinition, api.get_list("policies", vhost, fields=_POLICY)),
        release=release,
    )
    of_vhost = _read_vhost(api, vhost)
    operators = objects.read(
        PolicyDefinition, api.get_list("operator-policies", vhost, fields=_POLICY), "operator policy"
    )
    sound = {queue.name for queue in found.lists["queues"]}
    named = {name: entry for entry in queues if isinstance(name := entry.get("name"), str) and name in sound}
    nodes = read_nodes(api, queues=all_queues)
    cluster = name_cluster(overview.get("cluster_name"), nodes)
    has_mark = any(entry.get("name") == MARK for entry in all_queues)
    oddities = odd_objects(objects.odd, "that no client can declare or name", "delete them")
    kept = _kept_in(own)
    queue_facts = _queue_facts(named)
    limits = BrokerLimits(
        exchange_types=frozenset(type_["name"] for type_ in overview.get("exchange_types") or ()),
        denied_features=_read_denied_features(api, flags),
        default_queue_type=of_vhost.get("default_queue_type"),
        queues_left=_read_queues_left(api, vhost, len(all_queues) + (not is_locked)),
        frame_max=broker.amqp.frame_max,
    )
    facts = BrokerFacts(
        queues=queue_facts,
        limits=limits,
        operator_policies=tuple(operators),
        nodes=nodes,
        left_out=(*(finding.message for finding in oddities), *found.left_out),
        sources_left_out=found.sources_left_out | objects.sources_left_out,
        oddities=oddities,
    )
    topology = LiveTopology(
        **found.lists, cluster=cluster, vhost=vhost, rings=found.rings, release=release, facts=facts
    )
    mark = read_mark(api, vhost, cluster, broker.amqp.count) if has_mark else Mark(Stamp(cluster, vhost))
    facts = replace(
        facts,
        queues=replace(
            queue_facts,
            messages={**queue_facts.messages, **_count_parked(topology, broker)},
            priorities=_read_priorities(topology, api, vhost),
        ),
        evidence=Evidence(
            records=kept.records,
            pending=kept.pending,
            mark=replace(
                mark, nodes=_nodes_of(all_queues), policies=policies_of_mark(topology.policies, operators)
            ),
            is_administrator=bool(of_vhost),
        ),
    )
    topology = _without_rings(replace(topology, facts=facts), objects.sources_left_out)
    if not broker.has_source:
        recorded = _rings_by_records(topology, broker)
        if refuses_changes and any(ring.ground == _CHANGES for ring in recorded.values()):
            raise LockedError(broker.where)
        return topology.with_rings(recorded)
    hashing = tuple(exchange.name for exchange in topology.exchanges if exchange.ring is not None)
    if not (hashing or broker.lock_id or any(map(_is_modulus, topology.exchanges))):
        return topology
    rings = broker.read_rings(hashing, release)
    facts = replace(facts, limits=replace(limits, consumer_timeout_ms=broker.consumer_timeout_ms))
    return replace(topology.with_rings(rings), facts=facts)


def _queue_facts(named: Mapping[str, Mapping[str, Any]]) -> QueueFacts:
    """Return what the list of queues shows about each queue, by its name."""
    return QueueFacts(
        messages={
            name: entry["messages"]
            for name, entry in named.items()
            if is_whole(entry.get("messages"), 0)  # not of a queue whose node is down
        },
        down={name: entry["state"] for name, entry in named.items() if entry.get("state") in _DOWN},
        # The list names the policy that applies, but not the operator policy (tested on 3.8.9, 3.10.8, 4.0.5 and 4.3.6).
        applied_policies={name: entry.get("policy") for name, entry in named.items()},
    )


def _kept_in(exchanges: Iterable[Mapping[str, Any]]) -> Kept:
    """Return what is kept of rings in some exchanges of the management API."""
    entries = list(exchanges)
    pending = (entry.get("arguments") or {} for entry in entries if entry["name"] == PENDING_APPLY)
    return Kept(records_in(entries), next(map(read_pending, pending), None))


def _rings_by_records(topology: LiveTopology, broker: LiveBroker) -> dict[str, HashRing]:
    """Return the rings that records on the broker or in a file prove; the others remain assumed, with the reason."""

    @cache
    def read_again() -> Kept:
        return _kept_in(broker.api.get_list("exchanges", broker.vhost, fields=_EXCHANGE))

    kept = evidence_of(topology).kept
    return {
        exchange.name: _find_ring(
            exchange.name,
            topology.rings[exchange.name],
            exchange.ring or (),
            kept,
            broker.file_records.get(exchange.name),
            read_again=read_again,
            mark=lambda: evidence_of(topology).mark,
        )
        for exchange in topology.exchanges
        if exchange.name in topology.rings  # a member may have a key that is no weight
    }


def _find_ring(
    exchange: str,
    assumed: HashRing,
    bound: Sequence[RingMember],
    kept: Kept,
    file_record: RingRecord | None,
    *,
    read_again: Callable[[], Kept],
    mark: Callable[[], Mark],
) -> HashRing:
    """Return the ring of an exchange that no ring source reads.

    Args:
        exchange: the exchange's name.
        assumed: the ring that its bindings make as listed.
        bound: the bindings, as the broker lists them.
        kept: what the broker keeps, read before the bindings.
        file_record: the record in a file, in the place of that on the broker.
        read_again: reads what the broker keeps again: an apply may have replaced the record between the lists.
        mark: returns the mark of the vhost.
    """
    record, planned = kept.about(exchange)
    if (record or planned) and (record, planned) != read_again().about(exchange):
        return replace(assumed, ground=_CHANGES)
    if planned is not None:
        doubt = f"{kept.pending} has not ended; applying its file again repeats it"
        return replace(assumed, ground=Ground("assumed", doubt))
    if file_record is None:
        return assumed if record is None else ring_by_record(record, assumed, bound, mark())
    found = ring_by_record(file_record, assumed, bound, mark())
    known = found if record is None else ring_by_record(record, assumed, bound, mark())
    if not (found.ground.is_certain and known.ground.is_certain) or known.buckets == found.buckets:
        return found
    doubt = f"the record of {file_record.about} and that on the broker yield different rings"
    return replace(assumed, ground=Ground("assumed", doubt))


def read_mark(
    api: ManagementApi, vhost: str, cluster: str | None, count: Callable[[str], QueueCounts] | None
) -> Mark:
    """Read the mark of a vhost. Its messages are counted over AMQP, its persistent ones by the statistics of the broker."""
    try:
        entry = api.get("queues", vhost, MARK, fields={"messages_persistent?": int, **_QUEUE})
    except NotFoundError:
        return Mark(Stamp(cluster, vhost))
    node = entry.get("node")
    stamp = stamp_in(_table(entry, "arguments"), cluster, vhost, node if isinstance(node, str) else None)
    mark = Mark(stamp, nodes=_nodes_of([entry]), persistent=entry.get("messages_persistent"))
    if count is None:
        return replace(mark, doubt="there is no connection over AMQP")
    try:
        return replace(mark, messages=count(MARK).messages)
    except RabbitChxError as error:
        return replace(mark, doubt=str(error), is_down=isinstance(error, UnreachableError))


def read_homes(api: ManagementApi, vhost: str) -> dict[str, frozenset[str]]:
    """Read the nodes that have each queue of a vhost."""
    return _nodes_of(api.get_list("queues", vhost, query=WITHOUT_STATISTICS, fields=_QUEUE))


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
        for entry in entries:
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


def _read_vhost(api: ManagementApi, vhost: str) -> dict[str, Any]:
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
    arguments, type_ = _table(entry, "arguments"), entry.get("type")
    if isinstance(type_, str) and type_:
        # The argument may be missing, empty, or "undefined", where the default applied.
        arguments = {**arguments, QUEUE_TYPE: type_}
    # Of quorum queues and streams `exclusive` is an empty text.
    return {**entry, "exclusive": entry.get("exclusive") is True, "arguments": arguments}


def _table(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return entry.get(name) or {}  # older releases write an empty table as a list


def _count_parked(topology: LiveTopology, broker: LiveBroker) -> Mapping[str, int]:
    """Count the messages of each parking queue over AMQP, because the management API's counts are some seconds old."""
    counted = {queue: try_count(broker.amqp, queue) for queue in queues_behind_slots(topology)}
    return {queue: counts.messages for queue, counts in counted.items() if counts is not None}


def _read_priorities(topology: LiveTopology, api: ManagementApi, vhost: str) -> Mapping[str, tuple[int, ...]]:
    """Read the priorities of the waiting messages of quorum queues, which only the statistics contain."""
    hashes = any(exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE) for exchange in topology.exchanges)
    if not hashes or (topology.release or NEWEST_COMPARED).numbers < QUORUM_V8_SINCE:
        return {}
    query = {"columns": "name,messages_by_priority"}
    fields: Mapping[str, Shape] = {"name": str, "messages_by_priority?": dict}
    return {
        entry["name"]: tuple(sorted(int(name) for name in entry["messages_by_priority"] if name.isdecimal()))
        for entry in api.get_list("queues", vhost, query=query, fields=fields)
        if entry.get("messages_by_priority")
    }


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


class LiveExchange:
    """An exchange of a live broker. Each part is requested on first use, and once: one exchange of a large vhost takes few requests.

    Args:
        api: the management API.
        vhost: the exchange's vhost.
        name: the exchange's name.
        release: the broker's release; None: it is read.
        read_rings: reads rings by a ring source, as `LiveBroker.read_rings` does; None: the ring is recorded, or assumed from the bindings.
        file_record: the record of the ring in a file.
        count: counts the messages of a queue over AMQP, which the proof of a record takes.

    Attributes:
        type: the exchange's type.

    Raises:
        NotFoundError: the exchange or the vhost does not exist.
        UnreachableError: the address does not answer.
        InputError: the name is not valid in AMQP.
    """

    def __init__(
        self,
        api: ManagementApi,
        vhost: str,
        name: str,
        release: Release | None = None,
        read_rings: RingReader | None = None,
        *,
        file_record: RingRecord | None = None,
        count: Callable[[str], QueueCounts] | None = None,
    ) -> None:
        check_declared_name(name, "exchange")
        self.vhost, self.name = vhost, name
        self._api, self._release, self._read_rings = api, release, read_rings
        self._file_record, self._count = file_record, count
        try:
            self._entry: dict[str, Any] = api.get(
                "exchanges", vhost, name, fields={"type": str, "arguments": dict, "policy?": str}
            )
        except NotFoundError:
            raise NotFoundError(
                f"there is no exchange {name!r} in vhost {vhost!r}: check its name and the vhost of the URL",
                exchange=name,
                reply_code=404,
            ) from None
        self.type = str(self._entry["type"])

    @classmethod
    def of(
        cls,
        broker: BrokerWays,
        name: str,
        release: Release,
        count: Callable[[str], QueueCounts] | None = None,
    ) -> Self:
        """Return an exchange of a broker, whose ring source is used if it has one. `count` is what `LiveExchange` has."""
        read_rings = broker.read_rings if broker.has_source else None
        return cls(
            broker.api,
            broker.vhost,
            name,
            release,
            read_rings,
            file_record=broker.file_records.get(name),
            count=count,
        )

    @cached_property
    def release(self) -> Release:
        """The broker's release."""
        return self._release or read_release(self._api)

    @property
    def _arguments(self) -> Mapping[str, Any]:
        return _table(self._entry, "arguments")

    @property
    def hash_arguments(self) -> dict[str, str]:
        """The arguments that determine the hashed value: ``hash-header`` or ``hash-property``."""
        return {name: value for name, value in self._arguments.items() if name in HASH_ARGUMENTS}

    @cached_property
    def _binding_definitions(self) -> list[BindingDefinition]:
        objects = LiveObjects()
        found = read_bindings(self._api, self.vhost, objects, source=self.name)
        if objects.odd:
            raise NotDeterminedError(
                f"exchange {self.name!r} has bindings that no client can name: delete {listed(objects.odd)}",
                exchange=self.name,
            )
        return found.get(self.name, [])

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """``(destination, binding key)`` of each binding; their order has no meaning."""
        return tuple(binding.member for binding in self._binding_definitions)

    @property
    def members(self) -> tuple[RingMember, ...]:
        """The bindings with their arguments; their order has no meaning."""
        return tuple(RingMember(*binding.member, binding.arguments) for binding in self._binding_definitions)

    @property
    def policy_name(self) -> str | None:
        """The name of the policy that applies; None if no policy does."""
        return self._entry.get("policy") or None

    @cached_property
    def policy_definition(self) -> Mapping[str, Any]:
        """The definition of the policy that applies; empty if no policy does."""
        if self.policy_name is None:
            return {}
        policy = self._api.get("policies", self.vhost, self.policy_name, fields={"definition": dict})
        return _table(policy, "definition")

    @property
    def alternate(self) -> str | None:
        """The alternate exchange, by argument or policy; None if it has none."""
        name = self._arguments.get(ALTERNATE_EXCHANGE) or self.policy_definition.get(ALTERNATE_EXCHANGE)
        return name if isinstance(name, str) else None

    def check_type(self) -> None:
        """Refuse an exchange that is not of type ``x-consistent-hash``.

        Raises:
            MismatchError: the exchange is of another type.
        """
        if self.type != HASH_EXCHANGE:
            remedy = "pass another one"
            if self.type == MODULUS_EXCHANGE:
                remedy = (
                    "it has no ring; in Python use Broker.exchange, on the command line `route` or `compare`"
                )
            raise MismatchError(
                f"exchange {self.name!r} in vhost {self.vhost!r} is of type {self.type}, not {HASH_EXCHANGE}: {remedy}",
                exchange=self.name,
            )

    @cached_property
    def ring(self) -> HashRing:
        """The ring by the ring source or the record, or else the ring that the bindings make in their listed order."""
        self.check_type()
        if self._read_rings is not None:
            return _ring_by_source(self._read_rings, self.vhost, self.name, self.release)
        kept = self._kept  # before the bindings
        return _find_ring(
            self.name,
            replace(HashRing.from_bindings(self.bindings, self.release), ground=UNORDERED),
            self.members,
            kept,
            self._file_record,
            read_again=lambda: _kept_in(self._read_own()),
            mark=lambda: self.mark,
        )

    @cached_property
    def cluster(self) -> str | None:
        """The name of the broker's cluster."""
        name: str | None = self._api.get("overview", fields=OVERVIEW).get("cluster_name")
        return name_cluster(name, read_nodes(self._api)) if "@" in (name or "") else name

    @cached_property
    def means(self) -> Means:
        """How the user may learn the order of the ring."""
        voids = self._policies_of_mark
        is_administrator = bool(_read_vhost(self._api, self.vhost))
        return Means(is_administrator, "" if not voids or self.mark.holds else voids)

    @cached_property
    def _policies_of_mark(self) -> str:
        return policies_of_mark(*self._policies)

    @cached_property
    def _policies(self) -> tuple[list[PolicyDefinition], list[PolicyDefinition]]:
        """The policies and the operator policies of the vhost."""
        objects = LiveObjects()
        ours, operators = (
            objects.read(PolicyDefinition, self._api.get_list(kind, self.vhost, fields=_POLICY))
            for kind in ("policies", "operator-policies")
        )
        return ours, operators

    @cached_property
    def mark(self) -> Mark:
        """The mark of the vhost, for records. All queues are listed only if a restart of a node changes rings."""
        mark = read_mark(self._api, self.vhost, self.cluster, self._count)
        if not self.release.follows(RESTART_KEEPS):
            mark = replace(mark, nodes=read_homes(self._api, self.vhost))
        return mark if mark.holds else replace(mark, policies=self._policies_of_mark)

    @cached_property
    def _kept(self) -> Kept:
        return _kept_in(self._read_own())

    def _read_own(self) -> list[dict[str, Any]]:
        """Return the exchanges with the record of this exchange, and with an apply that has not ended."""
        names = (record_name(self.name), PENDING_APPLY)
        query = {
            "page": "1",
            "page_size": str(PAGE),
            "name": f"^({'|'.join(map(re.escape, names))})$",
            "use_regex": "true",
        }
        answer = self._api.get("exchanges", self.vhost, query=query, fields={"items": [_EXCHANGE]})
        entries: list[dict[str, Any]] = answer["items"]
        return [entry for entry in entries if entry["name"] in names]

    @cached_property
    def record(self) -> RingRecord | None:
        """The record of the ring on the broker, if there is one."""
        record = self._kept.about(self.name)[0]
        return record if isinstance(record, RingRecord) else None

    @cached_property
    def history(self) -> RingHistory:
        """The history of the ring by the record on the broker."""
        return history_of(self.name, self._kept, self.ring, self.members, self.mark)

    @cached_property
    def is_recorded(self) -> bool:
        """True if the record on the broker proves the ring, so that it is known without a ring source."""
        record, planned = self._kept.about(self.name)
        return planned is None and is_recorded(self.ring, record, self.members, self.mark)

    @cached_property
    def slots(self) -> SlotView:
        """The ring and its slots, by the bindings of the exchanges in the ring. A ring of queues alone takes no more requests."""
        if not any(isinstance(place, ExchangeRef) for place in self.ring.destinations):
            return view_slots(self.name, self.ring, (), ())
        return view_slots(self.name, self.ring, *self._behind)

    @cached_property
    def _behind(self) -> tuple[list[ExchangeDefinition], list[BindingDefinition]]:
        """The exchanges and the bindings of the vhost."""
        exchanges = [
            make_object(ExchangeDefinition, entry)
            for entry in self._api.get_list("exchanges", self.vhost, fields=_EXCHANGE)
            if entry["name"] and isinstance(entry["name"], str)
        ]
        bound = read_bindings(self._api, self.vhost).values()
        return exchanges, [binding for of_one in bound for binding in of_one]

    @cached_property
    def dead_ends(self) -> dict[ExchangeRef, str]:
        """The exchanges in the ring, other than slots, that lead to no queue, with a sentence."""
        others = sorted(self.slots.other_exchanges, key=str)
        if not others:
            return {}
        exchanges, bindings = self._behind
        read = (*exchanges,), (), (*bindings,), (*self._policies[0],)
        reach = Reach(LiveTopology(*read, release=self.release))
        return {
            place: f"exchange {place.name} leads to no queue, and is in the ring of exchange {self.name!r}: bind a queue to it, or take it out of "
            "the ring"
            for place in others
            if reach.leads_nowhere(place.name)
        }

    def mirror(self) -> ConsistentHashExchange | ModulusHashExchange:
        """Return a mirror of the exchange's routing.

        Raises:
            MismatchError: the exchange does not hash.
            RingSourceError: the ring could not be read.
        """
        if self.type == MODULUS_EXCHANGE:
            return modulus_of(self.name, self._binding_definitions, self.release, "read")
        if self.type != HASH_EXCHANGE:
            self._refuse_type("")
        return ConsistentHashExchange(self.name, self.ring, arguments=self.hash_arguments)

    def key_map(self) -> KeyMap:
        """Return what maps keys to queues: the ring or its slots, the modulus exchange, or the super stream.

        Keys are followed through the exchanges behind it that hash, too, whose rings are then read.

        Raises:
            MismatchError: the exchange is of another type.
            RingSourceError: a ring could not be read.
        """
        own = self.own_map()
        into = self._api.get_list(
            "exchanges", self.vhost, self.name, "bindings", "destination", fields={"source?": str}
        )
        if not into and not any(isinstance(place, ExchangeRef) for place in own.destinations):
            return own
        objects = LiveObjects()
        queues = (
            self._api.get_list("queues", self.vhost, query=WITHOUT_STATISTICS, fields=_QUEUE) if into else ()
        )
        exchanges, bindings = self._behind
        read = ObjectSet(
            tuple(exchanges),
            tuple(objects.read(QueueDefinition, map(_plain_queue, queues))),
            tuple(bindings),
            tuple(self._policies[0]),
        )
        maps: dict[str, KeyMap] = {self.name: own}
        nesting = Nesting(read, maps.get)
        maps |= self._read_maps([name for name in nesting.related(self.name) if name != self.name])
        return nesting.follow(self.name, own)

    def _read_maps(self, names: Sequence[str]) -> dict[str, KeyMap]:
        """Read the maps of other exchanges that hash, with one call of the ring source."""
        read_rings = self._read_rings
        if read_rings is not None and names:
            rings = read_rings(names, self.release)
            read_rings = lambda wanted, _: {name: rings[name] for name in wanted if name in rings}  # noqa: E731
        others = (
            LiveExchange(self._api, self.vhost, name, self.release, read_rings, count=self._count)
            for name in names
        )
        return {each.name: each.own_map() for each in others}

    def own_map(self) -> KeyMap:
        """Return the map of the exchange by itself; the errors are those of `key_map`."""
        if self.type == HASH_EXCHANGE:
            return self.slots.key_map()
        definition = ExchangeDefinition(self.name, self.type, arguments=self._arguments)
        found = modulo_map_of(definition, self._binding_definitions, self.release, "read")
        if found is None:
            self._refuse_type(", or a super stream")
        return found

    def _refuse_type(self, others: str) -> NoReturn:
        raise MismatchError(
            f"exchange {self.name!r} in vhost {self.vhost!r} is of type {self.type}, which does not hash: pass one of type "
            f"{HASH_EXCHANGE} or {MODULUS_EXCHANGE}{others}",
            exchange=self.name,
        )

    def publish_rates(self) -> PublishRates:
        """Return the publish rates of the exchange and of the queues of its vhost, and the queues that do not run."""
        queues = self._api.get_list("queues", self.vhost, query={"columns": _COLUMNS}, fields=_STATED)
        return _rates_of(_rate(self._entry, "publish_in_details"), queues)


def read_rates(api: ManagementApi, vhost: str, names: Collection[str]) -> dict[str, PublishRates]:
    """Return the rates of the last minute of exchanges of a vhost, with the messages and consumers of its queues, in two requests."""
    exchanges = api.get_list(
        "exchanges", vhost, query=_LAST_MINUTE | {"columns": _EXCHANGE_RATES}, fields=_NAMED
    )
    queues = api.get_list("queues", vhost, query=_LAST_MINUTE | {"columns": _QUEUE_RATES}, fields=_STATED)
    rates = {
        entry["name"]: _rate(entry, "publish_in_details", "avg_rate")
        for entry in exchanges
        if entry["name"] in names
    }
    of_queues = _rates_of(None, queues, "avg_rate")
    return {name: replace(of_queues, exchange=rates.get(name)) for name in names}


def read_ring(broker: LiveBroker, exchange: str, release: Release) -> HashRing:
    """Read the ring of an exchange. Without a ring source it is assumed from the bindings.

    Raises:
        NotFoundError: the exchange does not exist.
        MismatchError: the exchange is of another type.
        RingSourceError: the ring could not be read.
    """
    if broker.has_management or not broker.has_source:
        return LiveExchange.of(broker, exchange, release, broker.amqp.count).ring
    check_declared_name(exchange, "exchange")
    broker.amqp.check_exchange(exchange)
    return _ring_by_source(broker.read_rings, broker.vhost, exchange, release)


def _ring_by_source(read_rings: RingReader, vhost: str, exchange: str, release: Release) -> HashRing:
    ring = read_rings((exchange,), release).get(exchange)
    if ring is None:
        raise MismatchError(
            f"exchange {exchange!r} in vhost {vhost!r} is not of type {HASH_EXCHANGE}, or the ring source asks another broker: "
            "check the exchange and the ring source",
            exchange=exchange,
        )
    return ring


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages per second, as the broker counted them in the last seconds.

    Attributes:
        exchange: those that were published to the exchange itself; None if the broker has no rate, as before the first message.
        queues: those that reached each queue of the vhost that has a rate, by whatever exchange.
        states: the state of each queue of the vhost that does not run, such as ``down``.
        backlogs: the ready and the unacknowledged messages and the consumers of each queue; then the rates are those of the last minute.
    """

    exchange: float | None
    queues: Mapping[str, float] = field(hash=False)
    states: Mapping[str, str] = field(default_factory=dict, hash=False)
    backlogs: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict, hash=False)

    def traffic(self, queues: Collection[str]) -> dict[str, float]:
        """Return the share of the messages that each of these queues got; empty without messages."""
        rates = {queue: rate for queue in queues if (rate := self.queues.get(queue, 0.0))}
        total = sum(rates.values())
        return {queue: rates.get(queue, 0.0) / total for queue in queues} if total else {}


def _rates_of(
    exchange: float | None, queues: Iterable[Mapping[str, Any]], figure: str = "rate"
) -> PublishRates:
    """Return the rate of an exchange and of listed queues, and what else is listed of them."""
    listed = list(queues)
    rates = {queue["name"]: _rate(queue, "publish_details", figure) for queue in listed}
    return PublishRates(
        exchange,
        {name: rate for name, rate in rates.items() if rate is not None},
        {entry["name"]: entry["state"] for entry in listed if entry.get("state", "running") not in _RUNNING},
        {
            entry["name"]: tuple(entry[name] if is_whole(entry.get(name), 0) else None for name in _BACKLOG)
            for entry in listed
            if any(name in entry for name in _BACKLOG)
        },
    )


def _rate(entry: Mapping[str, Any], name: str, figure: str = "rate") -> float | None:
    statistics = entry.get("message_stats")
    details = statistics.get(name) if isinstance(statistics, Mapping) else None
    rate = details.get(figure) if isinstance(details, Mapping) else None
    return None if rate is None or shape_fault(rate, float) else float(rate)
