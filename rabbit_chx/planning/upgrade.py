"""The keys of each hash exchange that another release moves, and remedies: ``rabbit-chx compare FILE --to-release``. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.findings import Severity
from rabbit_chx.analysis.reports import matrix_table
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.planning.plan import with_release
from rabbit_chx.planning.refusals import apply_fix
from rabbit_chx.rendering.document import Block, Document, Facts, Line, Section, Table
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import (
    Binding,
    Destination,
    HashRing,
    Release,
    rules,
)
from rabbit_chx.routing.bindings import AS_LISTED, Flows, weight_of
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HashedOn
from rabbit_chx.routing.release import GHOSTS_SINCE, Rule
from rabbit_chx.text import apply_text, command_text, exchange_argument, grouped, percent
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, MODULUS_EXCHANGE, ExchangeDefinition
from rabbit_chx.topology.reach import transient_destinations

#: ``safe``: no key moves. ``repair``: none moves if the order of the ring is restored. ``moves``: keys move by a rule.
#: ``unknown``: no rule determines whether keys move.
Verdict: TypeAlias = Literal["safe", "repair", "moves", "unknown"]
#: The effect of a restart during the upgrade on the order of a ring. An exchange without an order has ``none``.
RingOrder: TypeAlias = Literal["kept", "lost", "none"]
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
    exact: Flows | None = None
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
    old = with_release(topology, before)
    new = with_release(with_release(topology, before), after)
    transient = transient_destinations(new)
    return tuple(
        _modulus_upgrade(exchange.name, old, new)
        if exchange.type == MODULUS_EXCHANGE
        else _ring_upgrade(exchange, old, new, transient, file)
        for exchange in new.exchanges
        if exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE)
    )


def _modulus_upgrade(name: str, before: LiveTopology, after: LiveTopology) -> ExchangeUpgrade:
    hashes = "all routing keys"
    maps = (before.modulus(name), after.modulus(name))
    releases = [each.release for each in maps]
    drained = _DRAIN.format(name=name)
    try:
        exact = maps[0].flows(maps[1])
    except NotDeterminedError:
        release = next(release for release in releases if release.follows(rules.MODULUS_UNORDERED))
        finding = Finding(
            "modulus-order",
            f"on RabbitMQ {release} {rules.MODULUS_UNORDERED.says}",
            f"assume that most keys move. {drained}. Or use x-consistent-hash instead.",
        )
        return ExchangeUpgrade(name, hashes, None, findings=(finding,))
    if not exact.moved:
        return ExchangeUpgrade(name, hashes, 0.0, exact)
    ordered = (rules.MODULUS_BY_BINDING_KEY, rules.MODULUS_BY_NAME)
    old, new = (next(filter(release.follows, ordered)) for release in releases)
    finding = Finding(
        "modulus-order",
        f"on RabbitMQ {releases[0].version} {old.says}; on {releases[1].version} {new.says}",
        f"binding keys cannot restore the old order, because they no longer count. {drained}.",
    )
    return ExchangeUpgrade(name, hashes, exact.moved, exact, findings=(finding,))


def _ring_upgrade(
    exchange: ExchangeDefinition,
    before: LiveTopology,
    after: LiveTopology,
    transient: Mapping[Destination, str],
    file: str | None,
) -> ExchangeUpgrade:
    """Return the effect on an ``x-consistent-hash`` exchange, which is in both topologies."""
    name = exchange.name
    bindings = tuple(member.binding for member in exchange.ring or ())
    # Both releases have the members in the same order. Which one it is matters only to second bindings.
    is_unknown = not before.rings[name].order.is_known
    if is_unknown:
        before = before.with_rings({name: replace(before.rings[name], order=AS_LISTED)})
        after = after.with_rings({name: replace(after.rings[name], order=AS_LISTED)})
        is_unknown = len({place for place, _ in bindings}) < len({*bindings})
    old = before.rings[name]
    new = after.rings[name]
    hashed_on = HashedOn.from_arguments(exchange.arguments)
    is_alike = hashed_on.kind != "header" or all(
        old.release.follows(rule) == new.release.follows(rule) for rule in _OF_HEADERS
    )
    maps = before.key_map(name), after.key_map(name)
    exact = maps[0].flows(maps[1]) if is_alike and not is_unknown else None
    # The release that determines the order of the ring.
    decisive = new.release if old.release.follows(rules.RESTART_KEEPS) else old.release
    order: RingOrder = "kept" if decisive.follows(rules.RESTART_KEEPS) else "lost"
    if len({*old.destinations, *new.destinations}) < 2:
        order = "none"
    findings = [
        *(_differently_hashed(name, hashed_on, old.release, new.release) if not is_alike else ()),
        *(_refused_messages(old.release, new.release) if hashed_on.kind == "header" else ()),
        *_second_binding_findings(name, bindings, old, new, is_unknown=is_unknown),
        *(_order_findings(exchange, decisive, file) if order == "lost" else ()),
        *_weight_findings(name, bindings, new.release),
        *_transient_findings(name, new, transient),
    ]
    moved: float | None = None
    if exact is not None:
        moved = exact.moved
    elif not is_unknown:
        moved = _estimate_movement(*maps)
    return ExchangeUpgrade(name, str(hashed_on), moved, exact, order, tuple(findings))


def _estimate_movement(before: KeyMap, after: KeyMap) -> float:
    """Return the share that two independent hashes move."""
    old = before.shares()
    new = after.shares()
    if old.keys() == new.keys() and len(old) < 2:
        return 0.0
    return 1 - sum(share * new.get(place, 0.0) for place, share in old.items())


def _order_findings(exchange: ExchangeDefinition, decisive: Release, file: str | None) -> Iterator[Finding]:
    restart = rules.RESTART_SHUFFLES
    yield Finding(
        "order",
        f"an upgrade restarts the broker, and on RabbitMQ {decisive} after a {restart.about} {restart.says}; an "
        "import of definitions loses the order too. So repair the ring after the upgrade, before publishers start",
        _repair(exchange, file),
    )


def _weight_findings(name: str, bindings: Iterable[Binding], after: Release) -> Iterator[Finding]:
    if heavy := [f"{place!s} (key {key})" for place, key in bindings if _is_heavy(place, key, after)]:
        yield Finding(
            "weight",
            f"RabbitMQ {after.version} takes weights up to 10,000: {', '.join(heavy[:3])} stays bound by an upgrade in "
            "place, and cannot be bound again, neither by a repair nor by an import of definitions",
            f"before the upgrade, divide all weights of {name} by the same number",
        )


def _is_heavy(destination: Destination, key: str, after: Release) -> bool:
    """Return True if the release after the upgrade refuses the binding when it is made again."""
    try:
        weight_of(destination, key, after)
    except InputError:
        return True
    return False


def _differently_hashed(name: str, hashed_on: HashedOn, before: Release, after: Release) -> Iterator[Finding]:
    typed = "with its wire type"
    bare = "bare, and takes an integer as the seed itself"
    if before.follows(rules.HEADER_IS_TUPLE):
        old = typed
        new = bare
    else:
        old = bare
        new = typed
    cure = f"no order of the ring keeps these keys. {_DRAIN.format(name=name)}."
    if before.follows(rules.HEADER_IS_TUPLE) and after.follows(rules.LIST_IS_ITS_HEAD):
        header = hashed_on.name.decode(errors="replace")
        cure += (
            f" Or publishers send the header {header!r} as an array with the value as its only element, from the "
            "upgrade on: of an array the first element is hashed, with its wire type. Then every key stays."
        )
    says = f"RabbitMQ {before.version} hashes the value of the header {old}; {after.version} hashes it {new}"
    yield Finding("hashed-differently", says, cure)


def _refused_messages(before: Release, after: Release) -> Iterator[Finding]:
    cures: dict[Rule, str] = {
        rules.MISSING_HEADER_CRASHES: "upgrade to 3.13.7 or newer, or let publishers send the header always",
        rules.EMPTY_LIST_CRASHES: "let publishers send no such message",
    }
    for rule, cure in cures.items():
        if after.follows(rule) and not before.follows(rule):
            yield Finding("refused-message", f"{rule.about}: {rule.says}", cure)


def _second_binding_findings(
    name: str, bindings: Iterable[Binding], old: HashRing, new: HashRing, *, is_unknown: bool
) -> Iterator[Finding]:
    bound = Counter(destination for destination, _ in set(bindings))
    twice = ", ".join(sorted(str(destination) for destination, count in bound.items() if count > 1))
    if not twice:
        return
    before = old.release
    after = new.release
    if before.follows(rules.DUPLICATES_APPEND) and not after.follows(rules.DUPLICATES_APPEND):
        merged = [place for place in old.destinations for _ in range(old.buckets.count(place))]
        moved = "; how many keys that moves depends on the order of the ring, which the file does not have"
        if not is_unknown:
            now = percent(old.share_moved(HashRing.from_buckets(merged, before)))
            moved = f"; that moves {now} of the keys, where the upgrade moves {percent(old.share_moved(new))}"
        yield Finding(
            "second-binding",
            f"{twice} is bound more than once: RabbitMQ {before.version} adds buckets for each binding, and {after.version} "
            "for one of them",
            f"before the upgrade, bind each destination of {name} one binding whose weight is the number of its buckets"
            f"{moved}",
        )
        return
    yield Finding(
        "second-binding",
        f"{twice} is bound more than once: which binding has the buckets after a restart depends on the order in which the "
        "bindings are restored",
        "before the upgrade, unbind the binding without buckets, and bind the destination again if its buckets went too",
    )


def _transient_findings(name: str, ring: HashRing, transient: Mapping[Destination, str]) -> Iterator[Finding]:
    shares = ring.shares()
    for destination in ring.destinations:
        if destination not in transient:
            continue
        share = percent(shares[destination])
        what = f"its buckets are removed with it, so that its {share} of the keys and others move"
        if ring.release.numbers >= GHOSTS_SINCE:
            what = f"its buckets may stay without it (seen on 4.3.6), so that {share} of the keys are unroutable until they go"
        yield Finding(
            "transient-destination",
            f"{destination!s} {transient[destination]}: a restart removes it, and {what}; it is bound again at the end of the ring",
            f"after the upgrade, run: {command_text('check', exchange_argument(name))} (`check(live, exchange={name!r})`)",
        )


def _repair(exchange: ExchangeDefinition, file: str | None) -> str:
    """Return the commands that restore the order of a ring. Without a file it must be exported before the upgrade."""
    external = exchange.owner == "external"
    if file is not None or external:
        return apply_fix(file, external=external)
    exported = f"{exchange.name}.toml"
    export = command_text("export", exchange_argument(exchange.name), output=exported)
    call = "`Broker.topology().to_toml()`"
    return f"before the upgrade, run: {export} ({call}); and after it: {apply_text(exported)}"


_VERDICTS: dict[Verdict, str] = {
    "safe": "safe",
    "repair": "safe after a ring repair",
    "moves": "keys move",
    "unknown": "not known",
}


@dataclass(frozen=True, slots=True)
class UpgradeFinding:
    """An effect of an upgrade on an exchange."""

    kind: str
    severity: Severity
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class UpgradeRow:
    """The effect of an upgrade on a hash exchange; `moved_text` is `moved` for people.

    Attributes:
        moved: The share of keys with another destination afterwards.
        exact: The exact shares; null if only a sample can show them.
    """

    exchange: str = field(metadata=shown("exchange"))
    hashes: str = field(metadata=shown("hashes"))
    moved_text: str = field(metadata=shown("keys moved", number=True, json=None))
    verdict: Verdict = field(metadata=shown("verdict", _VERDICTS.__getitem__))
    moved: float | None
    exact: Flows | None
    order: RingOrder
    findings: Sequence[UpgradeFinding]

    @classmethod
    def of(cls, upgrade: ExchangeUpgrade) -> UpgradeRow:
        """Return the row of an exchange."""
        findings = [
            UpgradeFinding(each.kind, each.severity, each.message, each.fix) for each in upgrade.findings
        ]
        return cls(
            upgrade.name,
            upgrade.hashes,
            _moved_text(upgrade),
            upgrade.verdict,
            upgrade.moved,
            upgrade.exact,
            upgrade.order,
            findings,
        )


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The effects of an upgrade on the exchanges of a file."""

    source: str
    release: Release
    to_release: Release
    exchanges: Sequence[UpgradeRow]


def upgrade_report(
    source: str, before: Release, after: Release, exchanges: Sequence[ExchangeUpgrade]
) -> Document:
    """Return a row for each exchange of a topology file, then the effects and remedies, then the movement between destinations."""
    releases = [("from", f"RabbitMQ {before}"), ("to", f"RabbitMQ {after}")]
    rows = [UpgradeRow.of(one) for one in exchanges]
    parts: list[Block] = [Facts([("file", source), *releases]), Table.of(UpgradeRow, rows)]
    if remedies := list(_remedies(exchanges)):
        parts.append(Section("Effects and remedies", remedies))
    parts += (
        Section(f"Exchange {exchange.name}", [matrix_table(exchange.exact, percent)], folded=True)
        for exchange in exchanges
        if exchange.exact is not None and exchange.exact.moved
    )
    return Document("upgrade", parts, UpgradeResult(source, before, after, rows))


def _remedies(exchanges: Sequence[ExchangeUpgrade]) -> Iterator[Block]:
    """Yield each effect once, with its exchanges and the remedy for each."""
    together = grouped(
        (finding.message, (exchange.name, finding.fix))
        for exchange in exchanges
        for finding in exchange.findings
    )
    for number, (message, fixes) in enumerate(together.items(), 1):
        names = ", ".join(dict.fromkeys(name for name, _ in fixes))
        yield Line(f"({number}) {names}: {message}.")
        yield Facts(fixes)


def _moved_text(exchange: ExchangeUpgrade) -> str:
    if exchange.moved is None:
        return ""
    return f"about {exchange.moved:.1%}" if exchange.exact is None else percent(exchange.moved)
