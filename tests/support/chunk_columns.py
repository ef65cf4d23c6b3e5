"""The rows of whole chunks as columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rabbit_chx.streams.chunks import Chunk, pieces
from rabbit_chx.streams.rows import columns_in


def columns_of(chunks: Sequence[Chunk], start: int, end: int, include: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the rows of chunks as columns, as `columns_in`; chunks of tracking data have no rows."""
    found = [piece for chunk in chunks if chunk.kind == "user" for piece in pieces(chunk)]
    return columns_in(found, start, end, include)
