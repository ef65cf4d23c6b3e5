"""``rabbit-chx simulate``: the distribution of keys over a ring, and the keys that a change of the ring moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import simulate as simulated
from rabbit_chx.analysis.simulation import MOST_DISTINCT, SampleCounts, Simulation
from rabbit_chx.analysis.wording import document, place_text
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options
from rabbit_chx.cli.inputs import expand_ranges, parse_bindings, parse_unbind
from rabbit_chx.cli.report import matrix_table, numbers, source_as_json, source_fact, texts
from rabbit_chx.cli.ring_options import HashingOptions, RingOptions, code_of, say_ignored
from rabbit_chx.cli.samples import SampleOptions, StreamedSample, sample_options
from rabbit_chx.rendering import Block, Facts, Table
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.topology.planning.proposals import LeastMoved

_HEAVIEST = 5


@dataclass(frozen=True, slots=True)
class SimulateReport:
    """The result of a simulation, and the smallest share of keys that the change of the ring can move."""

    simulation: Simulation
    is_determined: bool
    least: LeastMoved | None = None

    def blocks(self) -> Iterator[Block]:
        """Return the ring, its shares, the sample and the change."""
        simulation, change = self.simulation, self.simulation.change
        yield Facts([source_fact(simulation.ring)])
        held = f"{simulation.ring.traits.part}s"
        yield Table(
            [*texts("destination"), *numbers(held, "share", "ideal", "skew")],
            [
                (
                    place_text(part.place),
                    part.buckets,
                    percent(part.share),
                    percent(part.ideal),
                    "" if part.place is None else f"{round(part.skew, 4) + 0.0:+.2%}",
                )
                for part in simulation.places
            ],
        )
        if simulation.sample:
            yield from self._sample(simulation.sample)
        if change:
            shares, messages = change.shares, change.messages
            # In another order the shares of the members differ a little, so fewer keys may have to move.
            least = min([shares.least, *(way for way in self.least or () if way is not None)])
            facts = [
                ("change", source_fact(change.ring)[1]),
                ("moved", f"{percent(shares.moved)} of all keys; minimum {percent(least)}"),
            ]
            if messages:
                total = plural(int(sum(messages.amounts.values())), "message")
                facts.append(("", f"{messages.moved:,} of {total} of the sample"))
            yield Facts([*facts, *self._less(shares.moved)])
            yield matrix_table(shares, percent)

    def _less(self, moved: float) -> Iterator[tuple[str, str]]:
        """Yield alternatives that move fewer keys, if any."""
        if self.least is not None:
            by_order, by_slots = self.least
            ways = []
            if by_order is not None and percent(by_order) != percent(moved):
                ways.append(f"{percent(by_order)} in the order that topology arrange writes")
            if by_slots is not None and percent(by_slots) != percent(moved):
                ways.append(f"{percent(by_slots)} with slots instead of the ring")
            if ways:
                yield "less", "; ".join(ways)

    def _sample(self, sample: SampleCounts) -> Iterator[Block]:
        """Yield the destinations of the sample's messages, their distribution, and its heaviest keys."""
        shares = {part.place: part.share for part in self.simulation.places}
        keys, messages = sum(sample.keys_of.values()), sum(sample.messages_of.values())
        bounded = sample.keys is None
        yield Table(
            [*texts("destination"), *numbers("keys", "expected", "messages", "of all")],
            [
                (
                    place_text(place),
                    sample.keys_of.get(place, ""),
                    "" if bounded else f"{shares.get(place, 0) * keys:,.1f}",
                    count,
                    percent(count / messages if messages else 0),
                )
                for place, count in sample.messages_of.items()
            ],
        )
        distinct = (
            f"more than {plural(MOST_DISTINCT, 'distinct key')}, which are not counted"
            if sample.keys is None
            else plural(sample.keys, "distinct key")
        )
        size = f"{plural(sample.messages, 'message')}, {distinct}"
        facts = [("sample", size)]
        if sample.refusal:
            facts.append(("refused", f"{plural(sample.refused, 'message')}: {sample.refusal}"))
        yield Facts(facts)
        if sample.heaviest and (sample.keys is None or sample.keys < sample.messages):
            yield Table(
                [
                    *texts("heaviest keys"),
                    *numbers("at least" if bounded else "messages", "of all"),
                    *texts("destination"),
                ],
                [
                    (
                        heavy.value,
                        heavy.messages,
                        percent(heavy.messages / sample.messages),
                        place_text(heavy.place),
                    )
                    for heavy in sample.heaviest
                ],
            )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        simulation, change = self.simulation, self.simulation.change
        return document(
            "simulate",
            **source_as_json(simulation.ring),
            determined=self.is_determined,
            shares=[
                {
                    "destination": part.place,
                    "buckets": part.buckets,
                    "share": part.share,
                    "ideal": part.ideal,
                    "skew": part.skew,
                }
                for part in simulation.places
            ],
            sample=simulation.sample and self._sample_json(simulation.sample),
            change=change
            and {
                **source_as_json(change.ring),
                "shares": change.shares,
                "messages": change.messages,
                "less": self.least and dict(zip(("arranged", "slots"), self.least, strict=True)),
            },
        )

    def _sample_json(self, sample: SampleCounts) -> dict[str, Any]:
        return {
            "messages": sample.messages,
            "keys": sample.keys,
            "refused": sample.refused,
            "refusal": sample.refusal,
            "destinations": [
                {"destination": place, "messages": messages, "keys": sample.keys_of.get(place)}
                for place, messages in sample.messages_of.items()
            ],
            "heaviest": sample.heaviest,
        }


@command(
    example="rabbit-chx simulate --bind q1=1 --bind q2=1 --bind q3=2 --unbind q1 --pattern 'user-{n}'",
    plot_help="Draw shares or moves into this file.",
)
def simulate(
    *,
    exchange_argument: str | None = argument(required=False, metavar="[EXCHANGE]"),
    ring: RingOptions = options(RingOptions, exchange="The same as EXCHANGE."),
    unbound: tuple[str, ...] = option(
        "--unbind",
        type=TEXT,
        multiple=True,
        metavar="QUEUE[=WEIGHT]",
        help="Unbind this queue, or one of its bindings.",
    ),
    added: tuple[str, ...] = option(
        "--add",
        type=TEXT,
        multiple=True,
        metavar="QUEUE=WEIGHT",
        help="Bind this queue, after each --unbind.",
    ),
    hashed: HashingOptions = options(HashingOptions, without=("hash_property",)),
    sample: SampleOptions = sample_options(),
) -> Outcome:
    """Show the exact share of each destination, over all 2^21 seeds, and its difference from the ideal share.

    Specify the ring with EXCHANGE, --bind, --ring or --topology.

    A sample adds the destinations of its messages and the heaviest keys. --unbind and --add show which keys a
    change moves: each --unbind is applied first, then each --add, in the order given.

    The exit code is 1 if keys reach no queue, 3 if the ring or the hashed value is assumed.
    """
    given = ring.at(exchange_argument).read()
    source = given.source
    has_keys = sample.key_file is not None or sample.pattern is not None
    given = hashed.settle(given) if has_keys else given
    hashing = hashed.of(given, keys=has_keys)
    changed = _change(source, unbound, added) if unbound or added else None
    least = _least_moved(source, changed)

    plot = ("shares", source) if changed is None else ("movement", source, changed)
    places = [place for ring in (source, changed) if ring is not None for place in ring.shares() or (None,)]
    code = code_of(given, is_lost=given.loses(places))
    if not sample.given:
        report = SimulateReport(simulated(source, changed=changed), given.is_determined, least)
        return Outcome(report, code, plot=plot)
    batches = StreamedSample(sample, hashing, source)
    with batches.name_errors():
        counted = iter(batches)
        simulation = simulated(source, counted, hashing=hashing, changed=changed, heaviest=_HEAVIEST)
    return Outcome(SimulateReport(simulation, given.is_determined, least), code, plot=plot)


def _least_moved(source: KeyMap, changed: KeyMap | None) -> LeastMoved | None:
    if not isinstance(source, HashRing) or not isinstance(changed, HashRing):
        return None
    from rabbit_chx.topology.planning.proposals import find_least_moved

    return find_least_moved(source, changed)


def _change(source: KeyMap, unbound: tuple[str, ...], added: tuple[str, ...]) -> KeyMap:
    for text in expand_ranges(unbound):
        source = source.unbind(*parse_unbind(text, source))
    bindings = parse_bindings(added)
    if isinstance(source, HashRing):
        say_ignored(source.release, bindings, source)
    for destination, key in bindings:
        source = source.bind(destination, key)
    return source
