"""The filters of a reader. No I/O.

The broker omits chunks whose Bloom filter excludes all filter values, and a reader omits the other rows of the chunks that it receives.
Source: osiris 1.13.1, osiris_bloom.erl; rabbitmq-server v4.3.6, rabbit_stream_utils.erl, ``filter_spec``.

The broker does not report that it has omitted the last chunks of a range. So a second subscription without filters has the last chunk
delivered: its replica has the whole range then. When no more chunks arrive, a third subscription starts where the filtered one is, with the
same filters: the broker sends its first chunk, if there is one, before the reply to a later request (`rabbit_chx.streams.ends`). So no
further chunk of the range matches if none arrives. Omitted offsets are missing rows only if the log begins after them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.checks import bytes_of
from rabbit_chx.errors import InputError
from rabbit_chx.streams.frames import MAX_TEXT_BYTES
from rabbit_chx.streams.rows import schema_of

_COLUMN = "filter_value"


@dataclass(frozen=True, slots=True)
class Filters:
    """The filter values of the rows to read, and whether rows without one are read, too."""

    values: tuple[bytes, ...]
    match_unfiltered: bool

    @classmethod
    def of(cls, values: Collection[str | bytes], match_unfiltered: bool) -> Filters:  # noqa: FBT001  # as users give it
        """Return the filters; an InputError for invalid ones."""
        if isinstance(values, str | bytes):
            raise InputError(f"filters is the single value {values!r:.60}: pass a list, as [{values!r:.60}]")
        if not values:
            raise InputError("match_unfiltered is for filters: pass filters, or leave it out")
        texts = tuple(dict.fromkeys(bytes_of(value, "a filter") for value in values))
        for text in texts:
            if not 0 < len(text) <= MAX_TEXT_BYTES:
                raise InputError(f"the filter {text!r:.60} has {len(text)} bytes: pass 1 to {MAX_TEXT_BYTES}")
        return cls(texts, match_unfiltered)

    @property
    def properties(self) -> dict[str, str | bytes]:
        """The properties of a subscription."""
        values: dict[str, str | bytes] = {
            f"filter.{number}": value for number, value in enumerate(self.values)
        }
        return values | {"match-unfiltered": str(self.match_unfiltered).lower()}

    def columns(self, include: Sequence[str]) -> tuple[str, ...]:
        """Return the optional columns that `select` needs."""
        return tuple(dict.fromkeys([*include, _COLUMN]))

    def select(self, rows: pa.RecordBatch, include: Sequence[str]) -> pa.RecordBatch:
        """Return the rows with one of the filter values, and those without the annotation: other clients of the protocol do not write it."""
        wanted = pa.array([*self.values, *([b""] if self.match_unfiltered else [])], pa.binary())
        given = rows[_COLUMN]
        rows = rows.filter(pc.or_(given.is_null(), pc.is_in(given, value_set=wanted)))
        return rows.select(schema_of(include).names)
