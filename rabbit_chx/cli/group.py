"""``rabbit-chx group show``: the consumers of a hash exchange's queues, or the members of a StreamGroup, and their backlog."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.wording import document, entry, finding_entry
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options, say
from rabbit_chx.cli.report import lag_gauges, numbers, or_dash, texts
from rabbit_chx.cli.stream_options import address_option, parse_addresses
from rabbit_chx.cli.stream_show import places_of
from rabbit_chx.consuming.journal import JOURNAL, Roster, entries_in
from rabbit_chx.consuming.status import GroupStatus, group_findings
from rabbit_chx.errors import EmptyRingError, InputError, RabbitChxError
from rabbit_chx.rendering import Block, Facts, Gauge, Line, Table
from rabbit_chx.routing import Release
from rabbit_chx.routing.key_map import plural
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.topology.objects import MODULUS_EXCHANGE
from rabbit_chx.topology.reading import LiveExchange

if TYPE_CHECKING:
    from rabbit_chx.consuming.stream_status import StreamMember, StreamShare

#: The management API's data is up to 5 s old.
_STALE_S = 6.0
_POLL_S = 1.0
_PREFETCH = 1_000  # entries of the journal
_LONGEST_S = 10.0
_IDLE_S = 1.0
#: Counts without the cost of statistics, from 3.10 on; older releases ignore the first two.
_QUEUES = {
    "disable_stats": "true",
    "enable_queue_totals": "true",
    "columns": "name,type,arguments,messages_ready,messages_unacknowledged",
}
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group over the queues of an exchange.

    Attributes:
        address: the broker's host and port.
        switches: the time of each queue's last change of its active member, in seconds since 1970, as the members report it; only queues
            with a report.
        parked: the number of messages in the parking queue; None without a parking queue.
        ignored_entries: the number of entries of the journal that cannot be read.
    """

    address: str
    exchange: str
    vhost: str
    release: Release
    status: GroupStatus
    findings: tuple[Finding, ...]
    switches: Mapping[str, float]
    parked: int | None = None
    ignored_entries: int = 0

    def blocks(self) -> Iterator[Block]:
        """Return a few facts about the group, its queues, its members, and each finding with its fix."""
        queues, members = self.status.queues, self.status.members
        facts = [
            ("exchange", self.exchange),
            ("vhost", self.vhost),
            ("broker", f"RabbitMQ {self.release}"),
            ("group", f"{plural(len(queues), 'queue')}, {plural(len(members), 'member')}"),
        ]
        if self.parked is not None:
            facts.append(("parked", plural(self.parked, "message")))
        facts += _ignored_facts(self.ignored_entries)
        yield Facts([*facts, ("warnings", f"{len(self.findings)}" if self.findings else "none")])
        rows = [
            (
                queue.name,
                or_dash(queue.ready),
                or_dash(queue.unacked),
                len(queue.consumers),
                ", ".join(consumer.name for consumer in queue.active) or _UNKNOWN,
                _moment(self.switches.get(queue.name)),
            )
            for queue in queues
        ]
        ready, unacked = (sum(getattr(queue, name) or 0 for queue in queues) for name in ("ready", "unacked"))
        total = ("all", ready, unacked, sum(len(queue.consumers) for queue in queues), "", "")
        counted = numbers("ready", "unacked", "consumers")
        yield Table([*texts("queue"), *counted, *texts("active", "last switch")], rows, total)
        if members:
            yield Table(
                [*texts("member", "connected"), *numbers("active", "waiting")],
                [
                    (member.name, _moment(member.connected_at), len(member.active), len(member.waiting))
                    for member in members
                ],
            )
        for finding in self.findings:
            yield Facts([(finding.kind, finding.message), ("fix", finding.fix)])
        if members and not self.switches:
            yield Line(
                "The last switch is not known: RabbitMQ does not store it, and the journal of the members was not read."
            )

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/group``."""
        return document(
            "group",
            **entry(self, "exchange", "vhost", "version=release.version"),
            queues=[
                {
                    **entry(
                        queue, "name", "type", "single_active_consumer=single_active", "ready", "unacked"
                    ),
                    "active": [consumer.name for consumer in queue.active],
                    "waiting": [consumer.name for consumer in queue.consumers if not consumer.active],
                    "last_switch": _moment_json(self.switches.get(queue.name)),
                }
                for queue in self.status.queues
            ],
            members=[
                {
                    "name": member.name,
                    "connected_at": _moment_json(member.connected_at),
                    **entry(member, "active", "waiting"),
                }
                for member in self.status.members
            ],
            parked=self.parked,
            ignored_entries=self.ignored_entries,
            findings=[finding_entry(finding, "kind", "queues=names") for finding in self.findings],
        )

    def metrics(self) -> Iterator[Gauge]:
        """Yield the metrics."""
        of_group = {"broker": self.address, "vhost": self.vhost, "group": self.exchange}
        queues = [({**of_group, "queue": queue.name}, queue) for queue in self.status.queues]
        yield Gauge(
            "rabbit_chx_group_ready_messages",
            "The number of messages of a queue that wait.",
            [(labels, queue.ready) for labels, queue in queues if queue.ready is not None],
        )
        yield Gauge(
            "rabbit_chx_group_active_consumers",
            "The number of consumers of a queue that the broker delivers to.",
            [(labels, len(queue.active)) for labels, queue in queues],
        )
        yield _members_gauge(of_group, len(self.status.members))


@dataclass(frozen=True, slots=True)
class StreamGroupReport:
    """The streams and members of a StreamGroup; `address` is the broker's host and port."""

    address: str
    group: str
    vhost: str
    streams: Sequence[StreamShare]
    members: Sequence[StreamMember]
    ignored_entries: int = 0

    def blocks(self) -> Iterator[Block]:
        """Return a few facts about the group, its streams and its members."""
        counts = f"{plural(len(self.streams), 'stream')}, {plural(len(self.members), 'member')}"
        facts = [("stream group", self.group), ("vhost", self.vhost), ("group", counts)]
        yield Facts(facts + _ignored_facts(self.ignored_entries))
        rows = [
            (
                stream.stream,
                stream.assigned or _UNKNOWN,
                stream.active or _UNKNOWN,
                or_dash(stream.generation),
                or_dash(stream.stored),
                stream.lag_rows,
                round(stream.lag_s),
            )
            for stream in self.streams
        ]
        total = ("all", "", "", "", "", sum(stream.lag_rows for stream in self.streams), "")
        counted = numbers("generation", "stored", "lag rows", "lag s")
        yield Table([*texts("stream", "assigned", "active"), *counted], rows, total)
        if self.members:
            yield Table(
                [*texts("member", "last heard"), *numbers("assigned")],
                [(member.name, _moment(member.heard_at), member.assigned) for member in self.members],
            )

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/stream-group``."""
        fields = ("stream", "assigned", "active", "generation", "stored", "lag_rows", "lag_s")
        return document(
            "stream-group",
            **entry(self, "group", "vhost", "ignored_entries"),
            streams=[entry(stream, *fields) for stream in self.streams],
            members=[
                {**entry(member, "name", "weight", "assigned"), "heard_at": _moment_json(member.heard_at)}
                for member in self.members
            ],
        )

    def metrics(self) -> Iterator[Gauge]:
        """Yield the metrics."""
        of_group = {"broker": self.address, "vhost": self.vhost, "group": self.group}
        yield from lag_gauges(of_group, self.streams)
        yield _members_gauge(of_group, len(self.members))


def _ignored_facts(count: int) -> list[tuple[str, str]]:
    return [("ignored", f"{plural(count, 'message')} of the journal that no group wrote")] if count else []


def _members_gauge(of_group: Mapping[str, str], count: int) -> Gauge:
    return Gauge("rabbit_chx_group_members", "The number of members of a group.", [(of_group, count)])


def _moment(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"


def _moment_json(seconds: float | None) -> str | None:
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )


@command(
    example="rabbit-chx group show orders --management-url http://localhost:15672",
    has_metrics=True,
)
def show(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, required=True, type=TEXT, metavar="EXCHANGE..."),
    journal: str = option(
        default=JOURNAL,
        show_default=True,
        type=TEXT,
        metavar="NAME",
        help="The stream that contains the journal of the group.",
    ),
    stream_group: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="The name of a StreamGroup: show its streams and their lag, without the management API. Each EXCHANGE is then a super "
        "stream, an exchange of streams, or a stream.",
    ),
    address: tuple[str, ...] = address_option(),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Show the queues of EXCHANGE, or of its slots, and their consumers. Nothing is changed.

    The consumer tags that ConsumerGroup sets identify the members of a group. The journal of the group
    contains the time of the last switch and the weights of the members. Values of the management API are up
    to 5 s old; if a queue has consumers but none is active, the command retries for 6 s.
    """
    at = broker.live(streams=stream_group is not None)
    if stream_group is not None:
        return Outcome(_stream_group(at, exchanges, stream_group, journal, address))
    if len(exchanges) > 1:
        raise InputError(
            f"the exchanges {', '.join(exchanges)} are given: give one, or --stream-group NAME for a group of streams"
        )
    (exchange,) = exchanges
    management = at.management("AMQP alone shows neither bindings nor consumers")
    names, release = _names(management, at.settings.vhost, exchange)
    queues, status = _read(management, at.settings.vhost, names)
    parking = f"{exchange}.park"
    parked = next((queue.get("messages_ready") for queue in queues if queue["name"] == parking), None)
    roster, ignored = _roster(at.settings, journal, queues)
    switches = {queue: claim.at for queue, claim in roster.claims.items() if queue in names}
    weights = {name: member.weight for name, member in roster.members.items()}
    findings = group_findings(status, release, weights)
    return Outcome(
        GroupReport(
            at.address, exchange, at.settings.vhost, release, status, findings, switches, parked, ignored
        )
    )


def _stream_group(
    at: BrokerAddresses, names: Sequence[str], group: str, journal: str, address: tuple[str, ...]
) -> StreamGroupReport:
    from rabbit_chx.consuming.stream_status import read_stream_group

    settings, addresses = stream_settings(at.settings), parse_addresses(address)
    with closing(StreamConnection(settings)) as connection:
        streams = [stream.name for stream in places_of(connection, names)]
    shares, members, ignored = read_stream_group(settings, group, streams, journal, addresses)
    return StreamGroupReport(at.address, group, settings.vhost, shares, members, ignored)


def _names(management: Management, vhost: str, exchange: str) -> tuple[list[str], Release]:
    live = LiveExchange(management, vhost, exchange)
    of_slots: list[str] = []
    if live.type == MODULUS_EXCHANGE:
        places = live.key_map().destinations
    else:
        places = live.ring.destinations
        of_slots = [queue for queues in live.slots.queues.values() for queue in queues]
    names = list(dict.fromkeys([*(place for place in places if isinstance(place, str)), *of_slots]))
    if not names:
        raise EmptyRingError(
            f"exchange {exchange!r} has no bound queue to consume from: bind one", exchange=exchange
        )
    return names, live.release


def _roster(
    settings: ConnectionSettings, journal: str, queues: Iterable[Mapping[str, Any]]
) -> tuple[Roster, int]:
    """Return what `read_roster` does; empty if the journal is not given or cannot be read."""
    if any((queue["name"], queue.get("type")) == (journal, "stream") for queue in queues):
        try:
            return read_roster(settings, journal)
        except RabbitChxError as error:
            say(f"the journal {journal!r} cannot be read, so the last switch is not known: {error}")
    return Roster(), 0


def _read(
    management: Management, vhost: str, names: Sequence[str]
) -> tuple[list[dict[str, Any]], GroupStatus]:
    """Read the queues of the vhost and the group; read again for some seconds if no consumer is active."""
    queues, status = _read_once(management, vhost, names)
    deadline = time.monotonic() + _STALE_S
    if status.nobody_active:
        say(
            "some queues have consumers, and none is active; the data of the API may be 5 s old: requesting it again"
        )
    while status.nobody_active and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        queues, status = _read_once(management, vhost, names)
    return queues, status


def _read_once(
    management: Management, vhost: str, names: Sequence[str]
) -> tuple[list[dict[str, Any]], GroupStatus]:
    queues = management.request("GET", "queues", vhost, query=_QUEUES)
    consumers = management.request("GET", "consumers", vhost)
    columns = {"columns": "name,connected_at"}
    connections = management.request("GET", "vhosts", vhost, "connections", query=columns)
    return queues, GroupStatus.of(names, queues, consumers, connections)


def read_roster(settings: ConnectionSettings, journal: str) -> tuple[Roster, int]:
    """Return the roster in a journal, and the number of entries that cannot be read.

    The journal is read from its first entry to the current end, for at most 10 s.
    """
    roster, ignored = Roster(), 0
    began, last_at, heard = time.time(), 0.0, time.monotonic()

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal last_at, heard, ignored
        heard = time.monotonic()
        for found in entries_in(body):
            if found is None:
                ignored += 1
            else:
                last_at = found.at
                roster.take(int(properties.headers["x-stream-offset"]), found)
        if method.delivery_tag % (_PREFETCH // 2) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)

    connection = PikaConnection(settings)
    try:
        with connection.channel() as channel:
            channel.basic_qos(prefetch_count=_PREFETCH)
            channel.basic_consume(journal, take, arguments={"x-stream-offset": "first"})
            deadline = time.monotonic() + _LONGEST_S
            # Running members write all the time; without them the stream is at its end when no entry arrives.
            while last_at < began and time.monotonic() < min(deadline, heard + _IDLE_S):
                connection.process(0.1)
    finally:
        connection.close()
    return roster, ignored
