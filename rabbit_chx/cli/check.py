"""``rabbit-chx check``: compare live objects with each other and with a file."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.finding_kinds import CHECK_KINDS
from rabbit_chx.analysis.wording import finding_as_json
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import ExitCode, Outcome, argument, command, option, options, say
from rabbit_chx.cli.inputs import VariableOptions, file_name, read_topology
from rabbit_chx.cli.observations import ObservedOptions, read_observed, with_observed_ring
from rabbit_chx.cli.printed import in_words, names_file, to_type
from rabbit_chx.cli.read_rings import how_to_record, read_without_record
from rabbit_chx.cli.ring_options import RELEASE, parse_release
from rabbit_chx.cli.tracing import TraceOptions, traced_keys
from rabbit_chx.errors import ContradictedError, InputError, RabbitChxError, TopologyError
from rabbit_chx.fixes import Argument, Fix
from rabbit_chx.options import one_of
from rabbit_chx.rendering import FORMATS, Block, Data, Document, Facts, Gauge, Line, Part, sign_of_life
from rabbit_chx.routing import HashRing, Provenance, Release
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.observations import Observation
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology import LiveTopology, Topology, TopologyCheck, check
from rabbit_chx.topology.checking.check_rings import LATER_KEYS
from rabbit_chx.topology.file.file_rules import find_refused_objects
from rabbit_chx.topology.objects.objects import HASH_EXCHANGE, ExchangeDefinition
from rabbit_chx.topology.objects.ranges import expand, fold
from rabbit_chx.topology.planning.plan_value import count_kind
from rabbit_chx.topology.planning.refusals import KNOW_RINGS
from rabbit_chx.topology.rules.arguments import find_ignored
from rabbit_chx.words import listed, plural

_MOST_SHOWN = 50
#: The texts of findings in which the names of queues may count up.
_COUNTING = ("message", "fix")
#: As `percent` writes it.
_PERCENTAGE = re.compile(r"<?[0-9]+\.[0-9]+%")
_DIGITS = re.compile("[0-9]+")


def _as_json(finding: Finding) -> dict[str, Any]:
    return finding_as_json(
        finding, exchange=finding.exchange, destination=finding.destination, share=finding.share
    )


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check of one vhost or of several, or of a failed check.

    Attributes:
        address: the broker's host and port.
        checks: the check of each vhost; None if it failed: then the report has metrics only, and the error is on stderr.
        exchanges: the requested exchanges; empty for all.
        time_s: the end of the check, in seconds since 1970.
        file: the topology file; None without a file.
        all_vhosts: True if each finding names its vhost.
        ignored: the kinds of findings that the user accepts: they are not counted.
    """

    address: str
    checks: Mapping[str, TopologyCheck | None]
    exchanges: tuple[str, ...]
    time_s: float
    file: str | None = None
    all_vhosts: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def ended(self) -> dict[str, TopologyCheck]:
        """The completed checks."""
        return {vhost: check for vhost, check in self.checks.items() if check is not None}

    @property
    def findings(self) -> list[tuple[str, Finding]]:
        """The findings, each with its vhost. With several vhosts the commands of each name its own."""
        return [
            (vhost, _in_vhost(finding, vhost) if self.all_vhosts else finding)
            for vhost, finding in self._all()
            if finding.kind not in self.ignored
        ]

    def _all(self) -> Iterator[tuple[str, Finding]]:
        return ((vhost, finding) for vhost, check in self.ended.items() for finding in check.findings)

    def _count_checked(self) -> str:
        """Return the numbers of the checked objects, and the ground of the rings."""
        checks = list(self.ended.values())
        rings = [ring for check in checks for ring in check.rings.values()]
        grounds = ", ".join(dict.fromkeys(ring.provenance for ring in rings))
        about = f" ({plural(sum(len(ring.buckets) for ring in rings), 'bucket')}, {grounds})" if rings else ""
        parts = [plural(sum(len(check.exchanges) for check in checks), "ring") + about]
        if objects := sum(check.objects for check in checks):
            parts.append(plural(objects, "object"))
        if keys := sum(sum(check.observed.values()) for check in checks):
            parts.append(plural(keys, "observed key"))
        return ", ".join(parts)

    def _orders(self) -> Iterator[str]:
        """Yield the exchanges whose order was not read, and those whose order was not checked, by the reason."""
        origins: tuple[tuple[Provenance, str], ...] = (
            ("recorded", "recorded, not read"),
            ("observed", "observed, not read"),
            ("assumed", "not determined"),
        )
        for origin, words in origins:
            if names := [name for check in self.ended.values() for name in check.of_provenance(origin)]:
                yield f"{words}: {listed(names)}"
        reasons: dict[str, list[str]] = {}
        for ended in self.ended.values():
            for name, reason in ended.unordered.items():
                reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            yield f"not checked, {reason}: {listed(names)}"

    def _without_ring(self) -> str:
        """Return the exchanges without rings, and the checks that they do not get."""
        names = [name for check in self.ended.values() for name in check.without_ring]
        if not names:
            return ""
        bindings = "compared with each other" if self.file is None else "compared with those in the file"
        return f"{listed(names)} (x-modulus-hash): bindings are {bindings}"

    def document(self) -> Document:
        """Return the checked objects, and each finding with its fix; without a completed check only the metrics."""
        return Document("check", list(self._parts()) if self.ended else (), tuple(self._gauges()))

    def _parts(self) -> Iterator[Part]:
        findings = [
            ({"vhost": vhost} if self.all_vhosts else {}) | _as_json(finding)
            for vhost, finding in self.findings
        ]
        rings: list[dict[str, Any]] = [
            ({"vhost": vhost} if self.all_vhosts else {})
            | {
                "exchange": name,
                "provenance": ring.provenance,
                "buckets": len(ring.buckets),
                "order_not_checked": check.unordered.get(name),
            }
            | ({"doubt": ring.ground.doubt} if ring.ground.doubt else {})
            | ({"observed_keys": check.observed[name]} if name in check.observed else {})
            for vhost, check in self.ended.items()
            for name, ring in check.rings.items()
        ]
        yield Data({"findings": findings, "rings": rings})
        yield from self._shown()

    def _shown(self) -> Iterator[Block]:
        findings = self.findings
        ignored = sum(finding.kind in self.ignored for _, finding in self._all())
        against = "its own bindings and queues" if self.file is None else file_name(self.file)
        yield Facts(
            [
                ("broker", self.address),
                ("vhosts" if self.all_vhosts else "vhost", ", ".join(self.checks)),
                ("checked", f"{self._count_checked()} against {against}"),
                ("findings", f"{len(findings):,}" if findings else "none"),
                *(("order", text) for text in self._orders()),
                *([("without ring", without)] if (without := self._without_ring()) else ()),
                *([("ignored", f"{ignored:,} ({', '.join(self.ignored)})")] if self.ignored else ()),
            ]
        )
        lines = list(_fold_findings(findings))
        for (vhost, exchange, fix), alike in groupby(
            lines[:_MOST_SHOWN], key=lambda line: (line["vhost"], line["exchange"], line["fix"])
        ):
            about = [("vhost", vhost)] if self.all_vhosts else []
            if exchange is not None:
                about.append(("exchange", exchange))
            yield Facts(
                [
                    *about,
                    *((line["kind"], line["message"]) for line in alike),
                    ("fix", fix),
                ]
            )
        if rest := lines[_MOST_SHOWN:]:
            counts: Counter[str] = Counter()
            for line in rest:
                counts[line["kind"]] += line["count"]
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
            yield Line(f"and {counts.total():,} more ({kinds}): --output json shows them all")

    def _gauges(self) -> Iterator[Gauge]:
        """Yield the metrics. Each exchange and kind has a value, also 0, so that an alert can be resolved."""
        if self.ended:
            yield from self._found()
        checks = [
            (self._labels(vhost, exchange), check)
            for vhost, check in self.checks.items()
            for exchange in self.exchanges or [None]
        ]
        yield Gauge(
            "rabbit_chx_check_success",
            "1 if the last check was completed, otherwise 0, independently of its findings.",
            [(labels, int(check is not None)) for labels, check in checks],
        )
        yield Gauge(
            "rabbit_chx_check_timestamp_seconds",
            "The end of the last check, in seconds since 1970.",
            [(labels, round(self.time_s, 3)) for labels, _ in checks],
        )

    def _found(self) -> Iterator[Gauge]:
        yield Gauge(
            "rabbit_chx_check_findings",
            "The number of findings of a kind in the last check, by exchange; without an exchange: of other objects.",
            [
                ({**self._labels(vhost, exchange), "kind": kind}, count)
                for vhost, check in self.ended.items()
                for exchange, kind, count in _counts(check)
                if kind not in self.ignored
            ],
        )
        yield Gauge(
            "rabbit_chx_unroutable_share_ratio",
            "The exact share of an exchange's keys that reach no queue, 0 to 1.",
            self._of_exchanges(lambda check: check.unroutable),
        )
        yield Gauge(
            "rabbit_chx_parked_messages",
            "The number of parked messages, which arrived while a slot of the exchange had no queue.",
            self._of_exchanges(lambda check: check.parked),
        )
        if self.file is not None:
            yield Gauge(
                "rabbit_chx_misplaced_share_ratio",
                "The exact share of an exchange's keys whose destination differs from that of the topology, 0 to 1.",
                self._of_exchanges(lambda check: check.misplaced),
            )
            yield Gauge(
                "rabbit_chx_exchange_present",
                "1 if a hash exchange of the topology exists, otherwise 0.",
                self._of_exchanges(lambda check: check.present),
            )

    def _of_exchanges(
        self, amounts: Callable[[TopologyCheck], Mapping[str, float]]
    ) -> list[tuple[dict[str, str], float]]:
        return [
            (self._labels(vhost, exchange), amount if isinstance(amount, float) else int(amount))
            for vhost, check in self.ended.items()
            for exchange, amount in amounts(check).items()
        ]

    def _labels(self, vhost: str, exchange: str | None) -> dict[str, str]:
        """Return the labels of a metric. Prometheus treats an empty label as a missing one."""
        return {"broker": self.address, "vhost": vhost, "exchange": exchange or ""}


def _in_vhost(finding: Finding, vhost: str) -> Finding:
    """Return a finding whose commands name the vhost, which may be another one than that of the command line."""
    fix = finding.fix
    return (
        replace(finding, fix=fix.with_option(Argument("vhost", vhost))) if isinstance(fix, Fix) else finding
    )


def _fold_findings(findings: Sequence[tuple[str, Finding]]) -> Iterator[dict[str, Any]]:
    """Yield the lines of findings, each with the count of its findings, in the words of the command line.

    Findings of queues whose names count up share a line, in which the names are a range. A ring gives each queue another share: shares
    below the double of the least one share the line, too, which shows the least and the largest. Other findings have a line each.
    """
    alike: dict[tuple[object, ...], list[_CheckLine]] = {}
    for vhost, finding in findings:
        line = _CheckLine.of(vhost, finding)
        alike.setdefault(line.likeness, []).append(line)
    for lines in alike.values():
        lines.sort(key=lambda line: line.numbers)
        for near in _near(lines):
            yield from _ranges(near)


class _CheckLine(NamedTuple):
    """A finding as a line, without the percentages of its message.

    Attributes:
        entry: the line; each percentage of its message is a NUL.
        message, fix: the texts of the finding.
        percentages: these percentages, as shown.
        likeness: equal for findings that differ in numbers only.
        numbers: the numbers of the texts, which sort queue 10 after queue 9.
    """

    entry: dict[str, Any]
    message: str
    fix: str
    percentages: list[str]
    likeness: tuple[object, ...]
    numbers: list[tuple[int, str]]

    @classmethod
    def of(cls, vhost: str, finding: Finding) -> _CheckLine:
        text, fix = in_words(finding.message), in_words(finding.fix)
        message, percentages = text, _PERCENTAGE.findall(text)
        if "\0" in message:  # of a name
            percentages = []
        message = _PERCENTAGE.sub("\0", message) if percentages else message
        entry = {
            "vhost": vhost,
            "exchange": finding.exchange,
            "kind": finding.kind,
            "share": None if percentages else finding.share,
            "message": message,
            "fix": fix,
        }
        texts = f"{message}\0{fix}"
        likeness = (*list(entry.values())[:4], _DIGITS.sub("0", texts))
        numbers = [(len(digits), digits) for digits in _DIGITS.findall(texts)]
        return cls(entry, text, fix, percentages, likeness, numbers)


def _near(lines: Sequence[_CheckLine]) -> Iterator[list[_CheckLine]]:
    """Yield runs of alike lines in which no percentage is the double of another one, or more."""
    run: list[_CheckLine] = []
    bounds: list[tuple[float, float]] = []
    for line in lines:
        values = [float(text.strip("<%")) for text in line.percentages]
        wider = [
            (min(low, value), max(high, value)) for (low, high), value in zip(bounds, values, strict=False)
        ]
        if run and any(high >= 2 * low and high > low for low, high in wider):
            yield run
            run, wider = [], []
        run.append(line)
        bounds = wider or [(value, value) for value in values]
    yield run


def _ranges(lines: Sequence[_CheckLine]) -> Iterator[dict[str, Any]]:
    """Yield the lines with ranges of names, and the percentages of each."""
    start = 0
    for entry in fold([line.entry for line in lines], _COUNTING):
        count = len(expand(entry, _COUNTING))
        folded, start = lines[start : start + count], start + count
        if count == 1:
            message, fix = folded[0].message, folded[0].fix  # also if it contains what resembles a range
        else:
            message, fix = entry["message"], entry["fix"]
            for texts in zip(*(line.percentages for line in folded), strict=True):
                message = message.replace("\0", _span(texts), 1)
        yield {**entry, "message": message, "fix": fix, "count": count}


def _span(texts: Sequence[str]) -> str:
    """Return equal percentages once, and of others the least and the largest."""
    low, *_, high = sorted({*texts}, key=lambda text: float(text.strip("<%"))) * 2
    return low if low == high else f"{low} to {high}"


def _counts(check: TopologyCheck) -> Iterator[tuple[str | None, str, int]]:
    """Yield the number of findings by exchange and kind, including 0."""
    counts = Counter((finding.exchange, finding.kind) for finding in check.findings)
    checked = (*check.exchanges, *check.without_ring)
    named = {finding.exchange for finding in check.findings} - {None, *checked}
    for exchange in (*checked, *sorted(map(str, named)), None):
        for kind in CHECK_KINDS:
            yield exchange, kind, counts[exchange, kind]


def _findings_of_file(topology: Topology, release: Release) -> Iterator[Finding]:
    """Yield the names in a valid file that are probably misspelled, and the arguments that a release ignores."""
    for text in topology.misspellings:
        yield Finding("misspelling", text)
    for names, message, fix in find_ignored(topology.exchanges, release):
        yield Finding("ignored-argument", message, fix, exchange=_only(names))
    for names, message, fix in find_ignored(topology.queues, release):
        yield Finding("ignored-argument", message, fix, destination=_only(names))


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


#: The findings of a valid file, in the line of the file.
_SUSPICIONS = {"misspelling": "suspicious name", "ignored-argument": "ignored argument"}


def files_report(files: Mapping[str, tuple[Topology, Sequence[Finding]]]) -> Document:
    """Return a line for each valid topology file; stderr has its findings: names that are probably misspelled, and ignored arguments."""
    findings = [
        {"file": name, **_as_json(finding)} for name, (_, found) in files.items() for finding in found
    ]
    facts = Facts([(name, _contents(*file)) for name, file in files.items()])
    return Document("check", [Data({"findings": findings}), facts])


def _contents(topology: Topology, findings: Sequence[Finding]) -> str:
    parts = {
        "exchange": topology.exchanges,
        "queue": topology.queues,
        "binding": topology.bindings,
        "policy": topology.policies,
    }
    counts = [count_kind(len(objects), kind) for kind, objects in parts.items() if objects]
    kinds = Counter(finding.kind for finding in findings)
    found = [plural(kinds[kind], what) for kind, what in _SUSPICIONS.items() if kinds[kind]]
    state = ", ".join(["valid", *found])
    return f"{state}: {', '.join(counts)}" if counts else state


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a check."""

    offline: bool = option(is_flag=True, help="Validate each FILE; no broker is needed.")
    release: str | None = option(
        metavar=RELEASE,
        help="The RabbitMQ release that gets the files, for --offline, such as 4.3 or 3.10.8.  [default: the newest]",
    )
    all_vhosts: bool = option(
        is_flag=True, help="Check every vhost that the user may access; each finding has its vhost."
    )
    ignored: tuple[str, ...] = option(
        "--ignore",
        type=one_of(*CHECK_KINDS),
        multiple=True,
        metavar="KIND",
        help="Leave out findings of this kind, such as expiring-destination if a TTL is intended. Repeatable.",
    )

    def __post_init__(self) -> None:
        if self.offline and self.all_vhosts:
            raise InputError("--offline asks no broker: leave out --all-vhosts")
        if self.release is not None and not self.offline:
            raise InputError("--release is for --offline: a broker has its own release; leave it out")


@command(
    example="rabbit-chx check topology.toml --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    has_metrics=True,
    has_pictures=True,
)
def check_broker(
    *,
    subjects: tuple[str, ...] = argument(nargs=-1, metavar="[FILE] [EXCHANGE]..."),
    given: CheckOptions = options(CheckOptions),
    observed: ObservedOptions = options(ObservedOptions),
    tracing: TraceOptions = options(TraceOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    output: str,
) -> Outcome:
    """Compare the ring of each EXCHANGE with its bindings, queues and record, and the broker with FILE. Nothing is changed.

    Without an EXCHANGE each exchange of the vhost that hashes is checked, and with FILE each of its objects is compared. An
    argument that ends in .toml or .json, or is - or the name of a file, is FILE. The order of a ring is known
    by --ring-via, because only the buckets show it, or by the record on the broker; all else is checked without it. A
    definitions file has no order. An x-modulus-hash exchange has no ring: its bindings and queues are checked.

    --observed compares the ring of EXCHANGE with real keys and the queues that received them. If the ring is
    neither read nor recorded, the keys determine it, or the exit code is 3: about N ln N keys are needed for N buckets, and at least 20 must agree
    beyond those that fix them. --trace asks the broker in the same way: it compares the ring, read or recorded, with what the broker does with live
    messages now, and so finds a ring that another program has changed.

    Each finding has its effect on messages, the exact share of keys, and a fix. The exit code is 1 if there are findings, 3 if
    only the order of a ring is not known, 2 if nothing was checked: stderr says whether the plugin, the vhost or a permission is missing. With --offline each argument is a
    FILE, a finding is a name that is probably misspelled, or an argument that the release ignores, and the exit code is 2
    if a file is invalid.
    """
    if given.offline:
        if not subjects or observed.observed is not None or tracing.is_used:
            raise InputError(
                "--offline validates files: pass a FILE, and leave out --observed, --trace and --yes"
            )
        return _validate(subjects, broker.vhost or "/", variables, given, output)
    files = [*filter(names_file, subjects)]
    exchanges = tuple(name for name in subjects if name not in files)
    file = files[0] if files else None
    if files[1:]:
        raise InputError(f"a broker is compared with one file: leave out {', '.join(files[1:])}")
    if file is None and variables.is_typed:
        raise InputError("--set and --values are for the variables of a FILE: pass one, or leave them out")
    if subjects and given.all_vhosts:
        raise InputError(f"--all-vhosts checks all exchanges: leave it out, or {subjects[0]}")
    if observed.observed is not None and len(exchanges) != 1:
        raise InputError("--observed has the keys of one exchange: pass one EXCHANGE")
    tracing.check_use(exchanges, observed=observed.observed, all_vhosts=given.all_vhosts)

    def run_check(at: BrokerAddresses) -> TopologyCheck:
        return _check(at, exchanges, file, given, observed=observed, tracing=tracing, variables=variables)

    return _outcome(broker.live(), output, run_check, given, exchanges=exchanges, file=file)


def _check(
    at: BrokerAddresses,
    exchanges: Sequence[str],
    file: str | None,
    given: CheckOptions,
    *,
    observed: ObservedOptions,
    tracing: TraceOptions,
    variables: VariableOptions,
) -> TopologyCheck:
    """Return the check of a vhost. A ring that was read and that no record fits is named."""
    wanted: Topology | None = None
    oddities: tuple[Finding, ...] = ()
    if file is not None:
        read = read_topology(file, at.settings.vhost, variables=variables, is_compared=True)
        wanted, oddities = read.topology, read.oddities
    with at.open(yes=tracing.yes) as opened:
        with sign_of_life("reading the broker"):
            live = opened.topology()
        if tracing.trace is not None:
            is_compared = exchanges[0] in live.rings and live.rings[exchanges[0]].ground.is_certain
            found = _check_observed(
                live,
                exchanges[0],
                wanted,
                file,
                lambda name: traced_keys(opened, live, name, tracing, is_compared=is_compared),
            )
            return _with_fix_of_trace(found, exchanges[0], tracing.trace)
    if observed.observed is not None:
        return _check_observed(
            live, exchanges[0], wanted, file, lambda name: read_observed(observed, live, name)
        )
    if names := [name for name in read_without_record(live) if name in (exchanges or live.rings)]:
        say(how_to_record(names, **({"vhost": at.settings.vhost} if given.all_vhosts else {})))
    with sign_of_life("comparing"):
        found = check(live, wanted, exchange=exchanges or None, file=file)
    return replace(found, findings=(*oddities, *found.findings))


def _validate(
    files: Sequence[str], vhost: str, variables: VariableOptions, given: CheckOptions, output: str
) -> Outcome:
    """Read all files, and report the mistakes of each by the rules of a release."""
    if FORMATS[output].takes == "metrics":
        raise InputError(f"--output {output} has the metrics of a broker: leave out one of them")
    release = parse_release(given.release) or NEWEST_COMPARED
    valid: dict[str, Topology] = {}
    errors: list[InputError] = []
    known: set[str] = set()
    has_others = len(files) > 1
    for file in files:
        try:
            read = read_topology(
                file, vhost, variables=variables, release=release, is_strict=True, has_others=has_others
            )
            known |= read.variables.keys()
            if read.is_definitions and (faults := find_refused_objects(read.topology, release)):
                raise TopologyError(faults, what=read.name)
        except InputError as error:
            errors.append(error)
        else:
            valid[read.name] = read.topology
    if has_others and not errors and (unused := [name for name in variables.read() if name not in known]):
        raise InputError(
            f"no file uses the variable {unused[0]}, which is given: write ${{{unused[0]}}} where it belongs, or do not pass it"
        )
    for mistake in errors[:-1]:
        say(str(mistake), keep_lines=True)
    if errors:
        raise errors[-1]
    found = {
        name: (
            topology,
            [found for found in _findings_of_file(topology, release) if found.kind not in given.ignored],
        )
        for name, topology in valid.items()
    }
    has_findings = any(findings for _, findings in found.values())
    return Outcome(files_report(found), ExitCode.DIFFERENCE if has_findings else ExitCode.DONE)


def _with_fix_of_trace(found: TopologyCheck, name: str, seconds: float) -> TopologyCheck:
    """Return the check of traced keys, which are later than any change: another program has changed the ring that they contradict."""
    fix = Fix(
        "another program has changed the ring: store what the broker does now with ",
        to_type("record", name, trace=float(seconds)),
    )
    findings = (replace(each, fix=fix) if each.kind == "contradicted" else each for each in found.findings)
    return replace(found, findings=tuple(findings))


def _check_observed(
    topology: LiveTopology,
    name: str,
    wanted: Topology | None,
    file: str | None,
    read_pairs: Callable[[str], list[Observation]],
) -> TopologyCheck:
    """Compare an exchange with observed keys, which determine its ring if it is not certain."""
    exchange = topology.exchange(name)
    if exchange is None or name in topology.sources_left_out:
        return check(topology, wanted, exchange=name, file=file)
    pairs = read_pairs(name)
    ring = topology.rings.get(name)
    if exchange.type == HASH_EXCHANGE and not (ring is not None and ring.ground.is_certain):
        try:
            topology = with_observed_ring(topology, name, pairs)
        except ContradictedError as error:
            return _check_of_contradiction(exchange, topology, str(error))
    return check(topology, wanted, exchange=name, file=file, observed={name: pairs})


def _check_of_contradiction(
    exchange: ExchangeDefinition, topology: LiveTopology, doubt: str
) -> TopologyCheck:
    """Return the check of an exchange whose observed keys are those of no ring."""
    finding = Finding("contradicted", doubt, LATER_KEYS, exchange=exchange.name)
    members = [(member.destination, member.key) for member in exchange.ring or ()]
    ring = replace(HashRing.from_bindings(members, topology.release), ground=Ground("assumed", doubt))
    return TopologyCheck((finding,), (exchange.name,), rings={exchange.name: ring})


def _outcome(
    live: BrokerAddresses,
    output: str,
    run_check: Callable[[BrokerAddresses], TopologyCheck],
    given: CheckOptions,
    *,
    exchanges: tuple[str, ...],
    file: str | None,
) -> Outcome:
    """Return the checks of a vhost or of all. With metrics an error becomes a metric, and is raised after they are printed."""
    errors: list[RabbitChxError] = []

    @contextmanager
    def note_errors() -> Iterator[None]:
        try:
            yield
        except RabbitChxError as error:
            if FORMATS[output].takes != "metrics":
                raise
            errors.append(error)

    vhosts = [live.settings.vhost]
    if given.all_vhosts:
        with note_errors():
            vhosts = live.vhosts()
    checks: dict[str, TopologyCheck | None] = dict.fromkeys(vhosts)
    for vhost in vhosts if not errors else ():
        with note_errors():
            checks[vhost] = run_check(live.in_vhost(vhost))
    if not errors and not any(check is None or check.is_of_something for check in checks.values()):
        with note_errors():
            checks = dict.fromkeys(checks)
            if file is None:
                raise InputError(f"nothing was checked: {live.why_nothing_hashes(vhosts)}")
            raise InputError(f"nothing was checked: {file_name(file)} has no objects")

    def fail() -> NoReturn:
        raise errors[0]

    report = CheckReport(live.address, checks, exchanges, time.time(), file, given.all_vhosts, given.ignored)
    code = ExitCode.DIFFERENCE if report.findings else ExitCode.DONE
    if unknown := [name for ended in report.ended.values() for name in ended.of_provenance("assumed")]:
        say(
            Fix(
                f"the order of {listed(unknown)} is not known, and what depends on it was not checked: ",
                KNOW_RINGS,
            )
        )
        code = code or ExitCode.PARTLY
    return Outcome(report.document(), code, finish=fail if errors else None)
