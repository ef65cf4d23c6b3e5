"""What shows the order of the rings of a broker: records, the mark that proves them, and what its user may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rabbit_chx.records.mark import Mark
from rabbit_chx.records.pending_apply import PendingApply, PlannedSteps
from rabbit_chx.records.ring_records import RingRecord, record_name, why_void
from rabbit_chx.routing import HashRing
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects.objects import RingMember


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
        records: the records of rings, by the exchanges that they are about.
        damaged: what is wrong with the records that cannot be read, by their names.
        pending: the apply that has begun and not ended.
        mark: the mark of the vhost, which proves the records.
        is_administrator: True if the user has the tag ``administrator``, which tracing takes.
    """

    records: Mapping[str, RingRecord] = field(default_factory=dict, hash=False)
    damaged: Mapping[str, str] = field(default_factory=dict, hash=False)
    pending: PendingApply | None = None
    mark: Mark = field(default_factory=Mark)
    is_administrator: bool = False

    @property
    def means(self) -> Means:
        """How the user may learn the order of a ring."""
        return Means(self.is_administrator, "" if self.mark.holds else self.mark.policies)

    def steps_of(self, exchange: str) -> PlannedSteps | None:
        """Return the steps of a ring that may not all be done; None if it has none, or a record that was stored since the begin."""
        planned = None if self.pending is None else self.pending.rings.get(exchange)
        record = self.records.get(exchange)
        is_over = planned and record and record.number >= planned.record.number
        return None if is_over else planned

    def about(self, exchange: str) -> tuple[object, ...]:
        """Return what is kept of a ring: to see whether it changes."""
        name = record_name(exchange)
        return self.records.get(exchange), self.damaged.get(name), self.steps_of(exchange)

    def proves(self, exchange: str, ring: HashRing, bound: Iterable[RingMember]) -> bool:
        """Return True if the record of an exchange proves its ring, so that it is known without a ring source."""
        record = self.records.get(exchange)
        if record is None or self.steps_of(exchange) is not None or record.ring.buckets != ring.buckets:
            return False
        return not why_void(record, bound, ring.release, self.mark)

    def following(self, record: RingRecord) -> RingRecord:
        """Return a new record of a ring with the number after the former one, or after that which an apply that has not ended keeps."""
        former = self.records.get(record.exchange)
        planned = self.steps_of(record.exchange)
        if planned is not None:
            return planned.followed_by(record)
        if former is None:
            return record
        return replace(record, number=former.number + 1)


def evidence_of(live: LiveTopology) -> Evidence:
    """Return what shows the order of the rings of a broker."""
    found = live.facts.evidence
    return found if isinstance(found, Evidence) else Evidence()
