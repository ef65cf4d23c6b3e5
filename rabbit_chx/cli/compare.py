"""``rabbit-chx compare``: the keys that move between two releases or rings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import compare_rings, movement
from rabbit_chx.analysis.comparison import SampleComparison
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.matrix import MovementMatrix
from rabbit_chx.analysis.wording import finding_as_json
from rabbit_chx.cli.command import ExitCode, Outcome, argument, command, options
from rabbit_chx.cli.inputs import STDIN, TopologyInput
from rabbit_chx.cli.report import (
    matrix_table,
    moved_keys,
    numbers,
    source_as_json,
    source_fact,
    texts,
)
from rabbit_chx.cli.ring_options import HashingOptions, OtherRingOptions, RingOptions, code_of, say_unpinned
from rabbit_chx.cli.samples import SampleOptions, sample_options
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Section, Table, sign_of_life
from rabbit_chx.routing import ConsistentHashExchange, Release
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.topology.upgrade import ExchangeUpgrade, Verdict

_SHOWN = 10
_VERDICTS: dict[Verdict, str] = {
    "safe": "safe",
    "repair": "safe after a ring repair",
    "moves": "keys move",
    "unknown": "not known",
}


@dataclass(frozen=True, slots=True)
class CompareReport:
    """The keys that move between two rings, or between two exchanges without rings.

    Attributes:
        exact: the exact movement over all seeds; None if the releases may hash a header differently.
        sample: the movement of a sample; None without a sample.
        keys: the keys of the sample.
        rules: the rules by which the releases hash the first key that moves, if they differ.
        is_determined: False if one of the rings is a guess.
    """

    before: KeyMap
    after: KeyMap
    exact: MovementMatrix | None
    sample: SampleComparison | None
    keys: Sequence[str]
    rules: tuple[str, ...] = ()
    is_determined: bool = True

    @property
    def is_different(self) -> bool:
        """True if keys move."""
        return bool((self.exact and self.exact.moved) or (self.sample and self.sample.moved))

    def document(self) -> Document:
        """Return the totals, then the movement between destinations, then the keys; programs get every key that moves."""
        fields = {
            "before": _source_json(self.before),
            "after": _source_json(self.after),
            "determined": self.is_determined,
        }
        sample, exact = self.sample, self.exact
        parts: list[Part] = [Data(fields), Facts(list(self._facts()))]
        if exact is None:
            parts.append(Data({"exact": None}))
        else:
            is_shown = bool(exact.moved) and not (sample and sample.moved)
            parts.append(matrix_table(exact, percent, key="exact").for_people(is_shown))
        if sample is None:
            parts.append(Data({"sample": None}))
        else:
            parts.append(Section("", self._sample_parts(sample), key="sample"))
        return Document("compare", parts)

    def _facts(self) -> Iterator[tuple[str, str]]:
        sample, exact = self.sample, self.exact
        yield "before", source_fact(self.before)[1]
        yield "after", source_fact(self.after)[1]
        if exact:
            yield "moved", f"{percent(exact.moved)} of all keys, by all {self.before.traits.hashes}"
        if sample:
            part = percent(len(sample.moved) / sample.values) if sample.values else percent(0)
            yield "moved", f"{len(sample.moved):,} of {plural(sample.values, 'key')}, {part}"
            for when, outcomes in (
                ("before", [move.before for move in sample.moved]),
                ("after", [move.after for move in sample.moved]),
            ):
                reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Refused)]
                if reasons:
                    yield "refused", f"{len(reasons):,} only {when}: {reasons[0]}"
        for when, rule in zip(("before", "after"), self.rules, strict=False):
            yield "rule", f"{when}, {rule}"

    def _sample_parts(self, sample: SampleComparison) -> list[Part]:
        moves = [(self.keys[move.position], move.before, move.after) for move in sample.moved]
        counts = {
            "keys": sample.values,
            "moved": len(moves),
            "refused_before": sample.refused_before,
            "refused_after": sample.refused_after,
        }
        matrix = matrix_table(sample.matrix, int, key="matrix").for_people(moves)
        return [Data(counts), matrix, *moved_keys(moves, _SHOWN)]


def _source_json(source: KeyMap) -> dict[str, Any]:
    fields = source_as_json(source)
    ring: dict[str, Any] | None = fields["ring"]
    return ring or fields


def upgrade_report(
    source: str, before: Release, after: Release, exchanges: Sequence[ExchangeUpgrade]
) -> Document:
    """Return a row for each exchange of a topology file, then the effects and remedies, then the movement between destinations."""
    releases = [("from", f"RabbitMQ {before}"), ("to", f"RabbitMQ {after}")]
    rows = [
        (exchange.name, exchange.hashes, _moved_text(exchange), _VERDICTS[exchange.verdict])
        for exchange in exchanges
    ]
    parts: list[Part] = [
        Data({"source": source, "release": before, "to_release": after}),
        Facts([("file", source), *releases]),
        Table(
            [*texts("exchange", "hashes"), *numbers("keys moved"), *texts("verdict")],
            rows,
            key="exchanges",
            value=lambda: list(map(_upgrade_as_json, exchanges)),
        ),
    ]
    if remedies := list(_remedies(exchanges)):
        parts.append(Section("Effects and remedies", remedies))
    parts += (
        Section(f"Exchange {exchange.name}", [matrix_table(exchange.exact, percent)], folded=True)
        for exchange in exchanges
        if exchange.exact is not None and exchange.exact.moved
    )
    return Document("compare", parts)


def _remedies(exchanges: Sequence[ExchangeUpgrade]) -> Iterator[Part]:
    """Yield each effect once, with its exchanges and the remedy for each."""
    together: dict[str, list[tuple[str, str]]] = {}
    for exchange in exchanges:
        for finding in exchange.findings:
            together.setdefault(finding.message, []).append((exchange.name, finding.fix))
    for number, (message, fixes) in enumerate(together.items(), 1):
        names = ", ".join(dict.fromkeys(name for name, _ in fixes))
        yield Line(f"({number}) {names}: {message}.")
        yield Facts(fixes)


def _upgrade_as_json(exchange: ExchangeUpgrade) -> dict[str, Any]:
    return {
        "exchange": exchange.name,
        "hashes": exchange.hashes,
        "verdict": exchange.verdict,
        "moved": exchange.moved,
        "exact": exchange.exact,
        "order": exchange.order,
        "findings": [finding_as_json(finding) for finding in exchange.findings],
    }


def _moved_text(exchange: ExchangeUpgrade) -> str:
    if exchange.moved is None:
        return ""
    return f"about {exchange.moved:.1%}" if exchange.exact is None else percent(exchange.moved)


@command(
    example="rabbit-chx compare --bind q1=1 --bind q2=1 --release 3.12.14 --to-release 4.3.6 "
    "--hash-header tenant --pattern 'tenant-{n}'",
)
def compare(
    *,
    exchange_argument: str | None = argument(required=False, metavar="[EXCHANGE]"),
    ring: RingOptions = options(RingOptions, without=("exchange_type",), exchange="The same as EXCHANGE."),
    other: OtherRingOptions = options(OtherRingOptions),
    hashed: HashingOptions = options(HashingOptions, without=("hash_property",)),
    sample: SampleOptions = sample_options(),
) -> Outcome:
    """Show which keys move between two releases or two rings.

    Specify the first ring with EXCHANGE, --bind, --ring or --topology, and the second ring with --to-bind,
    --to-ring or --to-exchange; or pass --to-release to compare the same ring on another release. Without a
    sample the result is exact, over all 2^21 seeds. If the releases hash a header differently, a sample is
    required.

    With only --topology, --release and --to-release, the command predicts the effects of an upgrade on each
    hash exchange of the file.

    The exit code is 1 if keys move or may move, or reach no queue, 3 if a ring or the hashed value is assumed.
    """
    ring = ring.at(exchange_argument)
    if not sample.given and hashed == HashingOptions():
        file = ring.read_file(other)
        if file is not None:
            return _upgrade(*file)
    given = ring.read(other=other)
    to = ring.read_other(given, other)
    has_keys = sample.key_file is not None or sample.pattern is not None
    if has_keys:
        given, to = hashed.decide(given), hashed.decide(to)
    hashing = hashed.of(given, to, keys=has_keys)
    keys, before, after = sample.read(), given.source, to.source
    alike = hashing.hash_header is None or before.release == after.release
    if keys is None and not alike:
        versions = [source.release and source.release.version for source in (before, after)]
        raise InputError(
            f"RabbitMQ {versions[0]} and {versions[1]} may hash the header {hashing.hash_header!r} "
            "differently: pass a sample, as --keys FILE or --pattern TEXT"
        )
    compared = None
    if keys is not None:
        with sign_of_life(plural(len(keys.keys), "key")), keys.values(hashing, before) as values:
            compared = compare_rings(values, before, after, hashing)
    report = CompareReport(
        before,
        after,
        exact=movement(before, after) if alike else None,
        sample=compared,
        keys=[] if keys is None else keys.keys,
        rules=() if alike or not compared else _rules(compared, hashing),
        is_determined=given.is_determined and to.is_determined,
    )
    is_lost = any(each.loses(each.source.shares() or (None,)) for each in (given, to))
    return Outcome(report.document(), code_of(given, to, is_lost=is_lost, is_different=report.is_different))


def _upgrade(file: TopologyInput, before: Release, after: Release) -> Outcome:
    from rabbit_chx.topology.upgrade import predict_upgrade

    for exchange in file.topology.exchanges:
        say_unpinned(file, exchange)
    without_order = file.is_definitions
    commands = None if without_order or file.name == STDIN else file.name
    exchanges = predict_upgrade(file.topology, before, after, file=commands)
    if not exchanges:
        raise InputError(
            f"{file.name} does not contain an exchange of type x-consistent-hash or x-modulus-hash: pass another file"
        )
    source = f"{file.name}, rings assumed as the bindings are listed" if without_order else file.name
    is_safe = all(exchange.verdict == "safe" for exchange in exchanges)
    code = ExitCode.DONE if is_safe else ExitCode.DIFFERENCE
    return Outcome(upgrade_report(source, before, after, exchanges), code)


def _rules(compared: SampleComparison, hashing: Hashing) -> tuple[str, ...]:
    """Return the rule by which each release hashes the first value that moves; empty if the rule is the same, or a value is refused."""
    rules: list[str] = []
    for source in (compared.before, compared.after):
        exchange = hashing.exchange(source)
        if not isinstance(exchange, ConsistentHashExchange) or not compared.moved:
            return ()
        try:
            rules.append(str(exchange.explain(**hashing.message(compared.moved[0].value)).rule))
        except (InputError, ChannelClosedError):
            return ()
    return tuple(rules) if len(set(rules)) > 1 else ()
