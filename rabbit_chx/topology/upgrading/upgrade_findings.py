"""What an upgrade does to a hash exchange beside moving keys, and what can be done about each of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rabbit_chx.analysis.wording import percent
from rabbit_chx.routing import rules
from rabbit_chx.topology.upgrading.upgrade_finding import UpgradeFinding
from rabbit_chx.topology.upgrading.upgraded_rings import heavy_bindings, merged_ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rabbit_chx.routing import Binding, Destination, Release
    from rabbit_chx.topology.checking.cures import Cures
    from rabbit_chx.topology.upgrading.exchange_upgrade import ExchangeUpgrade

__all__ = ["findings_of"]

_GHOSTS_SINCE = (4, 3, 0)
_DRAIN = (
    "Stop the publishers of {name}, let the consumers empty its queues, upgrade, and start the publishers again: "
    "then no key is in two queues at once"
)


def findings_of(
    upgrade: ExchangeUpgrade,
    bindings: Sequence[Binding],
    transient: Mapping[Destination, str],
    releases: tuple[Release, Release],
    cures: Cures,
) -> Iterator[UpgradeFinding]:
    """Yield what an upgrade does to an exchange beside the movement of its keys.

    Args:
        upgrade: the upgrade of the exchange.
        bindings: what is bound to it.
        transient: queues and exchanges that go by themselves, with the reason in words.
        releases: the release before and the one after.
        cures: the cures, with the name of the file.
    """
    before, after = releases
    if upgrade.hashed_on is None:
        yield from _of_modulus(upgrade, before, after)
        return
    if upgrade.hashed_on.kind == "header":
        yield from _of_hashing(upgrade, before, after)
        yield from _of_refusals(before, after)
    if upgrade.rings is not None and not upgrade.rings.as_bound:
        yield UpgradeFinding(
            "ring-differs",
            "the ring that was read is not what its bindings make: it has buckets without a binding, holes or bindings "
            "without a bucket. Brokers of a rehearsal have the bindings only",
            f"before the upgrade, run: rabbit-chx ring check {shlex.quote(upgrade.name)}",
        )
    yield from _of_second_bindings(upgrade, bindings, before, after)
    if upgrade.rings is not None and upgrade.rings.order == "lost":
        rings = upgrade.rings
        yield UpgradeFinding(
            "order",
            f"an upgrade restarts the broker, and on RabbitMQ {rings.decided_by} after a {rings.restart.about} "
            f"{rings.restart.says}; an import of definitions loses the order too. So repair the ring after the upgrade, "
            "before publishers start",
            _repaired(upgrade.name, cures),
        )
    if heavy := heavy_bindings(bindings, after):
        named = ", ".join(f"{destination!s} (key {key})" for destination, key in heavy[:3])
        yield UpgradeFinding(
            "weight",
            f"RabbitMQ {after.version} takes weights up to 10,000: {named} stays bound by an upgrade in place, and cannot be "
            "bound again, neither by a repair nor by an import of definitions",
            f"before the upgrade, divide all weights of {upgrade.name} by the same number",
        )
    yield from _of_transients(upgrade, transient, after)


def _repaired(name: str, cures: Cures) -> str:
    """Return what brings the order of a ring back. Without a file nothing says that order after the upgrade."""
    if cures.file is not None or cures.external:
        return cures.repaired(name)
    exchange, file = shlex.quote(name), shlex.quote(f"{name}.toml")
    return (
        f"before the upgrade, run: rabbit-chx topology export --exchange {exchange} > {file}; and after it: "
        f"rabbit-chx ring repair {exchange} --file {file} --apply"
    )


def _of_hashing(upgrade: ExchangeUpgrade, before: Release, after: Release) -> Iterator[UpgradeFinding]:
    if upgrade.expected is None or upgrade.sample is None:
        return
    bare = "bare, and takes an integer as the seed itself"
    typed = "with its wire type"
    one, other = (typed, bare) if before.follows(rules.HEADER_IS_TUPLE) else (bare, typed)
    cure = f"no order of the ring keeps these keys. {_DRAIN.format(name=upgrade.name)}."
    if upgrade.kept_in_array is not None and upgrade.hashed_on is not None:
        header = upgrade.hashed_on.name.decode(errors="replace")
        cure += (
            f" Or publishers send the header {header!r} as an array with the value as its only element, from the upgrade on: "
            f"of an array the first element is hashed, with its wire type. {upgrade.kept_in_array:,} of "
            f"{len(upgrade.sample.messages):,} sampled keys then stay."
        )
    yield UpgradeFinding(
        "hashed-differently",
        f"RabbitMQ {before.version} hashes the value of the header {one}; {after.version} hashes it {other}",
        cure,
    )


def _of_refusals(before: Release, after: Release) -> Iterator[UpgradeFinding]:
    for rule in (rules.MISSING_HEADER_CRASHES, rules.EMPTY_LIST_CRASHES):
        if after.follows(rule) and not before.follows(rule):
            yield UpgradeFinding(
                "refused-message",
                f"{rule.about}: {rule.says}",
                "let publishers send no such message"
                if rule is rules.EMPTY_LIST_CRASHES
                else "upgrade to 3.13.7 or newer, or let publishers send the header always",
            )


def _of_modulus(upgrade: ExchangeUpgrade, before: Release, after: Release) -> Iterator[UpgradeFinding]:
    if upgrade.verdict == "unknown":
        release = before if before.follows(rules.MODULUS_UNORDERED) else after
        yield UpgradeFinding(
            "modulus-order",
            f"on RabbitMQ {release} {rules.MODULUS_UNORDERED.says}",
            f"take it that most keys move. {_DRAIN.format(name=upgrade.name)}. Or use x-consistent-hash instead.",
        )
    elif upgrade.moves_by_rule:
        one, other = (
            next(
                rule
                for rule in (rules.MODULUS_BY_BINDING_KEY, rules.MODULUS_BY_NAME)
                if release.follows(rule)
            )
            for release in (before, after)
        )
        yield UpgradeFinding(
            "modulus-order",
            f"on RabbitMQ {before.version} {one.says}; on {after.version} {other.says}",
            "binding keys cannot bring the old order back, because they do not count any more. "
            f"{_DRAIN.format(name=upgrade.name)}.",
        )


def _of_second_bindings(
    upgrade: ExchangeUpgrade, bindings: Sequence[Binding], before: Release, after: Release
) -> Iterator[UpgradeFinding]:
    distinct = set(bindings)
    twice = sorted({str(place) for place, key in distinct if sum(one == place for one, _ in distinct) > 1})
    if not twice or upgrade.rings is None:
        return
    named = ", ".join(twice)
    if before.follows(rules.DUPLICATES_APPEND) and not after.follows(rules.DUPLICATES_APPEND):
        rings = upgrade.rings
        merged = merged_ring(rings.before)
        moved = rings.before.share_moved(merged)
        yield UpgradeFinding(
            "second-binding",
            f"{named} is bound more than once: RabbitMQ {before.version} adds buckets for each binding, and {after.version} "
            "for one of them",
            f"before the upgrade, give each destination of {upgrade.name} one binding whose weight is the number of its "
            f"buckets; that moves {percent(moved)} of the keys, where the upgrade moves "
            f"{percent(rings.before.share_moved(rings.after))}",
        )
        return
    yield UpgradeFinding(
        "second-binding",
        f"{named} is bound more than once: which binding has the buckets after a restart depends on the order in which the "
        "bindings come back",
        "before the upgrade, unbind the binding without buckets, and bind the destination again if its buckets went too",
    )


def _of_transients(
    upgrade: ExchangeUpgrade, transient: Mapping[Destination, str], after: Release
) -> Iterator[UpgradeFinding]:
    assert upgrade.rings is not None  # noqa: S101  # an x-consistent-hash exchange has one
    shares = upgrade.rings.after.shares()
    for destination in upgrade.rings.after.destinations:
        if destination not in transient:
            continue
        share = percent(shares[destination])
        ghosts = after.numbers >= _GHOSTS_SINCE
        what = (
            f"its buckets may stay without it (seen on 4.3.6), so that {share} of the keys are unroutable until they go"
            if ghosts
            else f"its buckets go with it, so that its {share} of the keys and others move"
        )
        yield UpgradeFinding(
            "transient-destination",
            f"{destination!s} {transient[destination]}: a restart removes it, and {what}; it comes back at the end of the ring",
            f"after the upgrade, run: rabbit-chx ring check {shlex.quote(upgrade.name)}",
        )
