"""Sub-entries as the Java client reads and writes them: by the libraries with which it packs and unpacks them, which Spark has, too.

The stream client for Java itself is not needed: its `ClientDataHandler` reads the layout of ``osiris_log.erl``, as `unpacked` does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from typing import Any, get_args

import pytest
import rstream
from chunk_columns import columns_of
from pyspark.sql import SparkSession
from stream_bytes import chunk_bytes, entry, sub_entry
from stream_writers import delivered

from rabbit_chx import StreamPublisher
from rabbit_chx.streams.chunks import Codec, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.extended,
]

ROWS, EACH = 1_000, 100
KEYS = [f"k{n % 7}" for n in range(ROWS)]
BODIES = [f"body {n} " * 200 for n in range(ROWS)]  # a sub-entry has several blocks of Snappy
COMMONS = "org.apache.commons.compress.compressors"
#: What unpacks each codec by its number: the library that the client takes by default, and the other one that it has.
LIBRARIES = {
    1: ("java.util.zip.GZIPInputStream", f"{COMMONS}.gzip.GzipCompressorInputStream"),
    2: ("org.xerial.snappy.SnappyFramedInputStream", f"{COMMONS}.snappy.FramedSnappyCompressorInputStream"),
    3: ("net.jpountz.lz4.LZ4FrameInputStream", f"{COMMONS}.lz4.FramedLZ4CompressorInputStream"),
    4: ("com.github.luben.zstd.ZstdInputStream", f"{COMMONS}.zstandard.ZstdCompressorInputStream"),
}


def unpacked(spark: SparkSession, chunk: bytes, library: int) -> Iterator[tuple[int, bytes]]:
    """The codec of the sub-entry of each message of a chunk, and the message."""
    jvm: Any = spark._jvm
    data, at = bytes(read_chunk(memoryview(chunk)).data), 0
    while at < len(data):
        # 1: a sub-entry; 3 bits: the codec; 4 bits: reserved; messages; bytes unpacked; bytes.
        head, messages, size, length = struct.unpack_from(">BHii", data, at)
        assert head & 0x8F == 0x80
        codec, at = head >> 4 & 7, at + 11 + length
        inside = data[at - length : at]
        if codec:
            made: Any = reduce(getattr, LIBRARIES[codec][library].split("."), jvm)
            inside = bytes(made(jvm.java.io.ByteArrayInputStream(bytearray(inside))).readAllBytes())
        assert len(inside) == size
        place = 0
        for _ in range(messages):
            (length,) = struct.unpack_from(">i", inside, place)
            place += 4 + length
            yield codec, inside[place - length : place]
        assert place == size


@pytest.mark.parametrize("codec", get_args(Codec))
def test_sub_entries_are_unpacked_by_the_libraries_of_the_java_client(
    spark: SparkSession, vhost: RunningBroker, codec: Codec
) -> None:
    """Their id is that of the last message, as in its `SubEntryMessageAccumulator`."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_stream("s")
        with StreamPublisher(
            vhost.stream_url, stream="s", name="load", sub_entry_rows=EACH, compression=codec
        ) as publisher:
            publisher.publish_many(KEYS, BODIES, ids=range(1, ROWS + 1))
        assert connection.publisher_sequence("load", "s") == ROWS
        chunks = delivered(connection, "s", ROWS)
    for library in (0, 1):
        messages = [message for chunk in chunks for message in unpacked(spark, chunk, library)]
        assert {number for number, _ in messages} == {get_args(Codec).index(codec)}
        read: list[Any] = [rstream.amqp_decoder(message) for _, message in messages]
        assert [bytes(message.body).decode() for message in read] == BODIES
        assert [message.properties.message_id for message in read] == [
            f"load:{n}".encode() for n in range(1, ROWS + 1)
        ]
        assert [message.message_annotations[b"x-routing-key"] for message in read] == [
            key.encode() for key in KEYS
        ]


@pytest.mark.parametrize("library", [name for names in LIBRARIES.values() for name in names])
def test_what_the_libraries_of_the_java_client_have_packed_is_read(spark: SparkSession, library: str) -> None:
    jvm: Any = spark._jvm
    (codec,) = (number for number, names in LIBRARIES.items() if library in names)
    bodies = [body.encode() for body in BODIES[:EACH]]
    packed = jvm.java.io.ByteArrayOutputStream()
    stream: Any = reduce(getattr, library.replace("Input", "Output").split("."), jvm)(packed)
    stream.write(bytearray(b"".join(map(entry, bodies))))
    stream.close()
    sent = sub_entry(bodies, codec, bytes(packed.toByteArray()))
    rows = columns_of([read_chunk(memoryview(chunk_bytes([sent], records=EACH)))], 0, EACH)
    assert rows["value"].to_pylist() == bodies
