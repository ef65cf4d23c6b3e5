"""``rabbit-chx show --consumers``: the consumers of a hash exchange's queues, or the members of a StreamGroup, and their backlog."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.header_table import properties_in
from rabbit_chx.broker.exchange_report import uneven_traffic
from rabbit_chx.broker.live_exchange import LiveExchange
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.publish_rates import read_rates
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.cli.command import check_one, say
from rabbit_chx.cli.stream_options import GroupOptions, parse_addresses
from rabbit_chx.consuming.group_report import ShownQueue, group_report, stream_group_report
from rabbit_chx.consuming.journal import JOURNAL, Roster, entries_in
from rabbit_chx.consuming.status import GroupStatus, group_findings
from rabbit_chx.errors import EmptyRingError, RabbitChxError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.topology.objects.objects import MODULUS_EXCHANGE

#: The management API's data is up to 5 s old.
_STALE_S = 6.0
_POLL_S = 1.0
#: The tags of a user who sees the consumers of all users.
_SEEING = {"administrator", "monitoring"}
_PREFETCH = 1_000  # entries of the journal
_LONGEST_S = 10.0
_IDLE_S = 1.0
#: Counts without the cost of statistics, from 3.10 on; older releases ignore the first two.
_QUEUES = {
    "disable_stats": "true",
    "enable_queue_totals": "true",
    "columns": "name,type,arguments,messages_ready,messages_unacknowledged",
}


def consumers_report(at: BrokerAddresses, exchanges: Sequence[str], group: GroupOptions) -> Document:
    """Return the queues of an exchange, or of its slots, and their consumers; or the streams of a StreamGroup and its members."""
    journal = group.journal or JOURNAL
    if group.stream_group is not None and exchanges:
        return _stream_group(at, exchanges, group.stream_group, journal, group.address)
    check_one("--consumers", exchanges)
    (exchange,) = exchanges
    why = "AMQP alone shows neither bindings nor consumers"
    management = at.management(why)
    with sign_of_life("reading the queues and their consumers"):
        names, live = _names(at, exchange, why)
        rates = read_rates(management, at.settings.vhost, [exchange])[exchange]
        queues, status = _read(management, at.settings.vhost, names)
        counted = status.counted({name: backlog[-1] for name, backlog in rates.backlogs.items()})
        if not (counted.is_seen or _sees_others(management)):
            status = counted
        key_map = live.key_map()
    parking = f"{exchange}.park"
    parked = next((queue.get("messages_ready") for queue in queues if queue["name"] == parking), None)
    with sign_of_life(f"reading the journal {journal}"):
        roster, ignored = _roster(at.settings, journal, queues)
    switches = {queue: claim.at for queue, claim in roster.claims.items() if queue in names}
    weights = {name: member.weight for name, member in roster.members.items()}
    release = live.release
    has_group = bool(group.journal or status.members or switches)  # a journal has other groups, too
    findings = [*group_findings(status, release, weights, has_group=has_group)]
    unknown = key_map.ground.text if key_map.ground.is_assumed else None
    findings += uneven_traffic(exchange, key_map, rates) if unknown is None else []
    return group_report(
        at.address,
        exchange,
        at.settings.vhost,
        release,
        queues=[ShownQueue.of(queue, switches.get(queue.name)) for queue in status.queues],
        members=status.members,
        parked=parked,
        ignored_entries=ignored,
        findings=findings,
        has_group=has_group,
        order_not_checked=unknown,
    )


def _sees_others(management: Management) -> bool:
    """Return True for a user to whom the broker lists the consumers of other users' connections, too."""
    tags = management.request("GET", "whoami").get("tags") or ()
    return not _SEEING.isdisjoint(tags.split(",") if isinstance(tags, str) else tags)


@sign_of_life("reading the streams of the group")
def _stream_group(
    at: BrokerAddresses, names: Sequence[str], group: str, journal: str, address: tuple[str, ...]
) -> Document:
    from rabbit_chx.consuming.stream_status import find_streams, read_stream_group

    settings, addresses = stream_settings(at.settings), parse_addresses(address)
    with closing(StreamConnection(settings)) as connection:
        streams = find_streams(connection, names)
    shares, members, ignored = read_stream_group(settings, group, streams, journal, addresses)
    return stream_group_report(at.address, group, settings.vhost, shares, members, ignored_entries=ignored)


def _names(at: BrokerAddresses, exchange: str, why: str) -> tuple[list[str], LiveExchange]:
    live = replace(at, ring_source=None).exchange(exchange, why)  # the order does not matter
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
    return names, live


def _roster(
    settings: ConnectionSettings, journal: str, queues: Iterable[Mapping[str, Any]]
) -> tuple[Roster, int | None]:
    """Return what `read_roster` does; empty if there is no journal, without a count if it cannot be read."""
    if any((queue["name"], queue.get("type")) == (journal, "stream") for queue in queues):
        try:
            return read_roster(settings, journal)
        except RabbitChxError as error:
            say(Fix(f"the journal {journal!r} cannot be read, so the last switch is not known: ", str(error)))
            return Roster(), None
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
