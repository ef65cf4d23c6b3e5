"""Rings, destinations and shares as text and as JSON, the same in every command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rabbit_chx.analysis import ModuloMap, MovementMatrix, Place, Refused
from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.rendering import Table, TableColumn
from rabbit_chx.routing import NEWEST, ExchangeRef, KeyMap, Release, SlotTable, ring_beneath

__all__ = [
    "ASSUMED",
    "bucket_ranges",
    "exchange_facts",
    "hashes_text",
    "matrix_json",
    "matrix_table",
    "outcome_json",
    "outcome_text",
    "percent",
    "place_json",
    "place_text",
    "plural",
    "release_json",
    "ring_as_json",
    "ring_text",
    "rounded",
    "source_as_json",
    "source_fact",
]

#: How the ring is known that is assumed from the bindings of a live broker, and the remedy.
ASSUMED = "assumed from the bindings, whose order no API shows: give --ring-via to read it"
_NOWHERE = "(nowhere)"
_MOST_COLUMNS = 12
_MOST_MOVES = 50
_VOUCHED = {
    "read": "read from a broker",
    "replayed": "replayed from the bindings, in the order given",
    "assumed": "assumed",
}


def place_text(place: Place) -> str:
    """Return a destination's name; None, an unroutable message, is ``(nowhere)``."""
    return _NOWHERE if place is None else str(place)


def place_json(place: Place) -> str | dict[str, str] | None:
    """Return a destination as the JSON of a ring has it: text is a queue, null is nowhere."""
    return {"exchange": place.name} if isinstance(place, ExchangeRef) else place


def outcome_text(outcome: Place | Refused) -> str:
    """Return a destination's name, or that the broker refuses the message."""
    return "(refused)" if isinstance(outcome, Refused) else place_text(outcome)


def outcome_json(outcome: Place | Refused) -> str | dict[str, str] | None:
    """Return a destination, or ``{"refused": why}``."""
    return {"refused": outcome.reason} if isinstance(outcome, Refused) else place_json(outcome)


def hashes_text(arguments: Mapping[str, str] | None) -> str:
    """Return what an exchange hashes.

    Args:
        arguments: the exchange's arguments; None where they are not known.
    """
    if arguments is None:
        return "not known over AMQP alone: give --management-url"
    return ", ".join(f"{name} {value!r}" for name, value in arguments.items()) or "routing key"


def rounded(number: float) -> float:
    """Return the number with nine digits; further digits may differ between machines."""
    return float(f"{number:.9g}")


def ring_text(ring: KeyMap) -> str:
    """Return a ring in one line: its provenance, its release, its size, and how many of it are slots."""
    size = f"{plural(len(ring_beneath(ring).buckets), 'bucket')}, {plural(len(ring.destinations), 'destination')}"
    slots = f", {plural(len(ring.slots), 'slot')}" if isinstance(ring, SlotTable) else ""
    return f"{_VOUCHED[ring.provenance]}; rules of {ring.release}; {size}{slots}"


def source_fact(source: KeyMap | ModuloMap) -> tuple[str, str]:
    """Return what routes, in one line behind its name: a ring, or an exchange without one."""
    if not isinstance(source, ModuloMap):
        return "ring", ring_text(source)
    if source.kind == "super-stream":
        client = "the client for Java, as by those for .NET and Go" if source.client == "java" else "rstream"
        return "exchange", f"super-stream; hashed by {client}; {plural(len(source.numbered), 'partition')}"
    rules = f"rules of {source.release or NEWEST}"
    return "exchange", f"x-modulus-hash; {rules}; {plural(len(source.numbered), 'binding')}"


def source_as_json(source: KeyMap | ModuloMap) -> dict[str, Any]:
    """Return what routes, for programs, as the fields of a document: ``ring``, which is null for an exchange without one."""
    if not isinstance(source, ModuloMap):
        return {"ring": ring_as_json(source)}
    numbered = [place_json(place) for place in source.numbered]
    if source.kind == "super-stream":
        stream = {"exchange": source.name, "client": source.client, "partitions": numbered}
        return {"ring": None, "super_stream": stream}
    release = release_json(source.release or NEWEST)
    return {"ring": None, "modulus": {"exchange": source.name, "release": release, "destinations": numbered}}


def exchange_facts(
    exchange: str, vhost: str, arguments: Mapping[str, str] | None, ring: KeyMap
) -> list[tuple[str, str]]:
    """Return the facts at the head of a report about the ring of a live exchange.

    Args:
        exchange: the exchange's name.
        vhost: its vhost.
        arguments: its arguments that decide what is hashed; None where they are not known.
        ring: its ring, or its slots.
    """
    facts = [
        ("exchange", exchange),
        ("vhost", vhost),
        ("hashes", hashes_text(arguments)),
        ("ring", ring_text(ring)),
    ]
    return [*facts, ("", ASSUMED)] if ring.provenance == "assumed" else facts


def bucket_ranges(places: Iterable[tuple[int, Place]]) -> dict[Place, str]:
    """Return the runs of buckets of each destination, such as ``0-9, 15``; holes are under None.

    Args:
        places: pairs of a bucket and its destination, by ascending bucket.
    """
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


def ring_as_json(ring: KeyMap) -> dict[str, Any]:
    """Return provenance, release and size of a ring for programs, and who has its slots; `to_json` writes a whole ring."""
    described = {
        "release": release_json(ring.release),
        "provenance": ring.provenance,
        "buckets": len(ring_beneath(ring).buckets),
        "destinations": [place_json(place) for place in ring.destinations],
    }
    if isinstance(ring, SlotTable):
        described["slots"] = {slot.name: ring.owners.get(slot) for slot in ring.slots}
    return described


def release_json(release: Release) -> dict[str, Any]:
    """Return a release for programs."""
    return {"version": release.version, "store": release.store, "store_known": release.store_known}


def matrix_table(
    matrix: MovementMatrix, shown: Callable[[Any], object], *, most_moves: int = _MOST_MOVES
) -> Table:
    """Return a movement matrix as a table, or where that is too wide, its moves as a list, the largest first.

    Args:
        matrix: the matrix.
        shown: formats an amount as a cell.
        most_moves: how many moves a list has at most; the others are summed up.
    """
    moves = _moves_table(matrix, shown, most_moves)
    if len(matrix.after) > _MOST_COLUMNS:
        return moves
    before, after = matrix.before_totals(), matrix.after_totals()
    rows = [
        [
            place_text(source),
            *(shown(matrix.amounts[source, to]) if (source, to) in matrix.amounts else "" for to in after),
            shown(total),
        ]
        for source, total in before.items()
    ]
    columns = [
        TableColumn("from \\ to", numeric=False, code=True),
        *(TableColumn(place_text(to)) for to in after),
        TableColumn("all"),
    ]
    total = ["", *map(shown, after.values()), shown(sum(after.values()))]
    return Table(columns, rows, total, narrow=moves)


def _moves_table(matrix: MovementMatrix, shown: Callable[[Any], object], most: int) -> Table:
    moves = matrix.moves()
    rows = [(place_text(source), place_text(to), shown(amount)) for source, to, amount in moves[:most]]
    if rest := moves[most:]:
        rows.append((f"{len(rest):,} more", "", shown(sum(amount for _, _, amount in rest))))
    return Table(
        [
            TableColumn("from", numeric=False, code=True),
            TableColumn("to", numeric=False, code=True),
            TableColumn("moves"),
        ],
        rows,
    )


def matrix_json(matrix: MovementMatrix) -> dict[str, Any]:
    """Return a movement matrix for programs: one entry for each pair whose amount is above 0."""
    return {
        "moved": matrix.moved,
        "least": matrix.least,
        "cells": [
            {"from": place_json(source), "to": place_json(target), "amount": amount}
            for (source, target), amount in matrix.amounts.items()
        ],
    }
