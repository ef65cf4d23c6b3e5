"""Rows are read as they arrive: soon, each once, until the reader is stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from streamed import Streamed, numbers_in

from rabbit_chx.streams import StreamPublisher, StreamReader

pytestmark = pytest.mark.broker


def follower(stream: Streamed, **arguments: Any) -> StreamReader:
    return StreamReader(stream.broker.stream_url, stream.name, end="never", **arguments)


@pytest.mark.core
def test_rows_are_returned_soon_after_they_arrive(stream: Streamed) -> None:
    """And not when later rows arrive: each row is published after the one before it was read."""
    with follower(stream, start="next", max_wait_s=0.05) as reader:
        assert reader.end_offset == (1 << 63) - 1
        for number in range(40):
            stream.publish([str(number)])
            assert numbers_in(next(reader)) == [number]


@pytest.mark.core
def test_silence_is_no_error_and_stop_ends_the_loop(stream: Streamed) -> None:
    stream.publish(["0"])
    stream.store_offsets()  # chunks of the broker are no rows, and not before `next_offset`
    with follower(stream, timeout_s=1.5) as reader:
        assert numbers_in(next(reader)) == [0]
        assert reader.next_offset == 1
        threading.Timer(4, stream.publish, [["1"]]).start()
        assert numbers_in(next(reader)) == [1]
        end = reader.next_offset
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            reader.stop()

        threading.Timer(0.5, stop).start()
        assert list(reader) == []
        assert stopped.is_set()
        assert list(reader) == []
    with follower(stream, start=end, expect=reader.fingerprint) as reader:
        stream.publish(["2"])
        assert numbers_in(next(reader)) == [2]


def test_a_loop_of_asyncio_loses_nothing_when_it_is_cancelled(stream: Streamed) -> None:
    async def main() -> list[int]:
        found: list[int] = []
        reader = await asyncio.to_thread(follower, stream, max_wait_s=0.01)
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        async def take() -> None:
            async for batch in reader:
                found.extend(numbers_in(batch))

        heart = asyncio.create_task(beat())
        with reader:
            while len(found) < 300:
                await asyncio.wait([taking := asyncio.create_task(take())], timeout=0.05)
                taking.cancel()
            heart.cancel()
            last = asyncio.create_task(anext(reader))
            await asyncio.sleep(0.2)
            reader.stop()
            with pytest.raises(StopAsyncIteration):
                await last
        assert beats > 20
        return found

    def write() -> None:
        with StreamPublisher(stream.broker.stream_url, stream=stream.name) as publisher:
            for number in range(300):
                publisher.publish_many(["k"], [str(number)])
                time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    assert asyncio.run(main()) == list(range(300))
    writer.join()


def test_an_asyncio_block_closes_the_reader_without_blocking_the_loop(
    stream: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a thread still takes the batch that a cancelled task has waited for."""
    closed_in: list[threading.Thread] = []
    close = StreamReader.close

    def noted(reader: StreamReader) -> None:
        closed_in.append(threading.current_thread())
        assert reader._pending is not None
        assert reader._pending.done(), "two threads use the reader"
        close(reader)

    monkeypatch.setattr(StreamReader, "close", noted)

    async def main() -> None:
        async with await asyncio.to_thread(follower, stream, name="billing") as reader:
            async for batch in reader:
                reader.store_offset(batch)
                break
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(reader), 0.1)

    stream.publish(["0"])
    asyncio.run(main())
    assert closed_in != [threading.main_thread()]
    assert len(closed_in) == 1
    with stream.connection(None) as connection:
        assert connection.query_offset("billing", "s") == 0


@pytest.mark.core
def test_a_reader_is_an_arrow_stream(stream: Streamed) -> None:
    stream.publish([str(number) for number in range(1_000)])
    with StreamReader(stream.broker.stream_url, "s", include=["properties"]) as reader:
        table = pa.table(reader)
        assert table.schema == reader.schema
    assert numbers_in(table) == list(range(1_000))
    with StreamReader(stream.broker.stream_url, "s") as reader:
        stream.make_again()
        stream.publish(["x"])
        with pytest.raises(pa.ArrowInvalid, match="the log of stream 's' has been rewritten"):
            pa.table(reader)
