"""The words, tables and JSON of rings and movements: the same in every report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from rabbit_chx.analysis.findings import place_text
from rabbit_chx.analysis.key_routing import Refused, SlotLoad
from rabbit_chx.analysis.simulation import (
    MOST_DISTINCT,
    Change,
    PlaceShare,
    SampleCounts,
    Simulation,
    simulate,
)
from rabbit_chx.rendering.document import (
    Bar,
    Bars,
    Batch,
    Block,
    Cell,
    Document,
    Facts,
    Flows,
    Grid,
    Line,
    Picture,
    Strip,
    Table,
    TableColumn,
)
from rabbit_chx.result_fields import Absent, shown
from rabbit_chx.routing import ExchangeRef, Explanation, bindings
from rabbit_chx.routing.bindings import LISTED_CONDITION, OriginJson, Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.modulus_exchange import ModulusSummary
from rabbit_chx.routing.ring import RingSummary
from rabbit_chx.routing.slot_table import SlotSummary
from rabbit_chx.routing.super_stream import SuperStreamSummary
from rabbit_chx.text import percent, percent_or_blank, plural

if TYPE_CHECKING:
    from rabbit_chx.routing.bindings import Destination

# -- The pictures of key maps and movements, for the reports in HTML

#: The most places on a side of the flows, and the most moves, that one can follow.
_MOST_PLACES = 40
_MOST_DRAWN_MOVES = 40


def draw_map(key_map: KeyMap, real: Mapping[str, float] | None = None) -> tuple[Picture, ...]:
    """Return the buckets in the order of the ring, and the shares, the most traffic or the largest first; nothing of a ring whose order is not known.

    Args:
        key_map: the ring, its slots, or another map.
        real: the share of the traffic of each queue, 0 to 1; None if it is not known.
    """
    if not key_map.is_determined:
        return ()
    places = [key_map.queue_of(place) for place in key_map.underlying.buckets]
    shares = simulate(key_map).places
    notes = {_name(part.place): f"{percent(part.share or 0.0)} of all keys" for part in shares}
    traffic = {part.place: None if real is None else real.get(_name(part.place), 0.0) for part in shares}
    bars = [
        Bar(_name(part.place), part.share or 0.0, part.ideal, traffic[part.place])
        for part in sorted(shares, key=lambda part: (-(traffic[part.place] or 0.0), -(part.share or 0.0)))
    ]
    strip = Strip(
        f"{plural(len(places), key_map.hashing.part)} in order", [_name(place) for place in places], notes
    )
    return strip, Bars("share of all keys" if real is None else "share of all keys, and of the traffic", bars)


def draw_slots(slots: KeyMap, load: Mapping[Destination, float] | None = None) -> Grid:
    """Return the slots, each coloured by its queue; the load of a sample, if there is one, is their depth."""
    most = max(load.values(), default=0.0) if load else 0.0
    cells = [
        Cell(
            place_text(place),
            _name(slots.queue_of(place)),
            load.get(place, 0.0) / most if load and most else None,
        )
        for place in slots.slots or ()
    ]
    return Grid(
        "slots by queue" if load is None else "slots by queue, and as depth the load of the sample", cells
    )


def draw_movement(matrix: bindings.Flows, of: str = "all keys") -> Flows:
    """Return the flows between the places; of more than one can follow only how much moves.

    Args:
        matrix: the movement.
        of: what the amounts are parts of.
    """
    total = sum(matrix.before_totals().values()) or 1.0
    amounts: dict[tuple[str, str], float] = {}
    if len(matrix.before) <= _MOST_PLACES and matrix.move_count <= _MOST_DRAWN_MOVES:
        amounts = {
            (_name(source), _name(target)): amount / total for (source, target), amount in matrix.items()
        }
    share = percent(matrix.moved / total, 1)
    return Flows("movement between the destinations", (share, f"of {of} move"), amounts)


def _name(place: Place) -> str:
    return "" if place is None else place_text(place)


_MOST_COLUMNS = 8
_MOST_MOVES = 50
_HEAVIEST = 5


def texts(*headings: str) -> list[TableColumn]:
    """Return columns of text."""
    return [TableColumn(heading, numeric=False) for heading in headings]


def outcome_text(outcome: Place | Refused) -> str:
    """Return a destination's name, or the text for a refused message."""
    return "(refused)" if isinstance(outcome, Refused) else place_text(outcome)


def hashes_text(arguments: Mapping[str, str] | None) -> str:
    """Return the description of the hashed value."""
    if arguments is None:
        return "not known over AMQP alone: pass `--management-url` (`management_url`)"
    return (
        ", ".join(f"{name.removeprefix('hash-')} {value!r}" for name, value in arguments.items())
        or "routing key"
    )


def ring_text(ring: KeyMap) -> str:
    """Return a key map in one line: its provenance, release and size."""
    return "; ".join(ring.facts())


def source_fact(source: KeyMap) -> tuple[str, str]:
    """Return the source of the routing in one line after its name: a ring, or an exchange without one."""
    return source.hashing.title, ring_text(source)


@dataclass(frozen=True, slots=True)
class SourceFields:
    """The source of the routing, in JSON.

    Attributes:
        ring: The ring; null for an exchange without one.
    """

    ring: RingSummary | SlotSummary | None = None
    modulus: ModulusSummary | None = field(default=None, metadata=shown(optional=True))
    super_stream: SuperStreamSummary | None = field(default=None, metadata=shown(optional=True))

    @classmethod
    def of(cls, source: KeyMap) -> SourceFields:
        """Return the fields of a map."""
        summary: dict[str, Any] = {source.hashing.json_field: source.summary()}
        return cls(**summary)


def bucket_ranges(places: Iterable[tuple[int, Place]]) -> dict[Place, str]:
    """Return the runs of buckets of each destination, such as ``0-9, 15``; holes are under None."""
    runs: dict[Place, list[list[int]]] = {}
    for bucket, place in places:
        of_place = runs.setdefault(place, [])
        if of_place and of_place[-1][1] == bucket - 1:
            of_place[-1][1] = bucket
        else:
            of_place.append([bucket, bucket])
    return {
        place: ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in of_place)
        for place, of_place in runs.items()
    }


def matrix_table(
    matrix: bindings.Flows,
    shown: Callable[[Any], object],
    *,
    most_moves: int = _MOST_MOVES,
    of: str = "all keys",
) -> Table:
    """Return a movement matrix as a table, or if that is too wide, its moves as a list, the largest first.

    In the picture the amounts are parts `of` something.
    """
    moves = replace(
        _moves_table(matrix, shown, most_moves),
        pictures=lambda: [draw_movement(matrix, of)],
    )
    if len(matrix.after) > _MOST_COLUMNS:
        return moves
    before = matrix.before_totals()
    after = matrix.after_totals()
    rows = [
        [
            place_text(source),
            *(shown(matrix[source, to]) if (source, to) in matrix else "" for to in after),
            shown(total),
        ]
        for source, total in before.items()
    ]
    columns = [
        TableColumn("from \\ to", numeric=False, code=True),
        *map(TableColumn, (*map(place_text, after), "all")),
    ]
    total = ["", *map(shown, after.values()), shown(sum(after.values()))]
    return replace(moves, columns=columns, rows=rows, total=total, narrow=moves)


def matrix_report(matrix: bindings.Flows) -> Document:
    """Return a movement of all keys, or of counted ones, for a notebook."""
    is_counted = all(isinstance(amount, int) for amount in matrix.before_totals().values())
    if is_counted:
        return Document("", [matrix_table(matrix, int, of="the counted keys")])
    return Document("", [matrix_table(matrix, percent, of="all keys")])


def _moves_table(matrix: bindings.Flows, shown: Callable[[Any], object], most: int) -> Table:
    moves = matrix.largest_moves(most)
    rows = [(place_text(source), place_text(to), shown(amount)) for source, to, amount in moves]
    if rest := matrix.move_count - len(moves):
        amount = matrix.moved - sum(amount for _, _, amount in moves)
        rows.append((f"{rest:,} more", "", shown(amount)))
    names = [TableColumn(heading, numeric=False, code=True) for heading in ("from", "to")]
    return Table([*names, TableColumn("moves")], rows)


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A key whose destination differs."""

    key: str = field(metadata=shown("key"))
    before: Place | Refused = field(metadata=shown("before", outcome_text))
    after: Place | Refused = field(metadata=shown("after", outcome_text))


def moved_keys(moves: Sequence[MovedRow], most: int) -> Iterator[Block]:
    """Yield the first keys that move, and the number of the others."""
    if not moves:
        return
    whole = Table.of(MovedRow, moves)
    if len(moves) <= most:
        yield whole
    else:
        yield replace(Table.of(MovedRow, moves, most=most), whole=whole)
        yield Line(f"and {plural(len(moves) - most, 'more key')}", of_rest=True)


def slot_name(place: Place) -> str | None:
    """Return the name of a slot; None for a queue, and for no destination."""
    return place.name if isinstance(place, ExchangeRef) else None


def slot_text(place: Place) -> str:
    """Return the name of a slot, without the word that it is an exchange."""
    return slot_name(place) or place_text(place)


def name_or_none(place: Place) -> str | None:
    """Return the name of a destination; None for none."""
    return None if place is None else str(place)


def rate_text(rate: float | None) -> str:
    """Return messages per second; nothing if they are not known."""
    return "" if rate is None else f"{rate:,.1f}"


@dataclass(frozen=True, slots=True)
class HeavyRow:
    """A heavy key of a sample.

    Attributes:
        slot: Its slot; null without one.
        queue: Its queue; null without one.
        least: The number of its messages is at least this.
        most: The number of its messages is at most this.
    """

    key: str = field(metadata=shown("heaviest keys"))
    slot: Place = field(metadata=shown("slot", slot_text, sparse=True, as_json=slot_name))
    queue: Place = field(metadata=shown("queue", place_text, as_json=name_or_none))
    load: float = field(metadata=shown("of the load", percent, number=True, json=None))
    least: int
    most: int


def heaviest_keys(key_map: KeyMap, sample: SlotLoad) -> list[HeavyRow]:
    """Return the heavy keys of a sample."""
    slots = key_map.slots or ()
    return [
        HeavyRow(
            str(heavy.key),
            heavy.place if heavy.place in slots else None,
            key_map.queue_of(heavy.place),
            sample.share(heavy.least),
            heavy.least,
            heavy.most,
        )
        for heavy in sample.keys
    ]


def heaviest_table(heavy: Sequence[HeavyRow]) -> Table:
    """Return the first of the heavy keys of a sample."""
    return Table.of(HeavyRow, heavy, most=_HEAVIEST)


# -- The report of keys: where each goes, and how the broker comes to that


class StepsJson(TypedDict):
    """The steps of a routing."""

    hashed_on: str
    term: str | None
    phash2: int | None
    seed: int | None
    walk: Sequence[int]
    bucket: int | None
    buckets: int
    reason: str | None
    rule: str | None
    source: str | None


def _steps_as_json(how: Explanation) -> StepsJson:
    return {
        "hashed_on": str(how.hashed_on),
        "term": how.term,
        "phash2": how.phash2,
        "seed": how.seed,
        "walk": how.walk,
        "bucket": how.bucket,
        "buckets": how.buckets,
        "reason": how.reason,
        "rule": how.rule,
        "source": how.source,
    }


def _null_if_empty(text: str | None) -> str | None:
    return text or None


@dataclass(frozen=True, slots=True)
class Answer:
    """The destination of a key.

    Attributes:
        key: the key as given.
        place: the destination; None if the message is unroutable, or if the destination is not determined.
        slot: the name of the key's slot; empty if it has none, None if the ring has no slots.
        fault: why an exchange of the ring does not pass the message to exactly one queue; else None.
        explanation: the steps of the routing; None without ``--explain``.
        is_known: False if the destination is not determined, because the order of the ring or the hashed value is not known.
    """

    key: str
    place: Place = field(metadata=shown(json="destination"))
    slot: str | None = field(default=None, metadata=shown(optional=True, as_json=_null_if_empty))
    fault: str | None = field(default=None, metadata=shown(optional=True))
    explanation: Explanation | None = field(
        default=None, metadata=shown(group=StepsJson, as_json=_steps_as_json)
    )
    is_known: bool = field(default=True, metadata=shown(json=None))

    @classmethod
    def of(
        cls,
        key: str,
        source: KeyMap,
        place: Place,
        faults: Mapping[ExchangeRef, str],
        *,
        explanation: Explanation | None = None,
    ) -> Answer:
        """Return the answer for a key whose destination in the ring is `place`; `faults` are those of its exchanges."""
        if not isinstance(place, ExchangeRef):
            return cls(key, place, None if source.slots is None else "", explanation=explanation)
        fault = faults.get(place)
        slot = None
        if source.slots is not None:
            slot = place.name if fault or place in source.slots else ""
        return cls(key, source.queue_of(place), slot, fault, explanation)

    @classmethod
    def unknown(cls, key: str) -> Answer:
        """Return the answer for a key whose destination is not determined."""
        return cls(key, None, is_known=False)

    @property
    def destination(self) -> str:
        """The destination for people."""
        if not self.is_known:
            return "not determined"
        return place_text(self.place)

    def facts(self) -> list[tuple[str, str]]:
        """Return the names and values of the fields. The slot is a field if the ring has slots."""
        row = [("key", self.key), ("destination", self.destination)]
        if self.slot is not None:
            row.append(("slot", str(self.slot)))
        return [*row, *_facts(self.explanation)] if self.explanation else row


def _are_determined(answers: Sequence[Answer]) -> bool:
    return all(answer.is_known for answer in answers)


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """An answer that is shown by itself.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
    """

    answer: Answer = field(metadata=shown(group=Answer))
    origin: OriginJson | None = field(metadata=shown(group=OriginJson))
    determined: bool


def answers_batch(answers: Sequence[Answer], origin: OriginJson | None) -> Batch:
    """Return answers that are shown one by one: all with the same fields."""
    is_determined = _are_determined(answers)
    facts = [answer.facts() for answer in answers]
    names = [name for name, _ in facts[0]] if facts else []
    rows = [[value for _, value in row] for row in facts]
    results = [KeyAnswer(answer, origin, is_determined) for answer in answers]
    return Batch("answer", Table(texts(*names), rows), results)


@dataclass(frozen=True, slots=True)
class RouteResult:
    """The destinations of keys.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        learn: The command that learns the order which is not known.
    """

    source: SourceFields = field(metadata=shown(group=SourceFields))
    answers: Sequence[Answer]
    determined: bool
    learn: str | None = field(default=None, metadata=shown(optional=True))


@dataclass(frozen=True, slots=True)
class KeysFound:
    """The keys that reach a destination.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        learn: The command that learns the order which is not known; empty if no command does.
        keys: The keys; null if they are not determined.
    """

    source: SourceFields = field(metadata=shown(group=SourceFields))
    destination: Place
    determined: bool
    learn: str | Absent
    keys: Iterable[str] | None


def route_report(source: KeyMap, answers: Sequence[Answer], *, learn: str = "") -> Document:
    """Return the destinations of keys, in the order of the keys: a table of the answers, or the facts of each explained answer.

    `learn` is the command that learns the order of the ring, if that is not known.
    """
    is_determined = _are_determined(answers)
    slots = any(answer.slot is not None for answer in answers)
    plain = [answer for answer in answers if answer.explanation is None]
    rows = [(answer.key, *([answer.slot or ""] if slots else []), answer.destination) for answer in plain]
    explained = [
        Facts(
            [
                ("key", answer.key),
                ("destination", answer.destination),
                *([("slot", str(answer.slot))] if answer.slot else ()),
                *([("fault", str(answer.fault))] if answer.fault else ()),
                *_facts(answer.explanation),
            ]
        )
        for answer in answers
        if answer.explanation
    ]
    parts: list[Block] = []
    if rows:
        parts.append(Table(texts("key", *(["slot"] if slots else []), "destination"), rows))
    parts += explained
    parts += (Line(f"{answer.key}: {answer.fault}") for answer in plain if answer.fault)
    parts.append(Line(": ".join(source_fact(source))))
    result = RouteResult(SourceFields.of(source), answers, is_determined, learn or None)
    return Document("route", parts, result)


def _facts(explanation: Explanation) -> list[tuple[str, str]]:
    hashed = (
        "none: the seed itself"
        if explanation.phash2 is None and explanation.seed is not None
        else _text(explanation.phash2)
    )
    return [
        ("hashed on", str(explanation.hashed_on)),
        ("term", _text(explanation.term)),
        ("phash2", hashed),
        ("seed", _text(explanation.seed)),
        ("walk", " > ".join(map(str, explanation.walk)) or "none"),
        ("bucket", explanation.reason or f"{explanation.bucket} of {explanation.buckets}"),
        ("rule", _text(explanation.rule)),
        ("source", _text(explanation.source)),
        ("release", str(explanation.release)),
    ]


def _text(value: object) -> str:
    return "none" if value is None else str(value)


# -- The report of a simulation: the shares of a ring, the load of a sample, and what a change moves


_SHOWN = 10


def _count_or_blank(count: int | None) -> object:
    return "" if count is None else count


def _skew_text(part: PlaceShare) -> str:
    return "" if part.place is None else f"{round(part.skew, 4) + 0.0:+.2%}"


@dataclass(frozen=True, slots=True)
class ShareRow:
    """What a destination has of a ring; `skew_text` is `skew` for people.

    Attributes:
        buckets: The number of its buckets, bindings or partitions; null if it depends on an order that is not known.
        share: The share of the keys.
        ideal: The share by the number of the buckets.
        skew: The relative difference of the two.
    """

    destination: Place = field(metadata=shown("destination", place_text))
    buckets: int | None = field(metadata=shown("buckets", number=True))
    share: float | None = field(metadata=shown("share", percent_or_blank, number=True))
    ideal: float | None = field(metadata=shown("ideal", percent_or_blank, number=True, sparse=True))
    skew_text: str | None = field(metadata=shown("skew", number=True, json=None, sparse=True))
    skew: float | None


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What a destination gets of a sample.

    Attributes:
        distinct: The number of its distinct keys; null if there are too many to count.
    """

    destination: Place = field(metadata=shown("destination", place_text))
    keys: int | None = field(metadata=shown("keys", _count_or_blank, number=True, json=None))
    expected: str = field(metadata=shown("expected", number=True, json=None))
    messages: int = field(metadata=shown("messages", number=True))
    share: float = field(metadata=shown("of all", percent, number=True, json=None))
    distinct: int | None = field(metadata=shown(json="keys"))


@dataclass(frozen=True, slots=True)
class HeaviestRow:
    """One of the keys that most messages of a sample have."""

    key: str = field(metadata=shown("heaviest keys"))
    messages: int = field(metadata=shown("messages", number=True))
    share: float = field(metadata=shown("of all", percent, number=True, json=None))
    destination: Place = field(metadata=shown("destination", place_text))


@dataclass(frozen=True, slots=True)
class SampleResult:
    """Where a sample goes.

    Attributes:
        keys: The number of distinct keys; null if they are too many.
        refused: The broker would close the channel: the number of such messages.
        refusal: The reason of the first of them.
    """

    messages: int
    keys: int | None
    refused: int
    refusal: str | None
    destinations: Sequence[SampleRow]
    heaviest: Sequence[HeaviestRow]


@dataclass(frozen=True, slots=True)
class LeastMoved:
    """The smallest share of keys that the members of a change can move in another order, and with slots; null if it is not known."""

    arranged: float | None
    slots: float | None


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What another ring, or another release, would move.

    Attributes:
        moved: The share of keys with another destination afterwards.
        shares: The exact movement.
        less: The smallest shares that the change can move.
        refused_before: The number of messages that are refused before and routed after.
        refused_after: The number of messages that are routed before and refused after.
        messages: The movement of the messages of the sample.
        moves: The keys of the sample that move.
    """

    source: SourceFields = field(metadata=shown(group=SourceFields))
    moved: float | None
    shares: bindings.Flows | None
    less: LeastMoved | None
    refused_before: int
    refused_after: int
    messages: bindings.Flows | None
    moves: Sequence[MovedRow] | None


@dataclass(frozen=True, slots=True)
class CompareResult:
    """The shares of a ring, its sample, and a change.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        learn: The command that learns the order which is not known.
    """

    source: SourceFields = field(metadata=shown(group=SourceFields))
    determined: bool
    learn: str | None = field(metadata=shown(optional=True))
    shares: Sequence[ShareRow]
    sample: SampleResult | None
    change: ChangeResult | None


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
    change = simulation.change
    shares = [_share_row(simulation, part) for part in simulation.places]
    sample = None if simulation.sample is None else _sample_result(simulation, simulation.sample)
    parts: list[Block] = []
    if change is None:
        facts = [source_fact(ring)]
        if ring.hashing.has_order and not ring.is_determined and ring.has_shares:
            facts.append(("shares", LISTED_CONDITION))
        parts.append(Facts(facts))
        table = Table.of(ShareRow, shares, headings={"buckets": f"{ring.hashing.part}s"})
        parts.append(replace(table, pictures=lambda: draw_map(ring)))
        if simulation.sample is not None and sample is not None:
            parts += _sample_parts(simulation.sample, sample)
        moved = ""
        changed = None
    else:
        parts.append(Facts(list(_change_facts(simulation, change, least, rules))))
        changed = _change_result(change, least)
        parts += _change_parts(change, changed)
        moved = "" if change.moved is None else f": {percent(change.moved, 1)} of the keys move"
    result = CompareResult(SourceFields.of(ring), is_determined, learn or None, shares, sample, changed)
    return Document("compare", parts, result, title=headings[0] + moved, about=headings[1])


def simulation_report(simulation: Simulation) -> Document:
    """Return the report of a simulation, for a notebook."""
    change = simulation.change
    is_determined = simulation.ring.is_determined if change is None else change.moved is not None
    return compare_report(simulation, is_determined=is_determined)


def map_report(key_map: KeyMap) -> Document:
    """Return the shares of a key map, for a notebook."""
    return simulation_report(simulate(key_map))


def _share_row(simulation: Simulation, part: PlaceShare) -> ShareRow:
    """Return a share. One by weight, of a ring whose order is not known, has no skew."""
    ring = simulation.ring
    if ring.is_determined or not ring.hashing.has_order:
        return ShareRow(part.place, part.buckets, part.share, part.ideal, _skew_text(part), part.skew)
    buckets = part.buckets if ring.has_bucket_counts else None
    return ShareRow(part.place, buckets, part.share, None, None, None)


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
        condition = "" if simulation.ring.order.is_known else f"; {LISTED_CONDITION}"
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


def _change_result(change: Change, least: tuple[float | None, float | None] | None) -> ChangeResult:
    return ChangeResult(
        SourceFields.of(change.ring),
        change.moved,
        change.shares,
        least and LeastMoved(*least),
        change.refused_before,
        change.refused_after,
        change.messages,
        None if change.keys is None else [MovedRow(*moved) for moved in change.keys],
    )


def _change_parts(change: Change, result: ChangeResult) -> Iterator[Block]:
    """Yield the movement: that of the sample if it moves, else the exact one."""
    messages = change.messages
    is_sampled = messages is not None and (change.shares is None or messages.moved > 0)
    if change.shares is not None and not is_sampled and change.shares.moved > 0:
        yield matrix_table(change.shares, percent)
    if messages is not None and is_sampled and change.keys:
        yield matrix_table(messages, int, of="the messages of the sample")
    if result.moves is not None:
        yield from moved_keys(result.moves, _SHOWN)


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


def _sample_result(simulation: Simulation, sample: SampleCounts) -> SampleResult:
    """Return the destinations of the messages of a sample, and its heaviest keys."""
    shares = {part.place: part.share or 0.0 for part in simulation.places}
    keys = sum(sample.keys_of.values())
    messages = sum(sample.messages_of.values())
    destinations = []
    for place, count in sample.messages_of.items():
        distinct = sample.keys_of.get(place)
        expected = "" if sample.keys is None else f"{shares.get(place, 0) * keys:,.1f}"
        share = count / messages if messages else 0
        destinations.append(SampleRow(place, distinct, expected, count, share, distinct))
    heaviest = [
        HeaviestRow(key.value, key.messages, key.messages / sample.messages, key.place)
        for key in sample.heaviest
    ]
    return SampleResult(sample.messages, sample.keys, sample.refused, sample.refusal, destinations, heaviest)


def _sample_parts(sample: SampleCounts, result: SampleResult) -> Iterator[Block]:
    """Yield the destinations of the sample's messages, their distribution, and its heaviest keys."""
    yield Table.of(SampleRow, result.destinations)
    if sample.keys is None:
        distinct = f"more than {plural(MOST_DISTINCT, 'distinct key')}, which are not counted"
    else:
        distinct = plural(sample.keys, "distinct key")
    facts = [("sample", f"{plural(sample.messages, 'message')}, {distinct}")]
    if sample.refusal:
        facts.append(("refused", f"{plural(sample.refused, 'message')}: {sample.refusal}"))
    yield Facts(facts)
    if result.heaviest and (sample.keys is None or sample.keys < sample.messages):
        headings = {"messages": "at least"} if sample.keys is None else {}
        yield Table.of(HeaviestRow, result.heaviest, headings=headings)
