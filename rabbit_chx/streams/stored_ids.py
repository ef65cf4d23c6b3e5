"""The stored rows of a named publisher, found by their message ids ``name:id``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.errors import MismatchError
from rabbit_chx.streams.frames import OffsetSpec
from rabbit_chx.streams.options import ReadLimits
from rabbit_chx.streams.reader import StreamReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.amqp import ConnectionSettings

_log = logging.getLogger(__name__)

#: Rows of the second part that is read backwards, after the last chunk; each further part has four times as many.
_FIRST_PIECE = 50_000
#: The most differences of each kind that are listed.
_SHOWN = 5
#: Flags of a row: a copy is equal; a copy has another key; a copy has another body.
_EQUAL, _OTHER_KEY, _OTHER_BODY = 1, 2, 4
_MOST_COPIES = 255


class Stored(NamedTuple):
    """The result of a comparison of published rows with a stream.

    Attributes:
        once: the rows that are stored once and equal.
        doubled: the rows that are stored more than once, equal or not.
        changed: the rows that are stored only with another key or body.
        unverified: the rows in a part of the stream that retention has removed.
        differences: the first rows of each kind, as text.
    """

    once: int
    lost: int
    doubled: int
    changed: int
    unverified: int
    differences: tuple[str, ...]


class StoredPiece(NamedTuple):
    """Rows of a stream between two offsets.

    Attributes:
        last: our first row with the highest id among them.
        end: the offset after them.
        is_cut: whether retention has removed the beginning of the piece.
    """

    last: StoredRow | None
    end: int
    is_cut: bool


class StoredRow(NamedTuple):
    """A stored row of a publisher."""

    id: int
    key: bytes | None
    body: bytes
    offset: int

    def differs(self, other: StoredRow) -> str | None:
        """Return the first difference: "key", "body", or None."""
        return "key" if self.key != other.key else "body" if self.body != other.body else None


def rows_of(batch: pa.RecordBatch, name: str) -> tuple[pa.RecordBatch, NDArray[np.uint64]]:
    """Return the rows of a name with their ids; the batch has the column ``message_id``."""
    is_ours = pc.match_substring_regex(batch["message_id"], f"^{re.escape(name)}:[0-9]{{1,19}}$")
    ours = batch.filter(is_ours)
    texts = pc.utf8_slice_codeunits(ours["message_id"], len(name) + 1)
    return ours, texts.cast(pa.uint64()).to_numpy(zero_copy_only=False)


def read_back(
    stream: str,
    reading: Mapping[str, Any],
    *,
    end: int | None = None,
    bound: int = 0,
) -> Iterator[StreamReader]:
    """Yield readers of pieces of a stream, the last piece first, each larger than the one before; the caller reads each to its end.

    The last reader is that of the piece at the offset `bound`, or of a piece whose beginning retention has removed. `end` is the offset
    after the last piece; with None the last piece is the last chunk. `reading` contains the arguments of each reader: url, addresses,
    limits.
    """
    piece = _FIRST_PIECE
    start: OffsetSpec = "last" if end is None else max(bound, end - piece)
    while True:
        with StreamReader(
            stream=stream, start=start, end=end, include=("message_id",), on_missing="count", **reading
        ) as reader:
            yield reader
            begin, is_cut = reader.start_offset, reader.missing > 0
        if is_cut or begin <= bound:
            return
        start, end, piece = max(bound, begin - piece), begin, piece * 4


def read_pieces_back(
    stream: str,
    name: str,
    reading: Mapping[str, Any],
    *,
    end: int | None = None,
    bound: int = 0,
    row_id: int | None = None,
) -> Iterator[StoredPiece]:
    """Yield the row of a name with the highest id, or with `row_id`, in each piece of `read_back`."""
    for reader in read_back(stream, reading, end=end, bound=bound):
        rows = [_last_of(batch, name, row_id) for batch in reader]
        # The first of equal ids, so that it is the original if that is in the piece.
        last = max(filter(None, rows), key=lambda row: row.id, default=None)
        yield StoredPiece(last, reader.end_offset, reader.missing > 0)


def find_row(
    stream: str,
    name: str,
    row_id: int,
    reading: Mapping[str, Any],
    *,
    end: int,
    after: int | None = None,
) -> tuple[StoredRow | None, bool]:
    """Return a row of a name by its id, or None, and whether retention may have removed it. Higher ids are at `end` or after it.

    `after` is the offset of a row with a lower id, from which on the stream is read forward; by default it is read backward.
    """
    if after is not None:
        start, include = max(0, after), ("message_id",)
        with StreamReader(
            stream=stream, start=start, end=end, include=include, on_missing="count", **reading
        ) as reader:
            for batch in reader:
                if (rows_of(batch, name)[1] >= row_id).any():
                    return _last_of(batch, name, row_id), False
        return None, reader.missing > 0
    is_cut = False
    for reader in read_back(stream, reading, end=end):
        found, highest = None, 0
        for batch in reader:
            found = found or _last_of(batch, name, row_id)
            highest = max(highest, rows_of(batch, name)[1].max(initial=0))
        is_cut = reader.missing > 0
        if found is not None or 0 < highest < row_id:
            return found, False
    return None, is_cut


def compare(
    stream: str, name: str, stored: StoredRow, given: StoredRow, reading: Mapping[str, Any]
) -> StoredRow:
    """Return the stored row, or the original of a copy by another client; a MismatchError if it differs from the given row."""
    is_cut = False
    if stored.differs(given) and stored.offset:
        _log.info(
            "stream %s: reading back to the first row with id %d", stream, stored.id, extra={"queue": stream}
        )
        for piece in read_pieces_back(stream, name, reading, end=stored.offset, row_id=stored.id):
            stored, is_cut = piece.last or stored, piece.is_cut
    if (what := stored.differs(given)) is None:
        return stored
    perhaps = "; retention has removed earlier rows, so that this may be a copy by another client, which proof=False does not compare"
    raise MismatchError(
        f"stream {stream!r} has id {stored.id} of {name!r} with the {what} {getattr(stored, what)!r:.60}, and the {what} given now is "
        f"{getattr(given, what)!r:.60}: the rows differ from the earlier run, and the broker would drop them; pass the same rows, or a "
        f"new name{perhaps if is_cut else ''}",
        queue=stream,
    )


def unproven(stream: str, name: str | None, known_id: int, row_id: int) -> MismatchError:
    """Return the error for a known row that retention has removed."""
    return MismatchError(
        f"the ids up to {known_id} of {name!r} are used in stream {stream!r}, and retention has removed the row with id {row_id}: publish "
        "the rows of the earlier run with proof=False (in Spark verify=off), others with higher ids",
        queue=stream,
    )


def undecided(stream: str, name: str | None, highest_id: int, first_id: int, last_id: int) -> MismatchError:
    """Return the error for rows that the broker has confirmed, in a part of the stream that retention has removed, or nowhere."""
    return MismatchError(
        f"stream {stream!r} has confirmed the ids {first_id} to {last_id} of {name!r}, but has none of these rows (its highest id is "
        f"{highest_id}). If retention has removed them, publish with proof=False (in Spark verify=off); else publish them under another name",
        queue=stream,
    )


def _last_of(batch: pa.RecordBatch, name: str, row_id: int | None = None) -> StoredRow | None:
    ours, ids = rows_of(batch, name)
    places = np.arange(len(ids)) if row_id is None else np.flatnonzero(ids == row_id)
    if not len(places):
        return None
    place = int(places[ids[places].argmax()])
    row = ours.slice(place, 1).to_pylist()[0]
    return StoredRow(int(ids[place]), row["key"], row["value"], row["offset"])


def row_hashes(keys: Any, bodies: Any) -> NDArray[np.int64]:  # Arrow has no types
    """Return a hash of 64 bits of each key and of each body, as an array with two columns.

    The hashes are Python's (SipHash), and comparable within one process only.
    """
    found: NDArray[np.int64] = np.empty((len(keys), 2), np.int64)
    for place, column in enumerate((keys, bodies)):
        values = column.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
        found[:, place] = np.fromiter(map(hash, values), np.int64, len(values))
    return found


def count_stored(
    url: Sequence[ConnectionSettings],
    stream: str,
    name: str,
    first: int,
    hashes: NDArray[np.int64],
    *,
    addresses: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Stored:
    """Compare confirmed rows, whose ids are consecutive from `first`, with a stream, which is read backwards.

    The reading ends when all rows and one of the name with a lower id were found, or else at the first row: a row may be stored twice if
    the broker has forgotten the name. The memory is 2 bytes for each row, plus the `row_hashes` and a piece of the stream.
    """
    found = _Found(hashes)
    is_cut = False
    reading = {"url": url, "addresses": addresses, "limits": ReadLimits(timeout_s=timeout_s)}
    for reader in read_back(stream, reading):
        first_id = None
        for batch in reader:
            ours, ids = rows_of(batch, name)
            if len(ids):
                first_id = int(ids[0]) if first_id is None else first_id
                found.add(ours, ids, first)
        if first_id is not None:
            found.first_id = first_id
        is_cut = reader.missing > 0
        if found.is_complete:
            break
    return found.result(first, is_cut=is_cut)


class _Found:
    """The rows found so far; `first_id` is the id of the first row of the name in the part that was read, None without one."""

    def __init__(self, hashes: NDArray[np.int64]) -> None:
        self.first_id: int | None = None
        self._hashes = hashes
        self._copies: NDArray[np.uint8] = np.zeros(len(hashes), np.uint8)
        self._signs: NDArray[np.uint8] = np.zeros(len(hashes), np.uint8)
        self._other_rows = 0  # the sum over all copies that differ from the given rows
        self._behind = False

    @property
    def is_complete(self) -> bool:
        """True if all rows and one with a lower id were found."""
        return self._behind and bool(self._copies.all())

    def add(self, ours: pa.RecordBatch, ids: NDArray[np.uint64], first: int) -> None:
        self._behind |= bool((ids < first).any())
        wanted = (ids >= first) & (ids < first + len(self._hashes))
        if not wanted.any():
            return
        places = ids[wanted].astype(np.int64) - first
        ours = ours.filter(pa.array(wanted))
        stored = row_hashes(ours["key"], ours["value"])
        once, copies = np.unique(places, return_counts=True)
        self._copies[once] = np.minimum(self._copies[once] + copies, _MOST_COPIES)
        differ = stored != self._hashes[places]
        is_other = differ.any(axis=1)
        self._signs[places[~is_other]] |= _EQUAL
        self._signs[places[differ[:, 0]]] |= _OTHER_KEY
        self._signs[places[differ[:, 1]]] |= _OTHER_BODY
        self._other_rows += _sum_of(stored[is_other])

    def result(self, first: int, *, is_cut: bool) -> Stored:
        """Return the counts and the first differences; `is_cut` if retention has removed the beginning of the stream."""
        is_lost, is_equal = self._copies == 0, (self._signs & _EQUAL) > 0
        removed = 0
        if is_cut:
            removed = len(is_lost) if self.first_id is None else max(0, self.first_id - first)
        unverified = int(is_lost[:removed].sum())
        is_lost[:removed] = False
        is_changed = (self._copies > 0) & ~is_equal
        is_doubled = self._copies > 1
        is_moved = is_changed.any() and self._other_rows % 2**64 == _sum_of(self._hashes[is_changed]) % 2**64
        words = {
            _OTHER_KEY: "another key",
            _OTHER_BODY: "another body",
            _OTHER_KEY | _OTHER_BODY: "another key and body",
        }

        def part(row: int) -> str:
            what = words[int(self._signs[row]) & ~_EQUAL]
            return f"has {what}{', since the same rows are stored in another order' if is_moved else ''}"

        kinds: tuple[tuple[NDArray[np.bool_], Callable[[int], str]], ...] = (
            (is_changed, part),
            (is_lost, lambda _row: "is not there"),
            (is_doubled, lambda row: f"is there {self._copies[row]} times"),
        )
        differences = tuple(
            f"row {row:,} (id {first + row}) {describe(row)}"
            for flags, describe in kinds
            for row in np.flatnonzero(flags)[:_SHOWN].tolist()
        )
        return Stored(
            int((is_equal & ~is_doubled).sum()),
            int(is_lost.sum()),
            int(is_doubled.sum()),
            int(is_changed.sum()),
            unverified,
            differences,
        )


def _sum_of(hashes: NDArray[np.int64]) -> int:
    """Return a 64-bit sum of rows that does not depend on their order."""
    keys, bodies = hashes.view(np.uint64).T
    mixed = keys * np.uint64(0x9E3779B97F4A7C15) + bodies
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return int((mixed ^ (mixed >> np.uint64(32))).sum(dtype=np.uint64))
