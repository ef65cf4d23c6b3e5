"""``rabbit-chx simulate``: where a ring sends keys, and what a change of the ring moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rabbit_chx.analysis import Change, ChiSquare, ModuloMap, SampleCounts, Simulation, simulate_modulo
from rabbit_chx.analysis import simulate as simulate_ring
from rabbit_chx.cli.arguments import parse_binding, parse_destination, parse_unbind
from rabbit_chx.cli.given_rings import ring_options, say_ignored
from rabbit_chx.cli.notation import (
    matrix_json,
    matrix_table,
    percent,
    place_json,
    place_text,
    plural,
    rounded,
    source_as_json,
    source_fact,
)
from rabbit_chx.cli.option_groups import (
    TEXT,
    HashedKeys,
    hashing_options,
    output_option,
)
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.sample_options import AskedSample, Sample, sample_options
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import Block, Facts, Table, TableColumn, sign_of_life
from rabbit_chx.routing import KeyMap, SlotTable

__all__ = ["simulate"]

_HEAVIEST = 5


@dataclass(frozen=True, slots=True)
class SimulateReport:
    """The result of a simulation.

    Attributes:
        simulation: the simulation to show.
        keys: the keys of its sample.
    """

    simulation: Simulation
    keys: Sequence[str]

    def blocks(self) -> Iterator[Block]:
        """Return the ring, its shares, the sample and the change."""
        yield Facts([source_fact(self.simulation.ring)])
        yield _shares_table(self.simulation)
        if sample := self.simulation.sample:
            yield _sample_table(self.simulation, sample)
            yield Facts(_sample_facts(sample))
            if sample.heaviest and sample.keys < sample.messages:
                yield _heaviest_table(sample, self.keys)
        if change := self.simulation.change:
            yield Facts(_change_facts(change))
            yield matrix_table(change.shares, percent)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        sample, change = self.simulation.sample, self.simulation.change
        return {
            "format": "rabbit-chx/simulate",
            "format_version": 1,
            **source_as_json(self.simulation.ring),
            "shares": [
                {
                    "destination": place_json(place.place),
                    "buckets": place.buckets,
                    "share": place.share,
                    "ideal": place.ideal,
                    "skew": place.skew,
                }
                for place in self.simulation.places
            ],
            "sample": sample and _sample_json(sample, self.keys),
            "change": change
            and {
                **source_as_json(change.ring),
                "shares": matrix_json(change.shares),
                "messages": change.messages and matrix_json(change.messages),
            },
        }


def _shares_table(simulation: Simulation) -> Table:
    held = "bindings" if isinstance(simulation.ring, ModuloMap) else "buckets"
    headings = (held, "share", "ideal", "skew")
    rows = [
        (
            place_text(place.place),
            place.buckets,
            percent(place.share),
            percent(place.ideal),
            "" if place.place is None else f"{place.skew:+.2%}",
        )
        for place in simulation.places
    ]
    return Table([TableColumn("destination", numeric=False), *map(TableColumn, headings)], rows)


def _sample_table(simulation: Simulation, sample: SampleCounts) -> Table:
    shares = {place.place: place.share for place in simulation.places}
    keys, messages = sum(sample.keys_of.values()), sum(sample.messages_of.values())
    rows = [
        (
            place_text(place),
            sample.keys_of[place],
            f"{shares.get(place, 0) * keys:,.1f}",
            count,
            percent(count / messages if messages else 0),
        )
        for place, count in sample.messages_of.items()
    ]
    headings = ("keys", "expected", "messages", "of all")
    return Table([TableColumn("destination", numeric=False), *map(TableColumn, headings)], rows)


def _heaviest_table(sample: SampleCounts, keys: Sequence[str]) -> Table:
    rows = [
        (
            keys[heavy.position],
            heavy.messages,
            percent(heavy.messages / sample.messages),
            place_text(heavy.place),
        )
        for heavy in sample.heaviest
    ]
    headings = (TableColumn("heaviest keys", numeric=False), TableColumn("messages"), TableColumn("of all"))
    return Table([*headings, TableColumn("destination", numeric=False)], rows)


def _sample_facts(sample: SampleCounts) -> list[tuple[str, str]]:
    facts = [("sample", f"{plural(sample.messages, 'message')}, {plural(sample.keys, 'distinct key')}")]
    if sample.refusal:
        facts.append(("refused", f"{plural(sample.refused, 'message')}: {sample.refusal}"))
    if sample.test and sample.test.degrees_of_freedom:
        facts.append(("chi-square", _test_text(sample.test)))
    return facts


def _test_text(test: ChiSquare) -> str:
    text = (
        f"{test.statistic:.3f} with {plural(test.degrees_of_freedom, 'degree')} of freedom, p = {test.p_value:.3f} "
        f"(limits: {test.threshold(0.05):.2f} for 0.05, {test.threshold(0.01):.2f} for 0.01); distinct keys against "
        "the exact shares"
    )
    return f"{text}; rough, as some destination expects fewer than 5 keys" if test.rough else text


def _change_facts(change: Change) -> list[tuple[str, str]]:
    shares, messages = change.shares, change.messages
    facts = [
        ("change", source_fact(change.ring)[1]),
        ("moved", f"{percent(shares.moved)} of all keys; {percent(shares.least)} had to move in any case"),
    ]
    if messages:
        total = plural(int(sum(messages.amounts.values())), "message")
        facts.append(("", f"{messages.moved:,} of {total} of the sample"))
    return facts


def _test_json(test: ChiSquare) -> dict[str, Any]:
    five, one = test.threshold(0.05), test.threshold(0.01)
    return {
        "statistic": rounded(test.statistic),
        "degrees_of_freedom": test.degrees_of_freedom,
        "p_value": rounded(test.p_value),
        "threshold_05": five and rounded(five),
        "threshold_01": one and rounded(one),
        "rough": test.rough,
    }


def _sample_json(sample: SampleCounts, keys: Sequence[str]) -> dict[str, Any]:
    test = sample.test
    return {
        "messages": sample.messages,
        "keys": sample.keys,
        "refused": sample.refused,
        "refusal": sample.refusal,
        "destinations": [
            {"destination": place_json(place), "messages": messages, "keys": sample.keys_of[place]}
            for place, messages in sample.messages_of.items()
        ],
        "chi_square": test and _test_json(test),
        "heaviest": [
            {
                "key": keys[heavy.position],
                "messages": heavy.messages,
                "destination": place_json(heavy.place),
            }
            for heavy in sample.heaviest
        ],
    }


@click.command(
    epilog="Example: rabbit-chx simulate --bind q1=1 --bind q2=1 --bind q3=2 --unbind q1 --pattern 'user-{n}'",
    short_help="Shares of a ring, a sample on it, and what a change moves.",
)
@ring_options(modulo=True)
@click.option(
    "--unbind",
    "unbound",
    type=TEXT,
    multiple=True,
    metavar="QUEUE[=WEIGHT]",
    help="Unbind this queue, or one of its bindings, and show what moves.",
)
@click.option(
    "--add",
    "added",
    type=TEXT,
    multiple=True,
    metavar="QUEUE=WEIGHT",
    help="Bind this, after the unbinding, and show what moves.",
)
@hashing_options
@sample_options()
@click.option(
    "--heaviest", type=click.IntRange(0), help=f"How many heavy keys to list.  [default: {_HEAVIEST}]"
)
@output_option
def simulate(
    *,
    ring: KeyMap,
    unbound: tuple[str, ...],
    added: tuple[str, ...],
    hashed: HashedKeys,
    sample: AskedSample,
    heaviest: int | None,
    output: str,
) -> Outcome:
    """Show the exact share of each destination, over all 2^21 seeds, and its distance from the ideal.

    The ring is that of --bind, --ring or --exchange: give one of them. --exchange asks a live broker, or
    --definitions. It may be of type x-modulus-hash, or a super stream: for --bind say so by --exchange-type.

    A sample adds where its messages go, whether its keys are spread as evenly as chance would spread them,
    and which keys are the heaviest. --unbind and --add show what moves, and from where to where.
    """
    read = sample.read()
    if read is None and heaviest is not None:
        raise InputError(f"--heaviest {heaviest} lists keys of a sample: give --keys or --pattern too")
    heavy = _HEAVIEST if heaviest is None else heaviest
    if hashed.modulo is not None:
        return Outcome(output, _of_modulo(hashed.modulo, read, unbound, added, heavy))
    changed = _changed(ring, unbound, added) if unbound or added else None
    if read is None:
        return Outcome(output, SimulateReport(simulate_ring(ring, changed=changed), []))
    with sign_of_life(plural(len(read.keys), "key")), read.named(hashed, ring):
        simulation = simulate_ring(
            ring,
            list(map(hashed.value, read.keys)),
            hashing=hashed.hashing,
            changed=changed,
            heaviest=heavy,
        )
    return Outcome(output, SimulateReport(simulation, read.keys))


def _of_modulo(
    given: ModuloMap, read: Sample | None, unbound: tuple[str, ...], added: tuple[str, ...], heaviest: int
) -> SimulateReport:
    """Return the report of an exchange of type ``x-modulus-hash`` or of a super stream."""
    changed = given
    for text in unbound:
        name, equals, key = text.rpartition("=")
        whole = not equals or parse_destination(text) in given.destinations
        changed = changed.unbound(parse_destination(text if whole else name), None if whole else key)
    for pair in map(parse_binding, added):
        changed = changed.bound(*pair)
    keys = [] if read is None else read.keys
    simulation = simulate_modulo(
        given,
        None if read is None else keys,
        changed=changed if unbound or added else None,
        heaviest=heaviest,
    )
    return SimulateReport(simulation, keys)


def _changed(ring: KeyMap, unbound: tuple[str, ...], added: tuple[str, ...]) -> KeyMap:
    if isinstance(ring, SlotTable):
        raise InputError(
            "the queues of this ring share slots, so --unbind and --add do not say which slots change hands: change "
            "`members` in a topology file and run rabbit-chx topology plan, or compare two tables of slots"
        )
    for text in unbound:
        ring = ring.unbind(*parse_unbind(text, ring))
    pairs = list(map(parse_binding, added))
    say_ignored(ring, pairs)
    for pair in pairs:
        ring = ring.bind(*pair)
    return ring
