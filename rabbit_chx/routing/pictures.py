"""What a notebook shows of a ring or of a table of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rabbit_chx.rendering.blocks import Figure, Table
from rabbit_chx.rendering.figures import owners_rows, owners_strip
from rabbit_chx.rendering.html import html_piece
from rabbit_chx.rendering.table import TableColumn
from rabbit_chx.routing.bindings import Place


def ring_piece(title: str, words: str, owners: Sequence[Place], shares: Mapping[Place, float]) -> str:
    """Return a strip of buckets, and a table of their owners.

    Args:
        title: what it is.
        words: how it is known, in words.
        owners: who has each bucket.
        shares: the share of all keys of each owner.
    """
    strip = owners_strip(("ring", [None if place is None else str(place) for place in owners]))
    named = {"(nobody)" if place is None else str(place): f"{share:.3%}" for place, share in shares.items()}
    columns = [
        TableColumn("destination", numeric=False),
        TableColumn("buckets", numeric=False),
        TableColumn("share"),
    ]
    rows = [(*row, named.get(row[0], "")) for row in owners_rows(strip)]
    return html_piece([Figure(title, words, strip, Table(columns, rows))])
