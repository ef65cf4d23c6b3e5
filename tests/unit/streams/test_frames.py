"""The commands of the stream protocol: what goes over the wire, to the byte, and what comes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from stream_node import OK, ListeningNode, reply

from rabbit_chx.errors import InputError
from rabbit_chx.streams import frames
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Code, Fields, FrameSplitter, Key

ID = 7
"""The correlation id of each request and reply here."""
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000
STORED = re.findall(
    r"^([0-9a-f ]+)\n-> (.*)", Path(__file__).with_name("frames.txt").read_text("utf-8"), re.MULTILINE
)


def hexed(data: bytes) -> str:
    return data.hex(" ")


def texts(*values: str) -> str:
    """The bytes of texts, each with its length."""
    return " ".join(hexed(len(value).to_bytes(2) + value.encode()) for value in values)


@pytest.fixture
def node() -> Iterator[ListeningNode]:
    with ListeningNode() as node:
        node.version, node.commands, node.opening = "4.3.6", list(Key), {}
        yield node


@pytest.fixture
def connection(node: ListeningNode) -> Iterator[StreamConnection]:
    with closing(StreamConnection(node.settings)) as opened:
        node.seen.clear()
        node.requests.clear()
        yield opened


def test_a_login_sends_the_requests_of_the_protocol(
    node: ListeningNode, connection: StreamConnection
) -> None:
    """The requests of a login, but for the first one, whose properties are those of this machine."""
    node.opening = {"advertised_host": "a", "advertised_port": "5552"}
    with closing(StreamConnection(node.settings)) as opened:
        assert opened.node == frames.Node("a", 5552)
        assert (opened.server_version, opened.frame_max) == ("4.3.6", 1 << 20)
        assert opened.commands[Key.STREAM_STATS] == (1, 1)
    node.opening = {}
    assert connection.node is None
    assert [(f"{key:04x}", hexed(content)) for key, content in zip(node.seen, node.requests, strict=True)][
        1:
    ] == [
        ("0012", ""),
        ("0013", f"{texts('PLAIN')} 00 00 00 0c 00 {hexed(b'guest')} 00 {hexed(b'guest')}"),
        ("0014", "00 00 00 00"),  # behind the frame size, where others have their correlation id
        ("0015", "00 01 2f"),
        ("001b", "00 00 00 01 00 08 00 01 00 01"),
        ("0016", f"00 01 {texts('Goodbye')}"),
    ]


@pytest.mark.parametrize(
    ("call", "key", "content", "replied", "expected"),
    [
        (lambda c: c.queues_of("x"), Key.PARTITIONS, texts("x"), f"00 00 00 02 {texts('x-1', 'x-0')}", ("x-1", "x-0")),
        (
            lambda c: c.publisher_sequence("r", "s"), Key.QUERY_PUBLISHER_SEQUENCE, texts("r", "s"),
            "80 00 00 00 00 00 00 05", (1 << 63) + 5,
        ),
        (lambda c: c.query_offset("r", "s"), Key.QUERY_OFFSET, texts("r", "s"), "00 00 00 00 00 00 01 02", 258),
        (lambda c: c.stats("s"), Key.STREAM_STATS, texts("s"), f"00 00 00 01 {texts('n')} {'ff ' * 8}", {"n": -1}),
        (lambda c: c.declare_publisher(255, "s", "ref"), Key.DECLARE_PUBLISHER, f"ff {texts('ref', 's')}", "", None),
        (lambda c: c.declare_publisher(0, "s", None), Key.DECLARE_PUBLISHER, f"00 {texts('', 's')}", "", None),
        (lambda c: c.delete_publisher(3), Key.DELETE_PUBLISHER, "03", "", None),
        (lambda c: c.subscribe(2, "s", "last", 10), Key.SUBSCRIBE, f"02 {texts('s')} 00 02 00 0a 00 00 00 00", "", None),
        (
            lambda c: c.subscribe(2, "s", 258, 65_535, {"filter.0": "k"}), Key.SUBSCRIBE,
            f"02 {texts('s')} 00 04 00 00 00 00 00 00 01 02 ff ff 00 00 00 01 {texts('filter.0', 'k')}",
            "", None,
        ),
        (lambda c: c.unsubscribe(2), Key.UNSUBSCRIBE, "02", "", None),
        (lambda c: c.create_stream("é", {"a": "1"}), Key.CREATE, f"00 02 c3 a9 00 00 00 01 {texts('a', '1')}", "", None),
        (lambda c: c.delete_stream("s"), Key.DELETE, texts("s"), "", None),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Key) else "",
)  # fmt: skip
def test_a_request_is_sent_and_its_reply_is_read(
    connection: StreamConnection,
    node: ListeningNode,
    *,
    call: Any,
    key: Key,
    content: str,
    replied: str,
    expected: Any,
) -> None:
    node.answer = lambda key, correlation_id: reply(key, correlation_id, OK + bytes.fromhex(replied))
    assert call(connection) == expected
    assert node.seen == [key]
    assert [hexed(request) for request in node.requests] == [content]


def test_a_stored_offset_is_read_back(connection: StreamConnection, node: ListeningNode) -> None:
    assert connection.query_offset("ref", "s") is None
    connection.store_offset("ref", "s", 258)
    assert connection.query_offset("ref", "s") == 258
    assert node.offsets == {("ref", "s"): 258}


def test_partitions_and_the_route_of_an_unbound_key(
    node: ListeningNode, connection: StreamConnection
) -> None:
    names: dict[int, str] = {Key.PARTITIONS: f"00 00 00 01 {texts('x-0')}", Key.ROUTE: "00 00 00 00"}
    node.answer = lambda key, correlation_id: reply(
        key, correlation_id, OK + bytes.fromhex(names.get(key, ""))
    )
    assert connection.partitions("x") == ("x-0",)
    assert node.seen == [Key.PARTITIONS, Key.ROUTE]
    assert [hexed(request) for request in node.requests] == [
        texts("x"),
        texts("rabbit_chx: is this a super stream?", "x"),
    ]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (frames.credit(5, 258), "00 00 00 07 00 09 00 01 05 01 02"),
        (frames.reply_to_close(ID), "00 00 00 0a 80 16 00 01 00 00 00 07 00 01"),
        (frames.reply_to_consumer_update(ID, None), "00 00 00 0c 80 1a 00 01 00 00 00 07 00 01 00 00"),
        (frames.reply_to_consumer_update(ID, "next"), "00 00 00 0c 80 1a 00 01 00 00 00 07 00 01 00 03"),
        (
            frames.reply_to_consumer_update(ID, 258),
            "00 00 00 14 80 1a 00 01 00 00 00 07 00 01 00 04 00 00 00 00 00 00 01 02",
        ),
        (frames.frame(Key.HEARTBEAT, b""), "00 00 00 04 00 17 00 01"),
    ],
    ids=["credit", "closed", "passive", "active-at-the-end", "active-at-an-offset", "heartbeat"],
)
def test_the_bytes_of_what_has_no_reply(sent: bytes, expected: str) -> None:
    assert hexed(sent) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("first", "00 01"),
        ("last", "00 02"),
        ("next", "00 03"),
        (0, "00 04 00 00 00 00 00 00 00 00"),
        ((1 << 64) - 1, "00 04 ff ff ff ff ff ff ff ff"),
        (NOON, f"00 05 {hexed(NOON_MS.to_bytes(8))}"),
        (NOON.astimezone(timezone(timedelta(hours=9))), f"00 05 {hexed(NOON_MS.to_bytes(8))}"),
        (NOON + timedelta(microseconds=1_999), f"00 05 {hexed((NOON_MS + 1).to_bytes(8))}"),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "00 05 ff ff ff ff ff ff fc 18"),
    ],
)
def test_where_to_begin(start: Any, expected: str) -> None:
    assert hexed(frames.offset_spec(start)) == expected


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.declare_publisher(256, "s", None), "publisher_id is 256: pass a whole number from 0 to 255"),
        (lambda c: c.subscribe(-1, "s", "first", 1), "subscription_id is -1"),
        (lambda c: c.subscribe(1, "s", "first", 65_536), "credit is 65536"),
        (lambda c: c.store_offset("r", "s", -1), "offset is -1: pass a whole number from 0"),
        (lambda c: c.store_offset("r" * 256, "s", 1), "the reader's name 'r+'... has 256 bytes"),
        (lambda c: c.give_credit(1, 65_536), "chunks is 65536"),
        (lambda c: c.declare_publisher(1, "s" * 256, None), "the stream name 's+'... has 256 bytes"),
        (lambda c: c.declare_publisher(1, "s", "r" * 256), "the publisher's name 'r+'... has 256 bytes"),
        (lambda c: c.create_stream("s", {"a": "\ud800"}), "the argument 'a' .* surrogate"),
        (lambda c: c.create_stream("s", {"a": "v" * 32_768}), "the argument 'a' has 32768 bytes: the stream protocol"),
        (lambda c: c.create_stream("s", {"a": 5}), "the argument 'a' is 5: pass str"),
    ],
)  # fmt: skip
def test_what_does_not_fit_into_a_request(connection: StreamConnection, call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(connection)


def test_metadata_has_a_code_for_each_stream() -> None:
    nodes = f"00 00 00 02 00 00 {texts('a')} 00 00 15 b0 00 01 {texts('b')} 00 00 15 b1"
    there = f"{texts('there')} 00 01 00 01 00 00 00 01 00 00"
    leaderless = f"{texts('leaderless')} 00 01 ff ff 00 00 00 00"
    missing = f"{texts('missing')} 00 02 ff ff 00 00 00 00"
    frame = bytes.fromhex(f"80 0f 00 01 00 00 00 07 {nodes} 00 00 00 03 {there} {leaderless} {missing}")
    message = frames.parse_frame(memoryview(frame))
    assert isinstance(message, frames.Reply)
    assert message.code == Code.OK
    assert frames.read_metadata(Fields(message.content)) == {
        "there": frames.StreamMetadata(frames.Node("b", 5553), (frames.Node("a", 5552),), Code.OK),
        "leaderless": frames.StreamMetadata(None, (), Code.OK),
        "missing": frames.StreamMetadata(None, (), Code.STREAM_DOES_NOT_EXIST),
    }


@pytest.mark.parametrize(("frame", "said"), STORED)
def test_a_frame_of_the_broker_is_read_as_stored_or_is_an_error(frame: str, said: str) -> None:
    assert judge(frame) == said


def judge(frame: str) -> str:
    """Return the kind of a message and its fields, or the error."""
    try:
        message = frames.parse_frame(memoryview(bytes.fromhex(frame)))
    except ValueError as error:
        return f"ValueError: {error}"
    values: list[Any] = [value.tolist() if hasattr(value, "tolist") else value for value in message]
    return f"{type(message).__name__} {values}"


@pytest.mark.parametrize(
    ("read", "content", "words"),
    [
        (frames.read_names, "7f ff ff ff 00 01 41", "an array of 2147483647 items"),
        (frames.read_names, f"00 00 00 02 {texts('x-0')}", "an array|a field"),
        (lambda fields: fields.integer(8), "", "a field of 8 bytes"),
        (lambda fields: [fields.take(2), fields.take(-1)], "61 62 63 64", "a field of -1 bytes"),
    ],
)
def test_a_damaged_reply_is_an_error(read: Any, content: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(Fields(memoryview(bytes.fromhex(content))))


@pytest.mark.parametrize(
    "begin", [b"AMQP\0\0\x09\1", b"HTTP/1.1", b"\0\0\0\3abc", b"\0\x10\0\1", b"\x15\3\3\0\2\2\x46"]
)
def test_what_begins_no_frame(begin: bytes) -> None:
    with pytest.raises(ValueError, match="begins no frame of the stream protocol"):
        FrameSplitter().split(begin)


@pytest.mark.parametrize("largest", [100, 5 << 20])
def test_a_frame_above_the_largest_size_is_refused(largest: int) -> None:
    splitter = FrameSplitter()
    splitter.largest = largest
    assert splitter.split(largest.to_bytes(4)) == []
    (whole,) = splitter.split(bytes(largest))
    assert len(whole) == largest
    with pytest.raises(ValueError, match=f"{largest + 1}"):
        splitter.split((largest + 1).to_bytes(4) + bytes(largest + 1))
