"""``rabbit-chx rehearse``: which keys an upgrade of the broker moves, predicted and proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.amqp.fields import FIELD_TYPES, FieldType
from rabbit_chx.analysis import Hashing
from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.cli.arguments import hashed_value
from rabbit_chx.cli.broker_options import BrokerOptions, LiveBroker, TraceOptions, counted, unwound_by_signals
from rabbit_chx.cli.command import (
    DIFFERENCE,
    DONE,
    STORES,
    TEXT,
    Outcome,
    argument,
    command,
    option,
    options,
    typed,
)
from rabbit_chx.cli.inputs import STDIN, file_name, read_topology
from rabbit_chx.cli.report import (
    ASSUMED,
    document,
    entries,
    entry,
    matrix_table,
    moved_keys,
    ring_as_json,
    ring_text,
    texts,
)
from rabbit_chx.cli.rings import chosen_release
from rabbit_chx.cli.samples import Sample, SampleOptions, sample_options, traced_sample
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.rendering import Block, Facts, Line, Section, Table, TableColumn
from rabbit_chx.routing import ExchangeRef, HashedOn
from rabbit_chx.routing.release import Store
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, Topology
from rabbit_chx.topology.objects import is_slot
from rabbit_chx.topology.upgrade import (
    UpgradePrediction,
    bound_to,
    hash_exchanges,
    hashed_on,
    predict_upgrade,
)
from rabbit_chx.topology.upgrade_exchange import ExchangeUpgrade, SampledMessage, hash_arguments

if TYPE_CHECKING:
    from rabbit_chx.testing.rehearsal import ExchangeProof, UpgradeProof

_KEYS = 10_000
_KEY_PATTERN = "key-{n}"
_NUMBERS = "{n}"
#: The types whose values a number is not.
_NO_NUMBERS = ("longstr", "binary", "bool", "void", "array", "table")
_SHOWN = 5
_DISAGREE = 70
_MOST_MISMATCHES = 10
_VERDICTS = {
    "safe": "safe",
    "repair": "safe after a ring repair",
    "moves": "keys move",
    "unknown": "not known",
}


@dataclass(frozen=True, slots=True)
class RehearseReport:
    """A rehearsed upgrade.

    Attributes:
        prediction: what the mirror says.
        proof: what two brokers did; a text says why nothing was proven.
        source: what was rehearsed, in words.
        sample: where the keys come from, in words.
        shown: how many moved keys of each exchange are listed.
    """

    prediction: UpgradePrediction
    proof: UpgradeProof | str
    source: str
    sample: str
    shown: int

    def blocks(self) -> Iterator[Block]:
        """Return the sums, a row for each exchange, what to do, and what moves in each exchange."""
        prediction = self.prediction
        yield Section(
            f"Upgrade of RabbitMQ {prediction.before.version} to {prediction.after.version}",
            [Facts(list(self._facts()))],
        )
        yield self._table()
        yield from self._mismatches()
        if plan := list(self._plan()):
            yield Section("What happens, and what to do", plan)
        for exchange in prediction.exchanges:
            if exchange.moves_by_rule:
                yield Section(f"Exchange {exchange.name}", list(self._exchange(exchange)), folded=True)

    def _facts(self) -> Iterator[tuple[str, str]]:
        prediction, proof = self.prediction, self.proof
        yield "rehearsed", self.source
        yield "from", f"RabbitMQ {prediction.before}"
        yield "to", f"RabbitMQ {prediction.after}"
        sizes = [len(exchange.sample.messages) for exchange in prediction.exchanges if exchange.sample]
        yield "sample", f"{plural(max(sizes, default=0), 'key')} for each exchange: {self.sample}"
        for verdict, words in _VERDICTS.items():
            names = [exchange.name for exchange in prediction.exchanges if exchange.verdict == verdict]
            if names:
                yield words, ", ".join(names)
        if isinstance(proof, str):
            yield "proven", f"nothing: {proof}"
            return
        where = f"{proof.origins[0]} and {proof.origins[1]}"
        said = f"{plural(proof.published, 'message')} on {where}: {proof.mismatches:,} of them are not as predicted"
        yield "proven" if proof.complete else "proven in part", said
        if not proof.same_rules:
            yield "", "these patches do not follow all rules of the releases that were asked for"

    def _table(self) -> Table:
        headings = ("exchange", "hashes", "keys of the sample", "moved", "measured", "of all keys", "verdict")
        numeric = (False, False, True, True, True, True, False)
        rows = []
        for exchange in self.prediction.exchanges:
            proof, sample = self._proof_of(exchange), exchange.sample
            of_all = "" if exchange.expected is None else f"about {exchange.expected:.1%}"
            rows.append(
                (
                    exchange.name,
                    exchange.hashes,
                    "" if sample is None else len(sample.messages),
                    "" if sample is None else len(sample.moved),
                    "" if proof is None or proof.left_out else proof.measured,
                    of_all if exchange.exact is None else percent(exchange.exact.moved),
                    _VERDICTS[exchange.verdict],
                )
            )
        columns = [TableColumn(*pair) for pair in zip(headings, numeric, strict=True)]
        return Table(columns, rows)

    def _proof_of(self, exchange: ExchangeUpgrade) -> ExchangeProof | None:
        if isinstance(self.proof, str):
            return None
        return next((proof for proof in self.proof.exchanges if proof.name == exchange.name), None)

    def _mismatches(self) -> Iterator[Block]:
        if isinstance(self.proof, str):
            return
        rows = [
            (
                exchange.name,
                mismatch.release.version,
                "(the ring)" if mismatch.key is None else mismatch.key,
                mismatch.predicted,
                mismatch.found,
            )
            for exchange in self.proof.exchanges
            for mismatch in exchange.mismatches
        ]
        if rows:
            title = f"Not as predicted: {plural(len(rows), 'mismatch').removesuffix('s')}"
            columns = texts("exchange", "release", "key", "predicted", "found")
            yield Section(title, [Table(columns, rows[:_MOST_MISMATCHES])])
        for exchange in self.proof.exchanges:
            if exchange.left_out:
                yield Line(f"{exchange.name} was not rehearsed on the brokers: {exchange.left_out}.")

    def _plan(self) -> Iterator[Block]:
        """Yield each thing that happens once, with the exchanges that it happens to and the cure for each."""
        together: dict[str, list[tuple[str, str]]] = {}
        for exchange in self.prediction.exchanges:
            for finding in exchange.findings:
                together.setdefault(finding.says, []).append((exchange.name, finding.cure))
        for number, (says, cures) in enumerate(together.items(), 1):
            names = ", ".join(dict.fromkeys(name for name, _ in cures))
            yield Line(f"({number}) {names}: {says}.")
            yield Facts(cures)

    def _exchange(self, exchange: ExchangeUpgrade) -> Iterator[Block]:
        rings, sample = exchange.rings, exchange.sample
        facts = [("hashes", exchange.hashes)]
        if rings is not None:
            facts += [("before", ring_text(rings.before)), ("after", ring_text(rings.after))]
        proof = self._proof_of(exchange)
        if proof is not None and proof.in_arrays is not None:
            stayed = f"{proof.in_arrays:,} of {plural(proof.compared, 'key')} stayed, measured"
            facts.append(("in an array", stayed))
        yield Facts(facts)
        if sample is None:
            return
        if sample.moved:
            yield matrix_table(sample.matrix, int)
            yield from moved_keys(
                [(move.message.key, move.before, move.after) for move in sample.moved], self.shown
            )
        elif exchange.exact is not None and exchange.exact.moved:
            yield matrix_table(exchange.exact, percent)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command; it names every moved key of the sample."""
        prediction, proof = self.prediction, self.proof
        fields = ("from=before", "to=after", "origins", "same_rules", "published", "mismatches")
        return document(
            "rehearse",
            source=self.source,
            **entry(prediction, "from=before", "to=after"),
            sample=self.sample,
            proven=not isinstance(proof, str) and proof.complete,
            not_proven=proof if isinstance(proof, str) else None,
            proof=None if isinstance(proof, str) else entry(proof, *fields),
            exchanges=list(map(self._exchange_json, prediction.exchanges)),
        )

    def _exchange_json(self, exchange: ExchangeUpgrade) -> dict[str, Any]:
        sample, rings, proof = exchange.sample, exchange.rings, self._proof_of(exchange)
        counts = ("published", "compared", "predicted", "measured", "kept_in_array=in_arrays", "left_out")
        mismatch = ("release=release.version", "key", "predicted", "found")
        return {
            **entry(exchange, "exchange=name", "hashes", "verdict"),
            "order": rings and rings.order,
            "before": rings and ring_as_json(rings.before),
            "after": rings and ring_as_json(rings.after),
            **entry(exchange, "exact", "expected"),
            "sample": sample
            and {
                "keys": len(sample.messages),
                "moved": len(sample.moved),
                "refused_before": sample.refused(after=False),
                "refused_after": sample.refused(after=True),
                **entry(sample, "matrix"),
                "moves": entries(sample.moved, "key=message.key", "before", "after"),
            },
            "kept_in_array": exchange.kept_in_array,
            "proof": proof and {**entry(proof, *counts), "mismatches": entries(proof.mismatches, *mismatch)},
            "findings": entries(exchange.findings, "kind", "says", "cure"),
        }


@dataclass(frozen=True, slots=True)
class UpgradeOptions:
    """The releases before and after an upgrade."""

    from_release: str | None = option(
        "--from",
        metavar="VERSION",
        help="The release before; 3.12 is the newest known 3.12.  [default: that of the broker or the definitions file]",
    )
    to_release: str = option("--to", required=True, metavar="VERSION", help="The release after.")
    from_store: Store | None = option(type=STORES, help="The metadata store before.")
    to_store: Store | None = option(type=STORES, help="The metadata store after.")


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is rehearsed.

    Attributes:
        topology: what there is.
        source: the file, or the exchange and its broker, in words.
        file: the name of the topology file, for commands; None where there is none.
        live: the broker; None for a file.
    """

    topology: Topology
    source: str
    file: str | None = None
    live: LiveBroker | None = None


@command(
    example="rabbit-chx rehearse topology.toml --from 3.12 --to 4.3 --pattern 'tenant-{n}' --output markdown",
    outputs=("table", "json", "markdown"),
    output_help="The form of the result; markdown is a page for a change request.",
)
def rehearse(
    *,
    file: str | None = argument(required=False),
    topology_file: str | None = option("--topology", metavar="FILE", help="The same as FILE."),
    exchange: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="Without FILE: this exchange of a live broker. With FILE: only this exchange of it.",
    ),
    upgrade: UpgradeOptions = options(UpgradeOptions),
    types: tuple[str, ...] = option(
        "--type",
        type=TEXT,
        multiple=True,
        metavar="[HEADER=]TYPE",
        help="The AMQP type of the keys in headers, of all or of this one: longstr, long, signedint, bool ...  "
        "[default: longstr]",
    ),
    no_brokers: bool = option(is_flag=True, help="Only predict: start no brokers."),
    show: int = option(
        type=click.IntRange(0),
        default=_SHOWN,
        show_default=True,
        help="How many moved keys of each exchange to list.",
    ),
    sample: SampleOptions = sample_options(_KEY_PATTERN, _KEYS),
    broker: BrokerOptions = options(BrokerOptions),
    trace: TraceOptions = options(TraceOptions),
) -> Outcome:
    """Rehearse an upgrade of the broker: which keys move, and what repairs that?

    FILE is a topology file or a definitions file. Each of its hash exchanges is asked with a sample of keys, by the
    rules of both releases. Then a broker of each release is started, in Docker or from the machine's own
    rabbitmq-server. Each gets the hash exchanges and the same messages, and each message is compared with the
    prediction. The brokers are removed in any case, after Ctrl-C too. Your own broker is only read.

    With --passive the sample is real traffic of the live exchange, traced with the types of its headers.

    The exit code is 0 if no key moves, 1 if keys move or may move, and 70 if a broker does not do what was
    predicted, which is a bug in rabbit-chx. Without brokers nothing is proven, and the result says so.
    """
    if file is not None and topology_file is not None:
        raise InputError(f"the file is given twice, as {file} and as {topology_file}: give it once")
    file = file or topology_file
    if file is not None and trace.passive:
        raise InputError("--passive traces a live exchange: give --exchange NAME and no FILE")
    subject = _of_broker(broker, exchange) if file is None else _of_file(file, exchange, broker)
    if trace.passive and (sample.given or types):
        raise InputError(
            "--passive takes real traffic as the sample: leave --keys, --pattern, --count and --type out"
        )
    topology = subject.topology
    _say_slots(topology)
    before = chosen_release(upgrade.from_release, upgrade.from_store) or topology.release
    if before is None:
        raise InputError(f"{subject.source} does not say its release: give --from, such as --from 3.12")
    if topology.release is not None and before != topology.release:
        say(f"{subject.source} is of RabbitMQ {topology.release}; it is taken for one of {before}")
    after = chosen_release(upgrade.to_release, upgrade.to_store)
    assert after is not None  # noqa: S101  # --to is required
    wanted = field_types(types, topology)  # before a broker is traced or started
    if trace.passive and subject.live is not None:
        (traced,) = hash_exchanges(topology)
        messages = trace.traced(subject.live, traced.name, "--keys or --pattern")
        samples, said = {traced.name: traced_sample(hashed_on(traced), messages)}, "traced traffic"
    else:
        samples = samples_of(topology, sample, wanted)
        said = sample.key_file or sample.pattern or f"{_KEY_PATTERN}, numbers alone where a number is hashed"
    prediction = predict_upgrade(topology, samples, before, after, file=subject.file)
    proof: UpgradeProof | str = "it was not asked for"
    if not no_brokers:
        proof = _proven(topology, samples, prediction)
    report = RehearseReport(prediction, proof, subject.source, said, show)
    code = DIFFERENCE if prediction.moves else DONE
    if not isinstance(proof, str) and proof.mismatches:
        say("mirror and broker disagree: this is a bug in rabbit-chx, please report it with this result")
        code = _DISAGREE
    return Outcome(report, code)


def _of_file(file: str, exchange: str | None, broker: BrokerOptions) -> _Subject:
    idle = [name for name in typed(BrokerOptions) if name != "--vhost"]
    if idle:
        raise InputError(f"{idle[0]} is about a live broker, and {file} is a file: give one of them")
    given = read_topology(file, broker.vhost or "/")
    name = None if given.is_definitions or file == STDIN else file
    return _Subject(_only(given.topology, exchange, file_name(file), live=False), file_name(file), name)


def _of_broker(broker: BrokerOptions, exchange: str | None) -> _Subject:
    if exchange is None:
        raise InputError(
            "there is nothing to rehearse: give a topology file, or --exchange NAME of a live broker"
        )
    live = broker.live()
    live.management("exchanges and bindings are read over the management API")
    with live.broker() as opened:
        topology = opened.topology()
    source = f"exchange {exchange} at {live.settings.masked_url}"
    ring = topology.rings.get(exchange)
    if ring is not None and ring.provenance == "assumed":
        say(f"the ring of exchange {exchange!r} is {ASSUMED}")
    return _Subject(_only(topology, exchange, source, live=True), source, None, live)


def _only(topology: Topology, exchange: str | None, source: str, *, live: bool) -> Topology:
    """Return the topology with one of its hash exchanges alone, or all of them.

    Raises:
        InputError: the file does not have it, or it hashes nothing.
        NotFoundError, MismatchError: the broker says the same.
    """
    hashing = hash_exchanges(topology)
    if exchange is None:
        if not hashing:
            raise InputError(
                f"{source} has no exchange of type x-consistent-hash or x-modulus-hash: nothing to rehearse"
            )
        return topology
    asked = topology.exchange(exchange)
    if asked is None:
        says = f"{source}: there is no exchange {exchange!r}: check its name and the vhost"
        raise (NotFoundError if live else InputError)(says, exchange=exchange)
    if asked not in hashing:
        says = f"{source}: {exchange!r} is of type {asked.type}, which hashes nothing: give another one"
        raise (MismatchError if live else InputError)(says, exchange=exchange)
    others = tuple(replace(other, owner="external") for other in topology.exchanges if other not in hashing)
    return replace(topology, exchanges=(asked, *others))


def _say_slots(topology: Topology) -> None:
    slotted = [exchange.name for exchange in hash_exchanges(topology) if _has_slots(topology, exchange)]
    if slotted:
        say(
            f"keys of {', '.join(slotted)} are counted by the exchanges in the ring: no slot changes hands by an upgrade, so a key "
            "that stays in its slot stays in its queue"
        )


def _has_slots(topology: Topology, exchange: ExchangeDefinition) -> bool:
    places = {place for place, _ in bound_to(topology, exchange) if isinstance(place, ExchangeRef)}
    behind: dict[str, list[BindingDefinition]] = {}
    for binding in topology.bindings:
        behind.setdefault(binding.source, []).append(binding)
    return any(is_slot(place, topology.exchange(place.name), behind.get(place.name, ())) for place in places)


def field_types(asked: Sequence[str], topology: Topology) -> dict[str, FieldType]:
    """Return the wire type of each header that an exchange hashes, where one was given.

    Args:
        asked: ``TYPE`` for all headers, or ``HEADER=TYPE``.
        topology: what there is.

    Raises:
        InputError: there is no such type, or no exchange hashes such a header.
    """
    hashed = [hashed_on(exchange) for exchange in hash_exchanges(topology)]
    headers = [on.name.decode() for on in hashed if on is not None and on.kind == "header"]
    if asked and not headers:
        raise InputError(
            f"--type {asked[0]} is the type of a header, and no exchange hashes one: leave it out"
        )
    types: dict[str, FieldType] = {}
    for text in asked:
        wanted, _, name = text.rpartition("=")
        type_ = next((known for known in FIELD_TYPES if known == name), None)
        if type_ is None:
            raise InputError(
                f"--type {text}: {name!r:.60} is no AMQP field type: give one of {', '.join(FIELD_TYPES)}"
            )
        if wanted and wanted not in headers:
            raise InputError(
                f"--type {text}: no exchange hashes the header {wanted!r:.60}: give one of {', '.join(sorted(set(headers)))}"
            )
        for header in headers:
            if wanted in ("", header) and (wanted or header not in types):
                types[header] = type_
    return types


def samples_of(
    topology: Topology, asked: SampleOptions, types: Mapping[str, FieldType]
) -> dict[str, list[SampledMessage]]:
    """Return the messages of each hash exchange: each has a key where the exchange looks for it.

    Args:
        topology: what there is.
        asked: the keys that were asked for.
        types: the wire types of headers; longstr where a header has none.

    Raises:
        InputError: the keys cannot be read, or one of them is no value of such a type.
    """
    read: dict[str, Sample] = {}
    samples: dict[str, list[SampledMessage]] = {}
    for exchange in hash_exchanges(topology):
        hashing = _hashing(hashed_on(exchange), types)
        numeric = hashing.hash_property == "timestamp" or (hashing.field_type or "longstr") not in _NO_NUMBERS
        pattern = _NUMBERS if numeric else _KEY_PATTERN
        source = "" if asked.key_file is not None else asked.pattern or pattern
        if source not in read:
            read[source] = asked.read_or_make(pattern, _KEYS)
        samples[exchange.name] = _messages(exchange.name, hashing, read[source])
    return samples


def _hashing(hashed: HashedOn | None, types: Mapping[str, FieldType]) -> Hashing:
    arguments = {} if hashed is None else hash_arguments(hashed)
    header = arguments.get("hash-header")
    type_ = None if header is None else types.get(header, "longstr")
    return Hashing(header, arguments.get("hash-property"), field_type=type_)


def _messages(exchange: str, hashing: Hashing, sample: Sample) -> list[SampledMessage]:
    messages = []
    for number, key in sample.numbered():
        try:
            messages.append(SampledMessage.with_value(key, hashing, hashed_value(hashing, key)))
        except InputError as error:
            raise InputError(
                f"{sample.where(number, key)} does not suit exchange {exchange!r}, which hashes "
                f"{hashing.hash_header or hashing.hash_property or 'the routing key'!r}: {error}"
            ) from None
    return messages


def _proven(
    topology: Topology, samples: Mapping[str, Sequence[SampledMessage]], prediction: UpgradePrediction
) -> UpgradeProof | str:
    """Return what the brokers did, or why nothing was proven."""
    from rabbit_chx.testing.rehearsal import prove_upgrade

    in_arrays = [exchange.name for exchange in prediction.exchanges if exchange.kept_in_array is not None]
    total = 2 * sum(map(len, samples.values())) + sum(len(samples[name]) for name in in_arrays)
    try:
        with unwound_by_signals(), counted("compared", total) as seen:
            return prove_upgrade(topology, samples, prediction.before, prediction.after, said=say, seen=seen)
    except RabbitChxError as error:
        say(f"nothing is proven: {error}")
        return str(error)
