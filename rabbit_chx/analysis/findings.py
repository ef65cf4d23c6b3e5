"""What is wrong: one value for a ring, for what is on a broker, for a group and for a load. And what is wrong with a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.routing import Destination, HashRing, Place
from rabbit_chx.routing.bindings import Binding, weight_of


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, what that does to messages, and what cures it.

    Attributes:
        kind: what kind of thing is wrong, in a word such as ``ghost-bucket``. What returns findings lists its kinds.
        says: the finding, and what it does to messages.
        cure: a command, or what to do; empty where `says` is all.
        exchange: the exchange that it is about; None for none.
        destination: the queue or exchange whose bucket, binding or declaration it is about; None for none.
        share: the exact share of the exchange's keys that it concerns; None where it is not about keys.
        names: the names of the queues or shards, or the key, that it is about, where no single destination is.
    """

    kind: str
    says: str
    cure: str = ""
    _: KW_ONLY
    exchange: str | None = None
    destination: Place = None
    share: float | None = None
    names: tuple[str, ...] = ()


def ring_findings(
    ring: HashRing, bindings: Iterable[Binding] | None = None, alternate: str | None = None
) -> list[Finding]:
    """Return what is wrong with a ring: holes first, then what differs from the bindings.

    The kinds are ``hole`` (keys reach buckets that nobody has), ``ghost-bucket`` (buckets of what is not bound),
    ``silent-binding`` (bound, and no key gets there), ``second-binding`` (bound more than once), and ``different`` (another
    number of buckets than the binding's weight). Each has a share. None has a cure, which depends on who asks.

    Args:
        ring: the ring as it was read.
        bindings: the bindings that the broker lists, in any order; None where they are not known.
        alternate: the exchange's alternate exchange, which gets what has no destination.
    """
    weights: dict[Destination, list[int]] = {}
    for destination, key in bindings or ():
        weights.setdefault(destination, []).append(weight_of(destination, key))
    shares = ring.shares()
    findings = list(_holes(ring, shares.get(None, 0.0), sum(map(len, weights.values())), alternate))
    if bindings is None:
        return findings
    buckets = Counter(ring.buckets)
    for place in ring.destinations:
        if place not in weights:
            says = (
                f"{place!s} has {plural(buckets[place], 'bucket')} and no binding: {percent(shares[place])} of all "
                "keys go there, and are lost if it does not exist any more"
            )
            findings.append(Finding("ghost-bucket", says, destination=place, share=shares[place]))
    for destination, bound in weights.items():
        findings += _of_destination(destination, bound, buckets[destination], shares.get(destination, 0.0))
    return findings


def _holes(ring: HashRing, share: float, bindings: int, alternate: str | None) -> Iterator[Finding]:
    if not ring.bucket_count:
        why = (
            f"the ring has no buckets, though the broker lists {plural(bindings, 'binding')}"
            if bindings
            else "nothing is bound"
        )
        lost = "is unroutable" if alternate is None else f"goes to the alternate exchange {alternate!r}"
        yield Finding("hole", f"{why}: every message {lost}", share=1.0)
    elif share:
        where = "nowhere" if alternate is None else f"to the alternate exchange {alternate!r}"
        holes = f"{ring.buckets.count(None):,} of {plural(len(ring.buckets), 'bucket')} without a destination"
        yield Finding("hole", f"{holes}: {percent(share)} of all keys go {where}", share=share)


def _of_destination(
    destination: Destination, bound: Sequence[int], buckets: int, share: float
) -> Iterator[Finding]:
    weights = " and ".join(f"{weight:,}" for weight in bound)
    if not buckets:
        says = f"{destination!s} is bound with weight {weights} and has no bucket: no message comes to it"
        yield Finding("silent-binding", says, destination=destination, share=0.0)
    elif not share:
        says = (
            f"{destination!s} is bound and has {plural(buckets, 'bucket')}, but behind those that the broker counts: "
            "no message comes to it"
        )
        yield Finding("silent-binding", says, destination=destination, share=0.0)
    if len(bound) > 1:
        says = (
            f"{destination!s} is bound {len(bound)} times, with weights {weights}, and has {plural(buckets, 'bucket')}: "
            "the first unbind takes them all"
        )
        yield Finding("second-binding", says, destination=destination, share=share)
    elif buckets not in (0, bound[0]):
        says = f"{destination!s} is bound with weight {weights} and has {plural(buckets, 'bucket')}"
        yield Finding("different", says, destination=destination, share=share)
