"""The report of a group: its queues or streams, their consumers, and their backlog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import finding_as_json, moment_as_json, moment_text
from rabbit_chx.consuming.status import MemberStatus
from rabbit_chx.rendering import Data, Document, Facts, Gauge, Line, Part, Table, gauges_of
from rabbit_chx.result_fields import Metric, shown
from rabbit_chx.routing import Release
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.consuming.stream_status import StreamMember, StreamShare

_READY = Metric("rabbit_chx_group_ready_messages", "The number of messages of a queue that wait.")
_ACTIVE = Metric(
    "rabbit_chx_group_active_consumers",
    "The number of consumers of a queue that the broker delivers to.",
    len,
)


def _names_or_dash(names: Sequence[str]) -> str:
    return ", ".join(names) or "-"


@dataclass(frozen=True, slots=True)
class ShownQueue:
    """A queue of a group: `active` and `waiting` are members or consumer tags, `last_switch` is in seconds since 1970."""

    name: str = field(metadata=shown("queue"))
    type: str | None
    single_active_consumer: bool
    ready: int | None = field(metadata=shown("ready", number=True, summed=True, metric=_READY))
    unacked: int | None = field(metadata=shown("unacked", number=True, summed=True))
    consumers: int = field(metadata=shown("consumers", number=True, summed=True, json=None))
    active: Sequence[str] = field(metadata=shown("active", _names_or_dash, metric=_ACTIVE))
    waiting: Sequence[str]
    last_switch: float | None = field(metadata=shown("last switch", moment_text, as_json=moment_as_json))


def group_report(
    address: str,
    exchange: str,
    vhost: str,
    release: Release,
    *,
    queues: Sequence[ShownQueue],
    members: Sequence[MemberStatus],
    parked: int | None,
    ignored_entries: int,
    findings: Sequence[Finding],
) -> Document:
    """Return a group over the queues of an exchange.

    Args:
        address: the broker's host and port.
        exchange: the exchange.
        vhost: its vhost.
        release: the release of the broker.
        queues: the queues.
        members: the members.
        parked: the number of messages in the parking queue; None without a parking queue.
        ignored_entries: the number of entries of the journal that cannot be read.
        findings: the warnings.
    """
    facts = [
        ("exchange", exchange),
        ("vhost", vhost),
        ("broker", f"RabbitMQ {release}"),
        ("group", f"{plural(len(queues), 'queue')}, {plural(len(members), 'member')}"),
    ]
    if parked is not None:
        facts.append(("parked", plural(parked, "message")))
    facts += _facts_of_ignored(ignored_entries)
    warnings = [finding_as_json(finding, queues=finding.names) for finding in findings]
    parts: list[Part] = [
        Data({"exchange": exchange, "vhost": vhost, "version": release.version}),
        Facts([*facts, ("warnings", f"{len(findings)}" if findings else "none")]),
        Table.of(ShownQueue, queues, key="queues", total=True),
        Table.of(MemberStatus, members, key="members").for_people(members),
        Data({"parked": parked, "ignored_entries": ignored_entries, "findings": warnings}),
        *_findings_by_fix(findings),
    ]
    if members and all(queue.last_switch is None for queue in queues):
        parts.append(
            Line(
                "The last switch is not known: RabbitMQ does not store it, and the journal of the members was not read."
            )
        )
    of_group = {"broker": address, "vhost": vhost, "group": exchange}
    gauges = gauges_of(ShownQueue, [({**of_group, "queue": queue.name}, queue) for queue in queues])
    return Document("group", parts, (*gauges, _members_gauge(of_group, len(members))))


def _findings_by_fix(findings: Sequence[Finding]) -> Iterator[Facts]:
    """Yield the findings, with each fix once."""
    by_fix: dict[str, list[tuple[str, str]]] = {}
    for finding in findings:
        by_fix.setdefault(finding.fix, []).append((finding.kind, finding.message))
    for fix, found in by_fix.items():
        yield Facts([*found, ("fix", fix)])


def stream_group_report(
    address: str,
    group: str,
    vhost: str,
    streams: Sequence[StreamShare],
    members: Sequence[StreamMember],
    *,
    ignored_entries: int = 0,
) -> Document:
    """Return the streams and members of a StreamGroup; `address` is the broker's host and port."""
    # It needs pyarrow, which is not installed where only queues are consumed.
    from rabbit_chx.consuming.stream_status import StreamMember, StreamShare

    counts = f"{plural(len(streams), 'stream')}, {plural(len(members), 'member')}"
    facts = [("stream group", group), ("vhost", vhost), ("group", counts)]
    of_group = {"broker": address, "vhost": vhost, "group": group}
    gauges = gauges_of(StreamShare, [({**of_group, "stream": share.stream}, share) for share in streams])
    return Document(
        "stream-group",
        [
            Data({"group": group, "vhost": vhost}),
            Facts(facts + _facts_of_ignored(ignored_entries)),
            Table.of(StreamShare, streams, key="streams", total=True),
            Table.of(StreamMember, members, key="members").for_people(members),
            Data({"ignored_entries": ignored_entries}),
        ],
        (*gauges, _members_gauge(of_group, len(members))),
    )


def _facts_of_ignored(count: int) -> list[tuple[str, str]]:
    return [("ignored", f"{plural(count, 'message')} of the journal that no group wrote")] if count else []


def _members_gauge(of_group: Mapping[str, str], count: int) -> Gauge:
    return Gauge("rabbit_chx_group_members", "The number of members of a group.", [(of_group, count)])
