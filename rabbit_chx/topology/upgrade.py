"""The keys of each hash exchange that another release moves, and remedies: ``rabbit-chx compare --topology``. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from rabbit_chx.analysis import Finding, movement
from rabbit_chx.analysis.matrix import MovementMatrix
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.fixes import Argument, CommandLine, Fix
from rabbit_chx.routing import (
    Binding,
    Destination,
    HashRing,
    ModulusHashExchange,
    Release,
    rules,
)
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS, HashedOn
from rabbit_chx.routing.release import Rule
from rabbit_chx.topology.checking.check_rings import GHOSTS_SINCE
from rabbit_chx.topology.checking.remedies import repair_command, repair_fix
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, ExchangeDefinition, FileFacts
from rabbit_chx.topology.rules.reach import transient_destinations
from rabbit_chx.words import percent

#: ``safe``: no key moves. ``repair``: none moves if the order of the ring is restored. ``moves``: keys move by a rule.
#: ``unknown``: no rule determines whether keys move.
Verdict: TypeAlias = Literal["safe", "repair", "moves", "unknown"]
#: The effect of a restart during the upgrade on the order of a ring. An exchange without an order has ``none``.
RingOrder: TypeAlias = Literal["kept", "lost", "none"]
_MODULUS: Final = "x-modulus-hash"
_RESTARTS = (rules.RESTART_SHUFFLES, rules.RESTART_EMPTIES, rules.RESTART_SORTS, rules.RESTART_KEEPS)
#: The rules that determine the seed of a header's value.
_OF_HEADERS = (
    rules.HEADER_IS_TUPLE, rules.HEADER_IS_BARE, rules.INTEGER_IS_SEED, rules.TIMESTAMP_IS_SEED,
    rules.LIST_IS_ITS_HEAD, rules.VOID_IS_UNDEFINED, rules.FIRST_HEADER_COUNTS, rules.LAST_HEADER_COUNTS,
)  # fmt: skip
_DRAIN = (
    "Stop the publishers of {name}, let the consumers empty its queues, upgrade, and start the publishers again: "
    "then no key is in two queues at once"
)


@dataclass(frozen=True, slots=True)
class ExchangeUpgrade:
    """The effect of an upgrade on a hash exchange.

    Attributes:
        hashes: the hashed part of a message, in words.
        moved: the share of keys whose queue changes while the ring keeps its order; None if no rule determines it.
        exact: the exact shares of keys that move between destinations; None if no rule determines them, or if the releases hash the same
            value differently. Then `moved` is the share of two independent hashes.
        order: the effect of a restart on the order of the ring.
        findings: other effects on the exchange: ``order`` (the order of the ring may change in a restart), ``hashed-differently`` (the same
            header value has another hash), ``refused-message`` (the broker closes the connection on some messages), ``modulus-order``
            (bindings are numbered in another order), ``second-binding`` (a destination that is bound twice has other buckets), ``weight``
            (a binding cannot be made again), ``transient-destination`` (a member does not survive the restart).
    """

    name: str
    hashes: str
    moved: float | None
    exact: MovementMatrix | None = None
    order: RingOrder = "none"
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The effect on the exchange's keys."""
        if self.moved is None:
            return "unknown"
        if self.moved:
            return "moves"
        return "repair" if self.order == "lost" else "safe"


def predict_upgrade(
    topology: Topology | LiveTopology, before: Release, after: Release, *, file: str | None = None
) -> tuple[ExchangeUpgrade, ...]:
    """Return the effect of an upgrade on each hash exchange of a topology, whose rings are replayed from their members.

    `file` is the name of the topology's file for the repair commands; None if there is no file.

    Raises:
        InputError: a broker would refuse the arguments of an exchange, or the release before a weight.
    """
    if isinstance(topology, LiveTopology):
        topology = topology.objects
    replayed, transient = replace(topology, file=FileFacts()), transient_destinations(topology)
    return tuple(
        _modulus_upgrade(topology, exchange, before, after)
        if exchange.type == _MODULUS
        else _ChxUpgrade.of(replayed, exchange, before, after).result(transient, file)
        for exchange in topology.exchanges
        if exchange.type in (HASH_EXCHANGE, _MODULUS)
    )


def _modulus_upgrade(
    topology: Topology, exchange: ExchangeDefinition, before: Release, after: Release
) -> ExchangeUpgrade:
    name, hashes = exchange.name, "all routing keys"
    bindings = tuple(
        (binding.destination, binding.routing_key) for binding in topology.bindings if binding.source == name
    )
    drained = _DRAIN.format(name=name)
    try:
        exact = movement(*(ModulusHashExchange(name, bindings, release) for release in (before, after)))
    except NotDeterminedError:
        release = before if before.follows(rules.MODULUS_UNORDERED) else after
        finding = Finding(
            "modulus-order",
            f"on RabbitMQ {release} {rules.MODULUS_UNORDERED.says}",
            f"assume that most keys move. {drained}. Or use x-consistent-hash instead.",
        )
        return ExchangeUpgrade(name, hashes, None, findings=(finding,))
    if not exact.moved:
        return ExchangeUpgrade(name, hashes, 0.0, exact)
    ordered = (rules.MODULUS_BY_BINDING_KEY, rules.MODULUS_BY_NAME)
    old, new = (next(filter(release.follows, ordered)) for release in (before, after))
    finding = Finding(
        "modulus-order",
        f"on RabbitMQ {before.version} {old.says}; on {after.version} {new.says}",
        f"binding keys cannot restore the old order, because they no longer count. {drained}.",
    )
    return ExchangeUpgrade(name, hashes, exact.moved, exact, findings=(finding,))


@dataclass(frozen=True, slots=True)
class _ChxUpgrade:
    """An ``x-consistent-hash`` exchange on two releases.

    Attributes:
        old: its map of keys before the upgrade: the ring, or the table of its slots.
        new: the same afterwards.
        old_ring: its ring before the upgrade, also with slots.
        new_ring: the same afterwards.
    """

    exchange: ExchangeDefinition
    hashed_on: HashedOn
    bindings: tuple[Binding, ...]
    before: Release
    after: Release
    old: KeyMap
    new: KeyMap
    old_ring: HashRing
    new_ring: HashRing

    @classmethod
    def of(
        cls, topology: Topology, exchange: ExchangeDefinition, before: Release, after: Release
    ) -> _ChxUpgrade:
        arguments = {name: exchange.arguments[name] for name in HASH_ARGUMENTS if name in exchange.arguments}
        bindings = tuple(member.binding for member in exchange.ring or ())
        name, hashed_on = exchange.name, HashedOn.from_arguments(arguments)
        old, old_ring = topology.key_map(name, before), topology.ring(name, before)
        try:
            new, new_ring = topology.key_map(name, after), topology.ring(name, after)
        except InputError:  # a broker keeps a binding that is older than the rule that refuses its weight
            new, new_ring = old.with_release(after), old_ring.with_release(after)
        return cls(exchange, hashed_on, bindings, before, after, old, new, old_ring, new_ring)

    def result(self, transient: Mapping[Destination, str], file: str | None) -> ExchangeUpgrade:
        exact = movement(self.old, self.new) if self._hashed_alike else None
        moved = self._estimate_movement() if exact is None else exact.moved
        findings = tuple(self._findings(transient, file))
        return ExchangeUpgrade(self.exchange.name, str(self.hashed_on), moved, exact, self._order, findings)

    @property
    def _hashed_alike(self) -> bool:
        return self.hashed_on.kind != "header" or all(
            self.before.follows(rule) == self.after.follows(rule) for rule in _OF_HEADERS
        )

    def _estimate_movement(self) -> float:
        before, after = self.old.shares(), self.new.shares()
        if before.keys() == after.keys() and len(before) < 2:
            return 0.0
        return 1 - sum(share * after.get(place, 0.0) for place, share in before.items())

    @property
    def _decisive(self) -> Release:
        """The release that determines the order of the ring."""
        return self.after if self.before.follows(rules.RESTART_KEEPS) else self.before

    @property
    def _order(self) -> RingOrder:
        places = {*self.old_ring.destinations, *self.new_ring.destinations}
        if len(places) < 2:
            return "none"
        return "kept" if self._decisive.follows(rules.RESTART_KEEPS) else "lost"

    def _findings(self, transient: Mapping[Destination, str], file: str | None) -> Iterator[Finding]:
        if self.hashed_on.kind == "header":
            yield from self._of_header()
        yield from self._of_second_bindings()
        if self._order == "lost":
            restart = next(filter(self._decisive.follows, _RESTARTS))
            yield Finding(
                "order",
                f"an upgrade restarts the broker, and on RabbitMQ {self._decisive} after a {restart.about} {restart.says}; an "
                "import of definitions loses the order too. So repair the ring after the upgrade, before publishers start",
                _repair(self.exchange, file),
            )
        if heavy := [f"{place!s} (key {key})" for place, key in self.bindings if self._is_heavy(place, key)]:
            yield Finding(
                "weight",
                f"RabbitMQ {self.after.version} takes weights up to 10,000: {', '.join(heavy[:3])} stays bound by an upgrade in "
                "place, and cannot be bound again, neither by a repair nor by an import of definitions",
                f"before the upgrade, divide all weights of {self.exchange.name} by the same number",
            )
        yield from self._of_transients(transient)

    def _of_header(self) -> Iterator[Finding]:
        before, after, name = self.before, self.after, self.exchange.name
        if not self._hashed_alike:
            typed, bare = "with its wire type", "bare, and takes an integer as the seed itself"
            old, new = (typed, bare) if before.follows(rules.HEADER_IS_TUPLE) else (bare, typed)
            cure = f"no order of the ring keeps these keys. {_DRAIN.format(name=name)}."
            if before.follows(rules.HEADER_IS_TUPLE) and after.follows(rules.LIST_IS_ITS_HEAD):
                header = self.hashed_on.name.decode(errors="replace")
                cure += (
                    f" Or publishers send the header {header!r} as an array with the value as its only element, from the "
                    "upgrade on: of an array the first element is hashed, with its wire type. Then every key stays."
                )
            says = f"RabbitMQ {before.version} hashes the value of the header {old}; {after.version} hashes it {new}"
            yield Finding("hashed-differently", says, cure)
        cures: dict[Rule, str] = {
            rules.MISSING_HEADER_CRASHES: "upgrade to 3.13.7 or newer, or let publishers send the header always",
            rules.EMPTY_LIST_CRASHES: "let publishers send no such message",
        }
        for rule, cure in cures.items():
            if after.follows(rule) and not before.follows(rule):
                yield Finding("refused-message", f"{rule.about}: {rule.says}", cure)

    def _of_second_bindings(self) -> Iterator[Finding]:
        bound = Counter(destination for destination, _ in set(self.bindings))
        twice = ", ".join(sorted(str(destination) for destination, count in bound.items() if count > 1))
        if not twice:
            return
        before, after, name = self.before, self.after, self.exchange.name
        if before.follows(rules.DUPLICATES_APPEND) and not after.follows(rules.DUPLICATES_APPEND):
            old, new = self.old_ring, self.new_ring
            merged = [place for place in old.destinations for _ in range(old.buckets.count(place))]
            moved = percent(old.share_moved(HashRing.from_buckets(merged, old.release)))
            yield Finding(
                "second-binding",
                f"{twice} is bound more than once: RabbitMQ {before.version} adds buckets for each binding, and {after.version} "
                "for one of them",
                f"before the upgrade, bind each destination of {name} one binding whose weight is the number of its buckets; "
                f"that moves {moved} of the keys, where the upgrade moves {percent(old.share_moved(new))}",
            )
            return
        yield Finding(
            "second-binding",
            f"{twice} is bound more than once: which binding has the buckets after a restart depends on the order in which the "
            "bindings are restored",
            "before the upgrade, unbind the binding without buckets, and bind the destination again if its buckets went too",
        )

    def _is_heavy(self, destination: Destination, key: str) -> bool:
        """Return True if the release after the upgrade refuses the binding when it is made again."""
        try:
            weight_of(destination, key, self.after)
        except InputError:
            return True
        return False

    def _of_transients(self, transient: Mapping[Destination, str]) -> Iterator[Finding]:
        shares = self.new_ring.shares()
        for destination in self.new_ring.destinations:
            if destination not in transient:
                continue
            share = percent(shares[destination])
            what = f"its buckets are removed with it, so that its {share} of the keys and others move"
            if self.after.numbers >= GHOSTS_SINCE:
                what = f"its buckets may stay without it (seen on 4.3.6), so that {share} of the keys are unroutable until they go"
            yield Finding(
                "transient-destination",
                f"{destination!s} {transient[destination]}: a restart removes it, and {what}; it is bound again at the end of the ring",
                Fix(
                    "after the upgrade, run: ",
                    CommandLine(
                        "ring check", f"check(live, exchange={self.exchange.name!r})", (self.exchange.name,)
                    ),
                ),
            )


def _repair(exchange: ExchangeDefinition, file: str | None) -> str:
    """Return the commands that restore the order of a ring. Without a file it must be exported before the upgrade."""
    external = exchange.owner == "external"
    if file is not None or external:
        return repair_fix(exchange.name, file, external=external)
    exported = f"{exchange.name}.toml"
    export = CommandLine(
        "topology export",
        "Broker.topology().to_toml()",
        options=(Argument("exchange", exchange.name),),
        output=exported,
    )
    return Fix(
        "before the upgrade, run: ",
        export,
        "; and after it: ",
        repair_command(exchange.name, exported, does_it=True),
    )
