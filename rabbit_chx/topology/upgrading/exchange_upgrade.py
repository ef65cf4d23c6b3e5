"""What an upgrade does to one hash exchange: which keys move, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.analysis import MovementMatrix, movement_matrix
from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.routing import ConsistentHashExchange, HashedOn, ModulusHashExchange
from rabbit_chx.routing.rules import HEADER_IS_TUPLE, LIST_IS_ITS_HEAD
from rabbit_chx.topology.upgrading.sample_movement import SampleMovement, routes_of
from rabbit_chx.topology.upgrading.upgrade_rules import hashed_alike
from rabbit_chx.topology.upgrading.upgraded_rings import upgraded_rings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing import Binding, Destination, HashRing, Place, Release
    from rabbit_chx.topology.upgrading.sampled_message import SampledMessage
    from rabbit_chx.topology.upgrading.upgrade_finding import UpgradeFinding
    from rabbit_chx.topology.upgrading.upgraded_rings import UpgradedRings

__all__ = ["ExchangeUpgrade", "Verdict", "hash_arguments", "hash_upgrade", "modulus_upgrade"]

#: ``safe``: no key moves. ``repair``: none moves, if the ring gets its order back. ``moves``: keys move by a rule.
#: ``unknown``: no rule says whether keys move.
Verdict: TypeAlias = Literal["safe", "repair", "moves", "unknown"]
_HASHES = 1 << 27


@dataclass(frozen=True, slots=True, repr=False)
class ExchangeUpgrade:
    """What an upgrade does to a hash exchange.

    Attributes:
        name: the exchange's name.
        hashed_on: what it hashes; None for an ``x-modulus-hash`` exchange, which hashes all routing keys.
        sample: where the sample goes before and after; None where no rule says that.
        rings: the ring before and after; None for an ``x-modulus-hash`` exchange.
        exact: the exact shares of keys that go from where to where; None where the two releases hash the same value
            differently, or where no rule says it.
        expected: the share of keys that is expected to move, where `exact` is None because the hashes differ: what two
            hashes that know nothing of each other give.
        kept_in_array: how many messages of the sample stay if their header is sent in an array of one element after the
            upgrade; None where that is of no use.
        findings: what else an upgrade does to the exchange.
    """

    name: str
    hashed_on: HashedOn | None
    sample: SampleMovement | None
    rings: UpgradedRings | None = None
    exact: MovementMatrix | None = None
    expected: float | None = None
    kept_in_array: int | None = None
    findings: tuple[UpgradeFinding, ...] = ()

    @property
    def hashes(self) -> str:
        """What the exchange hashes, in words."""
        return "all routing keys" if self.hashed_on is None else str(self.hashed_on)

    @property
    def moves_by_rule(self) -> bool:
        """Whether keys move although the ring keeps its order."""
        return bool(self.expected or (self.exact and self.exact.moved) or (self.sample and self.sample.moved))

    @property
    def verdict(self) -> Verdict:
        """What becomes of the exchange's keys."""
        if self.sample is None:
            return "unknown"
        if self.moves_by_rule:
            return "moves"
        return "repair" if self.rings is not None and self.rings.order == "lost" else "safe"


def hash_upgrade(
    name: str,
    bindings: Sequence[Binding],
    live: HashRing | None,
    hashed_on: HashedOn,
    messages: Sequence[SampledMessage],
    *,
    releases: tuple[Release, Release],
) -> ExchangeUpgrade:
    """Return what an upgrade does to an ``x-consistent-hash`` exchange, without findings.

    Args:
        name: the exchange's name.
        bindings: destinations and binding keys, in the order of the ring.
        live: the ring as it was read from a broker; None where it was not.
        hashed_on: what the exchange hashes.
        messages: the sample.
        releases: the release before and the one after.
    """
    rings = upgraded_rings(bindings, live, *releases)
    arguments = hash_arguments(hashed_on)
    old, new = (ConsistentHashExchange(name, ring, arguments) for ring in (rings.before, rings.after))
    sample = SampleMovement(messages, routes_of(old, messages), routes_of(new, messages))
    if hashed_alike(hashed_on, *releases):
        return ExchangeUpgrade(
            name, hashed_on, sample, rings, exact=movement_matrix(rings.before, rings.after)
        )
    before, after = rings.before.shares(), rings.after.shares()
    stays = sum(share * after.get(place, 0.0) for place, share in before.items())
    kept = None
    if releases[0].follows(HEADER_IS_TUPLE) and releases[1].follows(LIST_IS_ITS_HEAD):
        in_arrays = routes_of(new, [message.with_array(hashed_on.name) for message in messages])
        kept = sum(one == other for one, other in zip(sample.before, in_arrays, strict=True))
    several = len(before) > 1 or len(after) > 1
    return ExchangeUpgrade(
        name, hashed_on, sample, rings, expected=1 - stays if several else 0.0, kept_in_array=kept
    )


def hash_arguments(hashed_on: HashedOn) -> dict[str, str]:
    """Return the arguments of an exchange that hashes this.

    Args:
        hashed_on: what the exchange hashes.
    """
    if hashed_on.kind == "routing-key":
        return {}
    return {f"hash-{hashed_on.kind}": hashed_on.name.decode()}


def modulus_upgrade(
    name: str,
    bindings: Sequence[Binding],
    messages: Sequence[SampledMessage],
    *,
    releases: tuple[Release, Release],
) -> ExchangeUpgrade:
    """Return what an upgrade does to an ``x-modulus-hash`` exchange, without findings.

    Args:
        name: the exchange's name.
        bindings: destinations and binding keys.
        messages: the sample.
        releases: the release before and the one after.
    """
    old, new = (ModulusHashExchange(name, bindings, release) for release in releases)
    try:
        sample = SampleMovement(messages, routes_of(old, messages), routes_of(new, messages))
    except NotDeterminedError:
        return ExchangeUpgrade(name, None, None)
    return ExchangeUpgrade(name, None, sample, exact=_modulus_matrix(old.destinations, new.destinations))


def _modulus_matrix(old: Sequence[Destination], new: Sequence[Destination]) -> MovementMatrix:
    """Return the exact movement over all 2^27 hashes. Both have the same number of bindings."""
    amounts: dict[tuple[Place, Place], float] = {}
    for rest, pair in enumerate(zip(old, new, strict=True)):
        hashes = (_HASHES - rest + len(old) - 1) // len(old)
        amounts[pair] = amounts.get(pair, 0.0) + hashes / _HASHES
    return MovementMatrix(tuple(dict.fromkeys(old)), tuple(dict.fromkeys(old)), amounts)
