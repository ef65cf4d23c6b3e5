"""Rows of all layouts as columns, alone and mixed; rows written and read again."""

from __future__ import annotations

import json
import random
import struct
from ast import literal_eval
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from chunk_columns import columns_of
from stored_cases import stored_cases
from stream_bytes import chunk_bytes, chunk_of, entry, notes, published, sub_entry
from stream_writers import CORPUS, found, recorded

from rabbit_chx.amqp.amqp10_values import read_message
from rabbit_chx.errors import DamagedChunkError, InputError, RowError
from rabbit_chx.streams import rows
from rabbit_chx.streams.chunks import Chunk, read_chunk
from rabbit_chx.streams.rows import encode_rows, schema_of

ALL = ("exchange", "message_id", "properties", "headers", "filter_value")
FRAME_MAX = 1 << 20


BODY = b"\0Su\xa0\x04body"
_COLUMNS = ("key", "value", "exchange", "message_id", "properties", "headers", "filter_value")
EMPTY: dict[str, Any] = {**dict.fromkeys(_COLUMNS), "value": b"body"}
#: A message of each layout, and what of its columns is not as in EMPTY.
MESSAGES: dict[str, tuple[bytes, dict[str, Any]]] = {
    name: (literal_eval(message), literal_eval(columns))
    for name, message, columns in stored_cases(__file__, "messages.txt", r"^(\w.*)\n(b.*)\n-> (.*)")
}
KEYED = MESSAGES["no body"][0]


def expected(name: str) -> dict[str, Any]:
    return {**EMPTY, **MESSAGES[name][1]}


def read(chunks: list[Chunk], start: int = 0, end: int = 1 << 62) -> list[dict[str, Any]]:
    """Rows without their offsets and times, with maps as dicts."""
    found = columns_of(chunks, start, end, ALL)
    found.validate(full=True)
    assert found.schema == schema_of(ALL)
    return [
        {name: row[name] if name not in ("properties", "headers") or row[name] is None else dict(row[name]) for name in EMPTY}
        for row in found.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_alone_is_read_as_expected_also_by_the_plain_reader(name: str) -> None:
    message, _ = MESSAGES[name]
    assert read([chunk_of([message])]) == [expected(name)]
    assert read([chunk_of([message] * 3)]) == [expected(name)] * 3
    plain = read_message(message)._asdict()
    maps = {column: plain[column] and dict(plain[column]) for column in ("properties", "headers")}
    assert plain | maps == expected(name)


def test_messages_of_mixed_layouts_are_read_as_expected() -> None:
    chance = random.Random(5)  # noqa: S311
    names = chance.choices(list(MESSAGES), k=2_000)
    chunks = [
        chunk_of([MESSAGES[name][0] for name in names[first : first + 37]], offset=first)
        for first in range(0, len(names), 37)
    ]
    assert read(chunks) == list(map(expected, names))
    assert read(chunks, 100, 1_900) == list(map(expected, names[100:1_900]))


def test_layouts_beyond_those_followed_in_arrays_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_LAYOUTS", 1)
    names = list(MESSAGES)
    assert read([chunk_of([MESSAGES[name][0] for name in names])]) == list(map(expected, names))


@pytest.mark.parametrize("column", ["exchange", "key", "filter_value"])
def test_an_annotation_whose_name_differs_in_one_byte_is_not_that_of_the_column(column: str) -> None:
    name = next(name for name, field in rows._ANNOTATION_FIELDS.items() if field == column)
    names = [name, *(name[:at] + b"!" + name[at + 1 :] for at in range(len(name)))]
    pairs = [b"\xa3" + bytes([len(each)]) + each + b"\xa1\1v" for each in names]
    found = read([chunk_of([b"\0Sr\xc1" + bytes([len(pair) + 1, 2]) + pair + BODY for pair in pairs])])
    assert [row[column] is not None for row in found] == [True] + [False] * len(name)


def test_more_bytes_than_a_column_can_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_BYTES", 25)
    with pytest.raises(InputError, match="have 26 bytes together: read fewer than 2 GiB at a time"):
        columns_of([chunk_of([BODY] * 2)], 0, 2)


def test_rows_have_the_offsets_and_times_of_their_chunks() -> None:
    chunks = [
        chunk_of([BODY] * 3, offset=10),
        read_chunk(memoryview(chunk_bytes([entry(notes("tracking"))], offset=13, kind=1))),
        chunk_of([BODY] * 2, offset=14),
    ]
    found = columns_of(chunks, 11, 15)
    assert found["offset"].to_pylist() == [11, 12, 14]
    assert set(found["timestamp"].to_pylist()) == {datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)}
    assert found.schema == schema_of()
    assert found.schema.names == ["offset", "timestamp", "key", "value"]


@pytest.mark.parametrize("chunks", [[], [chunk_of([])], [chunk_of([BODY])]])
def test_without_rows_the_columns_are_empty(chunks: list[Chunk]) -> None:
    found = columns_of(chunks, 5, 5, ALL)
    assert found.num_rows == 0
    assert found.schema == schema_of(ALL)


def test_sub_entries_take_an_offset_for_each_of_their_rows() -> None:
    data = chunk_bytes([entry(BODY), sub_entry([KEYED + BODY, BODY], 0), entry(b"raw")], offset=7, records=4)
    found = columns_of([chunk_of([BODY], offset=6), read_chunk(memoryview(data))], 7, 10, ALL)
    assert found["offset"].to_pylist() == [7, 8, 9]
    assert found["key"].to_pylist() == [None, b"k", None]
    as_many_entries = chunk_bytes([entry(BODY), sub_entry([KEYED + BODY], 0)], records=2)
    assert [row["key"] for row in read([read_chunk(memoryview(as_many_entries))])] == [None, b"k"]


@pytest.mark.parametrize(
    ("entries", "records"),
    [
        ([entry(BODY)], 2),
        ([entry(BODY)], 1 << 31),
        ([entry(BODY), entry(BODY)], 1),
        ([struct.pack(">I", 99) + BODY], 1),
        ([entry(BODY), b"\0\0"], 2),
        ([b"\0\0"], 1),
        ([b""], 1),
        ([sub_entry([], 0, entry(BODY))], 1),
        ([struct.pack(">BHII", 0x80, 0, 12, 12) + bytes(12)], 0),
        ([sub_entry([BODY, BODY], 0)], 1),
        ([sub_entry([BODY, BODY], 0)[:-1]], 2),
        ([sub_entry([BODY, BODY], 0)[:6]], 2),
        ([struct.pack(">BHII", 0x80, 2, 12, 12) + entry(b"too long")], 2),
        ([sub_entry([sub_entry([BODY], 0)[4:]], 0)], 3),
    ],
)
def test_lengths_that_do_not_fit_are_refused_and_the_chunk_is_named(
    entries: list[bytes], records: int
) -> None:
    chunk = read_chunk(memoryview(chunk_bytes(entries, offset=41, records=records)))
    with pytest.raises(DamagedChunkError, match=r"offset 41 .* do not add up"):
        columns_of([chunk_of([BODY, BODY]), chunk], 0, 100)


COLUMNS = {
    "lists of str": (["a", "bö"], ["x", ""]),
    "lists of bytes": ([b"a", "bö".encode()], [b"x", b""]),
    "lists of both": (["a", "bö".encode()], [b"x", ""]),
    "Arrow text": (pa.array(["a", "bö"]), pa.array(["x", ""])),
    "Arrow binary, a slice": (pa.array([b"-", b"a", "bö".encode()])[1:], pa.array([b"-", b"x", b""])[1:]),
    "Arrow, chunked": (pa.chunked_array([["a"], ["bö"]]), pa.chunked_array([["x", ""]])),
    "Arrow dictionary": (pa.array(["a", "bö"]).dictionary_encode(), pa.array(["x", ""], pa.large_string())),
    "NumPy": (np.array(["a", "bö"]), np.array([b"x", b""])),
    "pandas": (pd.Series(["a", "bö"]), pd.Series([b"x", b""])),
    "no keys": (None, ["x", ""]),
}


@pytest.mark.parametrize("exchange", ["", "orders", "e" * 255])
def test_texts_of_each_size_around_a_byte_are_read_back(exchange: str) -> None:
    """The sections of a key of 218 bytes with `orders`, and of an id or body of about 250, are the first with sizes of four bytes."""
    for size in (0, 1, *range(200, 257), 70_000):
        texts = ["k", "x" * size]
        encoded = encode_rows(texts, texts, exchange=exchange, message_ids=texts)
        messages = published(encoded.frames(0, np.arange(2, dtype=np.uint64), 0, 2, FRAME_MAX))
        found = read([chunk_of([message for _, message in messages])])
        for row, text, (_, message) in zip(found, texts, messages, strict=True):
            assert (row["key"], row["value"], row["message_id"]) == (text.encode(), text.encode(), text)
            assert row["exchange"] == exchange
            assert read_message(message).key == text.encode()


@pytest.mark.parametrize(("keys", "bodies"), COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("ids", [None, ["m1", "m2"]])
@pytest.mark.parametrize("exchange", ["", "orders"])
def test_rows_are_written_and_read_again(
    keys: Any, bodies: Any, ids: list[str] | None, exchange: str
) -> None:
    encoded = encode_rows(keys, bodies, exchange=exchange, message_ids=ids)
    messages = published(encoded.frames(3, np.array([4, 9], np.uint64), 0, 2, FRAME_MAX))

    assert [number for number, _ in messages] == [4, 9]
    found = read([chunk_of([message for _, message in messages])])
    assert [row["key"] for row in found] == ([None, None] if keys is None else [b"a", "bö".encode()])
    assert [row["value"] for row in found] == [b"x", b""]
    assert [row["exchange"] for row in found] == [None if keys is None else exchange] * 2
    assert [row["message_id"] for row in found] == (ids or 2 * [None])
    assert [read_message(message).key for _, message in messages] == [row["key"] for row in found]


def test_what_is_written_for_a_small_row_is_as_small_as_can_be() -> None:
    [(_, message)] = published(
        encode_rows(["k"], ["body"], exchange="orders", message_ids=["m1"]).frames(0, np.ones(1, np.uint64), 0, 1, 999)
    )  # fmt: skip
    assert message == KEYED + MESSAGES["id"][0]


def test_frames_are_full_and_not_fuller() -> None:
    encoded = encode_rows(None, [bytes(n % 7) for n in range(1_000)])
    ids = np.arange(1, 1_001, dtype=np.uint64) << np.uint64(32)
    frames = encoded.frames(3, ids, 0, 1_000, 400)
    assert all(len(frame) <= 400 for frame in frames)
    assert all(len(frame) > 400 - 12 - 5 - 7 for frame in frames[:-1])
    assert [number for number, _ in published(frames)] == ids.tolist()
    assert published(encoded.frames(3, ids, 500, 700, 400)) == published(frames)[500:700]
    assert encoded.frames(3, ids, 500, 500, 400) == []
    assert encoded.rows.tolist() == [1] * 1_000
    with pytest.raises(RowError, match=r"row 1 has 420 bytes as a message, and a frame of this broker 400"):
        encode_rows(None, [b"", bytes(400)]).frames(3, ids, 0, 2, 400)


@pytest.mark.parametrize("client", json.loads(CORPUS.read_text())["clients"])
def test_rows_of_other_clients_are_read_as_they_were_sent(client: str) -> None:
    """As they were recorded from real brokers."""
    sent, chunks = recorded(client)
    assert found(chunks, sent) == sent


@pytest.mark.parametrize("levels", [3, 32, 33, 2_000])
@pytest.mark.parametrize("place", ["body", "header", "both"])
def test_a_row_that_is_nested_deeply_keeps_its_key(levels: int, place: str) -> None:
    value = b"\xa1\x04leaf"
    for _ in range(levels):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    annotations = b"\xa3\x0ax-exchange\xa1\x06orders\xa3\x0dx-routing-key\xa1\x01k"
    if place != "body":
        annotations += b"\xa3\x06x-deep" + value
    row = b"\0Sr\xd1" + struct.pack(">II", len(annotations) + 4, 4 + 2 * (place != "body")) + annotations
    row += b"\0Sw" + value if place != "header" else BODY
    message = read_message(row)
    (found,) = read([chunk_of([row])])
    for key, exchange in ((message.key, message.exchange), (found["key"], found["exchange"])):
        assert (key, exchange) == (b"k", "orders")
    assert found["value"] == message.value
    assert "leaf" in str(found["headers" if place == "header" else "value"]) or levels > 32
