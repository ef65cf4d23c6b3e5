"""What shows the order of the rings of a broker: records, the mark that proves them, and what its user may do."""

from __future__ import annotations

from dataclasses import dataclass, field

from rabbit_chx.records.mark import Mark
from rabbit_chx.records.pending_apply import Kept, PendingApply
from rabbit_chx.records.ring_records import Records
from rabbit_chx.topology.model import LiveTopology


@dataclass(frozen=True, slots=True)
class Means:
    """How the user of a broker may learn the order of a ring and keep it, beside ``rabbitmqctl``.

    Attributes:
        can_trace: True if the user has the tag ``administrator``, which tracing takes.
        voids: the policies because of which no record lasts, in words; empty if one may last.
    """

    can_trace: bool = False
    voids: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows the order of the rings of a broker.

    Attributes:
        records: the records of rings, by the names of the exchanges that contain them.
        pending: the apply that has begun and not ended.
        mark: the mark of the vhost, which proves the records.
        is_administrator: True if the user has the tag ``administrator``, which tracing takes.
    """

    records: Records = field(default_factory=dict, hash=False)
    pending: PendingApply | None = None
    mark: Mark = field(default_factory=Mark)
    is_administrator: bool = False

    @property
    def means(self) -> Means:
        """How the user may learn the order of a ring."""
        return Means(self.is_administrator, "" if self.mark.holds else self.mark.policies)

    @property
    def kept(self) -> Kept:
        """What the broker keeps of rings."""
        return Kept(self.records, self.pending)


def evidence_of(live: LiveTopology) -> Evidence:
    """Return what shows the order of the rings of a broker."""
    found = live.facts.evidence
    return found if isinstance(found, Evidence) else Evidence()
