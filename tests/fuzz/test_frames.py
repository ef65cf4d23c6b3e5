"""What a broker sends, mutated: each reader of bytes gives a value or its own error, and keeps little."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest
from broker_frames import CONTENT, FRAMES, HANDSHAKE, RETURN
from fuzzing import NUMBERS, Mutator, any_byte, cut, fuzzed

from rabbit_chx.amqp import AmqpField, ConnectionSettings
from rabbit_chx.amqp.fields import encode_table, parse_table, properties_in
from rabbit_chx.amqp.frames import FRAME_MAX, next_frame, parse_return
from rabbit_chx.connection.session import Session
from rabbit_chx.errors import InputError, RabbitChxError

SENT = 40
SETTINGS = ConnectionSettings(heartbeat_s=30)
TABLES = [
    encode_table(
        tuple(
            (name.encode(), AmqpField(kind, value))  # type: ignore[arg-type]
            for name, kind, value in (
                ("", "longstr", b"text"),
                ("n", "signedint", -5),
                ("t", "timestamp", 1_700_000_000),
                ("d", "decimal", (2, 314)),
                ("f", "float", 1.5),
                ("a", "array", [AmqpField("bool", True), AmqpField("void"), AmqpField("array", [])]),
                ("m", "table", {"k": AmqpField("long", 1 << 40), "x": AmqpField("binary", b"\xff")}),
            )
        )
    )
]
PROPERTIES = [CONTENT[7 + 12 : -1]]


BYTES = Mutator((*FRAMES, b"".join(HANDSHAKE)), [*NUMBERS, *FRAMES], any_byte)
RETURNS = Mutator([RETURN[7:-1]], NUMBERS, any_byte)
TABLE_BYTES = Mutator(
    [*TABLES, *PROPERTIES], [*NUMBERS, *(b"tbBsuIilLfdDSATFVx"[i : i + 1] for i in range(18))], any_byte
)


def dialogue(chance: random.Random) -> tuple[bytes, list[bytes]]:
    """The handshake in half of the cases, then a few frames, mutated as a whole and each for itself; also in pieces."""
    before = b"".join(HANDSHAKE) if chance.random() < 0.5 else b""
    data = BYTES.series(chance, FRAMES, before)
    return data, cut(chance, data)


def heard(pieces: list[bytes]) -> Session:
    """A session with open messages after it heard this, until it failed."""
    session = Session(SETTINGS)
    session.ledger.enter(SENT, 10 * SENT, "batch")
    for piece in pieces:
        session.receive(piece)
        if session.failure is not None:
            break
    return session


def check_session(session: Session, received: int) -> None:
    ledger = session.ledger
    assert session.failure is None or isinstance(session.failure, RabbitChxError)
    assert len(session._rest) <= FRAME_MAX
    assert len(session.samples) <= 10
    assert sum(map(len, session.output)) <= 1_000 + 4 * received
    assert 0 <= ledger.open == SENT - ledger.answered
    assert ledger.nacked <= ledger.answered <= ledger.sent == SENT


@fuzzed(dialogue, each=5)  # a dialogue has five frames or so
def test_a_session_accepts_any_bytes(given: tuple[bytes, list[bytes]]) -> None:
    data, cut_up = given
    whole, pieces = heard([data]), heard(cut_up)
    check_session(whole, len(data))
    check_session(pieces, len(data))
    assert str(whole.failure) == str(pieces.failure)
    if whole.failure is None:
        assert whole.phase is pieces.phase
        assert whole.ledger.answered == pieces.ledger.answered
        assert b"".join(whole.output) == b"".join(pieces.output)


@fuzzed(BYTES.mutated)
def test_a_frame_is_read_or_refused(data: bytes) -> None:
    try:
        found = next_frame(data, 0, 4096)
    except ValueError:
        return
    if found is None:
        assert len(data) < 4096
    else:
        assert len(found.payload) + 8 == found.end <= 4096
        assert data[7 : found.end - 1] == found.payload


@fuzzed(RETURNS.mutated)
def test_a_return_is_read_or_refused(data: bytes) -> None:
    try:
        found = parse_return(data)
    except ValueError:
        return
    assert 0 <= found.code < 1 << 16
    assert len(found.key) + len(found.text.encode()) <= 3 * len(data)


@fuzzed(TABLE_BYTES.mutated)
def test_a_table_is_read_or_refused(data: bytes) -> None:
    with suppress(InputError):
        properties_in(data)
    try:
        table = parse_table(data[4:])
    except InputError:
        return
    assert parse_table(encode_table(table)[4:]) == table


def nested(tag: bytes, levels: int = 12_000) -> bytes:
    """A field within fields, as many as a frame has room for."""
    data = b"V"
    for _ in range(levels):
        content = b"\1n" + data if tag == b"F" else data
        data = tag + struct.pack(">I", len(content)) + content
    return data


@pytest.mark.parametrize("tag", [b"A", b"F"])
def test_what_is_nested_too_deep_is_refused(tag: bytes) -> None:
    table = b"\1n" + nested(tag)
    with pytest.raises(InputError, match="nested too deep"):
        parse_table(table)
    start = b"\0\x0a\0\x0a\0\x09" + struct.pack(">I", len(table)) + table + b"\0\0\0\5PLAIN\0\0\0\5en_US"
    session = heard([b"\1\0\0" + struct.pack(">I", len(start)) + start + b"\xce"])
    assert "cannot be understood" in str(session.failure)


@pytest.mark.parametrize("seconds", [1 << 63, (1 << 64) - 1])
def test_a_time_that_no_calendar_has_ends_no_connection(seconds: int) -> None:
    whole = HANDSHAKE[0]
    at = whole.index(b"\5sinceT") + 7
    session = heard([whole[:at] + seconds.to_bytes(8) + whole[at + 8 :]])
    assert session.failure is None
