"""What a ring is made of, as a plain value: changes take one and give another, and JSON text is made of
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from rabbit_chx.routing.bindings import Binding, Place
    from rabbit_chx.routing.release import Release

__all__ = ["PROVENANCES", "Provenance", "RingState"]

#: Where a ring comes from: read from a broker, replayed from what was bound, or assumed.
Provenance: TypeAlias = Literal["read", "replayed", "assumed"]
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)


class RingState(NamedTuple):
    """The parts of a :class:`~rabbit_chx.routing.ring.HashRing`, in the order of its arguments.

    Attributes:
        buckets: the destination of each bucket number; None at a hole.
        release: the release whose rules apply.
        provenance: where the ring comes from.
        bindings: all bindings that the broker lists, in bind order; None where they are not known.
        end_known: whether the next bucket comes directly after the last one.
    """

    buckets: tuple[Place, ...]
    release: Release
    provenance: Provenance
    bindings: tuple[Binding, ...] | None
    end_known: bool
