"""The words, tables and JSON of rings and movements: the same in every report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rabbit_chx.analysis.key_routing import Refused
from rabbit_chx.analysis.pictures import draw_movement
from rabbit_chx.analysis.slot_load import SlotLoad
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.rendering.document import Data, Document, Line, Part, Table
from rabbit_chx.rendering.table import TableColumn
from rabbit_chx.result_fields import Shown, to_json
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.flows import Flows
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.words import percent, plural

_MOST_COLUMNS = 8
_MOST_MOVES = 50
_HEAVIEST = 5


def texts(*headings: str) -> list[TableColumn]:
    """Return columns of text."""
    return [TableColumn(heading, numeric=False) for heading in headings]


def numbers(*headings: str) -> list[TableColumn]:
    """Return columns of numbers."""
    return [TableColumn(heading) for heading in headings]


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


def source_as_json(source: KeyMap) -> dict[str, Any]:
    """Return the source of the routing as fields of a document: ``ring`` is null for an exchange without one."""
    return {"ring": None, source.hashing.json_field: to_json(source.summary())}


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
    matrix: Flows,
    shown: Callable[[Any], object],
    *,
    most_moves: int = _MOST_MOVES,
    key: str | None = None,
    of: str = "all keys",
) -> Table:
    """Return a movement matrix as a table, or if that is too wide, its moves as a list, the largest first.

    In JSON, if there is a `key`, it is that of the matrix. In the picture the amounts are parts `of` something.
    """
    moves = replace(
        _moves_table(matrix, shown, most_moves),
        key=key,
        value=lambda: matrix,
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


def matrix_report(matrix: Flows) -> Document:
    """Return a movement of all keys, or of counted ones, for a notebook."""
    is_counted = all(isinstance(amount, int) for amount in matrix.before_totals().values())
    if is_counted:
        return Document("", [matrix_table(matrix, int, of="the counted keys")])
    return Document("", [matrix_table(matrix, percent, of="all keys")])


def _moves_table(matrix: Flows, shown: Callable[[Any], object], most: int) -> Table:
    moves = matrix.largest_moves(most)
    rows = [(place_text(source), place_text(to), shown(amount)) for source, to, amount in moves]
    if rest := matrix.move_count - len(moves):
        amount = matrix.moved - sum(amount for _, _, amount in moves)
        rows.append((f"{rest:,} more", "", shown(amount)))
    names = [TableColumn(heading, numeric=False, code=True) for heading in ("from", "to")]
    return Table([*names, TableColumn("moves")], rows)


def moved_keys(moves: Sequence[tuple[str, Place | Refused, Place | Refused]], shown: int) -> Iterator[Part]:
    """Yield the first keys that move, and the number of the others; in JSON all of them are ``moves``."""
    columns = {
        "key": Shown("key"),
        "before": Shown("before", outcome_text),
        "after": Shown("after", outcome_text),
    }

    whole = Table.of(columns, moves, key="moves")
    if len(moves) <= shown:
        yield whole.for_people(moves)
    else:
        yield replace(Table.of(columns, moves, key="moves", most=shown), whole=whole)
        yield Line(f"and {plural(len(moves) - shown, 'more key')}", of_rest=True)


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


_HEAVY = {
    "key": Shown("heaviest keys"),
    "slot": Shown("slot", slot_text, sparse=True, as_json=slot_name),
    "where": Shown("queue", json=None),
    "queue": Shown(as_json=name_or_none),
    "load": Shown("of the load", percent, number=True, json=None),
    "least": Shown(),
    "most": Shown(),
}


def heaviest_keys(key_map: KeyMap, sample: SlotLoad | None) -> Part:
    """Return the heavy keys of a sample: the slot, the queue, the share of the load, and the bounds of the number of messages."""
    if sample is None:
        return Data({"heaviest": None})
    rows = [
        (
            str(heavy.key),
            heavy.place if heavy.place in (key_map.slots or ()) else None,
            place_text(key_map.queue_of(heavy.place)),
            key_map.queue_of(heavy.place),
            sample.share(heavy.least),
            heavy.least,
            heavy.most,
        )
        for heavy in sample.keys
    ]
    return Table.of(_HEAVY, rows, key="heaviest", most=_HEAVIEST)
