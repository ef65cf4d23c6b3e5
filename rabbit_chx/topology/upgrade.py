"""What an upgrade of the broker does to the hash exchanges of a topology, by the mirror, and what helps. A value, made without I/O."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.wording import percent
from rabbit_chx.errors import InputError
from rabbit_chx.routing import HASH_ARGUMENTS, Binding, Destination, HashedOn, HashRing, Release, rules
from rabbit_chx.topology.check_rings import GHOSTS_SINCE, repair_cure
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember, SlotNames
from rabbit_chx.topology.reach import transient_destinations
from rabbit_chx.topology.upgrade_exchange import (
    ExchangeUpgrade,
    SampledMessage,
    UpgradedRings,
    hash_upgrade,
    heavy_bindings,
    modulus_upgrade,
)

_MODULUS = "x-modulus-hash"
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
        return any(exchange.verdict != "safe" for exchange in self.exchanges)


def hash_exchanges(topology: Topology) -> tuple[ExchangeDefinition, ...]:
    """Return the exchanges of a topology that hash."""
    return tuple(exchange for exchange in topology.exchanges if exchange.type in (HASH_EXCHANGE, _MODULUS))


def hashed_on(exchange: ExchangeDefinition) -> HashedOn | None:
    """Return what a hash exchange hashes; None for an ``x-modulus-hash`` exchange, which hashes all routing keys.

    Raises:
        InputError: the broker would refuse its arguments.
    """
    if exchange.type == _MODULUS:
        return None
    named = {name: exchange.arguments[name] for name in HASH_ARGUMENTS if name in exchange.arguments}
    return HashedOn.from_arguments(named)


def bound_to(topology: Topology, exchange: ExchangeDefinition) -> tuple[Binding, ...]:
    """Return what is bound to a hash exchange: in the order of the ring, as far as it has one.

    An exchange with slots has them as its ring.
    """
    if exchange.type == _MODULUS:
        return tuple(
            (binding.destination, binding.routing_key)
            for binding in topology.bindings
            if binding.source == exchange.name
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
    exchanges = []
    for exchange in hash_exchanges(topology):
        upgrade = predict_exchange(topology, exchange, samples.get(exchange.name, ()), before, after)
        bindings = bound_to(topology, exchange)
        findings = _findings(upgrade, exchange, bindings, transient, (before, after), file=file)
        exchanges.append(replace(upgrade, findings=tuple(findings)))
    return UpgradePrediction(before, after, tuple(exchanges))


def predict_exchange(
    topology: Topology,
    exchange: ExchangeDefinition,
    messages: Sequence[SampledMessage],
    before: Release,
    after: Release,
) -> ExchangeUpgrade:
    """Return what an upgrade does to one hash exchange, without findings."""
    bindings, hashed = bound_to(topology, exchange), hashed_on(exchange)
    if hashed is None:
        return modulus_upgrade(exchange.name, bindings, messages, releases=(before, after))
    live = topology.rings.get(exchange.name)
    return hash_upgrade(exchange.name, bindings, live, hashed, messages, releases=(before, after))


def _findings(
    upgrade: ExchangeUpgrade,
    exchange: ExchangeDefinition,
    bindings: Sequence[Binding],
    transient: Mapping[Destination, str],
    releases: tuple[Release, Release],
    *,
    file: str | None,
) -> Iterator[Finding]:
    """Yield what an upgrade does to an exchange beside the movement of its keys.

    Args:
        upgrade: the upgrade of the exchange.
        exchange: the exchange.
        bindings: what is bound to it.
        transient: queues and exchanges that go by themselves, with the reason in words.
        releases: the release before and the one after.
        file: the name of the topology's file; None where there is none.
    """
    before, after = releases
    rings, name = upgrade.rings, upgrade.name
    if upgrade.hashed_on is None or rings is None:
        yield from _of_modulus(upgrade, before, after)
        return
    if upgrade.hashed_on.kind == "header":
        yield from _of_hashing(upgrade, before, after)
        yield from _of_refusals(before, after)
    if not rings.as_bound:
        yield Finding(
            "ring-differs",
            "the ring that was read is not what its bindings make: it has buckets without a binding, holes or bindings "
            "without a bucket. Brokers of a rehearsal have the bindings only",
            f"before the upgrade, run: rabbit-chx ring check {shlex.quote(name)}",
        )
    yield from _of_second_bindings(name, rings, bindings, before, after)
    if rings.order == "lost":
        yield Finding(
            "order",
            f"an upgrade restarts the broker, and on RabbitMQ {rings.decided_by} after a {rings.restart.about} "
            f"{rings.restart.says}; an import of definitions loses the order too. So repair the ring after the upgrade, "
            "before publishers start",
            _repaired(exchange, file),
        )
    if heavy := heavy_bindings(bindings, after):
        named = ", ".join(f"{destination!s} (key {key})" for destination, key in heavy[:3])
        yield Finding(
            "weight",
            f"RabbitMQ {after.version} takes weights up to 10,000: {named} stays bound by an upgrade in place, and cannot be "
            "bound again, neither by a repair nor by an import of definitions",
            f"before the upgrade, divide all weights of {name} by the same number",
        )
    yield from _of_transients(name, rings, transient, after)


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
    old, new = (typed, bare) if before.follows(rules.HEADER_IS_TUPLE) else (bare, typed)
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
        f"RabbitMQ {before.version} hashes the value of the header {old}; {after.version} hashes it {new}",
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
        old, new = (
            next(
                rule
                for rule in (rules.MODULUS_BY_BINDING_KEY, rules.MODULUS_BY_NAME)
                if release.follows(rule)
            )
            for release in (before, after)
        )
        yield Finding(
            "modulus-order",
            f"on RabbitMQ {before.version} {old.says}; on {after.version} {new.says}",
            "binding keys cannot bring the old order back, because they do not count any more. "
            f"{_DRAIN.format(name=upgrade.name)}.",
        )


def _of_second_bindings(
    name: str, rings: UpgradedRings, bindings: Sequence[Binding], before: Release, after: Release
) -> Iterator[Finding]:
    bound = Counter(destination for destination, _ in set(bindings))
    twice = ", ".join(sorted(str(destination) for destination, count in bound.items() if count > 1))
    if not twice:
        return
    if before.follows(rules.DUPLICATES_APPEND) and not after.follows(rules.DUPLICATES_APPEND):
        ring = rings.before
        merged = [place for place in ring.destinations for _ in range(ring.buckets.count(place))]
        moved = percent(ring.share_moved(HashRing.from_buckets(merged, ring.release)))
        yield Finding(
            "second-binding",
            f"{twice} is bound more than once: RabbitMQ {before.version} adds buckets for each binding, and {after.version} "
            "for one of them",
            f"before the upgrade, give each destination of {name} one binding whose weight is the number of its buckets; that "
            f"moves {moved} of the keys, where the upgrade moves {percent(ring.share_moved(rings.after))}",
        )
        return
    yield Finding(
        "second-binding",
        f"{twice} is bound more than once: which binding has the buckets after a restart depends on the order in which the "
        "bindings come back",
        "before the upgrade, unbind the binding without buckets, and bind the destination again if its buckets went too",
    )


def _of_transients(
    name: str, rings: UpgradedRings, transient: Mapping[Destination, str], after: Release
) -> Iterator[Finding]:
    shares = rings.after.shares()
    for destination in rings.after.destinations:
        if destination not in transient:
            continue
        share = percent(shares[destination])
        what = f"its buckets go with it, so that its {share} of the keys and others move"
        if after.numbers >= GHOSTS_SINCE:
            what = f"its buckets may stay without it (seen on 4.3.6), so that {share} of the keys are unroutable until they go"
        yield Finding(
            "transient-destination",
            f"{destination!s} {transient[destination]}: a restart removes it, and {what}; it comes back at the end of the ring",
            f"after the upgrade, run: rabbit-chx ring check {shlex.quote(name)}",
        )
