"""Two releases, or two rings, compared: which keys of a sample move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.matrix import MovementMatrix, matrix_of
from rabbit_chx.routing import check_ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rabbit_chx.routing import HashRing, Place, Release

__all__ = ["Comparison", "Moved", "compare_releases", "compare_rings"]


@dataclass(frozen=True, slots=True)
class Moved:
    """A value that does not stay where it was.

    Attributes:
        value: what is hashed, as it was given.
        before: where it went, or that it was refused.
        after: where it goes, or that it is refused.
        position: its place in the sample, from 0 on.
    """

    value: Any
    before: Place | Refused
    after: Place | Refused
    position: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a comparison.

    Attributes:
        before: the one ring.
        after: the other.
        values: how many values there were.
        matrix: those that both route, from where to where.
        moved: every value that does not stay where it was, in the order of the sample, those included that one of
            the two refuses. A value counts as often as it was given.
    """

    before: HashRing
    after: HashRing
    values: int
    matrix: MovementMatrix
    moved: tuple[Moved, ...]

    @property
    def refused_before(self) -> int:
        """How many values the one refuses and the other takes."""
        return sum(isinstance(move.before, Refused) for move in self.moved)

    @property
    def refused_after(self) -> int:
        """How many values the other refuses and the one takes."""
        return sum(isinstance(move.after, Refused) for move in self.moved)


def compare_rings(
    values: Sequence[Any], before: HashRing, after: HashRing, hashing: Hashing | None = None
) -> Comparison:
    """Which values of a sample move between two rings, each by the rules of its own release.

    Args:
        values: what is hashed of each message: routing keys, or values of the header or the property; header values
            as AmqpField, or bare as the client sends them.
        before: the one ring.
        after: the other.
        hashing: what the exchange hashes; the routing key if None.

    Raises:
        InputError: a value is none that the exchange can be given there.
    """
    check_ring(before, after)
    hashing = hashing or Hashing()
    outcomes = list(
        zip(values, hashing.route_all(values, before), hashing.route_all(values, after), strict=True)
    )
    pairs = Counter(_routed_pairs((one, other) for _, one, other in outcomes))
    return Comparison(
        before=before,
        after=after,
        values=len(values),
        matrix=matrix_of(pairs, before, after),
        moved=tuple(
            Moved(value, one, other, position)
            for position, (value, one, other) in enumerate(outcomes)
            if _differ(one, other)
        ),
    )


def compare_releases(
    values: Sequence[Any], ring: HashRing, release: Release, hashing: Hashing | None = None
) -> Comparison:
    """Which values of a sample move when the broker becomes another release, with the buckets as they are.

    Args:
        values: as for :func:`compare_rings`.
        ring: the ring, under the release that it has now.
        release: the other release.
        hashing: what the exchange hashes; the routing key if None.

    Raises:
        InputError: a value is none that the exchange can be given there.
    """
    check_ring(ring)
    return compare_rings(values, ring, ring.with_release(release), hashing)


def _differ(one: Place | Refused, other: Place | Refused) -> bool:
    """Whether two outcomes differ; a message that both refuse stays where it was, whatever they say."""
    return one != other and not (isinstance(one, Refused) and isinstance(other, Refused))


def _routed_pairs(
    outcomes: Iterator[tuple[Place | Refused, Place | Refused]],
) -> Iterator[tuple[Place, Place]]:
    for one, other in outcomes:
        if not isinstance(one, Refused) and not isinstance(other, Refused):
            yield one, other
