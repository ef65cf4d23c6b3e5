"""Findings: the value that describes every problem, and the findings of a ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, HashRing
from rabbit_chx.routing.bindings import Binding, Place, weight_of
from rabbit_chx.text import ShareByWeight, grouped, percent, plural

# -- The kinds of findings: the one list that commands, metrics and pages read
# Each kind, as in JSON, in the label `kind` of ``rabbit_chx_check_findings``, and after ``--ignore``, has what is found, as the page of the
# command says it, in Markdown.

#: ``error``: messages are lost, wait for nobody, or reach another queue than they should. ``warning``: they may, or will at the next event.
#: ``note``: nothing happens to messages, and it is worth knowing; it does not change the exit code of ``check``.
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

#: The kinds of ``check``, in the order of the metrics.
CHECK_KINDS: Mapping[str, str] = {
    "ghost-bucket": "buckets of a destination that is not bound; 4.3.6 leaves them if a restart ends an exclusive queue",
    "plugin-off": "an exchange whose plugin is not enabled: the broker refuses every publish to it",
    "hole": "buckets without a destination, or an exchange to which nothing is bound",
    "order": "slots that are not in the order of their numbers",
    "second-binding": "a destination with several bindings, of which one unbind removes all buckets; or a slot with two queues, which both get each message",
    "silent-binding": "a bound destination without keys",
    "polarized": "an exchange that hashes behind one that hashes the same value: its queues may get other shares than their weights, and some may get none",
    "transient-destination": "an exclusive, auto-delete or non-durable queue; the share moves when it ends",
    "transient-exchange": "an exchange that a restart of the broker, or its last unbind, deletes with its bindings",
    "sharding-policy": "a direct, fanout, topic or headers exchange that a policy shards: all its shards get a copy of each message",
    "missing": "a slot without a queue, or an alternate exchange that leads to no queue",
    "unexpected": "messages in a parking queue",
    "different": "a number of buckets that differs from the weight, or other buckets than the bindings make; or a slot without an alternate "
    "exchange, whose messages are lost during a hand-over",
    "unroutable-share": "the exact share of keys that reach no queue",
    "down-destination": "a queue that the broker reports as down, as its node does not run",
    "expiring-destination": "a queue with `x-message-ttl` or `x-expires`, by argument or policy",
    "dropping-destination": "a queue with a length limit that drops its oldest messages; before 4.0 a quorum queue with a negative `x-delivery-limit`, which "
    "drops each message that is returned",
    "order-breaking": "a queue with priorities; from 4.3 on one with delayed retry, a consumer timeout below 30 minutes (RabbitMQ's default; the time "
    "of a handler is not known), or waiting messages of several priorities",
    "odd-member": "a queue whose type or arguments differ from most others",
    "ignored-argument": "an argument of the exchange or of a queue that the broker's release accepts and ignores, as `x-hash-on` of another product: "
    "what it is meant for does not happen",
    "dead-letter": "a queue whose dead-letter exchange does not exist, or has no binding: its rejected, expired or dropped messages are lost",
    "alternate": "an alternate exchange that does not exist, or has no binding",
    "no-consumer": "a queue in which messages wait, and that has no consumer",
    "nobody-active": "a queue that has consumers of which none is active; with unacknowledged messages, the broker waits for the previous consumer",
    "no-single-active-consumer": "a queue of a group in which several consumers may handle messages of one key at the same time",
    "other-consumer": "a consumer outside the group that consumes the exchange",
    "priority-ignored": "a queue of a group on which the broker ignores the priorities of consumers: before 4.0, and on classic queues",
    "uneven-traffic": "a queue that got far more of the messages of the last minute than its share of the keys",
    "unbound-queue": "a queue whose name differs from those of the exchange's queues in its number only, and that is bound to nothing",
    "odd-object": "in a comparison with a file: objects of the broker that no client can declare or name, or of a definitions file that RabbitMQ imports "
    "otherwise than written",
}
#: What some of them mean in a comparison with a topology file, too.
WITH_FILE: Mapping[str, str] = {
    "order": "the ring has another order than the file",
    "missing": "an object, binding or member of the file does not exist",
    "unexpected": "a member is not in the file; or an object whose name the file `owns`, or a binding of an exchange that it owns",
    "different": "an object differs from the file; without a destination, the whole ring or the slots",
}

#: The kinds of ``verify --trace`` and ``verify --observed``, beside those of a ring by itself.
VERIFY_KINDS: Mapping[str, str] = {
    "contradicted": "keys that reached other queues than in the ring, or that contradict each other: the ring is then not determined",
    "one-key": "more than half of at least 100 messages have one key, so one queue gets them all; the file has a row for each message",
    "few-keys": "more than half of at least 100 messages have fewer keys than the exchange has members, so their queues get most messages",
}

#: The kinds of the shards of ``show``.
SHARD_KINDS: Mapping[str, str] = {
    "missing": "shards of the policy that do not exist",
    "node-away": "shards whose node does not run",
    "surplus": "shards that are not the policy's and still get messages",
    "unbound": "shards that are not bound, so they get no messages",
    "unconsumed": "shards without a consumer",
    "unordered": "the order of the shards, and so the shard of a key, is not known",
}

#: The kinds that the statistics of the broker show, which are left out where consumers are not checked.
USAGE_KINDS = frozenset(
    {
        "no-consumer",
        "nobody-active",
        "no-single-active-consumer",
        "other-consumer",
        "priority-ignored",
        "uneven-traffic",
    }
)
_ERRORS = frozenset(
    {
        "ghost-bucket",
        "plugin-off",
        "hole",
        "order",
        "missing",
        "different",
        "unroutable-share",
        "down-destination",
        "no-consumer",
        "nobody-active",
        "contradicted",
        "node-away",
    }
)
_NOTES = frozenset({"odd-member", "odd-object"})


def severity_of(kind: str) -> Severity:
    """Return how severe a finding of a kind is."""
    if kind in _ERRORS:
        return "error"
    return "note" if kind in _NOTES else "warning"


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


# -- Shares, counts and destinations in words and in JSON, the same in every finding and report


_NOWHERE = "(nowhere)"


def rounded(value: float | None) -> float | None:
    """Return a share with nine digits; further digits may differ between machines."""
    return None if value is None else float(f"{value:.9g}")


def place_text(place: Place) -> str:
    """Return a destination's name; None, an unroutable message, is ``(nowhere)``."""
    return _NOWHERE if place is None else str(place)


def moment_text(seconds: float | None) -> str:
    """Return a time in seconds since 1970 as UTC; a dash if it is not known."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"


def moment_as_json(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 for JSON, with milliseconds."""
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )


#: The kinds of the findings about a broker or a file, each with what is found.
_FOUND_KINDS: Mapping[str, str] = {
    **CHECK_KINDS,
    **VERIFY_KINDS,
    "misspelling": "in a file, without a broker: a name that resembles another",
}


@dataclass(frozen=True, slots=True)
class FindingFields:
    """A finding, in JSON.

    Attributes:
        share: The share of the keys that are affected.
    """

    kind: str = field(metadata=shown(values=_FOUND_KINDS))
    severity: Severity
    exchange: str | None
    destination: Place
    share: float | None
    message: str
    fix: str

    @classmethod
    def of(cls, finding: Finding) -> FindingFields:
        """Return the fields of a finding."""
        return cls(
            finding.kind,
            finding.severity,
            finding.exchange,
            finding.destination,
            finding.share,
            finding.message,
            finding.fix,
        )


@dataclass(frozen=True, slots=True)
class RefusalFields:
    """A reason to refuse a plan, in JSON.

    Attributes:
        allow_with: The option of `apply` that permits it.
    """

    message: str
    fix: str
    allow_with: str | None

    @classmethod
    def of(cls, refusals: Iterable[Finding]) -> list[RefusalFields]:
        """Return the fields of the refusals of a plan."""
        return [cls(refusal.message, refusal.fix, refusal.allow_with) for refusal in refusals]
