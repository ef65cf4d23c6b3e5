"""The report of a group: its queues or streams, their consumers, and their backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rabbit_chx.analysis.wording import moment_as_json, moment_text
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.checking.group_status import GroupStatus, MemberStatus, QueueStatus
from rabbit_chx.rendering.document import Data, Document, Facts, Gauge, Line, Part, Table, gauges_of
from rabbit_chx.result_fields import Metric, shown
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.words import plural

if TYPE_CHECKING:
    from rabbit_chx.consuming.stream_status import StreamShare

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
    parts: list[Part] = [
        Data({"exchange": exchange, "vhost": vhost, "version": release.version, "determined": is_seen}),
        Facts([*facts, ("findings", found.count_found + without)]),
        *found.blocks(),
        Table.of(ShownQueue, queues, key="queues", total=True),
        Table.of(MemberStatus, members, key="members").for_people(members)
        if is_seen
        else Data({"members": None}),
        Data({"parked": parked, "ignored_entries": ignored_entries}),
        Data(
            {
                "findings": found.findings_as_json(),
                "consumers_not_checked": found.consumers_not_checked or None,
                "order_not_checked": found.why_not_determined(exchange),
            }
        ),
    ]
    if members and all(queue.last_switch is None for queue in queues):
        parts.append(
            Line(
                "The last switch is not known: RabbitMQ does not store it, and the journal of the members was not read."
            )
        )
    labels = {"broker": address, "vhost": vhost, "group": exchange}
    gauges = gauges_of(ShownQueue, [({**labels, "queue": queue.name}, queue) for queue in queues])
    # Where nobody runs a group, no alert may say that a group has no members.
    has_group = bool(members or switches)
    counted = (_members_gauge(labels, len(members)),) if is_seen and has_group else ()
    return Document("group", parts, (*gauges, *counted))


def stream_group_report(address: str, group: str, vhost: str, streams: Sequence[StreamShare]) -> Document:
    """Return the streams of a StreamGroup; `address` is the broker's host and port."""
    # It needs pyarrow, which is not installed where only queues are consumed.
    from rabbit_chx.consuming.stream_status import StreamShare

    facts = [("stream group", group), ("vhost", vhost), ("group", plural(len(streams), "stream"))]
    labels = {"broker": address, "vhost": vhost, "group": group}
    gauges = gauges_of(StreamShare, [({**labels, "stream": share.stream}, share) for share in streams])
    return Document(
        "stream-group",
        [
            Data({"group": group, "vhost": vhost}),
            Facts(facts),
            Table.of(StreamShare, streams, key="streams", total=True),
        ],
        tuple(gauges),
    )


def _facts_of_ignored(count: int | None) -> list[tuple[str, str]]:
    return [("ignored", f"{plural(count, 'message')} of the journal that no group wrote")] if count else []


def _members_gauge(of_group: Mapping[str, str], count: int) -> Gauge:
    return Gauge("rabbit_chx_group_members", "The number of members of a group.", [(of_group, count)])
