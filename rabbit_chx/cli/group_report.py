"""A group for people and as JSON: its queues, its members, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.notation import plural
from rabbit_chx.rendering import Block, Facts, Line, Table, TableColumn

if TYPE_CHECKING:
    from rabbit_chx.analysis import Finding
    from rabbit_chx.consuming import GroupStatus
    from rabbit_chx.routing import Release

__all__ = ["GroupReport"]

_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group over the queues of an exchange.

    Attributes:
        exchange: the exchange.
        vhost: its vhost.
        release: the release of the broker.
        status: the group.
        findings: what is wrong with it.
        switches: when each queue last got another active member, in seconds since 1970, as the members tell it; a queue of which
            nobody tells is missing.
        parked: how many messages wait in the parking queue; None where there is no such queue.
    """

    exchange: str
    vhost: str
    release: Release
    status: GroupStatus
    findings: tuple[Finding, ...]
    switches: Mapping[str, float]
    parked: int | None = None

    def blocks(self) -> Iterator[Block]:
        """Return the group in a few facts, its queues, its members, and each finding with its cure."""
        status = self.status
        size = f"{plural(len(status.queues), 'queue')}, {plural(len(status.members), 'member')}"
        facts = [
            ("exchange", self.exchange),
            ("vhost", self.vhost),
            ("broker", f"RabbitMQ {self.release}"),
            ("group", size),
        ]
        if self.parked is not None:
            facts.append(("parked", plural(self.parked, "message")))
        yield Facts([*facts, ("warnings", f"{len(self.findings)}" if self.findings else "none")])
        yield self._queues_table()
        if status.members:
            yield Table(
                [_text("member"), _text("connected"), TableColumn("active"), TableColumn("waiting")],
                [
                    (one.name, _moment(one.connected_at), len(one.active), len(one.waiting))
                    for one in status.members
                ],
            )
        for finding in self.findings:
            yield Facts([(finding.kind, finding.says), ("cure", finding.cure)])
        if status.members and not self.switches:
            yield Line(
                "The last switch is not known: RabbitMQ does not keep it, and no journal of the members tells it."
            )

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/group``."""
        return {
            "format": "rabbit-chx/group",
            "format_version": 1,
            "exchange": self.exchange,
            "vhost": self.vhost,
            "version": self.release.version,
            "queues": [
                {
                    "name": one.name,
                    "type": one.type,
                    "single_active_consumer": one.single_active,
                    "ready": one.ready,
                    "unacked": one.unacked,
                    "active": [each.name for each in one.active],
                    "waiting": [each.name for each in one.consumers if not each.active],
                    "last_switch": _moment_json(self.switches.get(one.name)),
                }
                for one in self.status.queues
            ],
            "members": [
                {
                    "name": one.name,
                    "connected_at": _moment_json(one.connected_at),
                    "active": list(one.active),
                    "waiting": list(one.waiting),
                }
                for one in self.status.members
            ],
            "parked": self.parked,
            "findings": [
                {"kind": one.kind, "queues": list(one.names), "says": one.says, "cure": one.cure}
                for one in self.findings
            ],
        }

    def _queues_table(self) -> Table:
        queues = self.status.queues
        rows = [
            (
                one.name,
                _count(one.ready),
                _count(one.unacked),
                len(one.consumers),
                ", ".join(each.name for each in one.active) or _UNKNOWN,
                _moment(self.switches.get(one.name)),
            )
            for one in queues
        ]
        total = (
            "all",
            f"{sum(one.ready or 0 for one in queues):,}",
            f"{sum(one.unacked or 0 for one in queues):,}",
            sum(len(one.consumers) for one in queues),
            "",
            "",
        )
        columns = [
            _text("queue"),
            TableColumn("ready"),
            TableColumn("unacked"),
            TableColumn("consumers"),
            _text("active"),
            _text("last switch"),
        ]
        return Table(columns, rows, total)


def _text(heading: str) -> TableColumn:
    return TableColumn(heading, numeric=False)


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _moment(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"


def _moment_json(seconds: float | None) -> str | None:
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )
