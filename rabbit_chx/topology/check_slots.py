"""What is wrong with the slots of a live exchange: who has them, and where messages wait for want of a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.routing import Destination, ExchangeRef, Place
from rabbit_chx.topology.changes import fields_between
from rabbit_chx.topology.check_objects import differing_fields
from rabbit_chx.topology.objects import LiveSlots, order_of_name
from rabbit_chx.topology.slots import ALTERNATE_EXCHANGE, SlotLayout

if TYPE_CHECKING:
    from rabbit_chx.topology.findings import Cures
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.reach import Ways

__all__ = ["SlotCheck"]

_SHOWN = 3


@dataclass(frozen=True)
class SlotCheck:
    """The check of the slots of one exchange.

    Attributes:
        slots: the slots that are in its ring, with all that is bound to them.
        live: what is there.
        ways: the ways of messages.
        transient: the destinations that go by themselves, with the reason.
        cures: the words of cures.
        layout: the slots as the topology says them; None where it says none.
    """

    slots: LiveSlots
    live: Topology
    ways: Ways
    transient: Mapping[Destination, str]
    cures: Cures
    layout: SlotLayout | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        if self.layout is not None:
            yield from self._exchanges(self.layout)
        yield from self._without_queue()
        yield from self._with_several_queues()
        if self.layout is not None:
            yield from self._with_other_queues(self.layout)
        yield from self._without_alternate()
        yield from self._without_park()
        yield from self._parked()
        yield from self._transient()

    @property
    def _exchange(self) -> str:
        return self.slots.exchange

    @cached_property
    def _shares(self) -> Mapping[Place, float]:
        return self.slots.ring.shares()

    def _share(self, slots: Iterable[ExchangeRef]) -> float:
        return sum(self._shares.get(slot, 0.0) for slot in slots)

    @cached_property
    def _parks(self) -> dict[str, list[ExchangeRef]]:
        """The alternate exchanges of slots, with their slots."""
        there = {one.name: one for one in self.live.exchanges}
        found: dict[str, list[ExchangeRef]] = {}
        for slot in self.slots.queues:
            exchange = there.get(slot.name)
            if exchange is not None and (park := self.ways.alternate_of(exchange)):
                found.setdefault(park, []).append(slot)
        return found

    def _exchanges(self, layout: SlotLayout) -> Iterator[Finding]:
        """Yield which of the exchanges are missing or different, but for alternate exchanges."""
        there = {one.name: one for one in self.live.exchanges}
        wanted = [one for one in layout.exchanges() if one.name != self._exchange]
        if missing := [one.name for one in wanted if one.name not in there]:
            says = f"{_named(missing, 'the exchange', 'exchanges')} {'is' if len(missing) == 1 else 'are'} not there"
            yield self._found("missing", missing, None, says, self.cures.applied())
        for one in wanted:
            fields = [] if one.name not in there else fields_between(there[one.name], one)
            differing = [field for field in fields if field.field != f"arguments.{ALTERNATE_EXCHANGE}"]
            if differing:
                says, cure = (
                    f"exchange {one.name} differs: {differing_fields(differing)}",
                    f"{self.cures.applied()} --allow-delete",
                )
                yield self._found("different", [one.name], None, says, cure)

    def _without_queue(self) -> Iterator[Finding]:
        parked = {slot for slots in self._parks.values() for slot in slots}
        bare = [slot for slot, queues in self.slots.queues.items() if not queues and self.ways.exists(slot)]
        for waiting in (True, False):
            some = [slot for slot in bare if (slot in parked) is waiting]
            if not some:
                continue
            share = self._share(some)
            ends = f"wait in {self._park_of(some[0])}" if waiting else "end in no queue"
            says = f"{_slots(some)} bound to no queue: {percent(share)} of all keys {ends}"
            cure = self.cures.of_slots(f"bind a queue to {some[0].name}")
            yield self._found("missing", [slot.name for slot in some], share, says, cure)

    def _park_of(self, slot: ExchangeRef) -> str:
        return next(park for park, slots in self._parks.items() if slot in slots)

    def _with_several_queues(self) -> Iterator[Finding]:
        for slot, queues in self.slots.queues.items():
            if len(queues) > 1:
                share = self._share([slot])
                says = (
                    f"slot {slot.name} is bound to {len(queues)} queues, {' and '.join(queues)}: each message of "
                    f"{percent(share)} of all keys is in all of them"
                )
                cure = self.cures.of_slots(f"unbind all but one of them from {slot.name}")
                yield self._found("second-binding", [slot.name], share, says, cure)

    def _with_other_queues(self, layout: SlotLayout) -> Iterator[Finding]:
        """Yield which slots have another queue than the topology gives them."""
        has = self.slots.sole_owners
        other = [slot for slot, queue in has.items() if layout.owners.get(slot.name, queue) != queue]
        if not other:
            return
        share = self._share(other)
        now, then = Counter(has.values()), Counter(layout.owners.values())
        counts = [
            f"{queue} has {plural(now[queue], 'slot')}, not {then[queue]:,}"
            for queue in sorted({*now, *then}, key=order_of_name)
            if now[queue] != then[queue]
        ]
        each = [f"{slot.name} is at {has[slot]}, not {layout.owners[slot.name]}" for slot in other]
        verb = "slot has another queue" if len(other) == 1 else "slots have other queues"
        says = f"{len(other):,} {verb} than the topology says ({_sentences(counts or each)}): {percent(share)} of all keys are elsewhere"
        yield self._found("different", [slot.name for slot in other], share, says, self.cures.applied())

    def _without_alternate(self) -> Iterator[Finding]:
        with_one = {slot for slots in self._parks.values() for slot in slots}
        bare = [
            slot
            for slot in self.slots.queues
            if slot not in with_one
            and slot.name.startswith(f"{self._exchange}.slot.")
            and self.ways.exists(slot)
        ]
        if not bare:
            return
        share = self._share(bare)
        says = (
            f"{_slots(bare)} without an alternate exchange: while one has no queue, as when it changes hands, its messages are "
            f"dropped or returned; that concerns {percent(share)} of all keys"
        )
        by_policy = f"""rabbitmqctl set_policy {self._exchange}-slots '^{self._exchange}\\.slot\\.' '{{"alternate-exchange": "EXCHANGE"}}'"""
        cure = (
            f"{self.cures.applied()} --allow-delete"
            if self.layout is not None
            else f"set one by a policy: {by_policy} --apply-to exchanges"
        )
        yield self._found("different", [slot.name for slot in bare], share, says, cure)

    def _without_park(self) -> Iterator[Finding]:
        for park, slots in self._parks.items():
            if self.ways.leads_nowhere(park):
                says = (
                    f"{park}, the alternate exchange of {plural(len(slots), 'slot')}, leads to no queue: what comes while a slot has "
                    "no queue is dropped or returned"
                )
                yield self._found(
                    "missing",
                    [park],
                    self._share(slots),
                    says,
                    self.cures.of_slots(f"bind a queue to {park}"),
                )

    @property
    def parked(self) -> dict[str, int]:
        """How many messages wait in each parking queue."""
        queues = dict.fromkeys(
            binding.destination
            for binding in self.live.bindings
            if binding.source in self._parks and isinstance(binding.destination, str)
        )
        return {queue: self.live.messages.get(queue, 0) for queue in queues}

    def _parked(self) -> Iterator[Finding]:
        for queue, count in self.parked.items():
            if count:
                wait = "message waits" if count == 1 else "messages wait"
                says = f"{count:,} {wait} in {queue}: they came while their slot had no queue"
                cure = self.cures.of_slots(
                    "write the exchange with `slots` in a topology file, and run: rabbit-chx topology apply FILE"
                )
                yield Finding("unexpected", says, cure, exchange=self._exchange, destination=queue)

    def _transient(self) -> Iterator[Finding]:
        of_queue: dict[str, list[ExchangeRef]] = {}
        for slot, queues in self.slots.queues.items():
            for queue in queues:
                of_queue.setdefault(queue, []).append(slot)
        for queue, slots in of_queue.items():
            if (why := self.transient.get(queue)) is not None:
                share = self._share(slots)
                says = (
                    f"{queue} {why}; its {plural(len(slots), 'slot')} with {percent(share)} of all keys "
                    f"{'is' if len(slots) == 1 else 'are'} without a queue then"
                )
                cure = f"let a durable queue take the place of {queue}"
                yield Finding(
                    "transient-destination",
                    says,
                    cure,
                    exchange=self._exchange,
                    destination=queue,
                    share=share,
                )

    def _found(self, kind: str, slots: Sequence[str], share: float | None, says: str, cure: str) -> Finding:
        place = ExchangeRef(slots[0]) if len(slots) == 1 else None
        return Finding(kind, says, cure, exchange=self._exchange, destination=place, share=share)


def _slots(slots: Sequence[ExchangeRef]) -> str:
    """Return the slots as the beginning of a sentence, with its verb."""
    names = [slot.name for slot in slots]
    return f"{_named(names, 'slot', 'slots')} {'is' if len(names) == 1 else 'are'}"


def _named(names: Sequence[str], one: str, many: str) -> str:
    return f"{one} {names[0]}" if len(names) == 1 else f"{len(names):,} {many} ({_some(names)})"


def _some(texts: Sequence[str]) -> str:
    rest = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def _sentences(texts: Sequence[str]) -> str:
    """Return the first of texts that have commas of their own."""
    rest = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {rest:,} more" if rest > 0 else "")
