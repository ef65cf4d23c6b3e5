"""The report of a check: its findings, those that differ in numbers only in a line, and the metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.findings import CHECK_KINDS, SEVERITIES, USAGE_KINDS, FindingFields, severity_of
from rabbit_chx.checking.check import TopologyCheck, polarized_findings
from rabbit_chx.checking.check_rings import DeadLetters
from rabbit_chx.planning.plan_value import count_kind
from rabbit_chx.planning.refusals import learn_command
from rabbit_chx.rendering.document import Block, Document, Facts, Gauge, Line
from rabbit_chx.result_fields import ABSENT, Absent, shown
from rabbit_chx.routing import Release
from rabbit_chx.routing.bindings import RECORD_CONDITION, Provenance
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import grouped, in_vhost, listed, plural
from rabbit_chx.topology.arguments import find_ignored
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.ranges import expand, fold

_MOST_SHOWN = 50
#: The texts of findings in which the names of queues may count up.
_COUNTING = ("message", "fix")
#: As `percent` writes it.
_PERCENTAGE = re.compile(r"<?[0-9]+\.[0-9]+%")
_DIGITS = re.compile("[0-9]+")


@dataclass(frozen=True, slots=True)
class BrokerFinding:
    """A finding about a broker; `vhost` is named where several are checked."""

    vhost: str | None = field(metadata=shown(optional=True))
    finding: FindingFields = field(metadata=shown(group=FindingFields))


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A finding about a file."""

    file: str
    finding: FindingFields = field(metadata=shown(group=FindingFields))


@dataclass(frozen=True, slots=True)
class CheckedRing:
    """A ring that was checked; `vhost` is named where several are checked.

    Attributes:
        provenance: The source of the ring.
        condition: What must be true for a recorded ring to be that of the broker, and for the shares of a ring whose order is not known; else null.
        order_not_checked: Why its order was not compared with another one; null if it was.
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        learn: The command that learns the order which is not known; null if no command does.
        doubt: Why the order is not known.
    """

    vhost: str | None = field(metadata=shown(optional=True))
    exchange: str
    provenance: Provenance | None
    condition: str | None
    buckets: int | None
    order_not_checked: str | None
    determined: bool
    learn: str | Absent | None
    doubt: str | None = field(metadata=shown(optional=True))


@dataclass(frozen=True, slots=True)
class CheckedBroker:
    """The result of a check of a broker.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        objects: The number of objects that were compared with a file; null without a file.
        consumers_not_checked: Why consumers and traffic were not checked; null if they were.
    """

    determined: bool
    findings: Sequence[BrokerFinding]
    rings: Sequence[CheckedRing]
    objects: int | None
    consumers_not_checked: str | None


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """The result of a check of files."""

    findings: Sequence[FileFinding]


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
        """The findings, the most severe first, each with its vhost. With several vhosts the commands of each name its own."""
        found = [
            (vhost, _in_vhost(finding, vhost) if self.all_vhosts else finding)
            for vhost, finding in self._all()
            if finding.kind not in self.ignored
        ]
        return sorted(found, key=lambda each: SEVERITIES.index(each[1].severity))

    @property
    def has_faults(self) -> bool:
        """True if a finding is more than a note."""
        return any(finding.severity != "note" for _, finding in self.findings)

    def _all(self) -> Iterator[tuple[str, Finding]]:
        return ((vhost, finding) for vhost, check in self.ended.items() for finding in check.findings)

    def _count_checked(self) -> str:
        """Return the numbers of the checked objects, and how the orders of the rings are known."""
        checks = list(self.ended.values())
        rings = [ring for check in checks for ring in check.rings.values()]
        about = f" ({_size_and_grounds(rings)})" if rings else ""
        ringed = sum(len(check.exchanges) for check in checks)
        others = sum(len(check.without_ring) for check in checks)
        parts = [plural(ringed, "ring") + about] if ringed or not others else []
        parts += [f"{plural(others, 'exchange')} without a ring"] if others else []
        if objects := sum(check.objects for check in checks):
            parts.append(plural(objects, "object"))
        return ", ".join(parts)

    @property
    def count_found(self) -> str:
        """The number of findings, and what was not looked at."""
        unknown = [name for check in self.ended.values() for name in check.not_determined]
        without = ""
        if unknown:
            whose = "so its keys were" if len(unknown) == 1 else "so their keys were"
            so_far = " so far"
            without = f"{so_far}: the bind order of {listed(unknown)} is unknown, {whose} NOT checked"
        if why := self.consumers_not_checked:
            without += f", without consumers and traffic ({why})"
        return (f"{len(self.findings):,}" if self.findings else "none") + without

    @property
    def summary(self) -> str:
        """The number of the findings, and of the exchanges and orders that were not checked."""
        unknown = sum(len(check.not_determined) for check in self.ended.values())
        without = f", {plural(unknown, 'order')} unknown" if unknown else ""
        without += ", consumers not checked" if self.consumers_not_checked else ""
        found = plural(len(self.findings), "finding") if self.findings else "no findings"
        return found + without

    @property
    def is_complete(self) -> bool:
        """True if everything was checked."""
        return not self.consumers_not_checked and not any(
            check.not_determined for check in self.ended.values()
        )

    @property
    def consumers_not_checked(self) -> str:
        """Why consumers and traffic were not checked; empty if they were."""
        return next(
            (check.consumers_not_checked for check in self.ended.values() if check.consumers_not_checked), ""
        )

    def why_not_determined(self, exchange: str) -> str | None:
        """Return why the order of a ring, and the traffic that depends on it, could not be checked; None if it could."""
        for check in self.ended.values():
            if exchange in check.not_determined:
                return check.unordered.get(exchange)
        return None

    def _orders(self) -> Iterator[str]:
        """Yield the exchanges whose order was not checked, by the reason."""
        reasons = grouped(
            ((name in ended.not_determined, reason), name)
            for ended in self.ended.values()
            for name, reason in ended.unordered.items()
        )
        for (is_unknown, reason), names in reasons.items():
            yield (
                f"not determined: {listed(names)} ({reason})"
                if is_unknown
                else f"not checked, {reason}: {listed(names)}"
            )

    def _conditions(self) -> Iterator[str]:
        """Yield the recorded rings, with the condition on which they are known."""
        rings = [each for check in self.ended.values() for each in check.rings.items()]
        recorded = [name for name, ring in rings if ring.provenance == "recorded"]
        if recorded:
            yield f"{listed(recorded)}: {RECORD_CONDITION}"

    def _without_ring(self) -> str:
        """Return the exchanges without rings, and the checks that they do not get."""
        names = [name for check in self.ended.values() for name in check.without_ring]
        if not names:
            return ""
        bindings = "compared with each other" if self.file is None else "compared with those in the file"
        return f"{listed(names)} (x-modulus-hash): bindings are {bindings}"

    def document(self) -> Document:
        """Return the checked objects, and each finding with its fix; without a completed check only the metrics."""
        parts: list[Block] = [self.facts(), *self.blocks()] if self.ended else []
        result: object = self._result() if self.ended else {}
        title = f"{self.address}: findings {self.count_found}"
        return Document("check", parts, result, tuple(self._gauges()), title=title)

    def _result(self) -> CheckedBroker:
        """Return what programs read of it."""
        rings = [
            self._ring_fields(vhost, check, name, ring)
            for vhost, check in self.ended.items()
            for name, ring in check.rings.items()
        ]
        return CheckedBroker(
            determined=all(ring.determined for ring in rings),
            findings=[
                BrokerFinding(vhost if self.all_vhosts else None, FindingFields.of(finding))
                for vhost, finding in self.findings
            ],
            rings=rings,
            objects=None if self.file is None else sum(check.objects for check in self.ended.values()),
            consumers_not_checked=self.consumers_not_checked or None,
        )

    def _ring_fields(self, vhost: str, check: TopologyCheck, name: str, ring: KeyMap) -> CheckedRing:
        is_determined = ring.is_determined
        return CheckedRing(
            vhost=vhost if self.all_vhosts else None,
            exchange=name,
            provenance=ring.provenance,
            condition=ring.condition,
            buckets=len(ring.buckets) if is_determined else None,
            order_not_checked=check.unordered.get(name),
            determined=is_determined,
            learn=ABSENT if is_determined else learn_command({name: ring}, check.ways_to_learn),
            doubt=ring.order.doubt or None,
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the findings for people."""
        yield from _finding_blocks(self.findings, "vhost" if self.all_vhosts else None)

    def facts(self) -> Facts:
        """Return what was checked, and the number of findings."""
        ignored = sum(finding.kind in self.ignored for _, finding in self._all())
        against = "its own bindings and queues" if self.file is None else self.file
        return Facts(
            [
                ("broker", self.address),
                ("vhosts" if self.all_vhosts else "vhost", ", ".join(self.checks)),
                ("checked", f"{self._count_checked()} against {against}"),
                ("findings", self.count_found),
                *(("recorded", text) for text in self._conditions()),
                *(("order", text) for text in self._orders()),
                *([("without ring", without)] if (without := self._without_ring()) else ()),
                *([("ignored", f"{ignored:,} ({', '.join(self.ignored)})")] if self.ignored else ()),
            ],
        )

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
                ({**self._labels(vhost, exchange), "kind": kind, "severity": severity_of(kind)}, count)
                for vhost, check in self.ended.items()
                for exchange, kind, count in _counts(check)
                if kind not in self.ignored
            ],
        )
        yield Gauge(
            "rabbit_chx_order_known",
            "1 if the order of an exchange was known in the last check, otherwise 0: then findings that depend on it are not looked for.",
            self._of_exchanges(
                lambda check: {name: ring.is_determined for name, ring in check.rings.items()}
            ),
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
        """Return the labels of a metric. Prometheus treats an empty label as a missing one.

        What was asked is in the labels, so that the series of two checks of a vhost, such as with two files, are not the same.
        """
        asked = "all vhosts" if self.all_vhosts else ", ".join(self.exchanges)
        what = {"file": self.file, "asked": asked}
        labels = {"broker": self.address, "vhost": vhost, "exchange": exchange or ""}
        return labels | {name: text for name, text in what.items() if text}


def _size_and_grounds(rings: Sequence[KeyMap]) -> str:
    """Return the number of buckets, unless it depends on an order that is not known, and how the rings are known."""
    parts: list[str] = list(dict.fromkeys(ring.provenance or "order unknown" for ring in rings))
    if all(ring.has_bucket_counts for ring in rings):
        buckets = sum(len(ring.buckets) for ring in rings)
        parts.insert(0, plural(buckets, "bucket"))
    return ", ".join(parts)


def _finding_blocks(findings: Sequence[tuple[str, Finding]], place: str | None) -> Iterator[Block]:
    """Yield findings, each with the name of its vhost or file, and with its fix; of many the first.

    Args:
        findings: the findings.
        place: what the name is that of; None: it is not shown.
    """
    lines = list(_fold_findings(findings))
    by_fix = grouped(((line["vhost"], line["exchange"], line["fix"]), line) for line in lines[:_MOST_SHOWN])
    for (name, exchange, fix), alike in by_fix.items():
        about = [] if place is None else [(place, name)]
        if exchange is not None:
            about.append(("exchange", exchange))
        cure = [("fix", fix)] if fix else []
        yield Facts([*about, *((line["label"], line["message"]) for line in alike), *cure])
    if rest := lines[_MOST_SHOWN:]:
        counts: Counter[str] = Counter()
        for line in rest:
            counts[line["kind"]] += line["count"]
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        yield Line(f"and {counts.total():,} more ({kinds}): `--output json` shows them all")


def _in_vhost(finding: Finding, vhost: str) -> Finding:
    """Return a finding whose commands name the vhost, which may be another one than that of the command line."""
    return replace(finding, fix=in_vhost(finding.fix, vhost))


def _fold_findings(findings: Sequence[tuple[str, Finding]]) -> Iterator[dict[str, Any]]:
    """Yield the lines of findings, each with the count of its findings.

    Findings of queues whose names count up share a line, in which the names are a range. A ring gives each queue another share: shares
    below the double of the least one share the line, too, which shows the least and the largest. Other findings have a line each.
    """
    each = (_CheckLine.of(vhost, finding) for vhost, finding in findings)
    for lines in grouped((line.likeness, line) for line in each).values():
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
        text = finding.message
        fix = finding.fix
        message = text
        percentages = _PERCENTAGE.findall(text)
        if "\0" in message:  # of a name
            percentages = []
        message = _PERCENTAGE.sub("\0", message) if percentages else message
        entry = {
            "vhost": vhost,
            "exchange": finding.exchange,
            "kind": finding.kind,
            "label": f"{finding.severity}: {finding.kind}",
            "share": None if percentages else finding.share,
            "message": message,
            "fix": fix,
        }
        texts = message + "\0" + fix
        likeness = (*list(entry.values())[:5], _DIGITS.sub("0", texts))
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
            run = []
            wider = []
        run.append(line)
        bounds = wider or [(value, value) for value in values]
    yield run


def _ranges(lines: Sequence[_CheckLine]) -> Iterator[dict[str, Any]]:
    """Yield the lines with ranges of names, and the percentages of each."""
    start = 0
    for entry in fold([line.entry for line in lines], _COUNTING):
        count = len(expand(entry, _COUNTING))
        folded = lines[start : start + count]
        start = start + count
        if count == 1:
            message, fix = folded[0].message, folded[0].fix  # also if it contains what resembles a range
        else:
            message = entry["message"]
            fix = entry["fix"]
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
            if kind in USAGE_KINDS and check.consumers_not_checked:
                continue  # a 0 would say that it was looked for
            yield exchange, kind, counts[exchange, kind]


def file_findings(topology: Topology, release: Release) -> Iterator[Finding]:
    """Yield the names in a valid file that are probably misspelled or lead nowhere, and the arguments that a release ignores."""
    for text in topology.misspellings:
        yield Finding("misspelling", text)
    for names, message, fix in find_ignored(topology.exchanges, release):
        yield Finding("ignored-argument", message, fix, exchange=_only(names))
    for names, message, fix in find_ignored(topology.queues, release):
        yield Finding("ignored-argument", message, fix, destination=_only(names))
    yield from polarized_findings(topology, (exchange.name for exchange in topology.exchanges))
    yield from DeadLetters.of_file(topology).findings_of_file()


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


#: The findings of a valid file, in the line of the file.
_SUSPICIONS = {
    "misspelling": "suspicious name",
    "ignored-argument": "ignored argument",
    "polarized": "polarized exchange",
    "dead-letter": "dead-letter fault",
    "alternate": "alternate fault",
}


def files_report(files: Mapping[str, tuple[Topology, Sequence[Finding]]]) -> Document:
    """Return a line for each valid topology file, and its findings: names that are probably misspelled or lead nowhere, ignored arguments."""
    facts = Facts([(name, _contents(*file)) for name, file in files.items()])
    placed = [(name, finding) for name, (_, found) in files.items() for finding in found]
    findings = [FileFinding(name, FindingFields.of(finding)) for name, finding in placed]
    return Document("check", [facts, *_finding_blocks(placed, "file")], CheckedFiles(findings))


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
