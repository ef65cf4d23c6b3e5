"""Frames that come: whole ones, parts, and what is none."""

from __future__ import annotations

import pytest

from rabbit_chx.amqp.frames import BODY_FRAME, FRAME_OVERHEAD, HEARTBEAT, Frame, next_frame

AGREED = 4096


TOO_LARGE = (AGREED - FRAME_OVERHEAD + 1, 2**32 - 1)


def frame(size: int, *, told: int | None = None, kind: int = BODY_FRAME, end: bytes = b"\xce") -> bytes:
    return bytes((kind, 0, 7)) + (size if told is None else told).to_bytes(4) + b"x" * size + end


@pytest.mark.parametrize(
    ("kind", "size"),
    [(BODY_FRAME, 0), (BODY_FRAME, 1), (BODY_FRAME, AGREED - FRAME_OVERHEAD), (HEARTBEAT, 0)],
)
def test_a_whole_frame_is_read_wherever_it_begins_and_a_part_is_waited_for(kind: int, size: int) -> None:
    whole = frame(size, kind=kind)
    assert next_frame(b"before" + whole + b"after", 6, AGREED) == Frame(kind, 7, b"x" * size, 6 + len(whole))
    assert {next_frame(whole[:part], 0, AGREED) for part in range(len(whole))} == {None}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(1, end=b"\0"), "does not end with its end mark"),
        (frame(1, kind=9), "is not an AMQP frame"),
        (b"HTTP/1.1 400", r"b'HTTP/1\.1' is not an AMQP frame"),
        # Not one more byte is waited for: a peer that is no broker could have us wait for 4 GiB.
        *(
            (frame(1, told=told), f"an AMQP frame of {told} bytes, but 4096 were agreed on")
            for told in TOO_LARGE
        ),
    ],
)
def test_an_invalid_frame_is_an_error_that_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        next_frame(data, 0, AGREED)
