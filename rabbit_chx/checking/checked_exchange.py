"""What a check knows: its context, and an exchange that it checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rabbit_chx.analysis import Finding
from rabbit_chx.checking.dead_letters import DeadLetters
from rabbit_chx.command_texts import first_command
from rabbit_chx.planning.diff import Comparison, Unwanted
from rabbit_chx.planning.refusals import REMAKE_RINGS, apply_fix, repair_fix
from rabbit_chx.planning.slot_layout import SlotLayout
from rabbit_chx.records.live_rings import LiveRing, find_recorded
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.objects import BindingDefinition, ExchangeDefinition, RingMember
from rabbit_chx.topology.rules.plugin_objects import federation_links
from rabbit_chx.topology.rules.reach import Reach, UnroutableKeys, transient_destinations
from rabbit_chx.topology.slots.owners import repair_members
from rabbit_chx.topology.slots.slot_view import SlotView, view_slots


@dataclass(frozen=True)
class CheckContext:
    """What is the same for all findings of a check: the two sides, its settings, and what follows from the live side.

    Attributes:
        compared: the comparison with the topology; None without one.
        file: the name of the topology's file, for the commands in the fixes; None if it is not known.
        is_selected: True if only some exchanges are checked.
    """

    live: LiveTopology
    compared: Comparison | None = None
    file: str | None = None
    is_selected: bool = False

    @property
    def wanted(self) -> Topology | None:
        """The topology, with plain objects instead of slots; None without one."""
        return None if self.compared is None else self.compared.wanted

    @property
    def release(self) -> Release:
        """The release of the broker; the newest one if it is not known."""
        return self.live.release or NEWEST_COMPARED

    @cached_property
    def listed_queues(self) -> frozenset[str]:
        """The queues of the topology."""
        return frozenset(queue.name for queue in (() if self.wanted is None else self.wanted.queues))

    @cached_property
    def unwanted_bindings(self) -> Mapping[BindingDefinition, Unwanted | None]:
        """What each live binding is that the topology does not contain."""
        return {} if self.compared is None else dict(self.compared.bindings)

    @cached_property
    def reach(self) -> Reach:
        """Where messages get to."""
        return Reach(self.live)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Where rejected and expired messages, and those without a destination, go."""
        return DeadLetters(self.live, self.reach)

    @cached_property
    def transient(self) -> Mapping[Destination, str]:
        """The destinations that the broker deletes automatically, with the reason."""
        return transient_destinations(self.live)

    @cached_property
    def links(self) -> Collection[Destination]:
        """The exchanges and queues of federation links."""
        return federation_links(self.live)


@dataclass(frozen=True)
class CheckedExchange:
    """A hash exchange that is checked. The context has what it shares with others."""

    exchange: ExchangeDefinition
    ring: HashRing
    context: CheckContext

    @property
    def name(self) -> str:
        """The exchange's name."""
        return self.exchange.name

    @property
    def live(self) -> LiveTopology:
        """The live side."""
        return self.context.live

    @property
    def bound(self) -> tuple[RingMember, ...]:
        """The exchange's bindings."""
        return self.exchange.ring or ()

    @property
    def listed(self) -> ExchangeDefinition | None:
        """The exchange in the topology, with plain objects instead of slots; None if the topology does not contain it."""
        return None if self.context.compared is None else self.context.compared.wanted.exchange(self.name)

    @property
    def layout(self) -> SlotLayout | None:
        """Its slots in the topology; None without slots."""
        return None if self.context.compared is None else self.context.compared.layouts.get(self.name)

    @property
    def file(self) -> str | None:
        """The name of the topology's file; None if the topology does not contain the exchange."""
        return None if self.listed is None else self.context.file

    @property
    def is_unordered(self) -> bool:
        """True if the topology does not have the order of its ring, as a definitions file."""
        return self.context.compared is not None and self.context.compared.wanted.is_unordered(self.name)

    @property
    def external(self) -> bool:
        """True if the topology marks the exchange as external."""
        return self.listed is not None and self.listed.owner == "external"

    @cached_property
    def shares(self) -> dict[Place, float]:
        """The exact share of the keys at each destination; by weight, if the order is not known, and empty if they depend on that."""
        return self.ring.shares() if self.ring.has_shares else {}

    @cached_property
    def queues(self) -> dict[str, float]:
        """The queues of the ring and of its slots, with the exact share of the keys at each."""
        queues: dict[str, float] = {}
        for place in self.ring.destinations:
            for queue in (place,) if isinstance(place, str) else self.slots.queues.get(place, ()):
                queues[queue] = queues.get(queue, 0.0) + self.shares.get(place, 0.0)
        return queues

    @cached_property
    def unroutable(self) -> UnroutableKeys:
        """The keys that reach no queue."""
        return self.context.reach.unroutable_of(self.exchange, self.ring)

    @property
    def is_listed(self) -> bool:
        """True if the topology contains its ring."""
        return self.listed is not None and self.listed.ring is not None

    @cached_property
    def slots(self) -> SlotView:
        """The slots in the ring, with their bindings."""
        compared = self.context.compared if self.is_listed else None
        planned = None if compared is None else compared.wanted
        return view_slots(self.name, self.ring, self.live.exchanges, self.live.bindings, planned=planned)

    @cached_property
    def parks(self) -> dict[str, list[ExchangeRef]]:
        """The alternate exchanges of slots, with their slots."""
        exchanges = {exchange.name: exchange for exchange in self.live.exchanges}
        parks: dict[str, list[ExchangeRef]] = {}
        for slot in self.slots.queues:
            exchange = exchanges.get(slot.name)
            if exchange is not None and (park := self.context.reach.alternate_of(exchange)):
                parks.setdefault(park, []).append(slot)
        return parks

    @property
    def parked(self) -> dict[str, int]:
        """The number of messages in each parking queue."""
        queues = dict.fromkeys(
            binding.destination
            for binding in self.live.bindings
            if binding.source in self.parks and isinstance(binding.destination, str)
        )
        return {queue: self.live.facts.queues.messages.get(queue, 0) for queue in queues}

    @property
    def apply_command(self) -> str:
        """The command that applies the topology."""
        return apply_fix(self.file, external=self.external)

    @cached_property
    def wanted(self) -> tuple[RingMember, ...] | None:
        """The members of the topology; None if it does not have them in an order."""
        return None if self.listed is None or self.is_unordered else self.listed.ring

    @cached_property
    def repaired(self) -> tuple[RingMember, ...]:
        """The members that the ring has after a repair."""
        if self.wanted is not None:
            return self.wanted
        recorded = find_recorded(self.live, self.name)
        return repair_members(self.name, self.bound, self.ring if recorded is None else recorded.ring)

    @cached_property
    def needs_repair(self) -> bool:
        """True if a repair has steps."""
        return not LiveRing(self.name, self.ring, self.bound).is_made_by(self.repaired)

    @property
    def repair_command(self) -> str:
        """The command that repairs the ring; the one that applies the topology if that has its order, or if a repair has no steps.

        A ring whose order is not known cannot be repaired.
        """
        if self.wanted is not None or not self.needs_repair:
            return self.apply_command
        if not self.ring.ground.is_certain:
            return REMAKE_RINGS
        return repair_fix(self.name, external=self.external)

    def is_fixed_by_repair(self, finding: Finding) -> bool:
        """Return True if a repair of the ring is the fix of a finding."""
        return self.needs_repair and first_command(finding.fix) == first_command(self.repair_command)

    def finding(
        self, kind: str, message: str, fix: str, place: Place = None, share: float | None = None
    ) -> Finding:
        """Return a finding about the exchange."""
        return Finding(kind, message, fix, exchange=self.name, destination=place, share=share)

    def finding_about_slots(
        self, kind: str, message: str, fix: str, slots: Sequence[ExchangeRef], share: float | None = None
    ) -> Finding:
        """Return a finding about one slot or several."""
        found = self.finding(kind, message, fix, slots[0] if len(slots) == 1 else None, share)
        return replace(found, names=tuple(slot.name for slot in slots))
