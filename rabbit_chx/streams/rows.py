"""Rows of a stream as Arrow columns, and columns as rows: AMQP 1.0 messages, without a Python object per row. No I/O.

The columns:

===============  ==========================  ======================================================================
column           type                        content
===============  ==========================  ======================================================================
``offset``       int64                       the offset of the record
``timestamp``    timestamp(us, UTC)          when the leader wrote the chunk
``key``          binary                      the routing key: the message annotation ``x-routing-key``, which the
                                             broker writes for every AMQP publisher, and `encode_rows` too. Null if
                                             it is absent: other clients of the stream protocol do not write it
                                             but use other fields: see ``message_id`` and ``headers``
``value``        binary                      the body: data sections, joined; an amqp-value of text or binary as its
                                             bytes, any other value and amqp-sequences as JSON; empty without a body.
                                             A record that is not an AMQP message is the value
``exchange``     string                      the message annotation ``x-exchange``; null if it is absent
``message_id``   string                      the property, as text; null if it is absent
``properties``   map<string, string>         the properties that the message has, by their names in AMQP 1.0
``headers``      map<string, string>         application properties, and message annotations; of two with one name, the
                                             application property. Null if both are absent
``filter_value``  binary                     the message annotation ``x-stream-filter-value``; null if it is absent
===============  ==========================  ======================================================================

Values as text: numbers in decimal, times as ISO 8601 in UTC with milliseconds (which Spark and pandas cast to a timestamp), UUIDs
in their usual form, binaries as their UTF-8 or else in hexadecimal, lists and maps as JSON. A null stays null. Wire types are lost.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise, product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp.amqp10_values import (
    ANNOTATIONS,
    APPLICATION,
    COLUMN_OF,
    DATA,
    DELIVERY,
    FIXED,
    FORMATS,
    HEADER,
    PROPERTIES,
    SECTIONS_OF,
    TEXT_TYPES,
    VALUE,
    Texts,
    id_text,
    read_message,
    texts_in,
)
from rabbit_chx.checks import bytes_of, check_column, check_name, short_string
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.routing import SuperStream
from rabbit_chx.routing.key_map import KeyMap, is_routed_by_broker
from rabbit_chx.routing.super_stream import StreamRouting, are_names, check_routing
from rabbit_chx.streams.chunks import Codec, Piece, Places, ends_of, lengths_error, pack
from rabbit_chx.streams.connection import StreamConnection

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TIMESTAMP = pa.timestamp("us", "UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
#: The columns with their types; those after the first four are optional.
COLUMN_TYPES: dict[str, Any] = {
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "key": pa.binary(),
    "value": pa.binary(),
    "exchange": pa.string(),
    "message_id": pa.string(),
    "properties": _TEXTS,
    "headers": _TEXTS,
    "filter_value": pa.binary(),
}
_ALWAYS = 4
_MOST_BYTES = 2**31 - 1  # offsets of Arrow's binary columns have 32 bits
_FRAME_HEAD = struct.Struct(">IHHBI")
_PUBLISH = 2
#: The head of a sub-entry with its id: the highest bit of the second field, and the codec in the next three bits; rows; sizes.
SUB_ENTRY = struct.Struct(">QBHII")
#: Bits of an id for the number of the row in its stream. A version may be in those above.
ROW_BITS = 32

_SYMBOL = 0xA3
_NULL = 0x40
_EMPTY_LIST = 0x45
_SECTION_FORMS: tuple[tuple[Sequence[int], Iterable[int]], ...] = (
    ((HEADER, PROPERTIES), (_EMPTY_LIST, 0xC0, 0xD0)),
    ((DELIVERY, ANNOTATIONS, APPLICATION), (0xC1, 0xD1)),
    ((DATA,), (0xA0, 0xB0)),
    ((VALUE,), TEXT_TYPES),
)


def _size_width(constructor: int) -> int:
    """Return how many bytes the size field of a value has that is not fixed."""
    if constructor == _EMPTY_LIST:
        return 0
    if constructor & 0x10:
        return 4
    return 1


def _size_widths() -> dict[int, int]:
    widths = {}
    for codes, constructors in _SECTION_FORMS:
        for code, constructor in product(codes, constructors):
            widths[0x530000 | code << 8 | constructor] = _size_width(constructor)
    return widths


# The bytes of the size field of a section, by the section's first four bytes; the other forms are odd.
_SIZE_BYTES = _size_widths()
_SIMPLE = {*TEXT_TYPES, *FORMATS, *FIXED}
_ANNOTATION_FIELDS = {
    b"x-routing-key": "key",
    b"x-exchange": "exchange",
    b"x-stream-filter-value": "filter_value",
}
_PADDING = 272  # a name of 255 bytes may be looked for after the last byte
_MOST_LAYOUTS = 64
_SLICE_ROWS = 16_384  # so that their bytes stay in a second-level cache, or nearly
_MOST_PAIRS = 32

#: The filter value of a row: its key, or a function of the key.
FilterValue: TypeAlias = Literal["key"] | Callable[[bytes], str | bytes]
# A column, an array of numbers or truth values, or one number for all: the stubs of pyarrow and NumPy are incomplete.
Column: TypeAlias = "Any"
Values: TypeAlias = "Any"


def schema_of(include: Sequence[str] = ()) -> pa.Schema:
    """Return the schema of the batches of `columns_in`; `include` lists optional columns in their order."""
    further = list(COLUMN_TYPES)[_ALWAYS:]
    if isinstance(include, str):
        raise InputError(f"include is the text {include!r:.60}: pass a list of columns, as [{include!r:.60}]")
    for name in include:
        if name not in further:
            raise InputError(f"there is no further column {name!r}: include takes {', '.join(further)}")
    if len(set(include)) < len(include):
        raise InputError(f"include is {include!r:.60}: pass each column once, as ({further[0]!r},)")
    return pa.schema([(name, COLUMN_TYPES[name]) for name in [*list(COLUMN_TYPES)[:_ALWAYS], *include]])


def columns_in(pieces: Sequence[Piece], start: int, end: int, include: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the rows of pieces of chunks from `start` up to the offset before `end` as columns.

    Raises:
        DamagedChunkError: a sub-entry cannot be unpacked.
        InputError: a column does not exist, or the pieces have 2 GiB or more together.
    """
    schema = schema_of(include)
    pieces = [piece for piece in pieces if piece.records]
    if not pieces:
        return pa.RecordBatch.from_pylist([], schema=schema)

    data, ends = _records(pieces)
    counts = np.array([piece.records for piece in pieces])
    firsts = np.array([piece.offset for piece in pieces], np.uint64).astype(np.int64)
    offsets = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(len(ends))
    times = np.repeat(np.array([piece.timestamp_ms for piece in pieces]) * 1000, counts)
    del pieces  # their bytes were joined; a chunk may have hundreds of megabytes
    starts = np.concatenate(([0], ends[:-1])) + 4
    wanted = (offsets >= start) & (offsets < end)
    if not wanted.all():
        offsets = offsets[wanted]
        times = times[wanted]
        starts = starts[wanted]
        ends = ends[wanted]

    columns = {"offset": pa.array(offsets), "timestamp": pa.array(times).cast(_TIMESTAMP)}
    columns.update(_Messages(data, starts, ends, schema.names[2:]).columns())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _records(pieces: Sequence[Piece]) -> tuple[bytes, Places]:
    """Return the bytes of all records, with padding after them, and the end of each record."""
    size = sum(piece.size for piece in pieces)
    if size > _MOST_BYTES:
        raise InputError(f"the chunks have {size} bytes together: read fewer than 2 GiB at a time")
    parts = []
    ends = []
    before = 0
    for is_joined, group in groupby(pieces, lambda piece: piece.codec is None and piece.ends is None):
        same = list(group)
        unpacked = [_join(same)] if is_joined else [piece.unpack() for piece in same]
        for part, inside in unpacked:
            parts.append(part)
            ends.append(inside + before)
            before += len(part)
    return b"".join([*parts, bytes(_PADDING)]), np.concatenate(ends)


def _join(pieces: Sequence[Piece]) -> tuple[memoryview | bytes, Places]:
    """Return the records of pieces that are not packed, and the end of each: many small pieces at once."""
    data = b"".join([piece.data for piece in pieces])
    ends = ends_of(data, sum(piece.records for piece in pieces))
    if ends is None:
        for piece in pieces:
            piece.unpack()  # raises for the damaged one
        raise lengths_error(pieces[0].offset)
    return data, ends


class _Messages:
    """Finds the fields of all rows: those of one layout together, in arrays, and other rows one by one.

    The bytes of a row, as of the broker for an AMQP publisher (numbers in hexadecimal). A row begins after its size and ends at the next::

        00 00 00 48                                          size of the row
        00 53 70 | c0 02 | 01 | 41                          header
        00 53 72 | c1 28 | 04                                message annotations: a map of 4 items
              a3 0a x-exchange    | a1 06 orders             a pair: symbol, size, name | string, size, value
              a3 0d x-routing-key | a1 02 k7
        00 53 73 | c0 05 | 01 | a1 02 m1                     properties: a list, whose first item is the message id
        00 53 75 | a0 05 | hello                             data, which ends where the row ends
        ...                                                  padding after the last row

    The first 4 bytes of a section are one word: its code (70 to 77) and the type of its content, which determines the bytes of the next
    field, the size (0, 1 or 4). The sections rise by their codes. Rows are of one layout while these words, and the names in the
    annotations, are the same. Rows of another layout wait in `_waiting`, to be continued at the section or pair that differs. A row with
    anything else is odd.
    """

    def __init__(self, data: bytes, starts: Places, ends: Places, names: Sequence[str]) -> None:
        self._data = data
        self._starts = starts
        self._ends = ends
        self._names = names
        self._bytes = np.frombuffer(data, np.uint8)
        self._words = np.ndarray((len(data) - 3,), ">u4", data, 0, (1,))
        self._longs = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
        # The begin and end of each field or section in each row; 0 if it is absent.
        self._found: dict[str | int, tuple[Places, Places]] = {}
        self._id_types = np.zeros(len(starts), np.uint8)
        # Groups of pending rows: the rows, where their next section begins, and the code of the section before it.
        self._waiting: list[tuple[Places, Places, int]] = []
        self._previous = 0  # the code of the section before the one that is read
        self._odd: list[Places] = [np.empty(0, np.int64)]

    def columns(self) -> dict[str, Any]:
        for first in range(0, len(self._starts), _SLICE_ROWS):
            starts = self._starts[first : first + _SLICE_ROWS]
            self._waiting = [(np.arange(first, first + len(starts)), starts, 0)]
            for _ in range(_MOST_LAYOUTS):
                if not self._waiting:
                    break
                self._follow(*self._waiting.pop())
            self._odd += [rows for rows, _, _ in self._waiting]

        odd = np.sort(np.concatenate(self._odd))
        columns = {name: self._column(name) for name in self._names}
        if not len(odd):
            return columns

        messages = [
            read_message(self._data[start:end])
            for start, end in zip(self._starts[odd].tolist(), self._ends[odd].tolist(), strict=True)
        ]
        order = np.arange(len(self._starts))
        order[odd] = len(order) + np.arange(len(odd))

        return {
            name: pa.concat_arrays(
                [column, pa.array([getattr(message, name) for message in messages], column.type)]
            ).take(pa.array(order))
            for name, column in columns.items()
        }

    def _follow(self, rows: Places, at: Places, previous: int) -> None:
        """Parse the sections of rows of the same layout."""
        self._previous = previous
        while len(rows):
            rows, at = self._alike(self._words[at], rows, at)
            head = int(self._words[at[0]])
            code = head >> 8 & 0xFF
            width = _SIZE_BYTES.get(head)
            if width is None or code <= self._previous:
                self._odd.append(rows)
                return

            begin = at + 4 + width
            end = begin + self._size(width, begin)
            rows, at, begin, end = self._sound(end <= self._ends[rows], rows, at, begin, end)
            if code in (DATA, VALUE):
                rows, begin, end = self._sound(end == self._ends[rows], rows, begin, end)
                self._note("value", rows, begin, end)
                return

            if code == ANNOTATIONS:
                rows, at, end = self._annotations(rows, at, begin, end, width)
            elif code == PROPERTIES and width and "message_id" in self._names:
                rows, at, end = self._message_id(rows, at, begin, end, width)
            if COLUMN_OF.get(code) in self._names:
                self._note(code, rows, at, end)

            at = end
            self._previous = code

    def _annotations(
        self, rows: Places, at: Places, begin: Places, end: Places, width: int
    ) -> tuple[Places, Places, Places]:
        """Find routing key and exchange; return the rows of the same layout, and the begin and end of their section."""
        counts = self._size(width, begin + width)
        rows, at, begin, end, counts = self._alike(counts, rows, at, begin, end, counts)
        place = begin + width
        sound = len(rows) > 0 and counts[0] % 2 == 0 and counts[0] <= 2 * _MOST_PAIRS
        pairs = int(counts[0]) // 2 if sound else 0

        for _ in range(pairs):
            if not len(rows):
                break

            # A name, with its type and length, and the type of its value.
            first = int(place[0])
            length = 3 + self._data[first + 1]
            pair = self._data[first : first + length]
            has_pair = self._is_there(pair, place)
            rows, at, place, end = self._alike(has_pair, rows, at, place, end)
            field = _ANNOTATION_FIELDS.get(pair[2:-1])
            types = _SIMPLE if field is None else TEXT_TYPES
            sound = pair[0] == _SYMBOL and pair[-1] in types
            if not sound:
                break

            # The value.
            value, place = self._span(pair[-1], place + length)
            rows, at, value, place, end = self._sound(place <= end, rows, at, value, place, end)
            if field is not None and field in self._names:
                self._note(field, rows, value, place)

        rows, at, end = self._sound((place == end) & sound, rows, at, end)
        return rows, at, end

    def _message_id(
        self, rows: Places, at: Places, begin: Places, end: Places, width: int
    ) -> tuple[Places, Places, Places]:
        """Find the message id, the first property; return the rows of the same layout, and the position of their section."""
        types = np.where(self._size(width, begin + width) > 0, self._bytes[begin + width], _NULL)
        rows, at, begin, end, types = self._alike(types, rows, at, begin, end, types)
        if len(rows) and types[0] != _NULL:
            value, behind = self._span(int(types[0]), begin + width + 1)
            sound = (behind <= end) & (int(types[0]) in _SIMPLE)
            rows, at, end, value, behind = self._sound(sound, rows, at, end, value, behind)
            self._note("message_id", rows, value, behind)
            self._id_types[rows] = types[0]
        return rows, at, end

    def _size(self, width: int, begin: Places) -> Values:
        """Return the sizes of 0, 1 or 4 bytes that end at these positions."""
        if width == 4:
            return self._words[begin - 4]
        if width == 1:
            return self._bytes[begin - 1]
        return 0

    def _span(self, constructor: int, place: Places) -> tuple[Places, Places]:
        if constructor in TEXT_TYPES:
            width = _size_width(constructor)
            begin = place + width
            return begin, begin + self._size(width, begin)
        if constructor in FORMATS:
            return place, place + struct.calcsize(FORMATS[constructor])
        return place, place

    def _is_there(self, text: bytes, place: Places) -> Values:
        """Return whether a text is at each of these positions."""
        if len(text) < 8:
            texts = np.ndarray((len(self._data) - len(text) + 1,), f"S{len(text)}", self._data, 0, (1,))
            return texts[place] == text
        same = self._longs[place] == int.from_bytes(text[:8], "little")
        for at in (*range(8, len(text) - 8, 8), len(text) - 8):
            same &= self._longs[place + at] == int.from_bytes(text[at : at + 8], "little")
        return same

    def _alike(self, sign: Values, rows: Places, at: Places, *others: Values) -> tuple[Any, ...]:
        """Restrict the arrays to rows with the sign of the first one; the others become pending at `at`."""
        if not len(rows):
            return rows, at, *others
        same = sign == sign[0]
        if same.all():
            return rows, at, *others
        self._waiting.append((rows[~same], at[~same], self._previous))
        return tuple(array[same] for array in (rows, at, *others))

    def _sound(self, sound: Values, rows: Places, *others: Values) -> tuple[Any, ...]:
        """Restrict the arrays to sound rows; the others are odd."""
        if sound.all():
            return rows, *others
        self._odd.append(rows[~sound])
        return tuple(array[sound] for array in (rows, *others))

    def _note(self, field: str | int, rows: Places, begin: Places, end: Places) -> None:
        if not len(rows):
            return
        if field not in self._found:
            self._found[field] = np.zeros_like(self._starts), np.zeros_like(self._starts)
        begins, ends = self._found[field]
        first = rows[0]
        last = rows[-1]
        places = slice(first, last + 1) if last - first + 1 == len(rows) else rows
        begins[places], ends[places] = begin, end

    def _column(self, name: str) -> Column:
        type_ = COLUMN_TYPES[name]
        if name in SECTIONS_OF:
            return pa.array(self._texts(SECTIONS_OF[name]), type_)
        values = self._values(name)
        if name == "message_id" and not np.isin(self._id_types, (0, 0xA1, 0xB1)).all():
            ids = zip(self._id_types.tolist(), values.to_pylist(), strict=True)
            return pa.array([id_text(constructor, value) for constructor, value in ids], type_)
        return _as_text(values) if type_ == pa.string() else values

    def _values(self, name: str) -> Column:
        """Return the bytes of a field of all rows at once: every second slice of all bytes."""
        count = len(self._starts)
        if name not in self._found or not count:
            return pa.nulls(count, pa.binary())
        begins, ends = self._found[name]
        absent = begins == 0
        if not absent.any():
            absent = None
        bounds: Values = np.zeros(2 * count + 1, np.int32)
        bounds[1::2] = begins if absent is None else np.where(absent, self._starts, begins)
        bounds[2::2] = ends if absent is None else np.where(absent, self._starts, ends)
        stretches = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        )
        second: Column = pa.array(np.arange(1, 2 * count, 2), mask=absent)
        return stretches.take(second)

    def _texts(self, sections: Sequence[int]) -> list[list[tuple[str, str | None]] | None]:
        """Return the names and texts of these sections of each row; equal bytes are parsed once."""
        read: dict[bytes, Texts] = {}
        texts: list[Texts] = [{} for _ in self._starts]
        for code in sections:
            begins, ends = self._found.get(code, (self._starts[:0], self._starts[:0]))
            rows = np.flatnonzero(begins)
            for row, begin, end in zip(
                rows.tolist(), begins[rows].tolist(), ends[rows].tolist(), strict=True
            ):
                section = self._data[begin:end]
                if section not in read:
                    read[section] = texts_in(code, section[3:])
                texts[row] = {**texts[row], **read[section]} if texts[row] else read[section]
        return [list(pairs.items()) or None for pairs in texts]


def _as_text(values: Column) -> Column:
    """Return a column of bytes as text; invalid UTF-8 is replaced."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [value and value.decode(errors="replace") for value in values.to_pylist()], pa.string()
        )


class EncodedRows:
    """Rows as the messages of Publish frames, without their ids. Frames of the same rows have the same bytes.

    `rows` is the number of rows that each id stands for.

    Args:
        messages: the concatenated messages, each preceded by room for its id.
        bounds: the begin of each message, and the end of the last one.
        version: that of the Publish frames: 2 if a filter value precedes each message.
    """

    def __init__(self, messages: NDArray[np.uint8], bounds: Places, version: int = 1) -> None:
        self._messages = messages
        self._bounds = bounds
        self._version = version
        self.rows: Places = np.ones(len(bounds) - 1, np.int64)

    def message(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return the messages of some rows."""
        return self._messages[self._bounds[start] : self._bounds[stop]]

    def frames(
        self, publisher_id: int, ids: NDArray[np.uint64], start: int, stop: int, frame_max: int
    ) -> list[memoryview]:
        """Return complete Publish frames of at most `frame_max` bytes, as few as possible; a RowError if a row does not fit."""
        frames = []
        bounds = self._bounds
        row = start
        while row < stop:
            first = int(bounds[row])
            after = min(stop, int(np.searchsorted(bounds, first + frame_max - _FRAME_HEAD.size, "right")) - 1)
            if after == row:
                raise _frame_error(row, int(bounds[row + 1]) - first, frame_max)
            frame: Values = np.empty(_FRAME_HEAD.size + int(bounds[after]) - first, np.uint8)
            _FRAME_HEAD.pack_into(
                frame, 0, len(frame) - 4, _PUBLISH, self._version, publisher_id, after - row
            )
            frame[_FRAME_HEAD.size :] = self._messages[first : int(bounds[after])]
            places = np.ndarray((len(frame) - 7,), ">u8", frame, 0, (1,))
            places[bounds[row:after] - first + _FRAME_HEAD.size] = ids[row:after]
            frames.append(memoryview(frame))
            row = after

        return frames


class SubEntries:
    """Rows as sub-entries: several rows under one publishing id, which are encoded and compressed when they are sent.

    Args:
        keys: the routing key of each row, as for `encode_rows`.
        bodies: as many bodies.
        ids: as many ids, which determine with `most_rows` and `most_bytes` where sub-entries end: see `entry_cuts`.
        message_ids: as many message ids, as text; None for none.
        exchange: the exchange of the routing keys.
        most_rows: the most rows of a sub-entry.
        codec: the compression. A sub-entry that it would not shorten is not compressed.
        most_bytes: the most unpacked bytes of a sub-entry.
        overhead: the most bytes of a row in addition to key and body.

    `rows` is the number of rows of each sub-entry.
    """

    def __init__(
        self,
        keys: Column,
        bodies: Column,
        *,
        ids: Places,
        message_ids: Column = None,
        exchange: str,
        most_rows: int,
        codec: Codec,
        most_bytes: int,
        overhead: int,
    ) -> None:
        self._keys = _single(keys, "keys")
        self._bodies = _single(bodies, "bodies")
        self._exchange = exchange
        self._codec = codec
        self._message_ids = message_ids
        sizes = _sizes(self._keys) + _sizes(self._bodies) + overhead
        self._cuts = entry_cuts(ids, sizes, most_rows, most_bytes)
        self.rows: Places = np.diff(self._cuts)

    def frames(
        self, publisher_id: int, ids: NDArray[np.uint64], start: int, stop: int, frame_max: int
    ) -> list[memoryview]:
        """Return complete Publish frames of the sub-entries from `start` to `stop`, as few as possible, as `EncodedRows.frames`."""
        cuts = self._cuts[start : stop + 1]
        rows = slice(cuts[0], cuts[-1])
        encoded = encode_rows(
            self._keys[rows],
            self._bodies[rows],
            exchange=self._exchange,
            message_ids=None if self._message_ids is None else self._message_ids[rows],
            is_sub_entry=True,
        )
        frames = list[memoryview]()
        parts = list[memoryview | bytes]()
        size = _FRAME_HEAD.size

        def end_frame() -> None:
            head = _FRAME_HEAD.pack(size - 4, _PUBLISH, 1, publisher_id, len(parts) // 2)
            frames.append(memoryview(b"".join((head, *parts))))

        for (first, last), id_ in zip(pairwise(cuts), ids[start:stop].tolist(), strict=True):
            records = encoded.message(first - cuts[0], last - cuts[0])
            number, packed = pack(self._codec, records.data)
            entry_bytes = SUB_ENTRY.size + len(packed)
            if parts and size + entry_bytes > frame_max:
                end_frame()
                parts = []
                size = _FRAME_HEAD.size
            if size + entry_bytes > frame_max:
                raise _frame_error(first, entry_bytes, frame_max)
            head = SUB_ENTRY.pack(id_, 0x80 | number << 4, last - first, len(records), len(packed))
            parts += [head, packed]
            size += entry_bytes
        if parts:
            end_frame()
        return frames


def _frame_error(row: int, size: int, frame_max: int) -> RowError:
    return RowError(
        f"row {row} has {size} bytes as a message, and a frame of this broker {frame_max} with its head of {_FRAME_HEAD.size}: "
        "shorten it, or raise the broker's stream.frame_max"
    )


def entry_numbers(ids: Places, most_rows: int) -> Places:
    """Return a number for each row by its id; rows of different numbers are in different sub-entries.

    A sub-entry ends where the lower 32 bits of an id are a multiple of `most_rows`. Those above may be a version, as in Spark.
    """
    before = ids - 1
    return before >> ROW_BITS << ROW_BITS | (before & (1 << ROW_BITS) - 1) // most_rows


def entry_cuts(ids: Places, sizes: Places, most_rows: int, most_bytes: int) -> list[int]:
    """Return the index of the first row of each sub-entry, and the number of rows.

    A sub-entry ends as in `entry_numbers`, and earlier before it exceeds `most_bytes`; a larger row has one of its own. So rows from the
    begin of any sub-entry on are cut as all rows are, and each attempt to publish the same rows makes the same sub-entries.
    """
    ends = np.cumsum(sizes)
    cuts = [0]
    before = 0
    for stop in (np.flatnonzero(np.diff(entry_numbers(ids, most_rows), append=-1)) + 1).tolist():
        while cuts[-1] < stop:
            fitting = int(np.searchsorted(ends, before + most_bytes, "right"))
            cuts.append(max(cuts[-1] + 1, min(stop, fitting)))
            before = int(ends[cuts[-1] - 1])
    return cuts


def encode_rows(
    keys: Column,
    bodies: Column,
    *,
    exchange: str = "",
    message_ids: Column = None,
    filter_values: Column = None,
    is_sub_entry: bool = False,
) -> EncodedRows:
    """Return rows as messages: annotations as the broker writes them for AMQP publishers, the id, the data.

    The annotations are ``x-exchange`` and ``x-routing-key``, as `protocol_state_message_annotations` of ``mc_amqp.erl`` adds them, and
    ``x-stream-filter-value``, as AMQP publishers write it.

    Args:
        keys: the routing key of each row: a list, or an Arrow, NumPy or pandas column, of str or bytes. None for rows without keys, which
            have no annotations.
        bodies: as many bodies.
        exchange: the exchange of the routing keys.
        message_ids: as many message ids, as text; None for none.
        filter_values: as many filter values, of rows with keys; an empty one is no filter value. None for none.
        is_sub_entry: whether the messages are those in a sub-entry, without room for ids.
    """
    body = _single(bodies, "bodies")
    sections = list[tuple[_Fields, Column]]()
    filter_value = None if filter_values is None else _single(filter_values, "filter_values")
    if keys is not None:
        key = _single(keys, "keys")
        name = short_string(exchange, "the exchange", exchange=exchange)
        texts = [(b"\xa3\x0dx-routing-key", key)]
        if filter_value is not None:
            texts.insert(0, (b"\xa3\x15x-stream-filter-value", filter_value))
        texts[0] = b"\xa3\x0ax-exchange\xa1" + bytes([len(name)]) + name + texts[0][0], texts[0][1]
        sections += _text_section(b"\0Sr", 0xC1, 2 + 2 * len(texts), texts)

    if message_ids is not None:
        id_ = _single(message_ids, "message_ids")
        sections += _text_section(b"\0Ss", 0xC0, 1, [(b"", id_)])

    sizes = _sizes(body)
    short = sizes.max(initial=0) < 256
    sections.append(([b"\0Su\xa0" if short else b"\0Su\xb0", (">u1" if short else ">u4", sizes)], body))
    if not len(body):
        return EncodedRows(np.empty(0, np.uint8), np.zeros(1, np.int64))

    lengths = sum(_width(fields) + _sizes(column) for fields, column in sections)
    sections[0][0].insert(0, (">u4", lengths))
    if not is_sub_entry:
        if filter_value is not None:
            sections.insert(0, ([(">u2", _sizes(filter_value))], filter_value))
        sections[0][0].insert(0, (">u8", 0))

    parts = [part for fields, column in sections for part in (_fixed(fields, len(body)), column)]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    _, bounds, messages = joined.buffers()
    version = 1 if filter_value is None else 2
    return EncodedRows(
        np.frombuffer(messages, np.uint8), np.frombuffer(bounds, np.int64, len(body) + 1), version
    )


# The parts of a row of fixed size: bytes that all rows share, or a type with the values of all rows.
_Fields: TypeAlias = "list[bytes | tuple[str, Any]]"


def _text_section(
    head: bytes, constructor: int, count: int, texts: Sequence[tuple[bytes, Column]]
) -> list[tuple[_Fields, Column]]:
    """Return a list or map of texts, each with the bytes before it, in the short form if all rows fit into it."""
    content: Values = 1 + sum(len(before) + 2 + _sizes(text) for before, text in texts)
    is_short = content.max(initial=0) < 256
    if not is_short:
        content += 3 + 3 * len(texts)
    if is_short:
        type_ = ">u1"
        long = 0
    else:
        type_ = ">u4"
        long = 0x10
    parts: list[tuple[_Fields, Column]] = [
        ([before + bytes([0xA1 | long]), (type_, _sizes(text))], text) for before, text in texts
    ]
    size: _Fields = [head + bytes([constructor | long]), (type_, content), count.to_bytes(4 if long else 1)]
    parts[0][0][:0] = size
    return parts


def _width(fields: _Fields) -> int:
    return sum(len(field) if isinstance(field, bytes) else np.dtype(field[0]).itemsize for field in fields)


def _fixed(fields: _Fields, count: int) -> Column:
    types = [(f"S{len(field)}" if isinstance(field, bytes) else field[0]) for field in fields]
    values: Values = np.empty(count, [(f"f{place}", type_) for place, type_ in enumerate(types)])
    for place, field in enumerate(fields):
        values[f"f{place}"] = field if isinstance(field, bytes) else field[1]
    bounds: Values = np.arange(count + 1) * values.itemsize
    return pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(values.view(np.uint8))]
    )


def _sizes(column: Column) -> Places:
    bounds: Places = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, 8 * column.offset)
    return bounds[1:] - bounds[:-1]


def as_column(values: Any, name: str) -> Column:
    """Return str (UTF-8) or bytes as an Arrow column of bytes without nulls.

    Args:
        values: an Arrow array, chunked or not, a NumPy or pandas column, or an iterable.
        name: the argument's name, for errors.

    Raises:
        InputError: the values are not a column.
        RowError: a value is missing, or neither str nor bytes.
    """
    check_column(name, values)
    column = values
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        # NumPy's without the type: of each str of a NumPy array pyarrow would take only the first character.
        is_numpy = hasattr(values, "dtype")
        type_ = None if is_numpy else pa.large_binary()
        values = values if is_numpy else list(values)
        try:
            column = pa.array(values, type_)
        except (pa.ArrowException, UnicodeEncodeError):  # the loop finds the value, or takes its bytes
            rows = [_bytes_of(value, name, row) for row, value in enumerate(values)]
            column = pa.array(rows, pa.large_binary())

    if not len(column):
        return pa.array([], pa.large_binary())
    if column.null_count:
        row = int(np.argmax(column.is_null()))
        raise RowError(f"row {row} of {name} is null: drop such rows, or fill them")

    try:
        return column.cast(pa.large_binary())
    except (pa.ArrowException, NotImplementedError):
        raise RowError(f"row 0 of {name} is of type {column.type}: pass str or bytes") from None


def _bytes_of(value: object, name: str, row: int) -> bytes | None:
    try:
        data = bytes(value) if isinstance(value, bytearray) else value
        return None if data is None else bytes_of(data, f"row {row} of {name}")
    except InputError as error:
        raise RowError(str(error)) from None


def as_single_array(column: Any) -> pa.Array[Any]:
    """Return a chunked array as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _single(values: Any, name: str) -> Column:
    return as_single_array(as_column(values, name))


# -- The streams that store the rows of keys: those of a super stream, or of a ring


def find_super_stream(
    connection: StreamConnection, super_stream: str, routing: StreamRouting | None, keys: Sequence[bytes]
) -> SuperStream:
    """Return the placing of keys; by binding key it has the keys that are asked for."""
    streams = connection.partitions(super_stream)
    if routing == "key":
        texts = [*dict.fromkeys(key.decode(errors="replace") for key in keys)]
        bound = [(stream, text) for text in texts for stream in connection.routes(super_stream, text)]
        if unbound := [text for text in texts if text not in {key for _, key in bound}]:
            raise InputError(
                f"no partition of super stream {super_stream!r} is bound with the key {unbound[0]!r:.60}: pass a binding key"
            )
        return SuperStream([stream for stream, _ in bound], [key for _, key in bound], routing="key")
    if routing is None and are_names(connection.binding_keys(super_stream, streams)):
        raise InputError(named_keys_text(super_stream))
    return SuperStream(streams)


def check_super_stream(super_stream: str | None, routing: StreamRouting | None) -> None:
    """Raise an InputError for an invalid name of a super stream, or for a routing without one."""
    check_routing(routing)
    if super_stream is not None:
        check_name(super_stream, "super stream")
    elif routing is not None:
        raise InputError(f"routing={routing!r} is for super streams: pass super_stream, or leave it out")


def check_stream_ring(ring: object, how_to_read: str = "") -> KeyMap:
    """Return a ring whose rows are stored by a client; an InputError unless it was read and each destination is a stream, bound once.

    Args:
        ring: the ring as given.
        how_to_read: the remedy for a ring of buckets that is assumed; by default that of a program in Python.
    """
    if not is_routed_by_broker(ring):
        raise InputError(
            f"{ring!r:.60} is not a ring: pass a HashRing, a SlotTable or a ModulusHashExchange that was read from the broker"
        )
    if not ring.order.is_certain:
        raise InputError(
            f"the ring is {ring.order}, and must be read from the broker, recorded or observed: "
            f"{(ring.hashing.has_order and how_to_read) or ring.hashing.how_to_read}"
        )
    if not ring.destinations:
        raise InputError("the ring has no destinations: bind streams first")
    for place, count in Counter(ring.destinations).items():
        if not isinstance(place, str):
            raise InputError(f"{place} of the ring is not a stream: bind only streams, or pass a slot table")
        if count > 1:  # to an ``x-modulus-hash`` exchange
            raise InputError(f"stream {place!r} is bound {count} times: unbind all but one")
    return ring


def named_keys_text(super_stream: str) -> str:
    """Return what is not known of a super stream whose binding keys are names, and the remedy."""
    return (
        f"the binding keys of super stream {super_stream!r} are names: AMQP clients and the Java client's .key() route by them, and other "
        "clients by a hash: pass routing='key' or routing='hash'"
    )
