"""Rows of a stream, compared with the mirror."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rabbit_chx import StreamReader
from rabbit_chx.routing.key_map import KeyMap


def count_placed(url: str, stream: str, placing: KeyMap, column: str = "key") -> tuple[int, set[bytes]]:
    """Return how many rows of a stream belong there by their keys, and the keys of the others; rows without a key are left out."""
    right, elsewhere = 0, set[bytes]()
    here = placing.destinations.index(stream)
    with StreamReader(url, stream, include=[] if column == "key" else [column]) as reader:
        for batch in reader:
            keys: Any = batch[column].cast(pa.binary()).drop_null()
            places = placing.indices(keys)
            right += int((places == here).sum())
            elsewhere.update(keys.filter(pa.array(places != here)).to_pylist())
    return right, elsewhere
