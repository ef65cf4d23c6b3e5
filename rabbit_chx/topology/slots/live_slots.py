"""The slots of a live exchange, and the queues that are bound to them.

A slot is an internal fanout exchange that is bound to queues only. Any other exchange in a ring is not a slot: it routes its messages by
its own bindings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import ExchangeRef, HashRing, SlotTable
from rabbit_chx.topology.objects.objects import LINK_NAME, BindingDefinition, ExchangeDefinition

_NAMED_AS_SLOT = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LiveSlots:
    """The slots of an exchange, with the queues that are bound to them.

    Attributes:
        queues: the queues of each slot, in the order of the ring; normally one.
        other_exchanges: the exchanges among the destinations of the ring that are not slots.
    """

    exchange: str
    ring: HashRing
    queues: Mapping[ExchangeRef, tuple[str, ...]]
    other_exchanges: frozenset[ExchangeRef]

    @property
    def sole_owners(self) -> dict[ExchangeRef, str]:
        """The queue of each slot that has exactly one queue."""
        return {slot: queues[0] for slot, queues in self.queues.items() if len(queues) == 1}

    @property
    def faults(self) -> dict[ExchangeRef, str]:
        """The reason for each slot that has no queue or several queues."""
        return {slot: self._fault(slot) for slot, queues in self.queues.items() if len(queues) != 1}

    def _fault(self, slot: ExchangeRef) -> str:
        queues = self.queues[slot]
        name = f"slot {slot.name} of exchange {self.exchange!r}"
        if not queues:
            return f"{name} is bound to no queue: bind a queue to it"
        return (
            f"{name} is bound to {len(queues)} queues, {' and '.join(queues)}, and each of its messages is copied to all of "
            "them: unbind all but one of them"
        )

    def table(self) -> SlotTable:
        """Return the table of the slots.

        In it, a slot without a queue has no owner. A slot with several queues is another exchange, which is the destination of its keys. So
        such a slot concerns only its own keys.
        """
        several = {slot for slot, queues in self.queues.items() if len(queues) > 1}
        return SlotTable(self.ring, self.sole_owners, self.other_exchanges | several)

    def sound_table(self) -> SlotTable:
        """Return the table of the slots, each of which has at most one queue.

        Raises:
            MismatchError: a slot has several queues.
        """
        for slot, queues in self.queues.items():
            if len(queues) > 1:
                raise MismatchError(self._fault(slot), exchange=slot.name, queue=queues[-1])
        return self.table()

    def key_map(self) -> HashRing | SlotTable:
        """Return the table of the slots, or the ring of an exchange without slots."""
        return self.table() if self.queues else self.ring


def live_slots(
    exchange: str,
    ring: HashRing,
    exchanges: Iterable[ExchangeDefinition],
    bindings: Iterable[BindingDefinition],
) -> LiveSlots:
    """Return the slots of an exchange, with its ring, from exchanges and bindings."""
    listed = {definition.name: definition for definition in exchanges}
    bound: dict[ExchangeRef, list[BindingDefinition]] = {
        place: [] for place in ring.destinations if isinstance(place, ExchangeRef)
    }
    for binding in bindings:
        source = ExchangeRef(binding.source)
        if source in bound:
            bound[source].append(binding)
    queues = {
        place: tuple(sorted({binding.destination for binding in own if isinstance(binding.destination, str)}))
        for place, own in bound.items()
        if is_slot(place, listed.get(place.name), own)
    }
    return LiveSlots(exchange, ring, queues, frozenset(bound.keys() - queues.keys()))


def is_slot(
    place: ExchangeRef, listed: ExchangeDefinition | None, bindings: Sequence[BindingDefinition]
) -> bool:
    """Return True if an exchange in a ring is a slot, from its definition (`listed`, if it is listed) and its bindings.

    Definitions of RabbitMQ 4.3 leave internal exchanges out, and a slot may have been deleted. So an exchange that is not listed is a slot
    by its name, or if it is bound like a slot: with an empty key. The exchange of a federation link is none.
    """
    if any(isinstance(binding.destination, ExchangeRef) for binding in bindings) or LINK_NAME.fullmatch(
        place.name
    ):
        return False
    if listed is None:
        is_bound_alike = bool(bindings) and all(not binding.routing_key for binding in bindings)
        return is_bound_alike or _NAMED_AS_SLOT.fullmatch(place.name) is not None
    return listed.internal and listed.type == "fanout"
