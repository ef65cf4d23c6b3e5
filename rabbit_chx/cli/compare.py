"""``rabbit-chx compare``: the shares of a ring, and the keys that move to another ring or release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis import simulate
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.pictures import draw_map
from rabbit_chx.analysis.report_parts import (
    matrix_table,
    moved_keys,
    numbers,
    source_as_json,
    source_fact,
    texts,
)
from rabbit_chx.analysis.simulation import MOST_DISTINCT, Change, PlaceShare, SampleCounts, Simulation
from rabbit_chx.analysis.wording import finding_as_json, place_text
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, argument, command, option, options, say
from rabbit_chx.cli.inputs import (
    STDIN,
    TopologyInput,
    expand_ranges,
    hashed_value,
    parse_bindings,
    parse_unbind,
)
from rabbit_chx.cli.ring_argument import RingArgument, RingInput, parse_ring, say_ignored, say_unpinned
from rabbit_chx.cli.ring_options import (
    RELEASE,
    HashingOptions,
    RingOptions,
    code_of,
    parse_release,
    refuse_unpinned,
)
from rabbit_chx.cli.samples import KeySource, StreamedSample, keys_option
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Section, Table
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.topology.planning.proposals import LeastMoved
    from rabbit_chx.topology.upgrade import ExchangeUpgrade, Verdict

_HEAVIEST = 5
_SHOWN = 10
_VERDICTS: dict[Verdict, str] = {
    "safe": "safe",
    "repair": "safe after a ring repair",
    "moves": "keys move",
    "unknown": "not known",
}


def _skew_text(part: PlaceShare) -> str:
    return "" if part.place is None else f"{round(part.skew, 4) + 0.0:+.2%}"


def compare_report(
    simulation: Simulation,
    *,
    is_determined: bool,
    least: LeastMoved | None = None,
    rules: Sequence[str] = (),
) -> Document:
    """Return the shares of a ring and its sample; of two rings what moves. Programs get all of it.

    Args:
        simulation: the shares, the sample and the change.
        is_determined: False if one of the rings is a guess.
        least: the smallest share of keys that the change of the ring can move; None if it is not known.
        rules: the rules by which the releases hash the first key that moves, if they differ.
    """
    ring, sample, change = simulation.ring, simulation.sample, simulation.change
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
    facts = [source_fact(ring)] if change is None else list(_change_facts(simulation, change, least, rules))
    parts: list[Part] = [
        Data({**source_as_json(ring), "determined": is_determined}),
        Facts(facts),
        replace(Table.of(columns, rows, key="shares"), pictures=lambda: draw_map(ring)).for_people(
            change is None
        ),
    ]
    if sample is None:
        parts.append(Data({"sample": None}))
    else:
        sample_parts = list(_sample_parts(simulation, sample, is_shown=change is None))
        parts.append(Section("", sample_parts, key="sample"))
    if change is None:
        parts.append(Data({"change": None}))
    else:
        parts.append(Section("", list(_change_parts(change, least)), key="change"))
    return Document("compare", parts)


def _change_facts(
    simulation: Simulation, change: Change, least: LeastMoved | None, rules: Sequence[str]
) -> Iterator[tuple[str, str]]:
    yield "before", source_fact(simulation.ring)[1]
    yield "after", source_fact(change.ring)[1]
    if shares := change.shares:
        is_one_release = simulation.ring.release == change.ring.release
        # In another order the shares of the members differ a little, so fewer keys may have to move.
        minimum = min([shares.least, *(way for way in least or () if way is not None)])
        fewest = f"; minimum {percent(minimum)}" if shares.moved and is_one_release else ""
        yield "moved", f"{percent(shares.moved)} of all keys, by all {simulation.ring.traits.hashes}{fewest}"
    if simulation.sample and change.messages:
        messages = simulation.sample.messages
        moved = int(change.messages.moved) + change.refused_before + change.refused_after
        yield (
            "moved",
            f"{moved:,} of {plural(messages, 'message')} of the sample, {percent(moved / messages)}",
        )
    for when, count, side in (
        ("before", change.refused_before, "before"),
        ("after", change.refused_after, "after"),
    ):
        if count:
            outcomes = (getattr(key, side) for key in change.keys or ())
            reason = next((f": {outcome.reason}" for outcome in outcomes if isinstance(outcome, Refused)), "")
            yield "refused", f"{count:,} only {when}{reason}"
    for when, rule in zip(("before", "after"), rules, strict=False):
        yield "rule", f"{when}, {rule}"
    if shares and least:
        yield from _less(least, shares.moved)


def _change_parts(change: Change, least: LeastMoved | None) -> Iterator[Part]:
    """Yield the movement: for people that of the sample if it moves, else the exact one."""
    is_sampled = change.messages is not None and (change.shares is None or change.messages.moved > 0)
    yield Data(source_as_json(change.ring))
    if change.shares is None:
        yield Data({"shares": None})
    else:
        is_shown = not is_sampled and change.shares.moved > 0
        yield matrix_table(change.shares, percent, key="shares").for_people(is_shown)
    less = least and dict(zip(("arranged", "slots"), least, strict=True))
    yield Data({"less": less, "refused_before": change.refused_before, "refused_after": change.refused_after})
    if change.messages is None:
        yield Data({"messages": None})
    else:
        yield matrix_table(change.messages, int, key="messages", of="the messages of the sample").for_people(
            is_sampled and change.keys
        )
    if change.keys is None:
        yield Data({"moves": None})
    else:
        yield from moved_keys([(move.key, move.before, move.after) for move in change.keys], _SHOWN)


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


def _sample_parts(simulation: Simulation, sample: SampleCounts, *, is_shown: bool) -> Iterator[Part]:
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
    yield Table.of(columns, rows, key="destinations").for_people(is_shown)
    distinct = (
        f"more than {plural(MOST_DISTINCT, 'distinct key')}, which are not counted"
        if sample.keys is None
        else plural(sample.keys, "distinct key")
    )
    facts = [("sample", f"{plural(sample.messages, 'message')}, {distinct}")]
    if sample.refusal:
        facts.append(("refused", f"{plural(sample.refused, 'message')}: {sample.refusal}"))
    yield Facts(facts if is_shown else [])
    heaviest = {
        "key": Shown("heaviest keys"),
        "messages": Shown("at least" if bounded else "messages", number=True),
        "share": Shown("of all", percent, number=True, json=None),
        "destination": Shown("destination", place_text),
    }
    heavy = [(it.value, it.messages, it.messages / sample.messages, it.place) for it in sample.heaviest]
    is_telling = is_shown and (sample.keys is None or sample.keys < sample.messages)
    yield Table.of(heaviest, heavy, key="heaviest").for_people(is_telling and heavy)


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
    return Document("upgrade", parts)


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
    example="rabbit-chx compare q1=1,q2=1,q3=2 --remove q1 --keys 'user-{1..1000}'",
    has_pictures=True,
)
def compare(
    *,
    ring: str = argument(type=TEXT, metavar="RING"),
    added: tuple[str, ...] = option(
        "--add",
        type=TEXT,
        multiple=True,
        metavar="QUEUE=WEIGHT",
        help="Bind this queue, after each --remove. Can be repeated.",
    ),
    removed: tuple[str, ...] = option(
        "--remove",
        type=TEXT,
        multiple=True,
        metavar="QUEUE[=WEIGHT]",
        help="Unbind this queue, or one of its bindings. Can be repeated.",
    ),
    to: str | None = option(type=TEXT, metavar="RING", help="The other ring."),
    to_release: str | None = option(
        metavar=RELEASE,
        help="The other RabbitMQ release; without another ring the buckets stay the same.",
    ),
    of_ring: RingOptions = options(RingOptions),
    hashed: HashingOptions = options(HashingOptions, without=("hash_property",)),
    keys: KeySource | None = keys_option("A sample of keys, whose load is shown too"),
) -> Outcome:
    """Show the share of each queue of RING; with a change, another ring or another release, which keys move.

    All shares are exact, over all 2^21 seeds. A sample adds the load of its keys; a sample is required if two
    releases hash a header differently. Each --remove is applied first, then each --add, in the order given.

    With a topology file as RING and only --to-release, the command predicts the effects of an upgrade on each
    hash exchange of the file.

    The exit code is 1 if keys move or may move, or reach no queue, 3 if a ring or the hashed value is assumed.
    """
    if to is not None and (added or removed):
        name = "--add" if added else "--remove"
        raise InputError(f"{name} is a change of RING, and --to is another ring: pass one of them")
    first, other = parse_ring(ring), None if to is None else parse_ring(to)
    of_ring.check(first, *([] if other is None else [other]))
    is_whole = first.is_topology and first.exchange is None
    if is_whole and to_release and not (other or added or removed or keys or hashed.hash_header):
        return _upgrade(first, of_ring, to_release)
    given = of_ring.read(first, parse_release(of_ring.release))
    rules = parse_release(to_release)
    sides = [given]
    if other is not None:
        sides.append(of_ring.read_other(other, given, rules))
        refuse_unpinned(first, given, sides[1])
        refuse_unpinned(other, sides[1], given)
    elif rules is not None or added or removed:
        sides.append(replace(given, source=_change(given.source, removed, added)).under(rules))
    sides = [hashed.decide(side) for side in sides] if keys else sides
    return _compared(sides, hashed, keys, is_change=bool(added or removed))


def _compared(
    sides: Sequence[RingInput], hashed: HashingOptions, keys: KeySource | None, *, is_change: bool
) -> Outcome:
    """Return the report of one ring or two, with a sample if there is one."""
    hashing = hashed.of(*sides, keys=keys is not None)
    ring, changed = sides[0].source, sides[-1].source if len(sides) > 1 else None
    if keys is None:
        simulation = simulate(ring, hashing=hashing, changed=changed)
    else:
        hashing = keys.hashing(hashing)
        batches = StreamedSample(keys, hashing, ring)
        with batches.name_errors():
            simulation = simulate(ring, iter(batches), hashing=hashing, changed=changed, heaviest=_HEAVIEST)
    change = simulation.change
    if change is not None and change.shares is None and keys is None:
        versions = [side.source.release and side.source.release.version for side in sides]
        raise InputError(
            f"RabbitMQ {versions[0]} and {versions[1]} may hash the header {hashing.hash_header!r} "
            "differently: pass a sample, as --keys FILE or --keys 'user-{1..1000}'"
        )
    if hashed.hash_header is not None and keys is None:
        raise InputError(
            f"--hash-header {hashed.hash_header:.60} says what a key is, and no keys are given: pass --keys too, or leave it out"
        )
    report = compare_report(
        simulation,
        is_determined=all(side.is_determined for side in sides),
        least=_least_moved(ring, changed) if is_change else None,
        rules=_rules(ring, change, hashing) if change and change.shares is None else (),
    )
    is_different = change is not None and bool(
        (change.shares and change.shares.moved) or change.keys or (change.messages and change.messages.moved)
    )
    is_lost = any(side.loses(side.source.shares() or (None,)) for side in sides)
    return Outcome(report, code_of(*sides, is_lost=is_lost, is_different=is_different))


def _change(source: KeyMap, removed: tuple[str, ...], added: tuple[str, ...]) -> KeyMap:
    for text in expand_ranges(removed):
        source = source.unbind(*parse_unbind(text, source))
    bindings = parse_bindings(added)
    if isinstance(source, HashRing):
        say_ignored(source.release, bindings, source)
    for destination, key in bindings:
        source = source.bind(destination, key)
    return source


def _least_moved(source: KeyMap, changed: KeyMap | None) -> LeastMoved | None:
    if not isinstance(source, HashRing) or not isinstance(changed, HashRing):
        return None
    from rabbit_chx.topology.planning.proposals import find_least_moved

    return find_least_moved(source, changed)


def _upgrade(ring: RingArgument, options: RingOptions, to_release: str) -> Outcome:
    from rabbit_chx.topology.upgrade import predict_upgrade

    file = ring.topology(options.broker.vhost or "/")
    before, after = _releases(file, options.release, to_release)
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


def _releases(file: TopologyInput, release: str | None, to_release: str) -> tuple[Release, Release]:
    """Return the release of a file, or the given one, and that of the upgrade."""
    known, before, after = file.topology.release, parse_release(release), parse_release(to_release)
    if known is not None and before not in (None, known):
        say(f"{file.name} is of RabbitMQ {known}; it is compared as of {before}")
    before = before or known
    if before is None or after is None:
        raise InputError(f"{file.name} does not contain its release: pass --release, such as --release 3.12")
    return before, after


def _rules(ring: KeyMap, change: Change, hashing: Hashing) -> tuple[str, ...]:
    """Return the rule by which each release hashes the first key that moves; empty if the rule is the same, or a key is refused."""
    rules: list[str] = []
    for source in (ring, change.ring):
        exchange = hashing.exchange(source)
        if not isinstance(exchange, ConsistentHashExchange) or not change.keys:
            return ()
        try:
            value = hashed_value(hashing, change.keys[0].key)
            rules.append(str(exchange.explain(**hashing.message(value)).rule))
        except (InputError, ChannelClosedError):
            return ()
    return tuple(rules) if len(set(rules)) > 1 else ()
