"""The names of what an exchange with slots is made of."""

from __future__ import annotations

from dataclasses import dataclass

from rabbit_chx.routing import ExchangeRef

__all__ = ["SlotNames"]

_LEAST_WIDTH = 2


@dataclass(frozen=True, slots=True)
class SlotNames:
    """The names that belong to an exchange with slots.

    Attributes:
        exchange: the name of the hash exchange.
        count: how many slots it has.
    """

    exchange: str
    count: int

    @property
    def prefix(self) -> str:
        """What the name of each slot exchange begins with; its number follows."""
        return f"{self.exchange}.slot."

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slot exchanges, in the order of the ring."""
        width = max(_LEAST_WIDTH, len(str(self.count - 1)))
        return tuple(f"{self.prefix}{number:0{width}d}" for number in range(self.count))

    @property
    def refs(self) -> tuple[ExchangeRef, ...]:
        """The slot exchanges as destinations of the ring, in its order."""
        return tuple(map(ExchangeRef, self.slots))

    @property
    def park(self) -> str:
        """The name of the parking exchange, and of the parking queue."""
        return f"{self.exchange}.park"

    @property
    def exchanges(self) -> frozenset[str]:
        """The names of all exchanges that the layout adds."""
        return frozenset((*self.slots, self.park))
