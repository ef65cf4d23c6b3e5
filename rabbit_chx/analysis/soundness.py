"""What is wrong with a ring, by itself and beside the bindings that the broker lists. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.routing.bindings import weight_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rabbit_chx.routing import Destination, HashRing, Place
    from rabbit_chx.routing.bindings import Binding

__all__ = ["FindingKind", "RingFinding", "ring_findings"]

FindingKind: TypeAlias = Literal["hole", "ghost-bucket", "silent-binding", "second-binding", "different"]

_LEAST_SHOWN = 0.000005


@dataclass(frozen=True, slots=True)
class RingFinding:
    """Something wrong with a ring.

    Attributes:
        kind: ``hole`` (keys reach buckets that nobody has), ``ghost-bucket`` (buckets of what is not bound),
            ``silent-binding`` (bound, and no key gets there), ``second-binding`` (bound more than once),
            ``different`` (another number of buckets than the binding's weight).
        destination: the destination whose buckets or binding is wrong; None for holes.
        share: the exact share of all keys that the finding concerns.
        says: the finding in one line.
    """

    kind: FindingKind
    destination: Place
    share: float
    says: str


def ring_findings(
    ring: HashRing, bindings: Iterable[Binding] | None = None, alternate: str | None = None
) -> list[RingFinding]:
    """Return what is wrong with a ring: holes first, then what differs from the bindings.

    Args:
        ring: the ring as it was read.
        bindings: the bindings that the broker lists, in any order; None where they are not known.
        alternate: the exchange's alternate exchange, which gets what has no destination.
    """
    weights: dict[Destination, list[int]] = {}
    for destination, key in bindings or ():
        weights.setdefault(destination, []).append(weight_of(destination, key))
    shares = ring.shares()
    found = list(_holes(ring, shares.get(None, 0.0), sum(map(len, weights.values())), alternate))
    if bindings is None:
        return found
    buckets = Counter(ring.buckets)
    for place in ring.destinations:
        if place not in weights:
            says = (
                f"{place!s} has {_plural(buckets[place], 'bucket')} and no binding: {_percent(shares[place])} of all "
                "keys go there, and are lost if it does not exist any more"
            )
            found.append(RingFinding("ghost-bucket", place, shares[place], says))
    for destination, bound in weights.items():
        found += _of_destination(destination, bound, buckets[destination], shares.get(destination, 0.0))
    return found


def _holes(ring: HashRing, share: float, bindings: int, alternate: str | None) -> Iterator[RingFinding]:
    if not ring.bucket_count:
        why = (
            f"the ring has no buckets, though the broker lists {_plural(bindings, 'binding')}"
            if bindings
            else "nothing is bound"
        )
        lost = "is unroutable" if alternate is None else f"goes to the alternate exchange {alternate!r}"
        yield RingFinding("hole", None, 1.0, f"{why}: every message {lost}")
    elif share:
        where = "nowhere" if alternate is None else f"to the alternate exchange {alternate!r}"
        holes = (
            f"{ring.buckets.count(None):,} of {_plural(len(ring.buckets), 'bucket')} without a destination"
        )
        yield RingFinding("hole", None, share, f"{holes}: {_percent(share)} of all keys go {where}")


def _of_destination(
    destination: Destination, bound: Sequence[int], buckets: int, share: float
) -> Iterator[RingFinding]:
    weights = " and ".join(f"{weight:,}" for weight in bound)
    if not buckets:
        says = f"{destination!s} is bound with weight {weights} and has no bucket: no message comes to it"
        yield RingFinding("silent-binding", destination, 0.0, says)
    elif not share:
        says = (
            f"{destination!s} is bound and has {_plural(buckets, 'bucket')}, but behind those that the broker counts: "
            "no message comes to it"
        )
        yield RingFinding("silent-binding", destination, 0.0, says)
    if len(bound) > 1:
        says = (
            f"{destination!s} is bound {len(bound)} times, with weights {weights}, and has {_plural(buckets, 'bucket')}: "
            "the first unbind takes them all"
        )
        yield RingFinding("second-binding", destination, share, says)
    elif buckets not in (0, bound[0]):
        says = f"{destination!s} is bound with weight {weights} and has {_plural(buckets, 'bucket')}"
        yield RingFinding("different", destination, share, says)


def _percent(share: float) -> str:
    return f"{share:.3%}" if share == 0 or share >= _LEAST_SHOWN else "<0.001%"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
