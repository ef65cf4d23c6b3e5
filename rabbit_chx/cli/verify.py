"""``rabbit-chx verify``: compare the mirror with a live broker, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from rabbit_chx.amqp import AmqpField
from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.observations import as_observations, comparable
from rabbit_chx.analysis.pictures import draw_map
from rabbit_chx.analysis.report_parts import outcome_text, ring_text, source_as_json
from rabbit_chx.analysis.wording import finding_as_json, place_text
from rabbit_chx.broker import Broker
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import COPY, declare_copy, find_routes, scratch_vhost, unwound_by_signals
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions, count_progress
from rabbit_chx.cli.command import ExitCode, Outcome, argument, command, options, say
from rabbit_chx.cli.inputs import hashed_value
from rabbit_chx.cli.read_rings import say_unrecorded
from rabbit_chx.cli.samples import KeySource, keys_option, parse_keys
from rabbit_chx.cli.tracing import TraceOptions, read_trace
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Data, Document, Facts, Table, sign_of_life
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.live.reading import LiveExchange
from rabbit_chx.topology.objects.objects import MODULUS_EXCHANGE
from rabbit_chx.topology.reports.exchange_report import exchange_facts
from rabbit_chx.words import percent, plural

_MOST_SHOWN = 20
_DEFAULT_KEYS = "key-{0..9999}"


_DESTINATIONS = {
    "destination": Shown("destination", place_text),
    "messages": Shown("messages", number=True),
    "predicted": Shown("predicted", number=True),
}
_DIFFERENCES = {
    "key": Shown("key"),
    "predicted": Shown("predicted", outcome_text),
    "found": Shown("found", place_text),
}


@dataclass(frozen=True, slots=True)
class ScratchReport:
    """A comparison with a scratch copy, or with live messages.

    Attributes:
        exchange: the name of the exchange that was copied or traced.
        arguments: its arguments that determine the hashed value.
        findings: the faults of the ring.
        found: the number of messages that reached each destination.
        predicted: the number of messages that the mirror predicted for each destination.
        differences: the key of each message with another destination, the predicted one, and the one found.
        heaviest: the most frequent key of the sample and its share of the messages, 0 to 1, which have one destination, whatever the ring; None if no key occurs twice.
        traced_s: the seconds in which live messages were traced; None if a copy was made.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    ring: KeyMap
    findings: Sequence[Finding]
    found: Mapping[Place, int] = field(default_factory=dict)
    predicted: Mapping[Place, int] = field(default_factory=dict)
    differences: Sequence[tuple[str, Place | Refused, Place]] = ()
    heaviest: tuple[str, float] | None = None
    traced_s: float | None = None

    def with_messages(
        self,
        keys: Sequence[str],
        predicted: Sequence[Place | Refused],
        found: Sequence[tuple[Place, ...]],
    ) -> ScratchReport:
        """Return the report with a comparison: the predicted destination of each key, and those at which its message was found."""
        differences = [
            (key, place, next((each for each in places if each != place), None))
            for key, place, places in zip(keys, predicted, found, strict=True)
            if places != (() if place is None else (place,))
        ]
        return replace(
            self,
            found=Counter(place for places in found for place in places or (None,)),
            predicted=Counter(place for place in predicted if not isinstance(place, Refused)),
            differences=differences,
            heaviest=_heaviest_key(keys),
        )

    @property
    def doubt(self) -> str | None:
        """The uncertainty of a ring; None if it was read or is recorded."""
        if self.ring.ground.is_certain or not self.ring.traits.has_order:
            return None  # where no order matters, the bindings determine the destinations
        if self.traced_s is not None:
            return "pass --ring-via PREFIX to read it, or let `record` determine it with --trace"
        return "the copy was made from that guess, so this verifies the rules of the broker, not the ring; pass --ring-via PREFIX to read it"

    @property
    def code(self) -> int:
        """The exit code."""
        if self.differences or self.findings:
            return ExitCode.DIFFERENCE
        return ExitCode.PARTLY if self.doubt or not self.found else ExitCode.DONE

    def document(self) -> Document:
        """Return the compared objects, the destinations of the messages, and the differences."""
        compared, heaviest = sum(self.found.values()), self.heaviest
        by = "a copy in a vhost of its own, now removed"
        if self.traced_s is not None:
            by = f"what the broker did with them in {self.traced_s:g} s of live traffic"
        facts = [
            *self._facts(),
            ("compared", f"{plural(compared, 'message')} with {by}" if compared else "nothing"),
            ("mismatches", f"{len(self.differences):,}"),
            *([("heaviest key", _heaviest_text(*heaviest))] if heaviest else []),
            *([("verified", f"not the ring, which is a guess: {self.doubt}")] if self.doubt else []),
            *(("finding", Fix(f"{finding.kind}: ", finding.text)) for finding in self.findings),
        ]
        findings = [finding_as_json(it, destination=it.destination, share=it.share) for it in self.findings]
        fields = {
            "exchange": self.exchange,
            "vhost": self.vhost,
            "arguments": self.arguments,
            **source_as_json(self.ring),
            "determined": bool(self.found) and not self.doubt,
            "findings": findings,
            "compared": compared,
            "mismatches": len(self.differences),
            "heaviest_key": heaviest and {"key": heaviest[0], "share": heaviest[1]},
        }
        counts = [
            (place, self.found.get(place, 0), self.predicted.get(place, 0))
            for place in dict.fromkeys((*self.ring.buckets, *self.found))
        ]
        shown = self.differences[:_MOST_SHOWN]
        return Document(
            "verify",
            [
                Data(fields),
                Facts(facts),
                replace(
                    Table.of(_DESTINATIONS, counts, key="destinations"), pictures=lambda: draw_map(self.ring)
                ).for_people(compared),
                Table.of(_DIFFERENCES, shown, key="examples").for_people(compared and shown),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        if self.ring.traits.has_order:
            return exchange_facts(self.exchange, self.vhost, self.arguments, self.ring)
        return [("exchange", self.exchange), ("vhost", self.vhost), ("type", ring_text(self.ring))]


@command(
    example="rabbit-chx verify orders --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    has_pictures=True,
)
def verify(
    *,
    exchange: str = argument(),
    tracing: TraceOptions = options(TraceOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    keys: KeySource | None = keys_option(f"Keys instead of {_DEFAULT_KEYS}"),
) -> Outcome:
    """Compare the predicted destinations with those of the broker, message by message. The queues of EXCHANGE
    are not touched.

    The command copies EXCHANGE, bucket for bucket, to a temporary vhost. It publishes a sample there (by
    default 10,000 keys), consumes and compares it, and deletes the vhost, also after Ctrl-C. If the ring is
    neither recorded nor read by --ring-via, this verifies the rules of the broker but not the order of the ring
    (exit code 3). Differences between the ring and the bindings are findings (exit code 1).

    With --trace the predictions are compared with what the broker does with the live messages of EXCHANGE.
    """
    tracing.check_use((exchange,), keys=keys)
    at = broker.live()
    at.management("arguments and bindings are read over the management API")
    with at.open(yes=tracing.yes) as opened:
        with sign_of_life("reading the exchange"):
            live = opened.inspect(exchange)
            ring: KeyMap = live.key_map() if live.type == MODULUS_EXCHANGE else live.ring
            findings: list[Finding] = []
            if live.type != MODULUS_EXCHANGE:
                findings = ring_findings(live.ring, live.bindings, live.alternate)
                say_unrecorded(live)
        report = ScratchReport(exchange, live.vhost, live.hash_arguments, ring, findings)
        if tracing.trace is not None:
            report = _by_trace(opened, live, report, tracing)
    if ring.destinations and tracing.trace is None:
        report = _on_copy(at, report, keys)
    if report.doubt:
        say(
            f"the ring of {exchange!r} is a guess, because the order of its bindings was not read: {report.doubt}"
        )
    return Outcome(report.document(), code=report.code)


def _by_trace(
    opened: Broker, live: LiveExchange, report: ScratchReport, tracing: TraceOptions
) -> ScratchReport:
    """Return the report with a comparison of live messages, by the queues behind slots."""
    arguments, ring = report.arguments, live.key_map()
    hashing = Hashing(arguments.get("hash-header"), arguments.get("hash-property"))
    places = {place: place for place in ring.destinations if isinstance(place, str)}
    traced = read_trace(opened, live.vhost, live.name, tracing)
    seen = as_observations(traced, places, has_alternate=live.alternate is not None)
    pairs = [pair for pair in comparable(ring, seen, hashing) for _ in range(pair[0].messages)]
    return replace(report, ring=ring, traced_s=tracing.trace).with_messages(
        [_key_text(each.key) for each, _ in pairs],
        [place for _, place in pairs],
        [() if each.queue is None else (each.queue,) for each, _ in pairs],
    )


def _key_text(key: object) -> str:
    value = key.value if isinstance(key, AmqpField) else key
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _on_copy(at: BrokerAddresses, report: ScratchReport, given: KeySource | None) -> ScratchReport:
    """Return the report with a comparison of a sample on a copy of the exchange."""
    arguments, ring = report.arguments, report.ring
    hashing = Hashing(arguments.get("hash-header"), arguments.get("hash-property"))
    default = "{0..9999}" if hashing.hash_property == "timestamp" else _DEFAULT_KEYS
    source = given or parse_keys(default)
    hashing, keys = source.hashing(hashing), source.read()
    with keys.name_errors(hashing, ring):
        values = [hashed_value(hashing, key) for key in keys.keys]
        predicted = hashing.route_all(values, ring)
    with (
        unwound_by_signals(),
        count_progress("compared", len(values)) as seen,
        scratch_vhost(at.management(""), at.settings.username) as vhost,
        closing(PikaConnection(replace(at.settings, vhost=vhost))) as connection,
    ):
        places = declare_copy(connection, ring, arguments)
        found = find_routes(connection, COPY, hashing, values, places, seen=seen)
    return report.with_messages(keys.keys, predicted, found)


def _heaviest_key(keys: Sequence[str]) -> tuple[str, float] | None:
    heaviest = Counter(keys).most_common(1)
    return (heaviest[0][0], heaviest[0][1] / len(keys)) if heaviest and heaviest[0][1] > 1 else None


def _heaviest_text(key: str, share: float) -> str:
    return f"{key!r:.60}: {percent(share)} of the messages, to one destination"
