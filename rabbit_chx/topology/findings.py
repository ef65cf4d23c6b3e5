"""One finding of a check: what is wrong, what that does to messages, and what cures it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

__all__ = ["CHECK_KINDS", "Cures"]

#: All kinds of findings of a check, in the order in which reports list them.
CHECK_KINDS = (
    "ghost-bucket",  # buckets of what is not bound
    "hole",  # buckets of nothing, or a ring without buckets
    "order",  # the ring has another order than the topology says
    "second-binding",  # bound more than once
    "silent-binding",  # bound, and no key gets there
    "transient-destination",  # it goes by itself, and keys move then
    "missing",
    "unexpected",
    "different",  # beside the topology, or beside the weights of the bindings
    "unroutable-share",  # keys that end in no queue
)
_OWNER = "it is external: ask its owner, or correct the topology"


@dataclass(frozen=True, slots=True)
class Cures:
    """The cures of one check.

    Attributes:
        file: the name of the topology file, for the commands; None where there is none.
        external: whether the exchange belongs to someone else.
    """

    file: str | None = None
    external: bool = False

    def repaired(self, exchange: str) -> str:
        """Return the cure by a repair of the ring.

        Args:
            exchange: the exchange.
        """
        if self.external:
            return _OWNER
        about = "" if self.file is None else f" --file {shlex.quote(self.file)}"
        command = f"rabbit-chx ring repair {shlex.quote(exchange)}{about}"
        return f"run: {command}; it shows the steps, and does them with --apply"

    def of_slots(self, by_hand: str) -> str:
        """Return the cure of slots: an application of the topology, or what is done by hand without one.

        Args:
            by_hand: what that is.
        """
        return self.applied() if self.external or self.file is not None else by_hand

    def applied(self) -> str:
        """Return the cure by an application of the whole topology."""
        name = "FILE" if self.file is None else shlex.quote(self.file)
        if self.external:
            return _OWNER
        return f"run: rabbit-chx topology plan {name}, and then: rabbit-chx topology apply {name}"
