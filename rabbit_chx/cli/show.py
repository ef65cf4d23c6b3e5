"""``rabbit-chx show``: hash exchanges, a line each; or some of them with members, shares, slots and record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.fields import properties_in
from rabbit_chx.analysis import ring_findings
from rabbit_chx.analysis.findings import Finding, FindingFields, moment_as_json, moment_text
from rabbit_chx.broker.exchange_report import (
    ListedModulus,
    ListedRing,
    ShownExchange,
    list_moduli,
    list_report,
    list_rings,
    show_report,
)
from rabbit_chx.broker.live_routing import (
    alternate_of,
    dead_ends_of,
    find_live_exchange,
    ring_of,
    slots_of,
    why_unrouted,
)
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.checking.check import TopologyCheck, check
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.checking.group_status import GroupStatus, MemberStatus, QueueStatus
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import (
    TEXT,
    CommandResult,
    ExitCode,
    Rules,
    argument,
    check_one,
    command,
    exchange_named,
    option,
    options,
    say,
)
from rabbit_chx.cli.ring_argument import say_doubts
from rabbit_chx.cli.samples import KeySource, keys_option, read_load
from rabbit_chx.consuming.journal import JOURNAL, Roster, entry_in
from rabbit_chx.errors import EmptyRingError, InputError, RabbitChxError
from rabbit_chx.planning.refusals import check_certain
from rabbit_chx.records.live_rings import evidence_of, how_to_record, read_without_record
from rabbit_chx.rendering.document import Block, Document, Facts, Gauge, Line, Table, gauges_of
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.result_fields import Metric, shown
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import node_addresses, stream_settings
from rabbit_chx.text import command_text, in_vhost, plural
from rabbit_chx.topology.arguments import SHARDS_PER_NODE
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.plugin_objects import ShardName

if TYPE_CHECKING:
    from rabbit_chx.consuming.stream_connection import StreamShare

# -- The report of a group: its queues or streams, their consumers, and their backlog

_READY = Metric("rabbit_chx_group_ready_messages", "The number of messages of a queue that wait.")
_ACTIVE = Metric(
    "rabbit_chx_group_active_consumers",
    "The number of consumers of a queue that the broker delivers to.",
    len,
)
_OF_OTHERS = "not visible, since RabbitMQ does not list the consumers of other users to this user: use one with the tag monitoring"


def _names_or_dash(names: Sequence[str] | None) -> str:
    return "not visible" if names is None else ", ".join(names) or "-"


@dataclass(frozen=True, slots=True)
class ShownQueue:
    """A queue of a group: `active` and `waiting` are members or consumer tags, None if the user does not see all; `last_switch` is in seconds
    since 1970.
    """

    name: str = field(metadata=shown("queue"))
    type: str | None
    single_active_consumer: bool
    ready: int | None = field(metadata=shown("ready", number=True, summed=True, metric=_READY))
    unacked: int | None = field(metadata=shown("unacked", number=True, summed=True))
    consumers: int | None = field(metadata=shown("consumers", number=True, summed=True))
    active: Sequence[str] | None = field(metadata=shown("active", _names_or_dash, metric=_ACTIVE))
    waiting: Sequence[str] | None
    last_switch: float | None = field(metadata=shown("last switch", moment_text, as_json=moment_as_json))

    @classmethod
    def of(cls, queue: QueueStatus, last_switch: float | None) -> Self:
        """Return a queue as the management API shows it."""
        active, waiting = (
            None
            if queue.hidden != 0
            else [consumer.name for consumer in queue.consumers if consumer.active == is_active]
            for is_active in (True, False)
        )
        counts = queue.ready, queue.unacked, queue.count
        return cls(queue.name, queue.type, queue.single_active, *counts, active, waiting, last_switch)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The queues of an exchange and their consumers.

    Attributes:
        determined: False if the user does not see all consumers.
        members: The members of the group; null if the user does not see all consumers.
        parked: The messages in parking queues of slots.
        ignored_entries: The number of messages in the journal that no group wrote.
        consumers_not_checked: Why consumers and traffic were not checked; null if they were.
        order_not_checked: Why the order of the ring could not be checked; null if it could.
    """

    exchange: str
    vhost: str
    version: str
    determined: bool
    queues: Sequence[ShownQueue]
    members: Sequence[MemberStatus] | None
    parked: int | None
    ignored_entries: int | None
    findings: Sequence[FindingFields]
    consumers_not_checked: str | None
    order_not_checked: str | None


def group_report(
    address: str,
    exchange: str,
    live: LiveTopology,
    status: GroupStatus,
    *,
    parked: int | None,
    ignored_entries: int | None,
    switches: Mapping[str, float],
    found: CheckReport,
) -> Document:
    """Return the consumers of the queues of an exchange, and the members of the group that they are, if they are one.

    Args:
        address: the broker's host and port.
        exchange: the exchange.
        live: its broker.
        status: the queues and their consumers.
        parked: the number of messages in the parking queue; None without a parking queue.
        ignored_entries: the number of entries of the journal that cannot be read; None if the journal cannot be.
        switches: the time of the last switch of queues, in seconds since 1970.
        found: the check of the exchange.
    """
    queues = [ShownQueue.of(queue, switches.get(queue.name)) for queue in status.queues]
    members = status.members
    vhost = live.vhost or "/"
    release = live.release or NEWEST_COMPARED
    is_seen = status.is_seen
    seen = plural(len(members), "member") if is_seen else "members not visible"
    facts = [("exchange", exchange), ("vhost", vhost), ("broker", f"RabbitMQ {release}")]
    facts.append(("group", f"{plural(len(queues), 'queue')}, {seen}"))
    if not is_seen:
        facts.append(("consumers", _OF_OTHERS))
    facts += [] if parked is None else [("parked", plural(parked, "message"))]
    facts += _facts_of_ignored(ignored_entries)
    without = "" if is_seen else ", without those about a group, which is not visible"
    parts: list[Block] = [
        Facts([*facts, ("findings", found.count_found + without)]),
        *found.blocks(),
        Table.of(ShownQueue, queues, total=True),
    ]
    if is_seen and members:
        parts.append(Table.of(MemberStatus, members))
    if members and all(queue.last_switch is None for queue in queues):
        parts.append(
            Line(
                "The last switch is not known: RabbitMQ does not store it, and the journal of the members was not read."
            )
        )
    result = GroupResult(
        exchange=exchange,
        vhost=vhost,
        version=release.version,
        determined=is_seen,
        queues=queues,
        members=members if is_seen else None,
        parked=parked,
        ignored_entries=ignored_entries,
        findings=[FindingFields.of(finding) for _, finding in found.findings],
        consumers_not_checked=found.consumers_not_checked or None,
        order_not_checked=found.why_not_determined(exchange),
    )
    labels = {"broker": address, "vhost": vhost, "group": exchange}
    gauges = gauges_of(ShownQueue, [({**labels, "queue": queue.name}, queue) for queue in queues])
    # Where nobody runs a group, no alert may say that a group has no members.
    has_group = bool(members or switches)
    counted = (_members_gauge(labels, len(members)),) if is_seen and has_group else ()
    return Document("group", parts, result, (*gauges, *counted))


def stream_group_report(address: str, group: str, vhost: str, streams: Sequence[StreamShare]) -> Document:
    """Return the streams of a StreamGroup; `address` is the broker's host and port."""
    # It needs pyarrow, which is not installed where only queues are consumed.
    from rabbit_chx.consuming.stream_connection import StreamGroupResult, StreamShare

    facts = [("stream group", group), ("vhost", vhost), ("group", plural(len(streams), "stream"))]
    labels = {"broker": address, "vhost": vhost, "group": group}
    gauges = gauges_of(StreamShare, [({**labels, "stream": share.stream}, share) for share in streams])
    parts: list[Block] = [Facts(facts), Table.of(StreamShare, streams, total=True)]
    return Document("stream-group", parts, StreamGroupResult(group, vhost, streams), tuple(gauges))


def _facts_of_ignored(count: int | None) -> list[tuple[str, str]]:
    return [("ignored", f"{plural(count, 'message')} of the journal that no group wrote")] if count else []


def _members_gauge(of_group: Mapping[str, str], count: int) -> Gauge:
    return Gauge("rabbit_chx_group_members", "The number of members of a group.", [(of_group, count)])


# -- The options of consumers and of their streams


def address_option() -> Any:  # a field's default
    """Return a field that is the option for advertised addresses."""
    return option(
        "--address",
        is_rare=True,
        metavar="HOST:PORT=HOST:PORT",
        help="An address that a node advertises for streams, and the address that is reachable from here.",
    )


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of the consumers of an exchange."""

    section: ClassVar = "Consumers"
    consumers: bool = option(help="Show who consumes the queues of EXCHANGE, and their backlog.")
    journal: str | None = option(
        type=TEXT,
        metavar="NAME",
        help=f"The stream that contains the journal of the group.  [default: {JOURNAL}]",
    )
    stream_group: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The name of a StreamGroup: show the lag of its streams, without the management API. Each EXCHANGE is then a super "
        "stream, an exchange of streams, or a stream.",
    )
    address: tuple[str, ...] = address_option()


def parse_addresses(texts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the address to connect to for each advertised address."""
    addresses: dict[str, str] = {}
    for text in texts:
        advertised, _, reachable = text.partition("=")
        try:
            addresses |= node_addresses({advertised: reachable})
        except InputError:
            raise InputError(
                f"--address is {text!r:.60}: write HOST:PORT=HOST:PORT, as in rabbit-0:5552=127.0.0.1:15552"
            ) from None
    return addresses


#: How a RING begins or ends that is no exchange of the broker.
_OF_FILES = (".toml", ".json")
_OF_TYPES = ("modulus:", "super-stream:")


@command(
    example="rabbit-chx show orders --management-url http://localhost:15672 --ring-via 'docker exec rabbitmq'",
    has_metrics=True,
    has_pictures=True,
    rules=Rules(
        needs=dict.fromkeys(("--journal", "--stream-group", "--output prometheus"), "--consumers")
        | {"--address": "--stream-group"},
        excludes=[
            ("--all-vhosts", "EXCHANGE"),
            ("--journal", "--stream-group"),
            *((name, "--consumers") for name in ("--all-vhosts", "--keys")),
        ],
        of_one=("--keys",),
    ),
)
def show(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, type=TEXT, metavar="[EXCHANGE]..."),
    all_vhosts: bool = option(help="List the exchanges of every vhost that the user may access."),
    group: GroupOptions = options(GroupOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    keys: KeySource | None = keys_option("A sample of keys: show the load of each member"),
) -> CommandResult:
    """List the hash exchanges; or show the members of each EXCHANGE, the exact shares, slots, shards, the record.

    --ring-via reads the true ring. Without it the ring is that of the record on the broker, if there is one that fits; else its order is not
    known, and only what holds in every order is shown. The list has the findings of `check`. RabbitMQ does not count the messages of a slot: a
    sample of keys adds the load of each member and the heaviest keys.

    --consumers shows the queues of EXCHANGE, or of its slots, and who consumes them. The consumer tags that
    ConsumerGroup sets identify the members of a group; its journal has the time of the last switch. Values of the
    management API are up to 5 s old; if a queue has consumers but none is active, the command retries for 6 s.

    Nothing is changed. The exit code is 3 if the order of a ring is not known, or the user does not see all consumers. If no exchange hashes, it
    is 2, and stderr says whether the plugin, the vhost or a permission is missing.
    """
    _refuse_rings(exchanges)
    exchanges = tuple(map(exchange_named, exchanges))
    if group.consumers:
        from rabbit_chx.cli.show import consumers_report

        return _outcome(
            consumers_report(broker.live(streams=group.stream_group is not None), exchanges, group)
        )
    at = broker.live()
    if not exchanges:
        return _list_exchanges(at, all_vhosts=all_vhosts)
    report = show_report({name: _read(at, name, keys) for name in exchanges})
    return _outcome(replace(report, about=f"{at.address}, vhost {at.settings.vhost}"))


def _outcome(report: Document) -> CommandResult:
    return CommandResult(report, ExitCode.DONE if report.is_determined else ExitCode.PARTLY)


def _refuse_rings(names: Sequence[str]) -> None:
    """Refuse what is a RING of other commands, and no exchange of a broker."""
    for name in names:
        path = name.partition("#")[0]
        if name != exchange_named(name):
            continue
        if path.endswith(_OF_FILES):
            what = "is a file"
            instead = f"check it with {command_text('check', path, '--offline')}"
        elif "=" in name or name.startswith(_OF_TYPES):
            what = "are bindings"
            instead = f"for their shares use {command_text('compare', name)}"
        else:
            continue
        other = f"; an exchange with this name is exchange:{name:.80}"
        raise InputError(f"{name!r} {what}, and show reads exchanges of the broker: {instead}{other}")


# -- some exchanges


def _read(at: BrokerAddresses, name: str, keys: KeySource | None) -> ShownExchange:
    """Read an exchange, and write its defects to stderr."""
    if at.ring_source is not None and at.management_url is None:
        with at.open() as opened, sign_of_life("reading the ring"):
            ring = opened.ring(name)
            cluster = opened.cluster
        shown = ShownExchange(name, at.settings.vhost, ring, cluster=cluster)
        findings = ring_findings(ring)
    else:
        with (
            sign_of_life("reading the exchange"),
            at.open_for(name, "AMQP alone does not show bindings") as opened,
        ):
            live = opened.inspect(name, for_record=True)
            sharding = opened.sharding(name) if _is_sharded(live, name) else None
            rates = opened.publish_rates(name)
        shown = ShownExchange.of(live, name, rates=rates, sharding=sharding).with_record(live)
        findings = _say_faults(live, name)
    say_doubts({} if shown.map is None else {name: shown.map})
    for finding in findings:
        say(f"exchange {name!r}: {finding.message}")
    return shown if keys is None else _with_load(shown, keys)


def _with_load(shown: ShownExchange, keys: KeySource) -> ShownExchange:
    """Return the exchange with the load of a sample."""
    if shown.arguments is None:
        raise InputError(
            "a sample has the values that the exchange hashes, which AMQP alone does not show: pass --management-url"
        )
    if shown.map is None:
        raise InputError(f"exchange {shown.name!r} does not hash: leave the sample out")
    if not shown.map.is_sole:
        check_certain(shown.name, shown.map, shown.ways_to_learn)
    return replace(shown, sample=read_load(keys, shown.arguments, shown.map))


def _say_faults(live: LiveTopology, name: str) -> list[Finding]:
    """Write to stderr where messages of an exchange get lost behind it, and return the defects of its ring."""
    exchange = find_live_exchange(live, name)
    if refused := why_unrouted(live, exchange):
        say(refused)
    if exchange.type != HASH_EXCHANGE:
        return []
    faults = slots_of(live, name).faults | dead_ends_of(live, name)
    for fault in faults.values():
        say(fault)
    bound = [member.binding for member in exchange.ring or ()]
    return ring_findings(ring_of(live, name), bound, alternate_of(live, exchange))


def _is_sharded(live: LiveTopology, name: str) -> bool:
    """Return True if a policy shards an exchange, or a shard is bound to it."""
    exchange = find_live_exchange(live, name)
    policy = live.policy_of(exchange)
    if policy is not None and SHARDS_PER_NODE in policy.definition:
        return True
    places = [binding.destination for binding in live.bindings if binding.source == name]
    places += [member.destination for member in exchange.ring or ()]
    names = [ShardName.parse(place) for place in places if isinstance(place, str)]
    return any(parsed is not None and parsed.exchange == name for parsed in names)


def _list_exchanges(live: BrokerAddresses, *, all_vhosts: bool) -> CommandResult:
    vhosts = live.vhosts() if all_vhosts else [live.settings.vhost]
    rings: list[ListedRing] = []
    moduli: list[ListedModulus] = []
    checks: list[TopologyCheck] = []
    unrecorded: list[str] = []
    for vhost in vhosts:
        with live.in_vhost(vhost).open() as opened, sign_of_life("reading the broker"):
            topology = with_settled_consumers(opened.topology(), live.management(""))
        checks.append(check(topology))
        rings += list_rings(vhost, topology, checks[-1])
        say_doubts(topology.rings)
        if names := read_without_record(topology):
            advice = how_to_record(names, evidence_of(topology).ways_to_learn)
            unrecorded.append(in_vhost(advice, vhost) if all_vhosts else advice)
        moduli += list_moduli(vhost, topology, checks[-1])
    if not rings and not moduli:
        raise InputError(f"nothing to list: {live.why_nothing_hashes(vhosts)}")
    return _outcome(
        list_report(vhosts, rings, moduli, checks=checks, unrecorded=unrecorded, all_vhosts=all_vhosts)
    )


# -- ``rabbit-chx show --consumers``: the consumers of a hash exchange's queues and their backlog, or the backlog of a StreamGroup


_PREFETCH = 1_000  # entries of the journal
_LONGEST_S = 10.0
_IDLE_S = 1.0


def consumers_report(at: BrokerAddresses, exchanges: Sequence[str], group: GroupOptions) -> Document:
    """Return the queues of an exchange, or of its slots, and their consumers; or the streams of a StreamGroup."""
    journal = group.journal or JOURNAL
    if group.stream_group is not None and exchanges:
        return _stream_group(at, exchanges, group.stream_group, group.address)
    check_one("--consumers", exchanges)
    (exchange,) = exchanges
    management = at.management("AMQP alone shows neither bindings nor consumers")
    with at.open() as opened, sign_of_life("reading the queues and their consumers"):
        live = with_settled_consumers(opened.topology(), management)
        found = check(live, exchange=exchange)
        if not found.queues[exchange]:
            raise EmptyRingError(
                f"exchange {exchange!r} has no bound queue to consume from: bind one", exchange=exchange
            )
        status = GroupStatus.of(found.queues[exchange], live, _read_connections(management, live))
    parked = live.facts.queues.messages.get(f"{exchange}.park")
    with sign_of_life(f"reading the journal {journal}"):
        roster, ignored = _roster(at.settings, journal, live)
    switches = {queue: claim.at for queue, claim in roster.claims.items()}
    return group_report(
        at.address,
        exchange,
        live,
        status,
        parked=parked,
        ignored_entries=ignored,
        switches=switches,
        found=CheckReport(at.address, {at.settings.vhost: found}, (exchange,), time.time()),
    )


def _read_connections(management: Management, live: LiveTopology) -> dict[str, float]:
    """Return the start of each connection of the vhost, in seconds since 1970."""
    columns = {"columns": "name,connected_at"}
    connections = management.request("GET", "vhosts", live.vhost or "/", "connections", query=columns)
    return {
        connection["name"]: connection["connected_at"] / 1000
        for connection in connections
        if connection.get("connected_at")
    }


@sign_of_life("reading the streams of the group")
def _stream_group(
    at: BrokerAddresses, names: Sequence[str], group: str, address: tuple[str, ...]
) -> Document:
    from rabbit_chx.consuming.stream_connection import find_streams, read_stream_group

    settings = stream_settings(at.settings)
    addresses = parse_addresses(address)
    with closing(StreamConnection(settings)) as connection:
        streams = find_streams(connection, names)
    shares = read_stream_group(settings, group, streams, addresses)
    return stream_group_report(at.address, group, settings.vhost, shares)


def _roster(settings: ConnectionSettings, journal: str, live: LiveTopology) -> tuple[Roster, int | None]:
    """Return what `read_roster` does; empty if there is no journal, without a count if it cannot be read."""
    if any((queue.name, queue.type) == (journal, "stream") for queue in live.queues):
        try:
            return read_roster(settings, journal)
        except RabbitChxError as error:
            say(f"the journal {journal!r} cannot be read, so the last switch is not known: {error}")
            return Roster(), None
    return Roster(), 0


def read_roster(settings: ConnectionSettings, journal: str) -> tuple[Roster, int]:
    """Return the roster in a journal, and the number of entries that cannot be read.

    The journal is read from its first entry to the current end, for at most 10 s.
    """
    roster = Roster()
    ignored = 0
    began = time.time()
    last_at = 0.0
    heard = time.monotonic()

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal last_at, heard, ignored
        heard = time.monotonic()
        found = entry_in(body)
        if found is None:
            ignored += 1
        else:
            last_at = found.at
            headers = dict(properties_in(properties.raw)["headers"])
            roster.take(headers[b"x-stream-offset"].value, found)
        if method.delivery_tag % (_PREFETCH // 2) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)

    connection = PikaConnection(settings)
    try:
        with connection.channel(raw_headers=True) as channel:  # pika does not decode those of each message
            channel.basic_qos(prefetch_count=_PREFETCH)
            channel.basic_consume(journal, take, arguments={"x-stream-offset": "first"})
            deadline = time.monotonic() + _LONGEST_S
            # Running members write all the time; without them the stream is at its end when no entry arrives.
            while last_at < began and time.monotonic() < min(deadline, heard + _IDLE_S):
                connection.process(0.1)
    finally:
        connection.close()
    return roster, ignored
