"""What an upgrade of the broker does to the hash exchanges of a topology, by the mirror, and what repairs it. A value, made without I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.wording import percent
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HASH_ARGUMENTS, Binding, Destination, HashedOn, Release, rules
from rabbit_chx.topology.check_rings import repair_cure
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember, SlotNames
from rabbit_chx.topology.reach import transient_destinations
from rabbit_chx.topology.upgrade_exchange import (
    ExchangeUpgrade,
    SampledMessage,
    hash_upgrade,
    heavy_bindings,
    merged_ring,
    modulus_upgrade,
)

if TYPE_CHECKING:
    from rabbit_chx.topology.model import Topology

__all__ = [
    "UpgradePrediction",
    "bound_to",
    "hash_exchanges",
    "hashed_on",
    "predict_exchange",
    "predict_upgrade",
]

MODULUS_EXCHANGE = "x-modulus-hash"
_GHOSTS_SINCE = (4, 3, 0)
_DRAIN = (
    "Stop the publishers of {name}, let the consumers empty its queues, upgrade, and start the publishers again: "
    "then no key is in two queues at once"
)


@dataclass(frozen=True, slots=True)
class UpgradePrediction:
    """What an upgrade does to the hash exchanges of a topology.

    Attributes:
        before: the release before.
        after: the release after.
        exchanges: the hash exchanges, by name.
    """

    before: Release
    after: Release
    exchanges: tuple[ExchangeUpgrade, ...]

    @property
    def moves(self) -> bool:
        """Whether keys of an exchange move, or may move."""
        return any(one.verdict != "safe" for one in self.exchanges)


def hash_exchanges(topology: Topology) -> tuple[ExchangeDefinition, ...]:
    """Return the exchanges of a topology that hash.

    Args:
        topology: what there is.
    """
    return tuple(one for one in topology.exchanges if one.type in (HASH_EXCHANGE, MODULUS_EXCHANGE))


def hashed_on(exchange: ExchangeDefinition) -> HashedOn | None:
    """Return what a hash exchange hashes; None for an ``x-modulus-hash`` exchange, which hashes all routing keys.

    Args:
        exchange: the exchange.

    Raises:
        InputError: the broker would refuse its arguments.
    """
    if exchange.type == MODULUS_EXCHANGE:
        return None
    named = {name: exchange.arguments[name] for name in HASH_ARGUMENTS if name in exchange.arguments}
    return HashedOn.from_arguments(named)


def bound_to(topology: Topology, exchange: ExchangeDefinition) -> tuple[Binding, ...]:
    """Return what is bound to a hash exchange: in the order of the ring, as far as it has one.

    An exchange with slots has them as its ring.

    Args:
        topology: what there is.
        exchange: the exchange.
    """
    if exchange.type == MODULUS_EXCHANGE:
        return tuple(
            (one.destination, one.routing_key) for one in topology.bindings if one.source == exchange.name
        )
    if exchange.slots is not None:
        return tuple(RingMember(slot).binding for slot in SlotNames(exchange.name, exchange.slots).refs)
    return tuple(member.binding for member in exchange.ring or ())


def predict_upgrade(
    topology: Topology,
    samples: Mapping[str, Sequence[SampledMessage]],
    before: Release,
    after: Release,
    *,
    file: str | None = None,
) -> UpgradePrediction:
    """Return what an upgrade does to the hash exchanges of a topology.

    Args:
        topology: what there is; its rings count where they were read.
        samples: the messages of each hash exchange, by its name; an exchange without any has no sample.
        before: the release before.
        after: the release after.
        file: the name of the topology's file, for the commands that repair; None where there is none.

    Raises:
        InputError: the release after is older than the one before, or a client cannot send a message of the sample.
    """
    if after.numbers < before.numbers:
        raise InputError(
            f"an upgrade goes to a newer release, and {after.version} is older than {before.version}"
        )
    transient = transient_destinations(topology)
    made = []
    for exchange in hash_exchanges(topology):
        upgrade = predict_exchange(topology, exchange, samples.get(exchange.name, ()), before, after)
        bindings = bound_to(topology, exchange)
        repair = _repaired(exchange, file)
        findings = findings_of(upgrade, bindings, transient, (before, after), repair)
        made.append(replace(upgrade, findings=tuple(findings)))
    return UpgradePrediction(before, after, tuple(made))


def predict_exchange(
    topology: Topology,
    exchange: ExchangeDefinition,
    messages: Sequence[SampledMessage],
    before: Release,
    after: Release,
) -> ExchangeUpgrade:
    """Return what an upgrade does to one hash exchange, without findings.

    Args:
        topology: what there is.
        exchange: the exchange.
        messages: its sample.
        before: the release before.
        after: the release after.
    """
    bindings, hashed = bound_to(topology, exchange), hashed_on(exchange)
    if hashed is None:
        return modulus_upgrade(exchange.name, bindings, messages, releases=(before, after))
    live = topology.rings.get(exchange.name)
    return hash_upgrade(exchange.name, bindings, live, hashed, messages, releases=(before, after))


def findings_of(
    upgrade: ExchangeUpgrade,
    bindings: Sequence[Binding],
    transient: Mapping[Destination, str],
    releases: tuple[Release, Release],
    repair: str,
) -> Iterator[Finding]:
    """Yield what an upgrade does to an exchange beside the movement of its keys.

    Args:
        upgrade: the upgrade of the exchange.
        bindings: what is bound to it.
        transient: queues and exchanges that go by themselves, with the reason in words.
        releases: the release before and the one after.
        repair: what brings the order of the ring back.
    """
    before, after = releases
    if upgrade.hashed_on is None:
        yield from _of_modulus(upgrade, before, after)
        return
    if upgrade.hashed_on.kind == "header":
        yield from _of_hashing(upgrade, before, after)
        yield from _of_refusals(before, after)
    if upgrade.rings is not None and not upgrade.rings.as_bound:
        yield Finding(
            "ring-differs",
            "the ring that was read is not what its bindings make: it has buckets without a binding, holes or bindings "
            "without a bucket. Brokers of a rehearsal have the bindings only",
            f"before the upgrade, run: rabbit-chx ring check {shlex.quote(upgrade.name)}",
        )
    yield from _of_second_bindings(upgrade, bindings, before, after)
    if upgrade.rings is not None and upgrade.rings.order == "lost":
        rings = upgrade.rings
        yield Finding(
            "order",
            f"an upgrade restarts the broker, and on RabbitMQ {rings.decided_by} after a {rings.restart.about} "
            f"{rings.restart.says}; an import of definitions loses the order too. So repair the ring after the upgrade, "
            "before publishers start",
            repair,
        )
    if heavy := heavy_bindings(bindings, after):
        named = ", ".join(f"{destination!s} (key {key})" for destination, key in heavy[:3])
        yield Finding(
            "weight",
            f"RabbitMQ {after.version} takes weights up to 10,000: {named} stays bound by an upgrade in place, and cannot be "
            "bound again, neither by a repair nor by an import of definitions",
            f"before the upgrade, divide all weights of {upgrade.name} by the same number",
        )
    yield from _of_transients(upgrade, transient, after)


def _repaired(exchange: ExchangeDefinition, file: str | None) -> str:
    """Return what brings the order of a ring back. Without a file nothing says that order after the upgrade."""
    external = exchange.owner == "external"
    if file is not None or external:
        return repair_cure(exchange.name, file, external=external)
    name, exported = shlex.quote(exchange.name), shlex.quote(f"{exchange.name}.toml")
    return (
        f"before the upgrade, run: rabbit-chx topology export --exchange {name} > {exported}; and after it: "
        f"rabbit-chx ring repair {name} --file {exported} --apply"
    )


def _of_hashing(upgrade: ExchangeUpgrade, before: Release, after: Release) -> Iterator[Finding]:
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
    yield Finding(
        "hashed-differently",
        f"RabbitMQ {before.version} hashes the value of the header {one}; {after.version} hashes it {other}",
        cure,
    )


def _of_refusals(before: Release, after: Release) -> Iterator[Finding]:
    for rule in (rules.MISSING_HEADER_CRASHES, rules.EMPTY_LIST_CRASHES):
        if after.follows(rule) and not before.follows(rule):
            yield Finding(
                "refused-message",
                f"{rule.about}: {rule.says}",
                "let publishers send no such message"
                if rule is rules.EMPTY_LIST_CRASHES
                else "upgrade to 3.13.7 or newer, or let publishers send the header always",
            )


def _of_modulus(upgrade: ExchangeUpgrade, before: Release, after: Release) -> Iterator[Finding]:
    if upgrade.verdict == "unknown":
        release = before if before.follows(rules.MODULUS_UNORDERED) else after
        yield Finding(
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
        yield Finding(
            "modulus-order",
            f"on RabbitMQ {before.version} {one.says}; on {after.version} {other.says}",
            "binding keys cannot bring the old order back, because they do not count any more. "
            f"{_DRAIN.format(name=upgrade.name)}.",
        )


def _of_second_bindings(
    upgrade: ExchangeUpgrade, bindings: Sequence[Binding], before: Release, after: Release
) -> Iterator[Finding]:
    distinct = set(bindings)
    twice = sorted({str(place) for place, key in distinct if sum(one == place for one, _ in distinct) > 1})
    if not twice or upgrade.rings is None:
        return
    named = ", ".join(twice)
    if before.follows(rules.DUPLICATES_APPEND) and not after.follows(rules.DUPLICATES_APPEND):
        rings = upgrade.rings
        merged = merged_ring(rings.before)
        moved = rings.before.share_moved(merged)
        yield Finding(
            "second-binding",
            f"{named} is bound more than once: RabbitMQ {before.version} adds buckets for each binding, and {after.version} "
            "for one of them",
            f"before the upgrade, give each destination of {upgrade.name} one binding whose weight is the number of its "
            f"buckets; that moves {percent(moved)} of the keys, where the upgrade moves "
            f"{percent(rings.before.share_moved(rings.after))}",
        )
        return
    yield Finding(
        "second-binding",
        f"{named} is bound more than once: which binding has the buckets after a restart depends on the order in which the "
        "bindings come back",
        "before the upgrade, unbind the binding without buckets, and bind the destination again if its buckets went too",
    )


def _of_transients(
    upgrade: ExchangeUpgrade, transient: Mapping[Destination, str], after: Release
) -> Iterator[Finding]:
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
        yield Finding(
            "transient-destination",
            f"{destination!s} {transient[destination]}: a restart removes it, and {what}; it comes back at the end of the ring",
            f"after the upgrade, run: rabbit-chx ring check {shlex.quote(upgrade.name)}",
        )
