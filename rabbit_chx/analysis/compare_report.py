"""The report of a simulation: the shares of a ring, the load of a sample, and what a change moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rabbit_chx.analysis.key_routing import Refused
from rabbit_chx.analysis.pictures import draw_map
from rabbit_chx.analysis.report_parts import (
    matrix_table,
    moved_keys,
    source_as_json,
    source_fact,
)
from rabbit_chx.analysis.simulation import (
    MOST_DISTINCT,
    Change,
    PlaceShare,
    SampleCounts,
    Simulation,
    simulate,
)
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.rendering.document import Data, Document, Facts, Part, Section, Table
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing.ground import LISTED_CONDITION
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import percent, percent_or_blank, plural

_SHOWN = 10


def _skew_text(part: PlaceShare) -> str:
    return "" if part.place is None else f"{round(part.skew, 4) + 0.0:+.2%}"


def compare_report(
    simulation: Simulation,
    *,
    is_determined: bool,
    least: tuple[float | None, float | None] | None = None,
    rules: Sequence[str] = (),
    headings: tuple[str, str] = ("", ""),
    learn: str = "",
) -> Document:
    """Return the shares of a ring and its sample; of two rings what moves. Programs get all of it.

    Args:
        simulation: the shares, the sample and the change.
        is_determined: False if an order on which an answer depends, or the hashed value, is not known.
        least: the smallest share of keys that the change can move in another order, and with slots; None if it is not known.
        rules: the rules by which the releases hash the first key that moves, if they differ.
        headings: the ring with the change, and the broker.
        learn: the command that learns the order of the ring, if that is not known.
    """
    ring = simulation.ring
    sample = simulation.sample
    change = simulation.change
    columns = {
        "destination": Shown("destination", place_text),
        "buckets": Shown(f"{ring.hashing.part}s", number=True),
        "share": Shown("share", percent_or_blank, number=True),
        "ideal": Shown("ideal", percent_or_blank, number=True, sparse=True),
        "shown": Shown("skew", number=True, json=None, sparse=True),
        "skew": Shown(),
    }
    rows = list(_share_rows(simulation))
    facts = [source_fact(ring)]
    if ring.hashing.has_order and not ring.is_determined and ring.has_shares:
        facts.append(("shares", LISTED_CONDITION))
    if change is not None:
        facts = list(_change_facts(simulation, change, least, rules))
    fields = {"determined": is_determined, **({"learn": learn} if learn else {})}
    fields |= dict.fromkeys(("shares", "sample", "change"))
    parts: list[Part] = [
        Data({**source_as_json(ring), **fields}),
        Facts(facts),
        replace(Table.of(columns, rows, key="shares"), pictures=lambda: draw_map(ring)).for_people(
            change is None
        ),
    ]
    if sample is not None:
        counted = _sample_parts(simulation, sample, is_shown=change is None)
        parts.append(Section("", list(counted), key="sample"))
    if change is not None:
        parts.append(Section("", list(_change_parts(change, least)), key="change"))
    share = None if change is None else change.moved
    moved = "" if share is None else f": {percent(share, 1)} of the keys move"
    return Document("compare", parts, title=headings[0] + moved, about=headings[1])


def simulation_report(simulation: Simulation) -> Document:
    """Return the report of a simulation, for a notebook."""
    change = simulation.change
    is_determined = simulation.ring.is_determined if change is None else change.moved is not None
    return compare_report(simulation, is_determined=is_determined)


def map_report(key_map: KeyMap) -> Document:
    """Return the shares of a key map, for a notebook."""
    return simulation_report(simulate(key_map))


def _share_rows(simulation: Simulation) -> Iterator[tuple[object, ...]]:
    """Yield the shares. Those by weight, of a ring whose order is not known, have no skew."""
    for part in simulation.places:
        if simulation.ring.is_determined or not simulation.ring.hashing.has_order:
            yield part.place, part.buckets, part.share, part.ideal, _skew_text(part), part.skew
        else:
            buckets = part.buckets if simulation.ring.has_bucket_counts else None
            yield part.place, buckets, part.share, None, None, None


def _change_facts(
    simulation: Simulation,
    change: Change,
    least: tuple[float | None, float | None] | None,
    rules: Sequence[str],
) -> Iterator[tuple[str, str]]:
    yield "before", source_fact(simulation.ring)[1]
    yield "after", source_fact(change.ring)[1]
    shares = change.shares
    if shares is not None:
        is_one_release = simulation.ring.release == change.ring.release
        # In another order the shares of the members differ a little, so fewer keys may have to move.
        minimum = min([shares.least, *(way for way in least or () if way is not None)])
        is_least = shares.moved and is_one_release
        fewest = f"; no order moves fewer than {percent(minimum)}" if is_least else ""
        condition = "" if simulation.ring.ground.is_known else f"; {LISTED_CONDITION}"
        yield "moved", f"{percent(shares.moved)} of all keys (exact){fewest}{condition}"
    elif change.appended is not None:
        parts = ", ".join(
            f"{percent(share)} to {place_text(place)}" for place, share in change.appended.items()
        )
        yield (
            "moved",
            f"{percent(change.moved or 0.0)} of all keys (exact, in every order), from all others alike: {parts}; {LISTED_CONDITION}",
        )
    elif not (simulation.ring.is_determined and change.ring.is_determined):
        yield "moved", "not determined"
    if simulation.sample and change.messages:
        messages = simulation.sample.messages
        moved = int(change.messages.moved) + change.refused_before + change.refused_after
        yield (
            "moved",
            f"{moved:,} of {plural(messages, 'message')} of the sample, {percent(moved / messages)}",
        )
    if simulation.sample is not None:
        yield from heaviest_facts(simulation.sample)
    for when, count in (("before", change.refused_before), ("after", change.refused_after)):
        if count:
            outcomes = (getattr(key, when) for key in change.keys or ())
            reason = next((f": {outcome.reason}" for outcome in outcomes if isinstance(outcome, Refused)), "")
            yield "refused", f"{count:,} only {when}{reason}"
    for when, rule in zip(("before", "after"), rules, strict=False):
        yield "rule", f"{when}, {rule}"
    if shares and least:
        yield from smaller_moves(least, shares.moved)


def heaviest_facts(sample: SampleCounts) -> Iterator[tuple[str, str]]:
    """Yield whether the heaviest key of a sample moves, and which of the other heavy keys do. A key that is there once is not heavy."""
    heavy = [key for key in sample.heaviest if key.messages > 1]
    for number, key in enumerate(heavy):
        moves = key.after != key.place
        if number > 0 and not moves:
            continue
        name = "heaviest" if number == 0 else "heavy"
        about = f"{_key_text(key.value)}, {percent(key.messages / sample.messages, 1)} of the messages"
        if isinstance(key.after, Refused):
            yield name, f"{about}: refused afterwards, {key.after.reason}"
        elif moves:
            yield name, f"{about}: moves from {place_text(key.place)} to {place_text(key.after)}"
        else:
            yield name, f"{about}: stays in {place_text(key.place)}"


def _key_text(value: object) -> str:
    return f"{value!r:.80}" if isinstance(value, str | bytes) else f"{value!s:.80}"


def _change_parts(change: Change, least: tuple[float | None, float | None] | None) -> Iterator[Part]:
    """Yield the movement: for people that of the sample if it moves, else the exact one."""
    is_sampled = change.messages is not None and (change.shares is None or change.messages.moved > 0)
    less = least and dict(zip(("arranged", "slots"), least, strict=True))
    counts = {"less": less, "refused_before": change.refused_before, "refused_after": change.refused_after}
    yield Data(
        {
            **source_as_json(change.ring),
            "moved": change.moved,
            "shares": None,
            **counts,
            "messages": None,
            "moves": None,
        }
    )
    if change.shares is not None:
        is_shown = not is_sampled and change.shares.moved > 0
        yield matrix_table(change.shares, percent, key="shares").for_people(is_shown)
    if change.messages is not None:
        of = "the messages of the sample"
        matrix = matrix_table(change.messages, int, key="messages", of=of)
        yield matrix.for_people(is_sampled and change.keys)
    if change.keys is not None:
        yield from moved_keys(change.keys, _SHOWN)


def smaller_moves(least: Sequence[float | None], moved: float) -> Iterator[tuple[str, str]]:
    """Yield alternatives that move fewer keys, if any."""
    how = ("in the order that arrange writes", "with slots instead of the ring")
    ways = [
        f"{percent(share)} {by}"
        for share, by in zip(least, how, strict=False)
        if share is not None and percent(share) != percent(moved)
    ]
    if ways:
        yield "or only", "; ".join(ways)


def _sample_parts(simulation: Simulation, sample: SampleCounts, *, is_shown: bool) -> Iterator[Part]:
    """Yield the destinations of the sample's messages, their distribution, and its heaviest keys."""
    shares = {part.place: part.share or 0.0 for part in simulation.places}
    keys = sum(sample.keys_of.values())
    messages = sum(sample.messages_of.values())
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
    if is_shown:
        distinct = f"more than {plural(MOST_DISTINCT, 'distinct key')}, which are not counted"
        distinct = distinct if sample.keys is None else plural(sample.keys, "distinct key")
        facts = [("sample", f"{plural(sample.messages, 'message')}, {distinct}")]
        refused = f"{plural(sample.refused, 'message')}: {sample.refusal}"
        yield Facts([*facts, ("refused", refused)] if sample.refusal else facts)
    heaviest = {
        "key": Shown("heaviest keys"),
        "messages": Shown("at least" if bounded else "messages", number=True),
        "share": Shown("of all", percent, number=True, json=None),
        "destination": Shown("destination", place_text),
    }
    heavy = [(key.value, key.messages, key.messages / sample.messages, key.place) for key in sample.heaviest]
    is_telling = is_shown and (sample.keys is None or sample.keys < sample.messages)
    yield Table.of(heaviest, heavy, key="heaviest").for_people(is_telling and heavy)
