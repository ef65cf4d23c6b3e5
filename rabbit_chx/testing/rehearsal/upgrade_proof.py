"""What two brokers did with the messages of a sample, beside what the mirror says. Values, made without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Refused

if TYPE_CHECKING:
    from rabbit_chx.routing import HashRing, Place, Release
    from rabbit_chx.topology.upgrade_exchange import ExchangeUpgrade, SampleMovement

__all__ = ["IN_ARRAYS", "ExchangeProof", "ProofMismatch", "Trial", "UpgradeProof", "exchange_proof"]

#: The number of a message that is sent with its header in an array is so much larger.
IN_ARRAYS = 1 << 28


@dataclass(frozen=True, slots=True)
class Trial:
    """What one broker did with the messages of an exchange.

    Attributes:
        release: the broker's release.
        published: how many messages were published.
        places: where each came to, by its number; a message that is missing came nowhere, and did not come back.
        ring: the ring that the broker had; None for an ``x-modulus-hash`` exchange.
    """

    release: Release
    published: int
    places: Mapping[int, Place]
    ring: HashRing | None


@dataclass(frozen=True, slots=True)
class ProofMismatch:
    """A message, or a ring, that is not as the mirror says.

    Attributes:
        release: the release of the broker.
        key: the key of the message; None for the ring.
        predicted: what the mirror says.
        found: what the broker did.
    """

    release: Release
    key: str | None
    predicted: str
    found: str


@dataclass(frozen=True, slots=True)
class ExchangeProof:
    """What two brokers did with the messages of one exchange.

    Attributes:
        name: the exchange's name.
        published: how many messages were published, on both.
        compared: how many of the sample both routed.
        predicted: how many of these move, by the mirror.
        measured: how many of these moved.
        in_arrays: how many messages stayed that were sent with their header in an array after the upgrade; None where that
            was not tried.
        mismatches: where mirror and broker disagree.
        left_out: why it was not rehearsed; None if it was.
    """

    name: str
    published: int = 0
    compared: int = 0
    predicted: int = 0
    measured: int = 0
    in_arrays: int | None = None
    mismatches: tuple[ProofMismatch, ...] = ()
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeProof:
    """What two brokers did, beside what the mirror says.

    Attributes:
        before: the release of the first broker.
        after: the release of the second.
        origins: where the two brokers came from.
        same_rules: whether both follow the rules of the releases that were asked for.
        exchanges: the exchanges.
    """

    before: Release
    after: Release
    origins: tuple[str, str]
    same_rules: bool
    exchanges: tuple[ExchangeProof, ...]

    @property
    def published(self) -> int:
        """How many messages were published."""
        return sum(one.published for one in self.exchanges)

    @property
    def mismatches(self) -> int:
        """How often mirror and broker disagree."""
        return sum(len(one.mismatches) for one in self.exchanges)

    @property
    def complete(self) -> bool:
        """Whether all exchanges were rehearsed, by the rules of the releases that were asked for, and none disagrees."""
        return self.same_rules and not self.mismatches and not any(one.left_out for one in self.exchanges)


def exchange_proof(upgrade: ExchangeUpgrade, before: Trial, after: Trial) -> ExchangeProof:
    """Return what two brokers did with the messages of one exchange.

    Args:
        upgrade: the prediction for the releases of the two brokers.
        before: what the first broker did.
        after: what the second did.
    """
    sample = upgrade.sample
    assert sample is not None  # noqa: S101  # what no rule decides is not rehearsed
    mismatches = [
        *_ring_mismatches(upgrade, before, after),
        *_mismatches(sample, before, is_after=False),
        *_mismatches(sample, after, is_after=True),
    ]
    compared = predicted = measured = stayed = 0
    for number, (one, other) in enumerate(zip(sample.before, sample.after, strict=True)):
        if number in before.places:
            stayed += after.places.get(number + IN_ARRAYS, ...) == before.places[number]
        if isinstance(one, Refused) or isinstance(other, Refused):
            continue
        compared += 1
        predicted += one != other
        measured += before.places.get(number, ...) != after.places.get(number, ...)
    tried = any(number >= IN_ARRAYS for number in after.places)
    return ExchangeProof(
        upgrade.name,
        before.published + after.published,
        compared,
        predicted,
        measured,
        stayed if tried else None,
        tuple(mismatches),
    )


def _ring_mismatches(upgrade: ExchangeUpgrade, before: Trial, after: Trial) -> Iterator[ProofMismatch]:
    if upgrade.rings is None:
        return
    for trial, ring in ((before, upgrade.rings.before), (after, upgrade.rings.after)):
        if trial.ring is not None and trial.ring.buckets != ring.buckets:
            yield ProofMismatch(trial.release, None, repr(ring), repr(trial.ring))


def _mismatches(sample: SampleMovement, trial: Trial, *, is_after: bool) -> Iterator[ProofMismatch]:
    said = sample.after if is_after else sample.before
    for number, (message, place) in enumerate(zip(sample.messages, said, strict=True)):
        if isinstance(place, Refused):
            continue
        found = trial.places.get(number, ...)
        if found is ... or found != place:
            yield ProofMismatch(trial.release, message.key, _named(place), _named(found))


def _named(place: object) -> str:
    if place is ...:
        return "(neither in a queue nor returned)"
    return "(nowhere)" if place is None else str(place)
