"""The rows of a named publisher that a stream has, by their message ids ``name:id``: proof that they are stored, and a comparison of all.

`StoredIds` is what a `StreamWriter` asks. `compare_stored` reads back the rows of a whole write.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.connection.tokens import log_in_to_api, tls_context
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Key, OffsetSpec
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.streams.rows import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)

#: Seconds between two notes of the end of the stream.
_NOTE_INTERVAL_S = 60.0
#: Rows of the second part that is read backwards, after the last chunk; each further part has four times as many.
_FIRST_PIECE = 50_000
#: The most differences of each kind that are listed.
_SHOWN = 5
#: Flags of a row: a copy is equal; a copy has another key; a copy has another body.
_EQUAL = 1
_OTHER_KEY = 2
_OTHER_BODY = 4
_MOST_COPIES = 255


class StoredRow(NamedTuple):
    """A stored row of a publisher."""

    id: int
    key: bytes | None
    body: bytes
    offset: int

    def differs(self, other: StoredRow) -> str | None:
        """Return the first difference: "key", "body", or None."""
        if self.key != other.key:
            return "key"
        if self.body != other.body:
            return "body"
        return None


class StoredIds:
    """The ids of a publisher that one stream has: what is stored, what was known before, and which error if that cannot be proved.

    The broker keeps the last id of each name, and drops rows up to it. Its word (the *claimed* id) is not proof, since it may have
    written the id and not the row (tools/osiris-roll-over.md). Of the rows of a call, in the order of their ids::

                  known_id              found id               claimed_id
          known      |    stored            |    lost              |    new
        -------------+----------------------+----------------------+---------------
          by earlier |    by this publisher |    confirmed, and    |    not sent
          runs       |                      |    not stored        |    before

    This is the core of exactly once, for each connection of a `StreamWriter`::

        claim: are rows up to the claimed id given?
          |    no ------------------------------------------------------------+
          | yes                                                               |
          v                                                                   |
        send them, and wait for their confirms: the stored ones are committed |
          |                                                                   |
          v                                                                   |
        find_last: read the stream backward, to our highest id                |
          |         |                                                         |
          |         +-- a part that may have lost rows was removed: error     |
          |         |                                                         |
          |         +-- the found id is lower than the last given one:        |
          |             send the rows after it as ``name~1``, from the top    |
          v                                                                   |
        compare_last, compare_known: a stored row differs: error              |
          |                                                                   |
          v                                                                   |
        send the new rows  <--------------------------------------------------+

    The highest id is found by reading the stream backward from its end. Other clients may have copied our rows with their message ids, so a
    low id near the end may be a copy. Two facts hold nevertheless: a row, or a copy of it, proves that it was stored; and ids are stored in
    increasing order, so the first row with an id is the original, and all rows with lower ids were stored before it. So the search stops at
    the first id that is at least as high as those in question, which is nearly always at the end of the stream. An id is known to be absent
    only after the whole part of the stream that may contain it was read: back to an offset that was noted (`note_end`), or else all of it.
    If retention has removed a part of that, the question is undecided, and publishing is refused.

    Args:
        stream: the stream.
        name: the publisher reference; without one nothing is claimed.
        reading: the arguments of the readers that look rows up: url, addresses, limits.

    Attributes:
        claimed_id: the last id of the name that the broker reports on the connection; 0 again when it is verified.
        last_claim: the same, also when it is verified.
        known_id: the claimed id of the first connection: that of earlier runs.
        confirmed_id: all of our rows up to this id are confirmed.
    """

    def __init__(self, stream: str, name: str | None, reading: Mapping[str, Any]) -> None:
        self.claimed_id = self.last_claim = self.known_id = self.confirmed_id = 0
        self._stream = stream
        self._name = name or ""
        self._reading = reading
        self._is_first_claim = True
        # All rows with ids above `known_id`, of any writer, are at this offset or after it.
        self._first_end = 0
        self._call_ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._compares_known = True
        self._ids = self._call_ids
        self._keys: Column = pa.array([], pa.binary())
        self._bodies: Column = self._keys
        # A bound for lookups: all of our rows with a higher id are at this offset or after it.
        self._noted_id = self._noted_offset = 0
        self._next_note_at = 0.0
        # Our stored row with the highest id, until it is compared with the given row of that id, perhaps in a later call.
        self._uncompared: StoredRow | None = None
        self._stored_id = 0  # our rows up to this id are stored
        self._stored_end = 0  # the offset after the row with this id
        self._compared = StoredRow(0, None, b"", -1)  # the highest one that is equal to the given row

    def start_call(self, ids: NDArray[np.int64], *, compares_known: bool) -> None:
        """Begin with a call that has rows with these ids; `compares_known` is whether its highest known one is compared."""
        self._call_ids = ids
        self._compares_known = compares_known

    def start_batch(self, ids: NDArray[np.int64], keys: pa.Array[Any], bodies: pa.Array[Any]) -> None:
        """Begin with the next rows of the call; all earlier ones are confirmed."""
        self._ids = ids
        self._keys = keys
        self._bodies = bodies

    def note_first_end(self, connection: StreamConnection) -> None:
        """Note the end of the stream before the first claim."""
        if self._is_first_claim:
            self._first_end = self._committed(connection)

    def _committed(self, connection: StreamConnection) -> int:
        """Return the offset of the last committed chunk; 0 if it is not known."""
        if Key.STREAM_STATS not in connection.commands:
            return 0
        return max(0, connection.stats(self._stream)["committed_chunk_id"])

    def claim(self, claimed_id: int, where: str) -> None:
        """Note the claimed id of a new connection; a MismatchError if the stream has forgotten confirmed ids."""
        self._next_note_at = 0.0
        if claimed_id < self.confirmed_id:
            raise errors.MismatchError(
                f"{where}: stream {self._stream!r} has confirmed id {self.confirmed_id}, and its last id of "
                f"{self._name!r} is {claimed_id}: it was re-created or truncated, or has over 255 names. Rows up to id "
                f"{self.confirmed_id} may be lost: publish them with a new publisher",
                queue=self._stream,
            )
        self.claimed_id = self.last_claim = claimed_id
        if self._is_first_claim:
            self.known_id = claimed_id
            self._is_first_claim = False
            self._noted_offset = self._first_end
            self._noted_id = claimed_id
            self._next_note_at = time.monotonic() + _NOTE_INTERVAL_S

    def find_last(self, claimed_id: int, first_id: int, last_id: int) -> int:
        """Return our highest id in the stream, or any id of ours that is at least `last_id`.

        The rows that may be missing have ids from `first_id` to `last_id`. If retention has removed all of our rows, the claimed id of
        earlier runs is accepted.

        Raises:
            MismatchError: the stored row has another key or body than the given one; or retention has removed a part of the stream that
                could have these rows.
        """
        if first_id > self._noted_id:
            bound = self._noted_offset
            noted_id = self._noted_id if bound else 0
        else:
            bound = 0
            noted_id = 0

        found: StoredRow | None = None
        log_end: int | None = None
        for row, reader in self._last_rows(bound=bound):
            log_end = reader.end_offset if log_end is None else log_end
            found = max(filter(None, (row, found)), key=lambda row: row.id, default=None)
            if found is not None and found.id >= last_id:
                break
            if reader.missing:
                if found is not None:
                    raise self._undecidable_error(found.id, max(found.id + 1, first_id), last_id)
                if self._highest_known > self._compared.id:
                    raise self._unproven_error(self._highest_known)
                return min(self.known_id, claimed_id)

        highest = noted_id if found is None else found.id
        if highest < last_id or highest >= claimed_id:  # the stream has no higher id of ours
            self._noted_offset = log_end or 0
            self._noted_id = highest
            self._next_note_at = time.monotonic() + _NOTE_INTERVAL_S

        if found is not None:
            self._stored_id = found.id
            self._stored_end = found.offset + 1
            self._uncompared = found
            self.compare_last()

        return highest

    def compare_last(self) -> None:
        """Compare our highest stored row with the given row of its id, if any; not a copy whose original is in the stream."""
        stored = self._uncompared
        if stored is None:
            return
        index = self._index_of(stored.id)
        if index is not None:
            self._compare(stored, index)
            self._uncompared = None

    def compare_known(self) -> None:
        """Compare the highest known row of the call with the stored one, where our highest stored row is not among the given ones."""
        row_id = self._highest_known if self._compares_known else 0
        index = self._index_of(row_id)
        if index is None or not self._compared.id < row_id <= self._stored_id:
            return
        stored, is_cut = self._find(row_id)
        if stored is not None:
            self._compare(stored, index)
        elif is_cut:
            raise self._unproven_error(row_id)
        else:
            raise errors.MismatchError(
                f"stream {self._stream!r} has the id {self._stored_id} of {self._name!r} and not the id {row_id}, which is given now: the "
                "rows are not those of the earlier run; pass the same rows, or a new name or version",
                queue=self._stream,
            )

    def count_unstored(self) -> int:
        """Return how many rows of the batch behind those of earlier runs are not stored, or stored with another key or body."""
        new = slice(index_after(self._ids, self.known_id), None)
        ids = self._ids[new]
        hashes = row_hashes(self._keys[new], self._bodies[new])
        bound = self._noted_offset if ids[0] > self._noted_id else self._first_end
        stored = compare_stored(self._stream, self._name, self._reading, ids, hashes, bound=bound)
        return stored.lost + stored.changed

    def note_end(self, connection: StreamConnection) -> None:
        """Note the end of the stream once a minute, while no row is in flight: a lookup of later rows reads back to it. From 3.11 on."""
        now = time.monotonic()
        if not self._name or self._ids[0] <= self.claimed_id or now < self._next_note_at:
            return
        self._next_note_at = now + _NOTE_INTERVAL_S
        offset = self._committed(connection)
        last_id = max(self._noted_id, self.claimed_id, self.confirmed_id)
        # Another attempt may have stored higher ids. Without an offset the stream is empty, or its leader is new.
        if offset and connection.publisher_sequence(self._name, self._stream) <= last_id:
            self._noted_offset = offset
            self._noted_id = last_id

    @property
    def _highest_known(self) -> int:
        """The highest id of the current call that the stream has from earlier runs; 0 without one."""
        index = index_after(self._call_ids, self.known_id)
        return int(self._call_ids[index - 1]) if index else 0

    def _index_of(self, row_id: int) -> int | None:
        """Return the index of the given row with this id; None without one."""
        index = index_after(self._ids, row_id) - 1
        return index if index >= 0 and self._ids[index] == row_id else None

    def _compare(self, stored: StoredRow, index: int) -> None:
        """Compare a stored row, or the original of a copy by another client, with a given row of its id."""
        given = StoredRow(stored.id, self._keys[index].as_py(), self._bodies[index].as_py(), 0)
        is_cut = False
        if stored.differs(given) and stored.offset:
            _log.info(
                "stream %s: reading back to the first row with id %d",
                self._stream,
                stored.id,
                extra={"queue": self._stream},
            )
            for row, reader in self._last_rows(end=stored.offset, row_id=stored.id):
                stored = row or stored
                is_cut = reader.missing > 0

        if (what := stored.differs(given)) is not None:
            perhaps = "; retention has removed earlier rows, so that this may be a copy by another client"
            raise errors.MismatchError(
                f"stream {self._stream!r} has id {stored.id} of {self._name!r} with another {what} than the row given now (offset "
                f"{stored.offset}): the rows differ from the earlier run; pass the same rows, or a new name or version{perhaps if is_cut else ''}",
                queue=self._stream,
            )

        self._compared = max(self._compared, stored, key=lambda row: row.id)

    def _last_rows(
        self, *, end: int | None = None, bound: int = 0, row_id: int | None = None
    ) -> Iterator[tuple[StoredRow | None, StreamReader]]:
        """Yield our row with the highest id, or with `row_id`, in each piece of `read_back`, and the reader of the piece."""
        for reader in read_back(self._stream, self._reading, end=end, bound=bound):
            rows = [_last_of(batch, self._name, row_id) for batch in reader]
            # The first of equal ids, so that it is the original if that is in the piece.
            yield max(filter(None, rows), key=lambda row: row.id, default=None), reader

    def _find(self, row_id: int) -> tuple[StoredRow | None, bool]:
        """Return our row with this id, or None, and whether retention may have removed it.

        It is before our row with the highest id. From a compared row with a lower id on the stream is read forward, else backward.
        """
        if self._compared.offset >= 0:
            with StreamReader(
                stream=self._stream, start=self._compared.offset, end=self._stored_end,
                include=("message_id",), on_missing="count", **self._reading,
            ) as reader:  # fmt: skip
                for batch in reader:
                    if (rows_of(batch, self._name)[1] >= row_id).any():
                        return _last_of(batch, self._name, row_id), False
            return None, reader.missing > 0

        is_cut = False
        for reader in read_back(self._stream, self._reading, end=self._stored_end):
            found = None
            highest = 0
            for batch in reader:
                found = found or _last_of(batch, self._name, row_id)
                highest = max(highest, rows_of(batch, self._name)[1].max(initial=0))
            is_cut = reader.missing > 0
            if found is not None or 0 < highest < row_id:
                return found, False

        return None, is_cut

    def _unproven_error(self, row_id: int) -> errors.MismatchError:
        """Return the error for a known row that retention has removed."""
        return errors.MismatchError(
            f"stream {self._stream!r} drops ids up to {self.known_id} of {self._name!r}, and retention has removed the row with id {row_id}, so "
            "it cannot be compared. Leave out rows of an earlier run; publish others under another name (Spark: another version)",
            queue=self._stream,
        )

    def _undecidable_error(self, highest_id: int, first_id: int, last_id: int) -> errors.MismatchError:
        """Return the error for rows that the broker has confirmed, in a part of the stream that retention has removed, or nowhere."""
        return errors.MismatchError(
            f"stream {self._stream!r} confirmed the ids {first_id} to {last_id} of {self._name!r}, but its highest id is {highest_id}: leave "
            "these rows out if retention removed them; if they were never stored, publish them under another name (Spark: another version)",
            queue=self._stream,
        )


def index_after(ids: NDArray[np.int64], row_id: int) -> int:
    """Return the index after the last of the increasing ids that is not above `row_id`."""
    return int(np.searchsorted(ids, row_id, side="right"))


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
            begin = reader.start_offset
            is_cut = reader.missing > 0
        if is_cut or begin <= bound:
            return
        start = max(bound, begin - piece)
        end = begin
        piece = piece * 4


def _last_of(batch: pa.RecordBatch, name: str, row_id: int | None = None) -> StoredRow | None:
    ours, ids = rows_of(batch, name)
    places = np.arange(len(ids)) if row_id is None else np.flatnonzero(ids == row_id)
    if not len(places):
        return None
    place = int(places[ids[places].argmax()])
    row = ours.slice(place, 1).to_pylist()[0]
    return StoredRow(int(ids[place]), row["key"], row["value"], row["offset"])


# -- all rows of a write


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


def row_hashes(keys: Any, bodies: Any) -> NDArray[np.int64]:  # Arrow has no types
    """Return a hash of 64 bits of each key and of each body, as an array with two columns.

    The hashes are Python's (SipHash), and comparable within one process only.
    """
    found: NDArray[np.int64] = np.empty((len(keys), 2), np.int64)
    for place, column in enumerate((keys, bodies)):
        values = column.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
        found[:, place] = np.fromiter(map(hash, values), np.int64, len(values))
    return found


def compare_stored(
    stream: str,
    name: str,
    reading: Mapping[str, Any],
    row_ids: NDArray[np.int64] | range,
    hashes: NDArray[np.int64],
    *,
    bound: int = 0,
) -> Stored:
    """Compare confirmed rows, in the order of their ids, with a stream, which is read backwards by `read_back`.

    The reading ends when all rows and one of the name with a lower id were found, or else at the offset `bound`: a row may be stored twice
    if the broker has forgotten the name. The memory is 2 bytes for each row, plus the `row_hashes` and a piece of the stream.
    """
    found = _Found(row_ids, hashes)
    is_cut = False
    for reader in read_back(stream, reading, bound=bound):
        first_id = None
        for batch in reader:
            ours, ids = rows_of(batch, name)
            if len(ids):
                first_id = int(ids[0]) if first_id is None else first_id
                found.add(ours, ids.astype(np.int64))
        if first_id is not None:
            found.first_id = first_id
        is_cut = reader.missing > 0
        if found.is_complete:
            break
    return found.result(is_cut=is_cut)


class _Found:
    """The rows found so far; `first_id` is the id of the first row of the name in the part that was read, None without one."""

    def __init__(self, ids: NDArray[np.int64] | range, hashes: NDArray[np.int64]) -> None:
        self.first_id: int | None = None
        self._ids = ids
        self._hashes = hashes
        self._copies: NDArray[np.uint8] = np.zeros(len(hashes), np.uint8)
        self._signs: NDArray[np.uint8] = np.zeros(len(hashes), np.uint8)
        self._other_rows = 0  # the sum over all copies that differ from the given rows
        self._behind = False

    @property
    def is_complete(self) -> bool:
        """True if all rows and one with a lower id were found."""
        return self._behind and bool(self._copies.all())

    def add(self, ours: pa.RecordBatch, ids: NDArray[np.int64]) -> None:
        self._behind |= bool((ids < self._ids[0]).any())
        places, wanted = self._places(ids)
        if not wanted.any():
            return
        places = places[wanted]
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

    def _places(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the place of each id, or of the next higher one, among the ids of the rows; and whether it is one of them."""
        rows = len(self._ids)
        if isinstance(self._ids, range):
            places = np.clip(ids - self._ids.start, 0, rows)
            return places, (ids >= self._ids.start) & (places < rows)
        places = np.searchsorted(self._ids, ids)
        return places, self._ids[np.minimum(places, rows - 1)] == ids

    def result(self, *, is_cut: bool) -> Stored:
        """Return the counts and the first differences; `is_cut` if retention has removed the beginning of the stream."""
        is_lost = self._copies == 0
        is_equal = (self._signs & _EQUAL) > 0
        removed = 0
        if is_cut:
            removed = len(is_lost) if self.first_id is None else self._places(np.array([self.first_id]))[0][0]
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
            f"row {row:,} (id {self._ids[row]}) {describe(row)}"
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


# -- The publisher names that a stream remembers, counted over the management API before rows are written
# A stream remembers the last ids of 255 names. It forgets the oldest further names when it starts a new segment; rows with their ids would
# then be stored again. osiris v1.13.1, osiris_tracking.erl, ``trim_sequences/2``, ``MAX_SEQUENCES``.


MOST_REFERENCES = 255
_MANY = 200
_TOO_MANY = 250
_TIMEOUT_S = 10.0
_LARGEST = 16 << 20  # bytes of the answer


def check_references(
    management_url: ManagementUrl, settings: ConnectionSettings, stream: str, name: str
) -> None:
    """Warn if a stream remembers many names; raise an InputError if a further name would exceed 250."""
    url = management_url.with_login_of(settings)
    writers = log_in_to_api(url, _TIMEOUT_S, lambda login: _writers(url, settings.vhost, stream, login))
    count = len(writers.keys() | {name})
    told = f"stream {stream!r} remembers {count} publishers with {name!r}, of at most {MOST_REFERENCES}"
    if count > _TOO_MANY:
        raise errors.InputError(
            f"{told}. Beyond them it forgets the oldest, whose rows would then be stored again. A name is never given back: use fewer "
            "names, publish over fewer AMQP channels (each takes one), or begin a new stream",
            queue=stream,
        )
    if count >= _MANY:
        _log.warning("%s; above %d publishing fails", told, _TOO_MANY)


def _writers(url: ManagementUrl, vhost: str, stream: str, login: Secret) -> dict[str, int]:
    """Return the last id of each name that a stream remembers; from RabbitMQ 3.13 on, with rabbitmq_stream_management."""
    if url.tls is None:
        connection = http.client.HTTPConnection(url.host, url.port, timeout=_TIMEOUT_S)
    else:
        context = tls_context(url.tls)
        connection = http.client.HTTPSConnection(url.host, url.port, timeout=_TIMEOUT_S, context=context)

    path = f"{url.prefix}/api/stream/{quote(vhost, safe='')}/{quote(stream, safe='')}/tracking?type=writer"
    try:
        connection.request("GET", path, headers={"Authorization": login.reveal()})
        with connection.getresponse() as answer:
            status = answer.status
            content = answer.read(_LARGEST)
        if status == http.client.OK:
            return dict(json.loads(content)["writers"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as cause:
        raise errors.UnreachableError(
            f"{url.masked}: the management API does not return the writers of stream {stream!r} ({cause}): check the URL",
            queue=stream,
        ) from None
    finally:
        connection.close()

    if status == http.client.NOT_FOUND:
        raise errors.BrokerRefusedError(
            f"{url.masked}: the management API does not return the writers of stream {stream!r}: it needs RabbitMQ 3.13 or newer, and on each "
            "node rabbitmq-plugins enable rabbitmq_stream_management; or leave management_url out",
            queue=stream,
            reply_code=status,
        )

    kind = errors.AccessRefusedError if status in (401, 403) else errors.BrokerRefusedError
    raise kind(
        f"{url.masked}: {path} was answered {status}: the user needs the tag management and read permission; or leave "
        "management_url out",
        queue=stream,
        reply_code=status,
    )
