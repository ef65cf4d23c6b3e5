"""The commands of the stream protocol: what goes over the wire, to the byte, and what comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.streams import frames
from rabbit_chx.streams.codes import Code
from rabbit_chx.streams.frames import (
    Closing,
    CreditRefused,
    Delivery,
    Fields,
    FrameCutter,
    Heartbeat,
    Key,
    Node,
    Reply,
    Request,
    StreamChanged,
    StreamPlaces,
    Tune,
    offset_spec,
    parse_frame,
)

ID = 7
"""The correlation id of each request and reply here."""
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000


def hexed(data: bytes) -> str:
    return data.hex(" ")


def texts(*values: str) -> str:
    """The bytes of texts, each with its length."""
    return " ".join(hexed(len(value).to_bytes(2) + value.encode()) for value in values)


@pytest.mark.parametrize(
    ("request_", "key", "content"),
    [
        (frames.peer_properties({"a": "bc"}), "00 11", f"00 00 00 01 {texts('a', 'bc')}"),
        (frames.sasl_handshake(), "00 12", ""),
        (frames.sasl_authenticate("PLAIN", b"\0u\0p"), "00 13", f"{texts('PLAIN')} 00 00 00 04 00 75 00 70"),
        (frames.sasl_authenticate("EXTERNAL", b""), "00 13", f"{texts('EXTERNAL')} 00 00 00 00"),
        (frames.open_vhost("/"), "00 15", "00 01 2f"),
        (frames.exchange_command_versions(), "00 1b", "00 00 00 01 00 08 00 01 00 01"),
        (frames.close(1, "bye"), "00 16", f"00 01 {texts('bye')}"),
        (frames.metadata(["s", "tt"]), "00 0f", f"00 00 00 02 {texts('s', 'tt')}"),
        (frames.partitions("s"), "00 19", texts("s")),
        (frames.route("k", "s"), "00 18", texts("k", "s")),
        (frames.declare_publisher(255, "s", "ref"), "00 01", f"ff {texts('ref', 's')}"),
        (frames.declare_publisher(0, "s", None), "00 01", f"00 {texts('', 's')}"),
        (frames.delete_publisher(3), "00 06", "03"),
        (frames.query_publisher_sequence("ref", "s"), "00 05", texts("ref", "s")),
        (frames.subscribe(2, "s", "first", 10, {}), "00 07", f"02 {texts('s')} 00 01 00 0a 00 00 00 00"),
        (
            frames.subscribe(2, "s", 258, 65_535, {"filter.0": "k"}),
            "00 07",
            f"02 {texts('s')} 00 04 00 00 00 00 00 00 01 02 ff ff 00 00 00 01 {texts('filter.0', 'k')}",
        ),
        (frames.unsubscribe(2), "00 0c", "02"),
        (frames.stream_stats("s"), "00 1c", texts("s")),
        (frames.resolve_offset_spec("s", "next", {}), "00 1f", f"{texts('s')} 00 03 00 00 00 00"),
        (
            frames.create_stream("é", {"max-age": "1h"}),
            "00 0d",
            f"00 02 c3 a9 00 00 00 01 {texts('max-age', '1h')}",
        ),
        (frames.delete_stream("s"), "00 0e", texts("s")),
        (
            frames.create_super_stream("x", ["x-0", "x-1"], ["0", "1"], {"a": "b"}),
            "00 1d",
            f"{texts('x')} 00 00 00 02 {texts('x-0', 'x-1')} 00 00 00 02 {texts('0', '1')} 00 00 00 01 {texts('a', 'b')}",
        ),
        (frames.delete_super_stream("x"), "00 1e", texts("x")),
    ],
    ids=lambda value: value.key.name.lower() if isinstance(value, Request) else "",
)
def test_the_bytes_of_a_request(request_: Request, key: str, content: str) -> None:
    body = bytes.fromhex(f"{key} 00 01 00 00 00 07 {content}")
    assert hexed(request_.frame(ID)) == hexed(len(body).to_bytes(4) + body)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (frames.tune(Tune(1 << 20, 60)), "00 00 00 0c 00 14 00 01 00 10 00 00 00 00 00 3c"),
        (frames.credit(5, 258), "00 00 00 07 00 09 00 01 05 01 02"),
        (frames.closed(ID), "00 00 00 0a 80 16 00 01 00 00 00 07 00 01"),
        (frames.frame(Key.HEARTBEAT, b""), "00 00 00 04 00 17 00 01"),
    ],
    ids=["tune", "credit", "closed", "heartbeat"],
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
    assert hexed(offset_spec(start)) == expected


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (datetime(2026, 1, 31), "2026-01-31T00:00:00 has no time zone"),  # noqa: DTZ001
        ("earliest", "'earliest': give 'first', 'last', 'next', an offset"),
        (-1, "is -1: give"),
        (1 << 64, "is 18446744073709551616: give"),
        (True, "is True: give"),
        (1.0, "is 1.0: give"),
        (None, "is None: give"),
    ],
)
def test_no_place_to_begin(start: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        offset_spec(start)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: frames.declare_publisher(256, "s", None), "publisher_id is 256: give a whole number from 0 to 255"),
        (lambda: frames.subscribe(-1, "s", "first", 1, {}), "subscription_id is -1"),
        (lambda: frames.subscribe(1, "s", "first", 65_536, {}), "credit is 65536"),
        (lambda: frames.credit(1, 65_536), "chunks is 65536"),
        (lambda: frames.declare_publisher(1, "s" * 256, None), "the stream name 's+'... has 256 bytes"),
        (lambda: frames.declare_publisher(1, "s", "r" * 256), "the publisher's name 'r+'... has 256 bytes"),
        (lambda: frames.create_stream("s", {"a": "\ud800"}), "the argument 'a' .* surrogate"),
        (lambda: frames.create_stream("s", {"a": "v" * 32_768}), "the argument 'a' has 32768 bytes: the stream protocol"),
        (lambda: frames.create_stream("s", {"a": 5}), "the argument 'a' is 5: give str"),  # type: ignore[dict-item]
    ],
)  # fmt: skip
def test_what_does_not_fit_into_a_request(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def replied(request: Request, content: str) -> Any:
    """What the request makes of a reply with this content."""
    frame = bytes.fromhex(f"{hexed((0x8000 | request.key).to_bytes(2))} 00 01 00 00 00 07 00 01 {content}")
    reply = parse_frame(memoryview(frame))
    assert isinstance(reply, Reply)
    assert (reply.key, reply.correlation_id, reply.code) == (request.key, ID, Code.OK)
    return request.read(Fields(reply.content))


@pytest.mark.parametrize(
    ("request_", "content", "expected"),
    [
        (frames.peer_properties({}), f"00 00 00 01 {texts('version', '4.3.6')}", {"version": "4.3.6"}),
        (frames.sasl_handshake(), f"00 00 00 02 {texts('PLAIN', 'EXTERNAL')}", ["PLAIN", "EXTERNAL"]),
        (frames.sasl_authenticate("PLAIN", b""), "", None),
        (frames.open_vhost("/"), "00 00 00 00", None),
        (frames.exchange_command_versions(), "00 00 00 01 00 02 00 01 00 02", {2: (1, 2)}),
        (frames.partitions("x"), f"00 00 00 02 {texts('x-1', 'x-0')}", ("x-1", "x-0")),
        (frames.route("k", "x"), f"00 00 00 01 {texts('x-1')}", ("x-1",)),
        (frames.query_publisher_sequence("r", "s"), "80 00 00 00 00 00 00 05", (1 << 63) + 5),
        (frames.stream_stats("s"), f"00 00 00 01 {texts('n')} ff ff ff ff ff ff ff ff", {"n": -1}),
        (frames.resolve_offset_spec("s", "last", {}), "00 04 00 00 00 00 00 00 00 09", 9),
    ],
    ids=lambda value: value.key.name.lower() if isinstance(value, Request) else "",
)
def test_what_a_reply_holds(request_: Request, content: str, expected: object) -> None:
    assert replied(request_, content) == expected


def test_metadata_has_a_code_for_each_stream() -> None:
    nodes = f"00 00 00 02 00 00 {texts('a')} 00 00 15 b0 00 01 {texts('b')} 00 00 15 b1"
    there = f"{texts('there')} 00 01 00 01 00 00 00 01 00 00"
    leaderless = f"{texts('leaderless')} 00 01 ff ff 00 00 00 00"
    missing = f"{texts('missing')} 00 02 ff ff 00 00 00 00"
    frame = bytes.fromhex(f"80 0f 00 01 00 00 00 07 {nodes} 00 00 00 03 {there} {leaderless} {missing}")
    reply = parse_frame(memoryview(frame))
    assert isinstance(reply, Reply)
    assert reply.code == Code.OK
    assert frames.metadata([]).read(Fields(reply.content)) == {
        "there": StreamPlaces(Node("b", 5553), (Node("a", 5552),), Code.OK),
        "leaderless": StreamPlaces(None, (), Code.OK),
        "missing": StreamPlaces(None, (), Code.STREAM_DOES_NOT_EXIST),
    }


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("00 08 00 01 05 50 00 01", Delivery(5, memoryview(b"P\0\1"))),
        ("00 10 00 01 00 06 00 01 73", StreamChanged("s", Code.STREAM_NOT_AVAILABLE)),
        ("80 09 00 01 00 04 09", CreditRefused(9, Code.SUBSCRIPTION_DOES_NOT_EXIST)),
        ("00 14 00 01 00 10 00 00 00 00 00 3c", Tune(1 << 20, 60)),
        ("00 16 00 01 00 00 00 07 00 0e 00 03 62 79 65", Closing(ID, Code.FRAME_TOO_LARGE, "bye")),
        ("00 17 00 01", Heartbeat()),
        (
            "80 07 00 01 00 00 00 07 00 11",
            Reply(Key.SUBSCRIBE, ID, Code.PRECONDITION_FAILED, memoryview(b"")),
        ),
        ("00 19 00 01 00 00 00 07 00 02", Reply(Key.PARTITIONS, ID, 2, memoryview(b""))),  # as 3.10 does it
    ],
)
def test_what_the_broker_says(frame: str, expected: object) -> None:
    assert parse_frame(memoryview(bytes.fromhex(frame))) == expected


def test_confirms_and_errors_are_arrays() -> None:
    ids = "00 00 00 02 00 00 00 00 00 00 00 05 80 00 00 00 00 00 00 06"
    confirms: Any = parse_frame(memoryview(bytes.fromhex(f"00 03 00 01 09 {ids}")))
    assert confirms.publisher_id == 9
    assert confirms.ids.dtype == np.uint64
    assert confirms.ids.tolist() == [5, (1 << 63) + 6]
    errors: Any = parse_frame(
        memoryview(bytes.fromhex("00 04 00 01 09 00 00 00 01 00 00 00 00 00 00 00 05 00 12"))
    )
    assert (errors.publisher_id, errors.ids.tolist(), errors.codes.tolist()) == (
        9,
        [5],
        [Code.PUBLISHER_DOES_NOT_EXIST],
    )


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("00", "ends in the middle of a field of 2 bytes"),
        ("00 08 00 02 05 50", "version 2 of the command 0x0008"),
        ("00 1a 00 01 00 00 00 07", "0x001a is no command"),  # ConsumerUpdate, for single active consumers
        ("00 63 00 01", "0x0063 is no command"),
        ("00 03 00 01 09 00 00 00 02 00 00 00 00 00 00 00 05", "a field of 16 bytes"),
        ("00 04 00 01 09 ff ff ff ff", "a field of"),
        ("00 10 00 01 00 06 00 09 73", "a field of 9 bytes"),
        ("00 10 00 01 00 06 00 01 ff", "utf-8"),
        ("00 16 00 01 00 00", "a field of 4 bytes"),
        ("80 0c 00 01 00 00 00 07", "a field of 2 bytes"),
    ],
)
def test_a_damaged_frame(frame: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_frame(memoryview(bytes.fromhex(frame)))


@pytest.mark.parametrize(
    ("request_", "content", "words"),
    [
        (frames.sasl_handshake(), "7f ff ff ff 00 01 41", "an array of 2147483647 items"),
        (frames.partitions("x"), f"00 00 00 02 {texts('x-0')}", "an array|a field"),
        (frames.resolve_offset_spec("s", "last", {}), "00 02", "an offset of kind 2 for 'last' in 's'"),
        (frames.query_publisher_sequence("r", "s"), "", "a field of 8 bytes"),
    ],
)
def test_a_damaged_reply(request_: Request, content: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replied(request_, content)


def test_frames_are_cut_out_of_whatever_comes() -> None:
    sent = [bytes([i]) * size for i, size in enumerate((4, 5, 300, 4, 70_000))]
    wire = b"".join(len(frame).to_bytes(4) + frame for frame in sent)
    for step in (1, 2, 3, 7, 64, 1_000, len(wire)):
        cutter = FrameCutter()
        found = [frame for at in range(0, len(wire), step) for frame in cutter.cut(wire[at : at + step])]
        assert [bytes(frame) for frame in found] == sent


@pytest.mark.parametrize(
    "begin", [b"AMQP\0\0\x09\1", b"HTTP/1.1", b"\0\0\0\3abc", b"\0\x10\0\1", b"\x15\3\3\0\2\2\x46"]
)
def test_what_begins_no_frame(begin: bytes) -> None:
    with pytest.raises(ValueError, match="begins no frame of the stream protocol"):
        FrameCutter().cut(begin)


def test_once_the_connection_is_open_a_chunk_may_be_as_large_as_it_is() -> None:
    cutter = FrameCutter()
    cutter.largest = frames.LARGEST_FRAME
    assert cutter.cut((5 << 20).to_bytes(4)) == []
    assert len(cutter.cut(bytes(5 << 20))[0]) == 5 << 20
