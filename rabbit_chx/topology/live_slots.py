"""Which queues have the slots of a live exchange: what is bound behind the exchanges that are destinations of its ring.

A slot is an internal fanout exchange that leads to queues alone. Any other exchange in a ring is none: its messages go where
it sends them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.errors import MismatchError
from rabbit_chx.routing import ExchangeRef, SlotTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rabbit_chx.routing import HashRing, KeyMap
    from rabbit_chx.topology.objects import BindingDefinition, ExchangeDefinition

__all__ = ["LiveSlots", "is_slot", "live_slots"]

_NAMED_AS_SLOT = re.compile(r".+\.slot\.[0-9]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LiveSlots:
    """The slots of an exchange, with all that is bound to them.

    Attributes:
        exchange: the exchange's name.
        ring: its ring.
        queues: the queues of each slot, in the order of the ring; one, if all is well.
        other_exchanges: the exchanges among the destinations of the ring that are no slots.
    """

    exchange: str
    ring: HashRing
    queues: Mapping[ExchangeRef, tuple[str, ...]]
    other_exchanges: frozenset[ExchangeRef]

    @property
    def sole_owners(self) -> dict[ExchangeRef, str]:
        """The queue of each slot that has one, and no other."""
        return {slot: queues[0] for slot, queues in self.queues.items() if len(queues) == 1}

    def table(self) -> SlotTable:
        """Return the table of the slots. A slot without a queue has no owner in it.

        Raises:
            MismatchError: a slot has two queues, so that no table says where its messages go.
        """
        for slot, queues in self.queues.items():
            if len(queues) > 1:
                raise MismatchError(
                    f"slot {slot.name} of exchange {self.exchange!r} is bound to {len(queues)} queues, {' and '.join(queues)}, and each "
                    "of its messages is in all of them: unbind all but one of them",
                    exchange=slot.name,
                    queue=queues[-1],
                )
        return SlotTable(self.ring, self.sole_owners, self.other_exchanges)

    def key_map(self) -> KeyMap:
        """Return the table of the slots, or the ring where there is none.

        Raises:
            MismatchError: a slot has two queues.
        """
        return self.table() if self.queues else self.ring


def live_slots(
    exchange: str,
    ring: HashRing,
    exchanges: Iterable[ExchangeDefinition],
    bindings: Iterable[BindingDefinition],
) -> LiveSlots:
    """Return the slots of an exchange.

    Args:
        exchange: its name.
        ring: its ring.
        exchanges: what exchanges there are.
        bindings: what is bound to them.
    """
    there = {one.name: one for one in exchanges}
    wanted = {one for one in ring.destinations if isinstance(one, ExchangeRef)}
    bound: dict[ExchangeRef, list[BindingDefinition]] = {}
    for binding in bindings:
        if (source := ExchangeRef(binding.source)) in wanted:
            bound.setdefault(source, []).append(binding)
    queues, others = {}, set()
    for place in ring.destinations:
        if not isinstance(place, ExchangeRef):
            continue
        behind = bound.get(place, ())
        if is_slot(place, there.get(place.name), behind):
            queues[place] = tuple(
                sorted({one.destination for one in behind if isinstance(one.destination, str)})
            )
        else:
            others.add(place)
    return LiveSlots(exchange, ring, queues, frozenset(others))


def is_slot(
    place: ExchangeRef, there: ExchangeDefinition | None, behind: Sequence[BindingDefinition]
) -> bool:
    """Return whether an exchange in a ring is a slot.

    Definitions of RabbitMQ 4.3 leave internal exchanges out, and a slot may have been deleted. So one that is not listed is a
    slot by its name, or if it is bound as slots are: with an empty key.

    Args:
        place: the exchange.
        there: the exchange as it is listed; None if it is not.
        behind: its bindings.
    """
    if any(isinstance(one.destination, ExchangeRef) for one in behind):
        return False
    if there is None:
        bound_alike = bool(behind) and all(not one.routing_key for one in behind)
        return bound_alike or _NAMED_AS_SLOT.fullmatch(place.name) is not None
    return there.internal and there.type == "fanout"
