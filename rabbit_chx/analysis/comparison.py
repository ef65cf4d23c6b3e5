"""The comparison of two rings, or of two releases: the keys of a sample that move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.matrix import MovementMatrix, matrix_of
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap, check_comparable


@dataclass(frozen=True, slots=True)
class Moved:
    """A value whose destination differs.

    Attributes:
        value: the hashed value, as the caller gave it.
        before: its destination before the change, or the reason why it was refused.
        after: its destination after the change, or the reason why it is refused.
        position: its position in the sample, from 0.
    """

    value: Any
    before: Place | Refused
    after: Place | Refused
    position: int


@dataclass(frozen=True, slots=True)
class SampleComparison:
    """The result of a comparison.

    Attributes:
        before: the ring, or the slots of one, before the change; or an exchange without a ring.
        after: the same after it.
        values: the number of values.
        matrix: the number of values by their destination before and after, without the values that one of the two refuses.
        moved: the values whose destination differs, in the order of the sample, including those that one of the two refuses. A value that
            is in the sample several times is listed as often.
    """

    before: KeyMap
    after: KeyMap
    values: int
    matrix: MovementMatrix
    moved: tuple[Moved, ...]

    @property
    def refused_before(self) -> int:
        """The number of values that are refused before and routed after."""
        return sum(isinstance(move.before, Refused) for move in self.moved)

    @property
    def refused_after(self) -> int:
        """The number of values that are routed before and refused after."""
        return sum(isinstance(move.after, Refused) for move in self.moved)


def compare_rings(
    values: Sequence[Any],
    before: KeyMap,
    after: KeyMap,
    hashing: Hashing | None = None,
) -> SampleComparison:
    """Return the values of a sample that move between two rings or two exchanges.

    Each follows the rules of its own release.

    Args:
        values: the hashed value of each message: routing keys, or values of the header or the property; header values as AmqpField, or bare
            as the client sends them.
        before: the ring, or the slots of one, before the change.
        after: the same after it.
        hashing: the hashed part of a message; None for the routing key.

    Raises:
        InputError: the client cannot send a value where the exchange looks for it, or keys are not hashed alike.
        NotDeterminedError: one of the releases does not determine the destination of a key.
    """
    check_comparable(before, after)
    hashing = hashing or Hashing()
    outcomes = list(
        zip(values, hashing.route_all(values, before), hashing.route_all(values, after), strict=True)
    )
    pairs = Counter(
        (first, second)
        for _, first, second in outcomes
        if not isinstance(first, Refused) and not isinstance(second, Refused)
    )
    return SampleComparison(
        before=before,
        after=after,
        values=len(values),
        matrix=matrix_of(pairs, before, after),
        moved=tuple(
            Moved(value, first, second, position)
            for position, (value, first, second) in enumerate(outcomes)
            if _differ(first, second)
        ),
    )


def _differ(first: Place | Refused, second: Place | Refused) -> bool:
    """Return whether two outcomes differ. Two refusals are equal, whatever their text."""
    return first != second and not (isinstance(first, Refused) and isinstance(second, Refused))
