"""``rabbit-chx simulate``: the distribution of keys over a ring, and the keys that a change of the ring moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rabbit_chx.analysis import simulate as simulated
from rabbit_chx.analysis.simulation import MOST_DISTINCT, Change, PlaceShare, SampleCounts, Simulation
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.cli.command import TEXT, Outcome, argument, command, option, options
from rabbit_chx.cli.inputs import expand_ranges, parse_bindings, parse_unbind
from rabbit_chx.cli.report import matrix_table, source_as_json, source_fact
from rabbit_chx.cli.ring_options import HashingOptions, RingOptions, code_of, say_ignored
from rabbit_chx.cli.samples import SampleOptions, StreamedSample, sample_options
from rabbit_chx.rendering import Data, Document, Facts, Part, Section, Table
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.topology.planning.proposals import LeastMoved

_HEAVIEST = 5


def _skew_text(part: PlaceShare) -> str:
    return "" if part.place is None else f"{round(part.skew, 4) + 0.0:+.2%}"


def simulate_report(simulation: Simulation, *, is_determined: bool, least: LeastMoved | None) -> Document:
    """Return the ring, its shares, the sample and the change.

    Args:
        simulation: the result of a simulation.
        is_determined: False if the ring is a guess.
        least: the smallest share of keys that the change of the ring can move; None without a change.
    """
    ring = simulation.ring
    columns = {
        "destination": Shown("destination", place_text),
        "buckets": Shown(f"{ring.traits.part}s", number=True),
        "share": Shown("share", percent, number=True),
        "ideal": Shown("ideal", percent, number=True),
        "shown": Shown("skew", number=True, json=None),
        "skew": Shown(),
    }
    rows = [
        (part.place, part.buckets, part.share, part.ideal, _skew_text(part), part.skew)
        for part in simulation.places
    ]
    sample, change = simulation.sample, simulation.change
    return Document(
        "simulate",
        [
            Data({**source_as_json(ring), "determined": is_determined}),
            Facts([source_fact(ring)]),
            Table.of(columns, rows, key="shares"),
            Section("", list(_sample_parts(simulation, sample)), key="sample")
            if sample
            else Data({"sample": None}),
            Section("", list(_change_parts(change, least)), key="change")
            if change
            else Data({"change": None}),
        ],
    )


def _change_parts(change: Change, least: LeastMoved | None) -> Iterator[Part]:
    shares, messages = change.shares, change.messages
    # In another order the shares of the members differ a little, so fewer keys may have to move.
    minimum = min([shares.least, *(way for way in least or () if way is not None)])
    facts = [
        ("change", source_fact(change.ring)[1]),
        ("moved", f"{percent(shares.moved)} of all keys; minimum {percent(minimum)}"),
    ]
    if messages:
        total = plural(int(sum(messages.amounts.values())), "message")
        facts.append(("", f"{messages.moved:,} of {total} of the sample"))
    less = least and dict(zip(("arranged", "slots"), least, strict=True))
    yield Data(source_as_json(change.ring))
    yield Facts([*facts, *_less(least or (), shares.moved)])
    yield matrix_table(shares, percent, key="shares")
    yield Data({"messages": messages, "less": less})


def _less(least: Sequence[float | None], moved: float) -> Iterator[tuple[str, str]]:
    """Yield alternatives that move fewer keys, if any."""
    how = ("in the order that arrange writes", "with slots instead of the ring")
    ways = [
        f"{percent(share)} {by}"
        for share, by in zip(least, how, strict=False)
        if share is not None and percent(share) != percent(moved)
    ]
    if ways:
        yield "less", "; ".join(ways)


def _sample_parts(simulation: Simulation, sample: SampleCounts) -> Iterator[Part]:
    """Yield the destinations of the sample's messages, their distribution, and its heaviest keys."""
    shares = {part.place: part.share for part in simulation.places}
    keys, messages = sum(sample.keys_of.values()), sum(sample.messages_of.values())
    bounded = sample.keys is None
    counted = ("messages", "keys", "refused", "refusal")
    yield Data({name: getattr(sample, name) for name in counted})
    columns = {
        "destination": Shown("destination", place_text),
        "keys": Shown("keys", lambda count: "" if count is None else count, number=True, json=None),
        "expected": Shown("expected", number=True, json=None),
        "messages": Shown("messages", number=True),
        "share": Shown("of all", percent, number=True, json=None),
        "distinct": Shown(json="keys"),
    }
    rows = [
        (
            place,
            count_of_keys := sample.keys_of.get(place),
            "" if bounded else f"{shares.get(place, 0) * keys:,.1f}",
            count,
            count / messages if messages else 0,
            count_of_keys,
        )
        for place, count in sample.messages_of.items()
    ]
    yield Table.of(columns, rows, key="destinations")
    distinct = (
        f"more than {plural(MOST_DISTINCT, 'distinct key')}, which are not counted"
        if sample.keys is None
        else plural(sample.keys, "distinct key")
    )
    facts = [("sample", f"{plural(sample.messages, 'message')}, {distinct}")]
    if sample.refusal:
        facts.append(("refused", f"{plural(sample.refused, 'message')}: {sample.refusal}"))
    yield Facts(facts)
    heaviest = {
        "key": Shown("heaviest keys"),
        "messages": Shown("at least" if bounded else "messages", number=True),
        "share": Shown("of all", percent, number=True, json=None),
        "destination": Shown("destination", place_text),
    }
    heavy = [(it.value, it.messages, it.messages / sample.messages, it.place) for it in sample.heaviest]
    is_telling = sample.keys is None or sample.keys < sample.messages
    yield Table.of(heaviest, heavy, key="heaviest").for_people(is_telling and heavy)


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
    given = hashed.decide(given) if has_keys else given
    hashing = hashed.of(given, keys=has_keys)
    changed = _change(source, unbound, added) if unbound or added else None
    least = _least_moved(source, changed)

    plot = ("shares", source) if changed is None else ("movement", source, changed)
    places = [place for ring in (source, changed) if ring is not None for place in ring.shares() or (None,)]
    code = code_of(given, is_lost=given.loses(places))
    if not sample.given:
        report = simulate_report(
            simulated(source, changed=changed), is_determined=given.is_determined, least=least
        )
        return Outcome(report, code, plot=plot)
    batches = StreamedSample(sample, hashing, source)
    with batches.name_errors():
        counted = iter(batches)
        simulation = simulated(source, counted, hashing=hashing, changed=changed, heaviest=_HEAVIEST)
    report = simulate_report(simulation, is_determined=given.is_determined, least=least)
    return Outcome(report, code, plot=plot)


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
