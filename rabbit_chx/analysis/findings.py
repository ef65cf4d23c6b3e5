"""Findings: the value that describes every problem, and the findings of a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from rabbit_chx.analysis.finding_kinds import Severity, severity_of
from rabbit_chx.grouping import grouped
from rabbit_chx.routing import Destination, HashRing
from rabbit_chx.routing.bindings import Binding, Place, weight_of
from rabbit_chx.words import ShareByWeight, percent, plural


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake, a defect, or the reason of a refusal: in a file, on a broker, in a group, in a load, of a plan.

    Attributes:
        kind: its kind, such as ``ghost-bucket``. Functions that return findings list the kinds.
        message: the problem, and its effect on messages.
        fix: the remedy; empty if `message` contains it.
        subject: of a mistake in a file the field and its value, such as ``exchanges[2].ring[0].weight = 0``, counted from 0.
        line: of a mistake in a file the number of the line, counted from 1; None if it is not known.
        exchange: the exchange concerned; None for none.
        destination: the queue or exchange whose bucket, binding or declaration is concerned; None for none.
        share: the exact share of the exchange's keys that it concerns, by weight where the order is not known; None if it does not concern keys, or the share is not determined.
        names: the names of several queues or shards, or the key, where there is no single destination.
        allow_with: the option of ``apply`` that permits the refused action, such as ``--allow moved=0.2``; None for none.
    """

    kind: str
    message: str
    fix: str = ""
    _: KW_ONLY
    subject: str = ""
    line: int | None = None
    exchange: str | None = None
    destination: Place = None
    share: float | None = None
    names: tuple[str, ...] = ()
    allow_with: str | None = None

    def __str__(self) -> str:
        place = self.subject if self.line is None else f"line {self.line}, {self.subject}"
        return f"{place}: {self.text}" if place else self.text

    @property
    def severity(self) -> Severity:
        """How severe it is, by its kind."""
        return severity_of(self.kind)

    @property
    def text(self) -> str:
        """The message with the fix."""
        return f"{self.message}; {self.fix}" if self.fix else self.message


def ring_findings(
    ring: HashRing, bindings: Iterable[Binding] | None = None, alternate: str | None = None
) -> list[Finding]:
    """Return the defects of a ring: holes first, then differences from the bindings.

    The kinds are ``hole`` (buckets without a destination), ``ghost-bucket`` (buckets of a destination that is not bound),
    ``silent-binding`` (bound, and without keys), ``second-binding`` (bound more than once), and ``different`` (another number of buckets
    than the binding's weight). Each has a share. The fix is empty: it depends on the caller.

    Args:
        ring: the ring as it was read.
        bindings: the bindings that the broker lists, in any order; None where they are not known.
        alternate: the exchange's alternate exchange, which gets messages without a destination.
    """
    weights = grouped((place, weight_of(place, key)) for place, key in bindings or ())
    shares = ring.shares() if ring.has_shares else {}
    findings = list(_holes(ring, shares.get(None, 0.0), sum(map(len, weights.values())), alternate))
    if bindings is None:
        return findings
    buckets = Counter(ring.buckets)
    for place in ring.destinations:
        if place not in weights:
            message = (
                f"{place!s} has {plural(buckets[place], 'bucket')} and no binding: {percent(shares[place])} of all "
                "keys go there, and are lost if it does not exist any more"
            )
            findings.append(Finding("ghost-bucket", message, destination=place, share=shares[place]))
    for destination, bound in weights.items():
        share = shares.get(destination, 0.0 if ring.is_determined else None)
        findings += _of_destination(destination, bound, buckets[destination], share)
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
    destination: Destination, bound: Sequence[int], buckets: int, share: float | None
) -> Iterator[Finding]:
    weights = " and ".join(f"{weight:,}" for weight in bound)
    if not buckets:
        message = f"{destination!s} is bound with weight {weights} and has no bucket: no message reaches it"
        yield Finding("silent-binding", message, destination=destination, share=0.0)
    elif share == 0.0:
        message = (
            f"{destination!s} is bound and has {plural(buckets, 'bucket')}, but after those that the broker counts: "
            "no message reaches it"
        )
        yield Finding("silent-binding", message, destination=destination, share=0.0)
    if len(bound) > 1:
        is_counted = share is not None and not isinstance(share, ShareByWeight)
        if is_counted:
            has = f", and has {plural(buckets, 'bucket')}"
            them = "them"
        else:
            has = ""
            them = "its buckets"
        message = f"{destination!s} is bound {len(bound)} times (weights {weights}){has}: to unbind any of these removes all of {them}"
        yield Finding("second-binding", message, destination=destination, share=share)
    elif buckets not in (0, bound[0]):
        message = f"{destination!s} is bound with weight {weights} and has {plural(buckets, 'bucket')}"
        yield Finding("different", message, destination=destination, share=share)
