"""Offsets of a streaming query, as Spark keeps them in the checkpoint: JSON objects, compared by Spark as texts. No I/O.

An *anchor* is where a new query begins, before that is known in numbers. Spark asks a source for it again until the first
micro-batch is committed, and keeps only ends. So the first micro-batch has no rows: it ends at the numbers, which are then in the
checkpoint, and `latest` is the same place whenever the query is started again.
(Spark 4.3, MicroBatchExecution.scala, ``getStartOffset`` and ``runBatch``.)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.streams.chunks import Fingerprint
from spark_connector.options.read_options import Bound


class Place(NamedTuple):
    """How far a stream is read.

    Attributes:
        next: the first offset that is not read.
        before: the fingerprint of the last chunk known before it; None where none is known.
    """

    next: int
    before: Fingerprint | None = None


def anchor(bound: Bound) -> dict[str, Any]:
    """Return the offset of a query that begins."""
    if isinstance(bound, datetime):
        return {"anchor": bound.isoformat()}
    return {"anchor": dict(sorted(bound.items())) if isinstance(bound, Mapping) else bound}


def is_anchor(offset: Mapping[str, Any]) -> bool:
    """Return whether it is the offset of a query that begins."""
    return "anchor" in offset


def offset_of(places: Mapping[str, Place]) -> dict[str, Any]:
    """Return the offset of places; the same places make the same text."""
    return {"streams": {stream: _fields(place) for stream, place in sorted(places.items())}}


def places_in(offset: Mapping[str, Any]) -> dict[str, Place]:
    """Return the places of an offset that `offset_of` made.

    Raises:
        RabbitChxError: it is no such offset.
    """
    try:
        return {stream: _place(fields) for stream, fields in offset["streams"].items()}
    except (AttributeError, KeyError, TypeError):
        raise RabbitChxError(
            f"the checkpoint has the offset {offset!r:.200}, which is none of format('rabbitmq'): give a checkpointLocation that no "
            "other query has used"
        ) from None


def _fields(place: Place) -> dict[str, int]:
    if place.before is None:
        return {"next": place.next}
    chunk, epoch, crc = place.before
    return {"chunk": chunk, "crc": crc, "epoch": epoch, "next": place.next}


def _place(fields: Mapping[str, int]) -> Place:
    if "chunk" not in fields:
        return Place(fields["next"])
    return Place(fields["next"], Fingerprint(fields["chunk"], fields["epoch"], fields["crc"]))
