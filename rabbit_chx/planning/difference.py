"""A difference between a wanted and a live topology, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.objects.changes import FieldChange, TopologyObject

DifferenceKind: TypeAlias = Literal["missing", "unexpected", "different", "order"]


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different between two states in one object. `diff` returns all of them; a plan orders them, and a check words them.

    Attributes:
        kind: ``missing`` (wanted, and not live), ``unexpected`` (live, and owned or in a ring, but not wanted), ``different``, or ``order``
            (a ring has its members in another order).
        subject: the exchange, queue, binding or policy that it is about: the wanted one, or else the live one. A member of a ring is a
            binding. It has a ``kind`` and a ``name``.
        before: the live object; None if there is none. Of a ring or a super stream the live key map.
        after: the wanted object; None if there is none. Of a ring or a super stream the wanted key map, in which slots keep their queues;
            None if no broker of this release has such a ring.
        fields: the fields that differ between the two objects.
        share: the exact share of keys that the difference concerns, 0 to 1. Of an exchange that hashes something else,
            and of a ring whose order is not known, 1. Of a ring or a super stream, the keys that go to another queue because of it; of
            a slot or a partition, its keys; of a member, those that it has, or that a missing one would have; of a binding of an
            ``x-modulus-hash`` exchange, those that go elsewhere in all. None for what hashes no keys.
    """

    kind: DifferenceKind
    subject: TopologyObject
    before: TopologyObject | KeyMap | None = None
    after: TopologyObject | KeyMap | None = None
    fields: tuple[FieldChange, ...] = ()
    share: float | None = None

    @property
    def is_ours(self) -> bool:
        """True if its object is declared and changed, and not only checked."""
        return self.subject.owner == "ours"
