"""``rabbit-chx verify``: compare the mirror with a live broker, message by message."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.wording import document, finding_as_json, place_text
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import (
    COPY,
    declare_copy,
    find_routes,
    scratch_vhost,
)
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions, count_progress, unwound_by_signals
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, argument, command, option, options, say, typed
from rabbit_chx.cli.inputs import TopologyInput, read_topology
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import store_read_ring
from rabbit_chx.cli.report import (
    NEED_RING,
    exchange_facts,
    hashes_text,
    outcome_text,
    ring_text,
    source_as_json,
    source_fact,
)
from rabbit_chx.cli.ring_options import exchange_in, hash_arguments_of
from rabbit_chx.cli.samples import SampleOptions, sample_options
from rabbit_chx.cli.stream_options import StreamMap, StreamOptions, text_or_base64
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Block, Facts, Line, sign_of_life, table_of
from rabbit_chx.result_fields import SPREAD, shown
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.objects.objects import MODULUS_EXCHANGE
from rabbit_chx.words import listed, percent, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from rabbit_chx.streams import StreamParity, StreamReader
    from rabbit_chx.topology.live.reading import LiveExchange

_MOST_SHOWN = 20


def _escape(key: bytes) -> str:
    return key.decode(errors="backslashreplace")


def _findings_as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [finding_as_json(it, destination=it.destination, share=it.share) for it in findings]


@dataclass(frozen=True, slots=True)
class MisplacedExample:
    """A row that is not in the predicted stream; `belongs_to` is the destination of the mirror."""

    stream: str = field(metadata=shown("stream"))
    offset: int = field(metadata=shown("offset", number=True))
    key: bytes = field(metadata=shown("key", _escape, json=SPREAD, as_json=partial(text_or_base64, "key")))
    belongs_to: Place = field(metadata=shown("belongs to", place_text))


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A comparison with the rows of streams.

    Attributes:
        placement: the mapping of rows to streams.
        streams: the result of each stream.
        seconds: the duration.
    """

    placement: StreamMap
    vhost: str
    streams: Sequence[StreamParity]
    seconds: float

    @property
    def is_guess(self) -> bool:
        """True if the ring, or the order of the bindings of an exchange without one, is assumed."""
        return self.placement.source.ground.is_assumed

    @property
    def _why_not_determined(self) -> str:
        if self.placement.source.traits.has_order:
            return NEED_RING
        return "the order of the bindings is not known: RabbitMQ sorts the queues by name from 4.3 on"

    @property
    def code(self) -> int:
        """The exit code."""
        if self.total.wrong:
            return ExitCode.DIFFERENCE
        return ExitCode.DONE if self.total.right and not self.is_guess else ExitCode.PARTLY

    @property
    def total(self) -> StreamParity:
        """The sums of all streams."""
        from rabbit_chx.streams import StreamParity

        streams = self.streams
        return StreamParity(
            "all",
            rows=sum(each.rows for each in streams),
            right=sum(each.right for each in streams),
            wrong=sum(each.wrong for each in streams),
            without_key=sum(each.without_key for each in streams),
            other_exchange=sum(each.other_exchange for each in streams),
        )

    @property
    def findings(self) -> list[Finding]:
        """The contradiction of a ring by a row: one is enough."""
        examples, wrong = self.examples, self.total.wrong
        if not examples or not self.placement.source.traits.has_order:
            return []
        first = examples[0]
        reached = "nowhere" if first.belongs_to is None else f"to {first.belongs_to}"
        message = (
            f"the key {_escape(first.key)!r:.80} reached {first.stream} (offset {first.offset}), and the ring sends it {reached}; "
            f"{plural(wrong, 'row')} contradict the ring: which stream a key reaches is not determined"
        )
        fix = "if the ring changed after these rows were published, skip them with --since; otherwise read the ring again"
        return [Finding("contradicted", message, fix, exchange=self.placement.exchange)]

    @property
    def examples(self) -> list[MisplacedExample]:
        """The first misplaced rows, each with its stream."""
        found = [MisplacedExample(each.stream, *row) for each in self.streams for row in each.examples]
        return found[:_MOST_SHOWN]

    def blocks(self) -> Iterator[Block]:
        """Return the compared objects, the counts of each stream, and misplaced rows."""
        from rabbit_chx.streams import StreamParity

        name, source = source_fact(self.placement.source)
        total = self.total
        facts = [
            (self.placement.title, self.placement.exchange),
            ("vhost", self.vhost),
            ("ring" if name == "ring" else "placing", source),
            *([("not determined", self._why_not_determined)] if self.is_guess else []),
            ("compared", f"{total.right + total.wrong:,} of {total.rows:,} rows"),
            ("wrong", f"{total.wrong:,}"),
            ("seconds", f"{self.seconds:.1f}"),
            *(("finding", Fix(f"{finding.kind}: ", finding.text)) for finding in self.findings),
        ]
        yield Facts(facts)
        yield table_of(StreamParity, self.streams, total=len(self.streams) > 1)
        if examples := self.examples:
            yield table_of(MisplacedExample, examples)
        if not total.right + total.wrong:
            yield Line(
                "No rows have a key of this exchange, so nothing was verified. For rows of another exchange pass --published-to."
            )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        total = self.total
        return document(
            "verify",
            way="stored",
            exchange=self.placement.exchange,
            vhost=self.vhost,
            **source_as_json(self.placement.source),
            rows=total.rows,
            right=total.right,
            wrong=total.wrong,
            without_key=total.without_key,
            other_exchange=total.other_exchange,
            seconds=round(self.seconds, 3),
            determined=bool(total.right) and not (self.is_guess or self.findings),
            findings=_findings_as_json(self.findings),
            streams=self.streams,
            examples=self.examples,
        )


@sign_of_life("reading the first rows")
def exchange_of(at: BrokerAddresses, stream: str, options: StreamOptions) -> str | None:
    """Return the exchange that most of the first rows of a stream were published to; None if no row names one."""
    with options.reader(at, stream, include=["exchange"]) as reader:
        for batch in reader:
            names: Counter[str] = Counter(name for name in batch["exchange"].to_pylist() if name)
            if names:
                return names.most_common(1)[0][0]
    return None


@sign_of_life("opening the streams")
def verify_stored(
    at: BrokerAddresses, placement: StreamMap, names: Sequence[str], options: StreamOptions
) -> StoredReport:
    """Read streams and compare their rows."""
    from rabbit_chx.streams import stream_parity
    from rabbit_chx.streams.keys import columns_with

    began, found = time.monotonic(), []
    for name in dict.fromkeys(names):
        with options.reader(at, name, include=columns_with(options.key_column)) as reader:
            size = reader.end_offset - reader.start_offset
            with count_progress(f"offsets of {name}", size) as seen:
                batches = _seen(reader, seen)
                found.append(
                    stream_parity(
                        name,
                        batches,
                        placement.source,
                        options.published_to or placement.exchange,
                        key_column=options.key_column,
                    )
                )
    return StoredReport(placement, at.settings.vhost, found, time.monotonic() - began)


def _seen(reader: StreamReader, seen: Callable[[int], None]) -> Iterable[pa.RecordBatch]:
    for batch in reader:
        yield batch
        seen(reader.next_offset - reader.start_offset)


_DEFAULT_KEYS = 10_000
_DEFAULT_PATTERN = "key-{n}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A message of the scratch copy whose destination (`found`) differs from that of the mirror (`predicted`)."""

    key: str = field(metadata=shown("key"))
    predicted: Place | Refused = field(metadata=shown("predicted", outcome_text))
    found: Place = field(metadata=shown("found", place_text))


@dataclass(frozen=True, slots=True)
class DestinationCount:
    """The messages that reached a destination, and those that the mirror predicted for it."""

    destination: Place = field(metadata=shown("destination", place_text))
    messages: int = field(metadata=shown("messages", number=True))
    predicted: int = field(metadata=shown("predicted", number=True))


@dataclass(frozen=True, slots=True)
class HeaviestKey:
    """The most frequent key of a sample, and its share of the messages, 0 to 1. They have one destination, whatever the ring."""

    key: str
    share: float

    @classmethod
    def of(cls, keys: Sequence[str]) -> HeaviestKey | None:
        """Return that of a sample; None if no key occurs twice."""
        heaviest = Counter(keys).most_common(1)
        return cls(heaviest[0][0], heaviest[0][1] / len(keys)) if heaviest and heaviest[0][1] > 1 else None


@dataclass(frozen=True, slots=True)
class ScratchReport:
    """A comparison with a scratch copy.

    Attributes:
        exchange: the name of the exchange that was copied.
        arguments: its arguments that determine the hashed value.
        findings: the faults of the ring.
        found: the number of messages that reached each destination.
        predicted: the number of messages that the mirror predicted for each destination.
        differences: the messages with another destination.
        heaviest: the most frequent key of the sample; None if no key occurs twice.
        is_applied: True if the exchange of a file was applied, because the broker does not have it; False for a copy.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    ring: KeyMap
    findings: Sequence[Finding]
    found: Mapping[Place, int] = field(default_factory=dict)
    predicted: Mapping[Place, int] = field(default_factory=dict)
    differences: Sequence[Difference] = ()
    heaviest: HeaviestKey | None = None
    is_applied: bool = False

    def with_messages(
        self,
        keys: Sequence[str],
        predicted: Sequence[Place | Refused],
        found: Sequence[tuple[Place, ...]],
    ) -> ScratchReport:
        """Return the report with a comparison: the predicted destination of each key, and those at which its message was found."""
        differences = [
            Difference(key, place, next((each for each in places if each != place), None))
            for key, place, places in zip(keys, predicted, found, strict=True)
            if places != (() if place is None else (place,))
        ]
        return replace(
            self,
            found=Counter(place for places in found for place in places or (None,)),
            predicted=Counter(place for place in predicted if not isinstance(place, Refused)),
            differences=differences,
            heaviest=HeaviestKey.of(keys),
        )

    @property
    def guess(self) -> str | None:
        """The uncertainty of a ring; None if it was read or is recorded, or if the file was applied."""
        if self.is_applied or self.ring.ground.is_certain or not self.ring.traits.has_order:
            return None  # where no order matters, the bindings determine the destinations
        if self.ring.provenance == "assumed":
            origin, remedy = "that guess", "pass --ring-via PREFIX to read it"
        else:
            origin, remedy = "the ring of the file", "pass --ring-via PREFIX instead of --topology"
        return f"the copy was made from {origin}, so this verifies the rules of the broker, not the ring; {remedy}"

    @property
    def code(self) -> int:
        """The exit code."""
        if self.differences or self.findings:
            return ExitCode.DIFFERENCE
        return ExitCode.PARTLY if self.guess or not self.found else ExitCode.DONE

    @property
    def destinations(self) -> list[DestinationCount]:
        """All destinations with buckets or messages."""
        return [
            DestinationCount(place, self.found.get(place, 0), self.predicted.get(place, 0))
            for place in dict.fromkeys((*self.ring.buckets, *self.found))
        ]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The facts in the heading."""
        if self.ring.traits.has_order:
            return exchange_facts(self.exchange, self.vhost, self.arguments, self.ring)
        return [("exchange", self.exchange), ("vhost", self.vhost), ("type", ring_text(self.ring))]

    def blocks(self) -> Iterator[Block]:
        """Return the compared objects, the destinations of the messages, and the differences."""
        compared = sum(self.found.values())
        made = "the file, applied" if self.is_applied else "a copy"
        copied = f"{plural(compared, 'message')} with {made} in a vhost of its own, now removed"
        yield Facts(
            [
                *self.facts,
                ("compared", copied if compared else "nothing"),
                ("mismatches", f"{len(self.differences):,}"),
                *([("heaviest key", _heaviest_text(self.heaviest))] if self.heaviest else []),
                *([("verified", Fix("not the ring, which is a guess: ", self.guess))] if self.guess else []),
                *(("finding", Fix(f"{finding.kind}: ", finding.text)) for finding in self.findings),
            ]
        )
        if not compared:
            return
        yield table_of(DestinationCount, self.destinations)
        if self.differences:
            yield table_of(Difference, self.differences[:_MOST_SHOWN])

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return document(
            "verify",
            way="applied" if self.is_applied else "scratch",
            exchange=self.exchange,
            vhost=self.vhost,
            arguments=self.arguments,
            **source_as_json(self.ring),
            determined=bool(self.found) and not self.guess,
            findings=_findings_as_json(self.findings),
            compared=sum(self.found.values()),
            mismatches=len(self.differences),
            heaviest_key=self.heaviest,
            destinations=self.destinations,
            examples=self.differences[:_MOST_SHOWN],
        )


@command(
    example="rabbit-chx verify orders --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'"
)
def verify(
    *,
    exchange: str | None = argument(required=False),
    topology: str | None = option(
        metavar="FILE",
        help="Use the ring of this topology file instead of the live ring; the broker need not have it. If it has one exchange, "
        "EXCHANGE may be omitted.",
    ),
    broker: BrokerOptions = options(BrokerOptions),
    sample: SampleOptions = sample_options(_DEFAULT_PATTERN, _DEFAULT_KEYS),
    streams: tuple[str, ...] = option(
        "--stream",
        type=TEXT,
        multiple=True,
        metavar="NAME",
        help="Compare the rows of this stream of EXCHANGE, or of this partition of --super-stream (default: of all partitions). "
        "In a pattern such as 'orders-*' an asterisk is any text.",
    ),
    stored: StreamOptions = options(StreamOptions),
) -> Outcome:
    """Compare the predicted destinations with those of the broker, message by message. The queues of EXCHANGE
    are not touched.

    The command copies EXCHANGE, bucket for bucket, to a temporary vhost. It publishes a sample there (by
    default 10,000 keys), consumes and compares it, and deletes the vhost, also after Ctrl-C. Without
    --ring-via, or with --topology, this verifies the rules of the broker but not the order of the live ring
    (exit code 3). Differences between the ring and the bindings are findings (exit code 1). If the broker does
    not have the exchange of --topology, the hash exchanges of the file are applied to the temporary vhost, with
    classic queues.

    With --stream or --super-stream nothing is published: the command reads the rows of streams, and compares
    the stream of each row with its routing key. Without EXCHANGE, most of the first rows determine it. Rows
    that were written before the ring changed may be in another stream: --since skips them.
    """
    if streams or stored.super_stream is not None:
        if sample.given:
            raise InputError(
                "stored rows are compared, without a sample: leave --keys, --pattern and --count out"
            )
        at = broker.live(streams=True)
        named = [name for name in streams if "*" not in name]
        if named and exchange is None and topology is None and stored.super_stream is None:
            exchange = exchange_of(at, named[0], stored)
        placement = stored.placement(at, exchange, topology)
        report = verify_stored(at, placement, _find_matching(streams or ("*",), placement), stored)
        return Outcome(report, code=report.code)
    if unused := typed(StreamOptions):
        raise InputError(
            f"{unused[0]} is an option for the rows of streams: pass --stream NAME too, or --stream '*'"
        )
    if exchange is None and topology is None:
        raise InputError("the exchange is not given: pass EXCHANGE, or --topology FILE")
    return _of_messages(broker.live(), exchange, topology, sample)


def _find_matching(names: Sequence[str], placement: StreamMap) -> list[str]:
    """Return the streams with these names, in which ``*`` matches any text."""
    found: list[str] = []
    for name in names:
        if "*" not in name:
            found.append(name)
            continue
        expression = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
        matching = [stream for stream in placement.streams if expression.fullmatch(stream)]
        if not matching:
            known = listed(placement.streams) or "none"
            raise InputError(
                f"--stream {name} matches no stream of {placement.exchange!r}; its streams are {known}"
            )
        found += matching
    return found


def _of_messages(
    at: BrokerAddresses, exchange: str | None, topology: str | None, sample: SampleOptions
) -> Outcome:
    twice = [name for name in ("--ring-via", "--ring-from") if name in typed(BrokerOptions)]
    if topology is not None and twice:
        raise InputError(f"the ring is given twice, by --topology and by {twice[0]}: leave one of them out")
    wanted = None if topology is None else read_topology(topology, at.settings.vhost)
    name = str(exchange) if wanted is None else exchange_in(wanted, exchange).name
    try:
        with sign_of_life("reading the exchange"):
            live = at.exchange(name, "arguments and bindings are read over the management API")
    except NotFoundError:
        if wanted is None:
            raise
        say(
            f"vhost {at.settings.vhost} has no exchange {name}, so {wanted.name} is applied in a temporary vhost"
        )
        report = _of_trial(at, wanted, name, sample)
        return Outcome(report, code=report.code)
    if live.type == MODULUS_EXCHANGE:
        report = _of_modulus(at, live, wanted, sample)
        return Outcome(report, code=report.code)
    live.check_type()
    with sign_of_life("reading the ring"):
        if wanted is None:
            ring = live.ring
            findings = ring_findings(ring, live.bindings, live.alternate)
            store_read_ring(at, live)
        else:
            ring = wanted.topology.ring(name, live.release)
            findings = _findings_against(wanted, ring, live)
    if not ring.bucket_count:
        report = ScratchReport(name, live.vhost, live.hash_arguments, ring, findings)
    else:
        report = _on_copy(at, live, ring, sample=sample, findings=findings)
    if report.guess:
        origin = (
            "a guess, because the order of its bindings was not read"
            if wanted is None
            else f"that of {wanted.name}"
        )
        say(Fix(f"the ring of {name!r} is {origin}: ", report.guess))
    return Outcome(report, code=report.code)


@sign_of_life("applying the file in a temporary vhost")
def _of_trial(at: BrokerAddresses, wanted: TopologyInput, name: str, sample: SampleOptions) -> ScratchReport:
    """Apply the exchanges of a file that hash in a temporary vhost, and compare one of them."""
    from rabbit_chx.broker.trial import Trial

    with (
        unwound_by_signals(),
        scratch_vhost(at.management(""), at.settings.username) as vhost,
        replace(inside := at.in_vhost(vhost), ring_source=None).open() as broker,
    ):
        trial = Trial(broker, inside.settings, wanted.topology)
        if name not in trial.exchanges:
            raise InputError(
                f"exchange {name!r} of {wanted.name} has no destination: nothing can be compared"
            )
        hashing, ring = trial.exchanges[name]
        keys = sample.read_or_make(_pattern(hashing), _DEFAULT_KEYS)
        with keys.values(hashing, ring) as values:
            predicted = trial.predict(name, values)
        with count_progress("compared", len(values)) as seen:
            found = trial.find(name, values, seen)
    report = ScratchReport(name, at.settings.vhost, hashing.arguments, ring, [], is_applied=True)
    return report.with_messages(keys.keys, predicted, found)


def _pattern(hashing: Hashing) -> str:
    return "{n}" if hashing.hash_property == "timestamp" else _DEFAULT_PATTERN


@sign_of_life("reading the exchange")
def _of_modulus(
    at: BrokerAddresses, live: LiveExchange, wanted: TopologyInput | None, sample: SampleOptions
) -> ScratchReport:
    exchange = live.key_map()
    findings = []
    if wanted is not None:
        of_file = wanted.topology.modulus(live.name, live.release)
        if of_file.destinations != exchange.destinations:
            findings.append(_different(wanted, live.name))
        exchange = of_file
    if not exchange.destinations:
        return ScratchReport(live.name, live.vhost, {}, exchange, findings)
    return _on_copy(at, live, exchange, sample=sample, findings=findings)


def _findings_against(wanted: TopologyInput, ring: HashRing, live: LiveExchange) -> list[Finding]:
    """Return the differences between the exchange of a file and that of the broker."""
    exchange = exchange_in(wanted, live.name)
    arguments = hash_arguments_of(exchange)
    if arguments != live.hash_arguments:
        raise InputError(
            f"exchange {live.name!r} of {wanted.name} hashes {hashes_text(arguments)}, and that of the broker "
            f"{hashes_text(live.hash_arguments)}: their keys cannot be compared"
        )
    if Counter(ring.bindings) == Counter(live.bindings):
        return []
    return [_different(wanted, live.name)]


def _different(wanted: TopologyInput, exchange: str) -> Finding:
    message = f"the bindings of {exchange} on the broker differ from {wanted.name}"
    fix = Fix("run: ", to_type("topology check", wanted.name))
    return Finding("different", message, fix, exchange=exchange)


def _on_copy(
    at: BrokerAddresses,
    live: LiveExchange,
    ring: KeyMap,
    *,
    sample: SampleOptions,
    findings: Sequence[Finding],
) -> ScratchReport:
    arguments = live.hash_arguments
    hashing = Hashing(arguments.get("hash-header"), arguments.get("hash-property"))
    keys = sample.read_or_make(_pattern(hashing), _DEFAULT_KEYS)
    with keys.values(hashing, ring) as values:
        predicted = hashing.route_all(values, ring)
    with (
        unwound_by_signals(),
        count_progress("compared", len(values)) as seen,
        scratch_vhost(at.management(""), at.settings.username) as vhost,
        closing(PikaConnection(replace(at.settings, vhost=vhost))) as connection,
    ):
        places = declare_copy(connection, ring, arguments)
        found = find_routes(connection, COPY, hashing, values, places, seen=seen)
    report = ScratchReport(live.name, live.vhost, arguments, ring, findings)
    return report.with_messages(keys.keys, predicted, found)


def _heaviest_text(heaviest: HeaviestKey) -> str:
    """Return the most frequent key in words."""
    return f"{heaviest.key!r:.60}: {percent(heaviest.share)} of the messages, to one destination"
