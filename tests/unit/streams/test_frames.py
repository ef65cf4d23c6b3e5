"""The commands of the stream protocol: what goes over the wire, to the byte, and what comes."""

from __future__ import annotations

from ast import literal_eval
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from stored_cases import stored_cases
from stream_node import OK, ListeningNode, reply

from rabbit_chx.errors import InputError
from rabbit_chx.streams import frames
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Code, Fields, FrameSplitter, Key

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000
STORED = stored_cases(__file__, "frames.txt", r"^([0-9a-f ]+)\n-> (.*)")
WRITTEN = stored_cases(__file__, "frames.txt", r"^(\w+) (\(.*)\n-> (.*)")
REQUEST = r"^(\w+) (\(.*)\n(?:([A-Z_]+ .*)\n)?(?:replied (.*)\n)?-> (.*)"
REQUESTS = stored_cases(__file__, "requests.txt", REQUEST)


def hexed(data: bytes) -> str:
    return data.hex(" ")


def texts(*values: str) -> str:
    """The bytes of texts, each with its length."""
    return " ".join(hexed(len(value).to_bytes(2) + value.encode()) for value in values)


def test_a_login_sends_the_requests_of_the_protocol(node: ListeningNode, opened: StreamConnection) -> None:
    """The requests of a login, but for the first one, whose properties are those of this machine."""
    node.opening = {"advertised_host": "a", "advertised_port": "5552"}
    with closing(StreamConnection(node.settings)) as another:
        assert another.node == frames.Node("a", 5552)
        assert (another.server_version, another.frame_max) == ("4.3.6", 1 << 20)
        assert another.commands[Key.STREAM_STATS] == (1, 1)
    node.opening = {}
    assert opened.node is None
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


@pytest.mark.parametrize(("version", "knows_commands"), [("3.10.25", False), ("3.11.0", True)])
def test_the_commands_of_the_broker_are_known_from_3_11_on(
    node: ListeningNode, version: str, *, knows_commands: bool
) -> None:
    node.version = version
    with closing(StreamConnection(node.settings)) as opened:
        assert (Key.STREAM_STATS in opened.commands) == knows_commands


@pytest.mark.parametrize(("call", "arguments", "sent", "replied", "said"), REQUESTS)
def test_a_request_is_sent_and_its_reply_is_read_as_stored_or_it_is_refused(
    opened: StreamConnection,
    node: ListeningNode,
    *,
    call: str,
    arguments: str,
    sent: str,
    replied: str,
    said: str,
) -> None:
    node.answer = lambda key, correlation_id: reply(key, correlation_id, OK + bytes.fromhex(replied))
    try:
        result = repr(getattr(opened, call)(*literal_eval(arguments)))
    except InputError as error:
        result = f"InputError: {error}"
    requests = zip(node.seen, node.requests, strict=True)
    assert "; ".join(f"{Key(key).name} {hexed(content)}" for key, content in requests) == sent
    assert result == said


def test_partitions_and_the_route_of_an_unbound_key(node: ListeningNode, opened: StreamConnection) -> None:
    names: dict[int, str] = {Key.PARTITIONS: f"00 00 00 01 {texts('x-0')}", Key.ROUTE: "00 00 00 00"}
    node.answer = lambda key, correlation_id: reply(
        key, correlation_id, OK + bytes.fromhex(names.get(key, ""))
    )
    assert opened.partitions("x") == ("x-0",)
    assert node.seen == [Key.PARTITIONS, Key.ROUTE]
    assert [hexed(request) for request in node.requests] == [
        texts("x"),
        texts("rabbit_chx: is this a super stream?", "x"),
    ]


@pytest.mark.parametrize(("call", "arguments", "written"), WRITTEN)
def test_what_is_written_is_as_stored(call: str, arguments: str, written: str) -> None:
    assert hexed(getattr(frames, call)(*literal_eval(arguments))) == written


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (NOON, f"00 05 {hexed(NOON_MS.to_bytes(8))}"),
        (NOON.astimezone(timezone(timedelta(hours=9))), f"00 05 {hexed(NOON_MS.to_bytes(8))}"),
        (NOON + timedelta(microseconds=1_999), f"00 05 {hexed((NOON_MS + 1).to_bytes(8))}"),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "00 05 ff ff ff ff ff ff fc 18"),
    ],
)
def test_a_time_to_begin_at_is_in_milliseconds(start: datetime, expected: str) -> None:
    assert hexed(frames.offset_spec(start)) == expected


def test_an_argument_of_a_stream_that_is_too_long_is_refused(opened: StreamConnection) -> None:
    with pytest.raises(InputError, match="the argument 'a' has 32768 bytes: the stream protocol"):
        opened.create_stream("s", {"a": "v" * 32_768})


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
    if message is None:
        return "nothing"
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
    with pytest.raises(ValueError, match="begins no frame: its size"):
        FrameSplitter().split(begin)


@pytest.mark.parametrize("largest", [100, 5 << 20])
def test_a_frame_above_the_largest_size_is_refused(largest: int) -> None:
    splitter = FrameSplitter()
    splitter.largest = largest
    assert splitter.split(largest.to_bytes(4)) == []
    (whole,) = splitter.split(bytes(largest))
    assert len(whole) == largest
    heartbeat = frames.frame(Key.HEARTBEAT, b"")
    assert splitter.split(heartbeat + (largest + 1).to_bytes(4)) == [heartbeat[4:]]
    with pytest.raises(ValueError, match=f"{largest + 1}"):
        splitter.split(bytes(largest + 1))
