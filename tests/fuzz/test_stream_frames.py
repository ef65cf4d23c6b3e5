"""What a broker of streams sends, mutated: it is read, or refused by a ValueError, and little is kept."""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzzing import NUMBERS, Mutator, any_byte, cut, fuzzed

from rabbit_chx.streams import frames
from rabbit_chx.streams.frames import DeliveredChunk, Fields, FrameSplitter, Key, Reply, frame, parse_frame

NAME = b"\0\6orders"
NODES = b"\0\0\0\1\0\0\0\4node\0\0\x15\xb0"
READERS: tuple[Callable[[Fields], object], ...] = (
    frames.read_texts,
    frames.read_names,
    frames.read_opened,
    frames.read_versions,
    frames.read_metadata,
    frames.read_statistics,
)


def reply(key: int, content: bytes) -> bytes:
    return frame(0x8000 | key, b"\0\0\0\7" + content)


FRAMES = (
    frame(Key.DELIVER, b"\5" + b"\x50\0\0\1" + bytes(60)),
    frame(Key.PUBLISH_CONFIRM, b"\0" + (3).to_bytes(4) + bytes(24)),
    frame(Key.PUBLISH_ERROR, b"\0" + (2).to_bytes(4) + bytes(20)),
    frame(Key.METADATA_UPDATE, b"\0\6" + NAME),
    frame(Key.HEARTBEAT, b""),
    frame(Key.CLOSE, b"\0\0\0\1\0\1\0\3bye"),
    frame(0x8000 | Key.CREDIT, b"\0\4\5"),
    frame(Key.TUNE, b"\0\x10\0\0\0\0\0\x3c"),
    reply(Key.PEER_PROPERTIES, b"\0\1\0\0\0\1\0\7version\0\0054.3.6"),
    reply(Key.SASL_HANDSHAKE, b"\0\1\0\0\0\2\0\5PLAIN\0\x08EXTERNAL"),
    reply(Key.EXCHANGE_COMMAND_VERSIONS, b"\0\1\0\0\0\2\0\2\0\1\0\2\0\3\0\1\0\1"),
    reply(Key.METADATA, NODES + b"\0\0\0\1" + NAME + b"\0\1\0\0\0\0\0\2\0\0\0\1"),
    reply(Key.PARTITIONS, b"\0\1\0\0\0\1" + NAME),
    reply(Key.STREAM_STATS, b"\0\1\0\0\0\1\0\x0efirst_chunk_id" + bytes(8)),
    reply(Key.QUERY_PUBLISHER_SEQUENCE, b"\0\1" + bytes(8)),
    reply(Key.SUBSCRIBE, b"\0\x11"),
)


BYTES = Mutator(FRAMES, [*NUMBERS, *FRAMES], any_byte)


def heard(pieces: list[bytes]) -> tuple[list[str], str]:
    """What is read of the pieces until there is a fault, and the fault."""
    splitter = FrameSplitter()
    messages: list[str] = []
    try:
        for piece in pieces:
            messages.extend(
                repr(parse_frame(found)).partition("<memory at")[0] for found in splitter.split(piece)
            )
    except ValueError as fault:
        return messages, str(fault)
    assert splitter._filled + len(splitter._rest) <= sum(map(len, pieces))
    return messages, ""


def dialogue(chance: random.Random) -> tuple[bytes, list[bytes]]:
    """A few frames, mutated as a whole and each for itself; also in pieces."""
    data = BYTES.series(chance, FRAMES, b"")
    return data, cut(chance, data)


@fuzzed(dialogue, each=5)  # a dialogue has five frames or so
def test_a_connection_reads_any_bytes(given: tuple[bytes, list[bytes]]) -> None:
    whole, in_pieces = heard([given[0]]), heard(given[1])
    assert bool(whole[1]) == bool(in_pieces[1])
    if not whole[1]:
        assert whole == in_pieces


@fuzzed(lambda chance: BYTES.mutated(chance)[4:])
def test_a_frame_is_read_or_refused(data: bytes) -> None:
    try:
        message = parse_frame(memoryview(data))
    except ValueError:
        return
    if isinstance(message, DeliveredChunk):
        assert message.chunk == data[5:]
    if isinstance(message, Reply):
        assert bytes(message.content) == data[len(data) - len(message.content) :]


@fuzzed(lambda chance: (BYTES.mutated(chance)[14:], chance.choice(READERS)))
def test_what_a_reply_holds_is_read_or_refused(given: tuple[bytes, Callable[[Fields], object]]) -> None:
    data, read = given
    try:
        found = read(Fields(memoryview(data)))
    except ValueError:
        return
    assert len(repr(found)) <= 200 * (len(data) + 1)
