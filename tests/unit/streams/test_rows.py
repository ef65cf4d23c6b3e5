"""Rows of all layouts as columns, alone and mixed; rows written and read again."""

from __future__ import annotations

import json
import random
import struct
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from chunk_columns import columns_of
from stream_bytes import chunk_bytes, chunk_of, entry, notes, published, sub_entry
from stream_writers import CORPUS, found, recorded

from rabbit_chx.errors import DamagedChunkError, RowError
from rabbit_chx.streams import rows
from rabbit_chx.streams.chunks import Chunk, read_chunk
from rabbit_chx.streams.messages import read_message
from rabbit_chx.streams.rows import encode_rows, schema_of

ALL = ("exchange", "message_id", "properties", "headers", "filter_value")
FRAME_MAX = 1 << 20


def short(constructor: int, data: bytes) -> bytes:
    return bytes([constructor, len(data)]) + data


def text(value: str) -> bytes:
    return short(0xA1, value.encode())


def symbol(value: str) -> bytes:
    return short(0xA3, value.encode())


def compound(code: int, constructor: int, *items: bytes, wide: bool = False) -> bytes:
    data = b"".join(items)
    if wide:
        return (
            bytes([0, 0x53, code, constructor | 0x10]) + struct.pack(">II", len(data) + 4, len(items)) + data
        )
    return bytes([0, 0x53, code, constructor, len(data) + 1, len(items)]) + data


def annotated(*, wide: bool = False, **pairs: bytes) -> bytes:
    """Message annotations `x-...`, whose names have underscores here."""
    items = [item for name, value in pairs.items() for item in (symbol(f"x-{name.replace('_', '-')}"), value)]
    return compound(0x72, 0xC1, *items, wide=wide)


def properties(*items: bytes, wide: bool = False) -> bytes:
    return compound(0x73, 0xC0, *items, wide=wide)


def identified(message_id: str) -> dict[str, Any]:
    return {"message_id": message_id, "properties": {"message_id": message_id}}


def keyed(key: str, **headers: str | None) -> dict[str, Any]:
    """The columns of a message with this key, and perhaps with other annotations."""
    noted = {f"x-{name.replace('_', '-')}": value for name, value in headers.items()}
    return {"key": key.encode(), "headers": noted | {"x-routing-key": key}}


KEYED = annotated(exchange=text("orders"), routing_key=text("k"))
BODY = b"\0Su\xa0\x04body"
ID = properties(text("m1"))
NULL = b"\x40"
EMPTY: dict[str, Any] = dict.fromkeys(
    ("key", "value", "exchange", "message_id", "properties", "headers", "filter_value")
) | {"value": b"body"}
ROUTED = {"exchange": "orders", **keyed("k", exchange="orders")}
#: A message of each layout, and what of its columns is not as in EMPTY.
MESSAGES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "data": (BODY, {}),
    "long data": (b"\0Su\xb0\0\0\x01\0" + bytes(256), {"value": bytes(256)}),
    "empty data": (b"\0Su\xa0\0", {"value": b""}),
    "several data": (BODY + BODY, {"value": b"bodybody"}),
    "header": (compound(0x70, 0xC0, b"\x41", b"\x50\x05") + BODY, {}),
    "empty header": (b"\0Sp\x45" + BODY, {}),
    "routed": (KEYED + BODY, ROUTED),
    "routed, turned": (annotated(routing_key=text("k"), exchange=text("orders")) + BODY, ROUTED),
    "filtered": (
        annotated(stream_filter_value=text("eu"), routing_key=text("k")) + BODY,
        {**keyed("k", stream_filter_value="eu"), "filter_value": b"eu"},
    ),
    "a number as filter value": (
        annotated(stream_filter_value=b"\x54\x05") + BODY, {"headers": {"x-stream-filter-value": "5"}}
    ),
    "routed, wide": (annotated(exchange=text("orders"), routing_key=text("k"), wide=True) + BODY, ROUTED),
    "routed, long key": (
        annotated(routing_key=b"\xb1\0\0\1\0" + b"k" * 256, wide=True) + BODY, keyed("k" * 256)
    ),
    "routed, key no UTF-8": (
        annotated(routing_key=short(0xA1, b"\xff")) + BODY, {"key": b"\xff", "headers": {"x-routing-key": "\ufffd"}}
    ),
    "routed, exchange no UTF-8": (
        annotated(exchange=short(0xA1, b"a\xff")) + BODY, {"exchange": "a\ufffd", "headers": {"x-exchange": "a\ufffd"}}
    ),
    "id that is no UTF-8": (properties(short(0xA1, b"m\xff")) + BODY, identified("m\ufffd")),
    "annotations of all kinds": (
        annotated(b=b"\x41", l=b"\x54\xfb", d=b"\x82" + struct.pack(">d", 1.5), n=NULL, routing_key=text("k")) + BODY,
        keyed("k", b="true", l="-5", d="1.5", n=None),
    ),
    "a list as annotation": (
        annotated(l=b"\xc0\x05\x02\x54\x01\x54\x02", routing_key=text("k")) + BODY, keyed("k", l="[1, 2]")
    ),
    "a number as key": (annotated(routing_key=b"\x54\x05") + BODY, {"headers": {"x-routing-key": "5"}}),
    "damaged annotations": (b"\0Sr\xc1\x03\x02\xa3\x09" + BODY, {}),
    "no annotations in their section": (annotated() + BODY, {}),
    "id": (ID + BODY, identified("m1")),
    "id, wide": (properties(text("m1"), wide=True) + BODY, identified("m1")),
    "binary id": (properties(short(0xA0, b"m2")) + BODY, identified("m2")),
    "binary id that is no text": (properties(short(0xA0, b"\xff\0")) + BODY, identified("ff00")),
    "uuid": (properties(b"\x98" + UUID(int=5).bytes) + BODY, identified(str(UUID(int=5)))),
    "number as id": (properties(b"\x80" + (1 << 63).to_bytes(8)) + BODY, identified(str(1 << 63))),
    "properties without id": (
        properties(NULL, NULL, text("to"), text("subject"), *[NULL] * 5, b"\x83" + bytes(8)) + BODY,
        {"properties": {"to": "to", "subject": "subject", "creation_time": "1970-01-01T00:00:00.000Z"}},
    ),
    "no properties in their section": (b"\0Ss\x45" + BODY, {}),
    "a time that no calendar has": (
        properties(*[NULL] * 9, b"\x83\x7f" + b"\xff" * 7) + BODY, {"properties": {"creation_time": str((1 << 63) - 1)}}
    ),
    "application properties": (
        KEYED + ID + compound(0x74, 0xC1, text("x-exchange"), text("mine"), text("n"), b"\x71" + bytes(4)) + BODY,
        {**ROUTED, **identified("m1"), "headers": {"x-exchange": "mine", "x-routing-key": "k", "n": "0"}},
    ),
    "text as value": (b"\0Sw\xa1\x02hi", {"value": b"hi"}),
    "long text as value": (b"\0Sw\xb1\0\0\0\x02hi", {"value": b"hi"}),
    "binary as value": (KEYED + b"\0Sw\xa0\x02\xff\0", {**ROUTED, "value": b"\xff\0"}),
    "number as value": (b"\0Sw\x54\x05", {"value": b"5"}),
    "null as value": (b"\0Sw\x40", {"value": b""}),
    "map as value": (
        b"\0Sw\xc1\x0c\x04" + text("a") + b"\x42" + text("b") + b"\xa0\x02hi", {"value": b'{"a": false, "b": "hi"}'}
    ),
    "array as value": (b"\0Sw\xe0\x04\x02\x50\x07\x08", {"value": b"[7, 8]"}),
    "sequences": (b"\0Sv\xc0\x03\x01\x54\x01\0Sv\xc0\x03\x01\x54\x02", {"value": b"[1, 2]"}),
    "no body": (KEYED, {**ROUTED, "value": b""}),
    "footer": (BODY + compound(0x78, 0xC1, symbol("x-f"), b"\x41"), {}),
    "delivery annotations": (compound(0x71, 0xC1, symbol("x-d"), b"\x41") + BODY, {}),
    "section names": (b"\0\xa3\x10amqp:data:binary\xa0\x04body", {}),
    "wide section codes": (b"\0\x80\0\0\0\0\0\0\0\x75\xa0\x04body", {}),
    "annotations twice": (annotated(routing_key=text("a")) + KEYED + BODY, ROUTED),
    "nothing": (b"", {"value": b""}),
    "no message": (b"raw", {"value": b"raw"}),
    "no message, though it begins like one": (b"\0Su\xa0\x09body", {"value": b"\0Su\xa0\x09body"}),
    "something behind the message": (BODY + b"x", {"value": BODY + b"x"}),
    "unknown section": (b"\0S\x79\xa0\x04body", {"value": b"\0S\x79\xa0\x04body"}),
}  # fmt: skip


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
    assert message == KEYED + ID + BODY


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


def test_a_row_that_fits_into_no_frame_is_named() -> None:
    encoded = encode_rows(None, [b"", bytes(400)])
    with pytest.raises(RowError, match=r"row 1 has 420 bytes as a message, and a frame of this broker 400"):
        encoded.frames(3, np.arange(2, dtype=np.uint64), 0, 2, 400)


def test_without_rows_there_are_no_frames() -> None:
    for keys in (None, list[str](), pa.array([], pa.string())):
        encoded = encode_rows(keys, [])
        assert len(encoded.rows) == 0
        assert encoded.frames(0, np.empty(0, np.uint64), 0, 0, 100) == []


@pytest.mark.parametrize(
    "row",
    [
        annotated(routing_key=text("k2")) + annotated(foo=text("zz")) + BODY,
        annotated(foo=text("zz")) + annotated(routing_key=text("k2")) + BODY,
        ID + annotated(routing_key=text("k2")) + BODY,  # in another order
    ],
)
def test_a_row_means_the_same_next_to_any_other(row: bytes) -> None:
    plain = annotated(routing_key=text("k1")) + BODY
    alone = read([chunk_of([row])])[0]
    message = read_message(row)
    assert (alone["key"], alone["message_id"]) == (message.key, message.message_id)
    for together in ([plain, row], [row, plain], [plain, row, plain, plain], [BODY, row]):
        assert read([chunk_of(together)])[together.index(row)] == alone


@pytest.mark.parametrize("client", json.loads(CORPUS.read_text())["clients"])
def test_rows_of_other_clients_are_read_as_they_were_sent(client: str) -> None:
    """As they were recorded from real brokers."""
    sent, chunks = recorded(client)
    assert found(chunks, sent) == sent


@pytest.mark.parametrize("levels", [3, 32, 33, 60])
@pytest.mark.parametrize("place", ["body", "header", "both"])
def test_a_row_that_is_nested_deeply_keeps_its_key(levels: int, place: str) -> None:
    value = b"\xa1\x04leaf"
    for _ in range(levels):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    nested: dict[str, Any] = {"deep": value} if place != "body" else {}
    body = b"\0Sw" + value if place != "header" else BODY
    row = annotated(exchange=text("orders"), routing_key=text("k"), **nested, wide=True) + body
    message = read_message(row)
    (found,) = read([chunk_of([row])])
    for key, exchange in ((message.key, message.exchange), (found["key"], found["exchange"])):
        assert (key, exchange) == (b"k", "orders")
    assert found["value"] == message.value
    assert "leaf" in str(found["headers" if place == "header" else "value"]) or levels > 32
