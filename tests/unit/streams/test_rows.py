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

from rabbit_chx.errors import DamagedChunkError, InputError, RowError
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


def annotated(*pairs: bytes, wide: bool = False) -> bytes:
    return compound(0x72, 0xC1, *pairs, wide=wide)


KEYED = annotated(symbol("x-exchange"), text("orders"), symbol("x-routing-key"), text("k"))
TURNED = annotated(symbol("x-routing-key"), text("k"), symbol("x-exchange"), text("orders"))
BODY = b"\0Su\xa0\x04body"
ID = compound(0x73, 0xC0, text("m1"))
EMPTY: dict[str, Any] = {
    "key": None,
    "value": b"body",
    "exchange": None,
    "message_id": None,
    "properties": None,
    "headers": None,
    "filter_value": None,
}
ROUTED = {"key": b"k", "exchange": "orders", "headers": {"x-exchange": "orders", "x-routing-key": "k"}}
#: A message of each layout, and what of its columns is not as in EMPTY.
MESSAGES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "data": (BODY, {}),
    "long data": (b"\0Su\xb0\0\0\x01\0" + bytes(256), {"value": bytes(256)}),
    "empty data": (b"\0Su\xa0\0", {"value": b""}),
    "several data": (BODY + BODY, {"value": b"bodybody"}),
    "header": (compound(0x70, 0xC0, b"\x41", b"\x50\x05") + BODY, {}),
    "empty header": (b"\0Sp\x45" + BODY, {}),
    "routed": (KEYED + BODY, ROUTED),
    "routed, turned": (TURNED + BODY, ROUTED),
    "filtered": (
        annotated(symbol("x-stream-filter-value"), text("eu"), symbol("x-routing-key"), text("k")) + BODY,
        {
            "key": b"k",
            "filter_value": b"eu",
            "headers": {"x-stream-filter-value": "eu", "x-routing-key": "k"},
        },
    ),
    "a number as filter value": (
        annotated(symbol("x-stream-filter-value"), b"\x54\x05") + BODY,
        {"headers": {"x-stream-filter-value": "5"}},
    ),
    "routed, wide": (
        annotated(symbol("x-exchange"), text("orders"), symbol("x-routing-key"), text("k"), wide=True) + BODY,
        ROUTED,
    ),
    "routed, long key": (
        annotated(symbol("x-routing-key"), b"\xb1\0\0\1\0" + b"k" * 256, wide=True) + BODY,
        {"key": b"k" * 256, "headers": {"x-routing-key": "k" * 256}},
    ),
    "routed, key no UTF-8": (
        annotated(symbol("x-routing-key"), short(0xA1, b"\xff")) + BODY,
        {"key": b"\xff", "headers": {"x-routing-key": "\ufffd"}},
    ),
    "routed, exchange no UTF-8": (
        annotated(symbol("x-exchange"), short(0xA1, b"a\xff")) + BODY,
        {"exchange": "a\ufffd", "headers": {"x-exchange": "a\ufffd"}},
    ),
    "id that is no UTF-8": (
        compound(0x73, 0xC0, short(0xA1, b"m\xff")) + BODY,
        {"message_id": "m\ufffd", "properties": {"message_id": "m\ufffd"}},
    ),
    "annotations of all kinds": (
        annotated(
            symbol("x-b"), b"\x41", symbol("x-l"), b"\x54\xfb", symbol("x-d"), b"\x82" + struct.pack(">d", 1.5),
            symbol("x-n"), b"\x40", symbol("x-routing-key"), text("k"),
        ) + BODY,
        {"key": b"k", "headers": {"x-b": "true", "x-l": "-5", "x-d": "1.5", "x-n": None, "x-routing-key": "k"}},
    ),
    "a list as annotation": (
        annotated(symbol("x-l"), b"\xc0\x05\x02\x54\x01\x54\x02", symbol("x-routing-key"), text("k")) + BODY,
        {"key": b"k", "headers": {"x-l": "[1, 2]", "x-routing-key": "k"}},
    ),
    "a number as key": (
        annotated(symbol("x-routing-key"), b"\x54\x05") + BODY, {"headers": {"x-routing-key": "5"}}
    ),
    "damaged annotations": (b"\0Sr\xc1\x03\x02\xa3\x09" + BODY, {}),
    "no annotations in their section": (annotated() + BODY, {}),
    "id": (ID + BODY, {"message_id": "m1", "properties": {"message_id": "m1"}}),
    "id, wide": (
        compound(0x73, 0xC0, text("m1"), wide=True) + BODY,
        {"message_id": "m1", "properties": {"message_id": "m1"}},
    ),
    "binary id": (
        compound(0x73, 0xC0, short(0xA0, b"m2")) + BODY,
        {"message_id": "m2", "properties": {"message_id": "m2"}},
    ),
    "binary id that is no text": (
        compound(0x73, 0xC0, short(0xA0, b"\xff\0")) + BODY,
        {"message_id": "ff00", "properties": {"message_id": "ff00"}},
    ),
    "uuid": (
        compound(0x73, 0xC0, b"\x98" + UUID(int=5).bytes) + BODY,
        {"message_id": str(UUID(int=5)), "properties": {"message_id": str(UUID(int=5))}},
    ),
    "number as id": (
        compound(0x73, 0xC0, b"\x80" + (1 << 63).to_bytes(8)) + BODY,
        {"message_id": str(1 << 63), "properties": {"message_id": str(1 << 63)}},
    ),
    "properties without id": (
        compound(0x73, 0xC0, b"\x40", b"\x40", text("to"), text("subject"), *[b"\x40"] * 5, b"\x83" + bytes(8)) + BODY,
        {"properties": {"to": "to", "subject": "subject", "creation_time": "1970-01-01T00:00:00.000Z"}},
    ),
    "no properties in their section": (b"\0Ss\x45" + BODY, {}),
    "a time that no calendar has": (
        compound(0x73, 0xC0, *[b"\x40"] * 9, b"\x83\x7f" + b"\xff" * 7) + BODY,
        {"properties": {"creation_time": str((1 << 63) - 1)}},
    ),
    "application properties": (
        KEYED + ID + compound(0x74, 0xC1, text("x-exchange"), text("mine"), text("n"), b"\x71" + bytes(4)) + BODY,
        {
            **ROUTED,
            "message_id": "m1",
            "properties": {"message_id": "m1"},
            "headers": {"x-exchange": "mine", "x-routing-key": "k", "n": "0"},
        },
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
    "annotations twice": (annotated(symbol("x-routing-key"), text("a")) + KEYED + BODY, ROUTED),
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
def test_a_message_alone_is_read_as_expected(name: str) -> None:
    message, _ = MESSAGES[name]
    assert read([chunk_of([message])]) == [expected(name)]
    assert read([chunk_of([message] * 3)]) == [expected(name)] * 3


@pytest.mark.parametrize("name", MESSAGES)
def test_the_columns_are_those_of_the_plain_reader(name: str) -> None:
    message, _ = MESSAGES[name]
    found = read_message(message)._asdict()
    for column in ("properties", "headers"):
        found[column] = found[column] and dict(found[column])
    assert found == expected(name)


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


def test_a_sub_entry_of_one_row_hides_among_entries() -> None:
    data = chunk_bytes([entry(BODY), sub_entry([KEYED + BODY], 0)], records=2)
    assert [row["key"] for row in read([read_chunk(memoryview(data))])] == [None, b"k"]


@pytest.mark.parametrize(
    "data",
    [
        chunk_bytes([entry(BODY)], offset=41, records=2),
        chunk_bytes([entry(BODY)], offset=41, records=1 << 31),
        chunk_bytes([struct.pack(">I", 99) + BODY], offset=41),
        chunk_bytes([entry(BODY), b"\0\0"], offset=41),
        chunk_bytes([sub_entry([], 0, entry(BODY))], offset=41, records=0),
        chunk_bytes([struct.pack(">BHII", 0x80, 2, 12, 12) + entry(b"too long")], offset=41, records=2),
        chunk_bytes([sub_entry([sub_entry([BODY], 0)[4:]], 0)], offset=41, records=3),
    ],
)
def test_lengths_that_do_not_fit_are_refused_and_the_chunk_is_named(data: bytes) -> None:
    chunk = read_chunk(memoryview(data))._replace(records=max(1, read_chunk(memoryview(data)).records))
    with pytest.raises(DamagedChunkError, match="offset 41"):
        columns_of([chunk_of([BODY, BODY]), chunk], 0, 100)


def test_an_unknown_or_repeated_column_is_refused() -> None:
    with pytest.raises(InputError, match=r"'body'.*include takes exchange, message_id, properties, headers"):
        columns_of([], 0, 1, ["body"])
    with pytest.raises(InputError, match="each column once"):
        columns_of([], 0, 1, ["headers", "headers"])


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


@pytest.mark.parametrize("exchange", ["", "orders"])
def test_a_section_of_each_size_around_a_byte_is_read_back(exchange: str) -> None:
    """The sections of a key of 218 bytes with `orders`, and of an id or body of about 250, are the first with sizes of four bytes."""
    for size in range(200, 257):
        text = "x" * size
        encoded = encode_rows([text], [text], exchange=exchange, message_ids=[text])
        ((_, message),) = published(encoded.frames(0, np.ones(1, np.uint64), 0, 1, FRAME_MAX))
        (found,) = read([chunk_of([message])])
        assert (found["key"], found["value"], found["message_id"]) == (text.encode(), text.encode(), text)
        assert found["exchange"] == exchange
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


@pytest.mark.parametrize("size", [0, 1, 200, 255, 256, 70_000])
def test_texts_of_every_size_are_written(size: int) -> None:
    keys, bodies, ids = ["k", "k" * size], [b"b", b"b" * size], ["m", "m" * size]
    messages = published(
        encode_rows(keys, bodies, exchange="e" * min(size, 255), message_ids=ids).frames(
            0, np.arange(2, dtype=np.uint64), 0, 2, FRAME_MAX
        )
    )
    found = read([chunk_of([message for _, message in messages])])
    assert [(row["key"], row["value"], row["message_id"]) for row in found] == [
        (key.encode(), body, id_) for key, body, id_ in zip(keys, bodies, ids, strict=True)
    ]


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
    ("keys", "bodies", "ids", "says"),
    [
        (["a", None], ["x", "y"], None, "row 1 of keys is null"),
        (["a", "b"], ["x", None], None, "row 1 of bodies is null"),
        (["a", 5], ["x", "y"], None, "row 1 of keys is 5: pass str or bytes"),
        ([4, 5], ["x", "y"], None, "row 0 of keys is 4: pass str or bytes"),
        (pa.array([4, 5]), ["x", "y"], None, "row 0 of keys is of type int64: pass str or bytes"),
        (["a", "\ud800"], ["x", "y"], None, "row 1 of keys .* half of a surrogate pair"),
    ],
)
def test_what_cannot_be_written_is_named(keys: Any, bodies: Any, ids: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        encode_rows(keys, bodies, message_ids=ids)


def _annotated(*pairs: tuple[bytes, bytes]) -> bytes:
    content = b"".join(
        b"\xa3" + bytes([len(name)]) + name + b"\xa1" + bytes([len(value)]) + value for name, value in pairs
    )
    return b"\0Sr\xc1" + bytes([len(content) + 1, 2 * len(pairs)]) + content


@pytest.mark.parametrize(
    "row",
    [
        _annotated((b"x-routing-key", b"k2")) + _annotated((b"x-foo", b"zz")) + BODY,
        _annotated((b"x-foo", b"zz")) + _annotated((b"x-routing-key", b"k2")) + BODY,
        b"\0Ss\xc0\x04\1\xa1\1i" + _annotated((b"x-routing-key", b"k2")) + BODY,  # in another order
    ],
)
def test_a_row_means_the_same_next_to_any_other(row: bytes) -> None:
    plain = _annotated((b"x-routing-key", b"k1")) + BODY
    alone = read([chunk_of([row])])[0]
    message = read_message(row)
    assert (alone["key"], alone["message_id"]) == (message.key, message.message_id)
    for together in ([plain, row], [row, plain], [plain, row, plain, plain], [BODY, row]):
        assert read([chunk_of(together)])[together.index(row)] == alone


@pytest.mark.parametrize("name", ["headers", "h"])
def test_one_text_is_not_a_list_of_columns(name: str) -> None:
    with pytest.raises(
        InputError, match=rf"include is the text '{name}': pass a list of columns, as \['{name}'\]"
    ):
        schema_of(name)


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
    pairs = [symbol("x-exchange"), text("orders"), symbol("x-routing-key"), text("k")]
    nested = [symbol("x-deep"), value] if place != "body" else []
    body = b"\0Sw" + value if place != "header" else BODY
    row = annotated(*pairs, *nested, wide=True) + body
    message = read_message(row)
    (found,) = read([chunk_of([row])])
    for key, exchange in ((message.key, message.exchange), (found["key"], found["exchange"])):
        assert (key, exchange) == (b"k", "orders")
    assert found["value"] == message.value
    assert "leaf" in str(found["headers" if place == "header" else "value"]) or levels > 32
