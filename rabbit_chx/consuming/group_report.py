"""The report of a group: its queues or streams, their consumers, and their backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Self

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import finding_as_json, moment_as_json, moment_text
from rabbit_chx.consuming.status import MemberStatus, QueueStatus
from rabbit_chx.rendering.document import Data, Document, Facts, Gauge, Line, Part, Table, gauges_of
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


def group_report(
    address: str,
    exchange: str,
    vhost: str,
    release: Release,
    *,
    queues: Sequence[ShownQueue],
    members: Sequence[MemberStatus],
    parked: int | None,
    ignored_entries: int | None,
    findings: Sequence[Finding],
    has_group: bool,
    order_not_checked: str | None = None,
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
        ignored_entries: the number of entries of the journal that cannot be read; None if the journal cannot be.
        findings: the findings.
        has_group: whether a group was found, or its journal named; without one the findings about groups are left out.
        order_not_checked: why the traffic of the queues was not compared with their shares; None if it was.
    """
    is_seen = all(queue.active is not None for queue in queues)
    seen = plural(len(members), "member") if is_seen else "members not visible"
    facts = [("exchange", exchange), ("vhost", vhost), ("broker", f"RabbitMQ {release}")]
    facts.append(("group", f"{plural(len(queues), 'queue')}, {seen}"))
    if not is_seen:
        facts.append(("consumers", _OF_OTHERS))
    facts += [] if parked is None else [("parked", plural(parked, "message"))]
    facts += _facts_of_ignored(ignored_entries)
    listed = [finding_as_json(finding, queues=finding.names) for finding in findings]
    of_group = "those about a group, " + ("which is not visible" if has_group else "since there is none")
    of_traffic = "those about traffic, since the order of the ring is not known"
    left_out = [
        *([] if has_group and is_seen else [of_group]),
        *([] if order_not_checked is None else [of_traffic]),
    ]
    count = f"{len(findings) or 'none'} in {plural(len(queues), 'queue')}"
    parts: list[Part] = [
        Data({"exchange": exchange, "vhost": vhost, "version": release.version, "determined": is_seen}),
        Facts([*facts, ("findings", ", without ".join(filter(None, (count, " and ".join(left_out)))))]),
        *(
            Facts([*((finding.kind, finding.message) for finding in alike), ("fix", fix)])
            for fix, alike in groupby(findings, key=lambda finding: finding.fix)
        ),
        Table.of(ShownQueue, queues, key="queues", total=True),
        Table.of(MemberStatus, members, key="members").for_people(members)
        if is_seen
        else Data({"members": None}),
        Data({"parked": parked, "ignored_entries": ignored_entries}),
        Data({"findings": listed, "order_not_checked": order_not_checked}),
    ]
    if members and all(queue.last_switch is None for queue in queues):
        parts.append(
            Line(
                "The last switch is not known: RabbitMQ does not store it, and the journal of the members was not read."
            )
        )
    labels = {"broker": address, "vhost": vhost, "group": exchange}
    gauges = gauges_of(ShownQueue, [({**labels, "queue": queue.name}, queue) for queue in queues])
    counted = (_members_gauge(labels, len(members)),) if is_seen else ()
    return Document("group", parts, (*gauges, *counted))


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


def _facts_of_ignored(count: int | None) -> list[tuple[str, str]]:
    return [("ignored", f"{plural(count, 'message')} of the journal that no group wrote")] if count else []


def _members_gauge(of_group: Mapping[str, str], count: int) -> Gauge:
    return Gauge("rabbit_chx_group_members", "The number of members of a group.", [(of_group, count)])
