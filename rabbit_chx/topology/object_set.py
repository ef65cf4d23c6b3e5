"""The exchanges, queues, bindings and policies of a topology together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import natural_order, order_of_name

if TYPE_CHECKING:
    from rabbit_chx.routing import Destination
    from rabbit_chx.topology.objects import (
        BindingDefinition,
        ExchangeDefinition,
        PolicyDefinition,
        QueueDefinition,
    )

__all__ = ["OBJECT_LISTS", "ObjectSet"]

OBJECT_LISTS = ("exchanges", "queues", "bindings", "policies")


@dataclass(frozen=True, slots=True, repr=False)
class ObjectSet:
    """Exchanges, queues, bindings and policies of a vhost. A value: equal to another with the same, in any order.

    Attributes:
        exchanges: the exchanges, sorted by name.
        queues: the queues, sorted by name.
        bindings: the bindings of all exchanges but ``x-consistent-hash`` ones, sorted by source, destination and key.
        policies: the policies, sorted by name.
    """

    exchanges: tuple[ExchangeDefinition, ...] = ()
    queues: tuple[QueueDefinition, ...] = ()
    bindings: tuple[BindingDefinition, ...] = ()
    policies: tuple[PolicyDefinition, ...] = ()

    def __post_init__(self) -> None:
        for name in OBJECT_LISTS:
            # dataclass(frozen=True) leaves no other way to set an attribute.
            object.__setattr__(self, name, tuple(sorted(getattr(self, name), key=natural_order)))

    def __repr__(self) -> str:
        counts = (f"{len(getattr(self, name))} {name}" for name in OBJECT_LISTS)
        return f"<{type(self).__name__} {', '.join(counts)}>"

    def exchange(self, name: str) -> ExchangeDefinition | None:
        """Return the exchange of a name; None if there is none."""
        return next((one for one in self.exchanges if one.name == name), None)

    def queue(self, name: str) -> QueueDefinition | None:
        """Return the queue of a name; None if there is none."""
        return next((one for one in self.queues if one.name == name), None)

    @property
    def unlisted(self) -> tuple[Destination, ...]:
        """The exchanges and queues that bindings name and that are not listed, sorted; without ``amq.`` exchanges.

        Someone else declares them. They have to exist before the bindings are made.
        """
        exchanges = {one.name for one in self.exchanges}
        queues = {one.name for one in self.queues}
        used: set[Destination] = {ExchangeRef(binding.source) for binding in self.bindings}
        used.update(binding.destination for binding in self.bindings)
        for exchange in self.exchanges:
            used.update(member.destination for member in exchange.ring or exchange.members or ())
        missing = {
            one
            for one in used
            if (
                one.name not in exchanges and not one.name.startswith("amq.")
                if isinstance(one, ExchangeRef)
                else one not in queues
            )
        }
        return tuple(sorted(missing, key=lambda one: (isinstance(one, str), order_of_name(str(one)))))
