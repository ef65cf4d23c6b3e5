"""``rabbit-chx show --consumers``: the consumers of a hash exchange's queues and their backlog, or the backlog of a StreamGroup."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.header_table import properties_in
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.checking.check import check
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.checking.group_status import GroupStatus
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.cli.command import check_one, say
from rabbit_chx.cli.stream_options import GroupOptions, parse_addresses
from rabbit_chx.consuming.group_report import group_report, stream_group_report
from rabbit_chx.consuming.journal import JOURNAL, Roster, entry_in
from rabbit_chx.errors import EmptyRingError, RabbitChxError
from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.topology import LiveTopology

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
    from rabbit_chx.consuming.stream_status import find_streams, read_stream_group

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
