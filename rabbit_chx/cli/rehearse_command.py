"""``rabbit-chx rehearse``: which keys an upgrade of the broker moves, predicted and proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from rabbit_chx.cli.input_files import file_name
from rabbit_chx.cli.live_options import (
    BrokerOptions,
    LiveBroker,
    broker_options,
    counted,
    trace_options,
    traced_messages,
    unwound_by_signals,
)
from rabbit_chx.cli.notation import ASSUMED
from rabbit_chx.cli.option_groups import STORES, TEXT, given_release
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, Outcome
from rabbit_chx.cli.rehearse_report import RehearseReport
from rabbit_chx.cli.rehearse_sample import KEY_PATTERN, field_types, samples_of, traced_sample
from rabbit_chx.cli.sample_options import AskedSample, sample_options
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.topology_input import read_topology
from rabbit_chx.errors import InputError, MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import is_slot
from rabbit_chx.topology.upgrade import (
    UpgradePrediction,
    bound_to,
    hash_exchanges,
    hashed_on,
    predict_upgrade,
)

if TYPE_CHECKING:
    from rabbit_chx.routing.release import Store
    from rabbit_chx.testing.rehearsal import UpgradeProof
    from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, Topology
    from rabbit_chx.topology.upgrade_exchange import SampledMessage

__all__ = ["rehearse"]

_KEYS = 10_000
_SHOWN = 5
_DISAGREE = 70


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


@click.command(
    epilog="Example: rabbit-chx rehearse topology.toml --from 3.12 --to 4.3 --pattern 'tenant-{n}' --output markdown",
    short_help="Which keys does an upgrade move?",
)
@click.argument("file", required=False)
@click.option(
    "--exchange",
    type=TEXT,
    metavar="NAME",
    help="Without FILE: this exchange of a live broker. With FILE: only this exchange of it.",
)
@click.option(
    "--from",
    "from_release",
    metavar="VERSION",
    help="The release before; 3.12 is the newest known 3.12.  [default: that of the broker or the definitions file]",
)
@click.option("--to", "to_release", required=True, metavar="VERSION", help="The release after.")
@click.option("--from-store", type=STORES, help="The metadata store before.")
@click.option("--to-store", type=STORES, help="The metadata store after.")
@click.option(
    "--type",
    "types",
    type=TEXT,
    multiple=True,
    metavar="[HEADER=]TYPE",
    help="The AMQP type of the keys in headers, of all or of this one: longstr, long, signedint, bool ...  "
    "[default: longstr]",
)
@click.option("--no-brokers", is_flag=True, help="Only predict: start no brokers.")
@click.option(
    "--show",
    type=click.IntRange(0),
    default=_SHOWN,
    show_default=True,
    help="How many moved keys of each exchange to list.",
)
@sample_options(_KEYS, KEY_PATTERN)
@broker_options
@trace_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="The form of the result; markdown is a page for a change request.",
)
def rehearse(
    *,
    file: str | None,
    exchange: str | None,
    from_release: str | None,
    to_release: str,
    from_store: Store | None,
    to_store: Store | None,
    types: tuple[str, ...],
    no_brokers: bool,
    show: int,
    sample: AskedSample,
    broker_options: BrokerOptions,
    passive: bool,
    seconds: float,
    messages: int,
    output: str,
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
    subject = _subject(file, exchange, broker_options, passive=passive)
    if passive and (sample.given or types):
        raise InputError(
            "--passive takes real traffic as the sample: leave --keys, --pattern, --count and --type out"
        )
    topology = subject.topology
    _say_slots(topology)
    before = given_release(from_release, from_store) or topology.release
    if before is None:
        raise InputError(f"{subject.source} does not say its release: give --from, such as --from 3.12")
    if topology.release is not None and before != topology.release:
        say(f"{subject.source} is of RabbitMQ {topology.release}; it is taken for one of {before}")
    after = given_release(to_release, to_store)
    assert after is not None  # noqa: S101  # --to is required
    wanted = field_types(types, topology)  # before a broker is traced or started
    if passive:
        samples, said = _traced(subject, seconds, messages)
    else:
        samples = samples_of(topology, sample, wanted)
        said = sample.key_file or sample.pattern or f"{KEY_PATTERN}, numbers alone where a number is hashed"
    prediction = predict_upgrade(topology, samples, before, after, file=subject.file)
    proof: UpgradeProof | str = "it was not asked for"
    if not no_brokers:
        proof = _proven(topology, samples, prediction)
    report = RehearseReport(prediction, proof, subject.source, said, show)
    code = DIFFERENCE if prediction.moves else DONE
    if not isinstance(proof, str) and proof.mismatches:
        say("mirror and broker disagree: this is a bug in rabbit-chx, please report it with this result")
        code = _DISAGREE
    return Outcome(output, report, code=code)


def _subject(file: str | None, exchange: str | None, options: BrokerOptions, *, passive: bool) -> _Subject:
    if file is not None:
        if passive:
            raise InputError("--passive traces a live exchange: give --exchange NAME and no FILE")
        idle = [name for name in options.typed if name != "--vhost"]
        if idle:
            raise InputError(f"{idle[0]} is about a live broker, and {file} is a file: give one of them")
        given = read_topology(file, options.vhost or "/")
        name = None if given.is_definitions or file == "-" else file
        return _Subject(_only(given.topology, exchange, file_name(file), live=False), file_name(file), name)
    if exchange is None:
        raise InputError(
            "there is nothing to rehearse: give a topology file, or --exchange NAME of a live broker"
        )
    live = options.live_broker()
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
    found = topology.exchange(exchange)
    if found is None:
        says = f"{source}: there is no exchange {exchange!r}: check its name and the vhost"
        raise (NotFoundError if live else InputError)(says, exchange=exchange)
    if found not in hashing:
        says = f"{source}: {exchange!r} is of type {found.type}, which hashes nothing: give another one"
        raise (MismatchError if live else InputError)(says, exchange=exchange)
    others = tuple(replace(one, owner="external") for one in topology.exchanges if one not in hashing)
    return replace(topology, exchanges=(found, *others))


def _say_slots(topology: Topology) -> None:
    slotted = [one.name for one in hash_exchanges(topology) if _has_slots(topology, one)]
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


def _traced(subject: _Subject, seconds: float, messages: int) -> tuple[dict[str, list[SampledMessage]], str]:
    live, (exchange,) = subject.live, hash_exchanges(subject.topology)
    assert live is not None  # noqa: S101  # --passive is refused with a file
    management = live.management("the tracer is switched over the management API")
    found = traced_messages(live, management, exchange.name, seconds, messages)
    if not found:
        raise InputError(
            f"no message came to {exchange.name!r} in {seconds:g} s: trace for longer, or give --keys or --pattern",
            exchange=exchange.name,
        )
    return {exchange.name: traced_sample(hashed_on(exchange), found)}, "traced traffic"


def _proven(
    topology: Topology, samples: Mapping[str, Sequence[SampledMessage]], prediction: UpgradePrediction
) -> UpgradeProof | str:
    """Return what the brokers did, or why nothing was proven."""
    from rabbit_chx.testing.rehearsal import prove_upgrade

    in_arrays = [one.name for one in prediction.exchanges if one.kept_in_array is not None]
    total = 2 * sum(map(len, samples.values())) + sum(len(samples[name]) for name in in_arrays)
    try:
        with unwound_by_signals(), counted("compared", total) as seen:
            return prove_upgrade(topology, samples, prediction.before, prediction.after, said=say, seen=seen)
    except RabbitChxError as error:
        say(f"nothing is proven: {error}")
        return str(error)
