"""Rows are read as they arrive: soon, each once, until the reader is stopped, also over lost connections."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from streamed import Streamed, numbers_in
from tcp_proxy import Proxy

from rabbit_chx.errors import MissingRowsError, NotFoundError, UnreachableError
from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.9", "streams")]


def follower(stream: Streamed, port: int | None = None, **arguments: Any) -> StreamReader:
    url = stream.broker.stream_url
    if port is not None:
        url = url.replace(f":{stream.broker.stream_port}/", f":{port}/")
    return StreamReader(url, stream.name, end="never", **arguments)


@contextmanager
def written(stream: Streamed, rows: int, pause_s: float = 0.0, group: int = 1) -> Iterator[None]:
    """Write rows with their numbers meanwhile."""

    def write() -> None:
        with StreamPublisher(stream.broker.stream_url, stream=stream.name) as publisher:
            for first in range(0, rows, group):
                bodies = [str(number) for number in range(first, min(first + group, rows))]
                publisher.publish_many(["k"] * len(bodies), bodies)
                time.sleep(pause_s)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def read(reader: StreamReader, rows: int, until_s: float = 60.0) -> list[int]:
    """Read until there are this many rows."""
    found: list[int] = []
    timer = threading.Timer(until_s, reader.stop)
    timer.start()
    for batch in reader:
        found += numbers_in(batch)
        if len(found) >= rows:
            reader.stop()
    timer.cancel()
    return found


@pytest.mark.core
def test_rows_are_returned_soon_after_they_arrive(stream: Streamed) -> None:
    """And not when later rows arrive: each row is published after the one before it was read."""
    with follower(stream, start="next", max_wait_s=0.05) as reader:
        assert reader.end_offset == (1 << 63) - 1
        for number in range(40):
            stream.publish([str(number)])
            assert numbers_in(next(reader)) == [number]


def test_a_longer_wait_makes_fewer_batches(stream: Streamed) -> None:
    with follower(stream, max_wait_s=0.5) as reader, written(stream, 200, pause_s=0.005):
        began = time.monotonic()
        found = []
        batches = 0
        for batch in reader:
            found += numbers_in(batch)
            batches += 1
            if len(found) == 200:
                break
        passed_s = time.monotonic() - began
    assert found == list(range(200))
    assert (batches - 1) * 0.5 <= passed_s, "a batch was returned before its time"


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


def test_a_signal_handler_may_stop_it(stream: Streamed) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with follower(stream) as reader:
        signal.signal(signal.SIGTERM, lambda *_: reader.stop())
        try:
            threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
            assert list(reader) == []
        finally:
            signal.signal(signal.SIGTERM, before)


@pytest.mark.extended
def test_lost_connections_lose_and_repeat_nothing(stream: Streamed, line: Proxy) -> None:
    breaks: list[Callable[[], None]] = [line.cut, line.finish, line.abandon, line.cut]
    with (
        follower(stream, line.port, timeout_s=10, max_wait_s=0.02, batch_rows=100) as reader,
        written(stream, 4_000, pause_s=0.02, group=20),
    ):
        found: list[int] = []
        for batch in reader:
            found += numbers_in(batch)
            if breaks and len(found) > 4_000 - 900 * len(breaks):
                breaks.pop()()
            if len(found) >= 4_000:
                break
    assert found == list(range(4_000))
    assert not breaks


def test_a_silent_line_is_noticed_and_left(stream: Streamed, line: Proxy) -> None:
    with follower(stream, line.port, timeout_s=6) as reader:
        stream.publish(["0"])
        assert numbers_in(next(reader)) == [0]
        line.leave_frozen()  # new connections pass
        stream.publish(["1"])
        started = time.monotonic()
        assert numbers_in(next(reader)) == [1]
        assert time.monotonic() - started < 60
        line.freeze()
        with pytest.raises(UnreachableError):
            next(reader)
        assert time.monotonic() - started < 120


def test_a_follower_with_a_filter_reads_its_rows_alone(stream: Streamed) -> None:
    with stream.connection(None) as connection:
        if connection.no_filters:
            pytest.skip("no stream filters")
    url = stream.broker.stream_url
    with (
        StreamPublisher(url, stream="s", filter_value="key") as publisher,
        follower(stream, filters=["red"], timeout_s=1.5) as reader,
    ):
        found: list[int] = []
        for number in range(6):
            publisher.publish_many(["green"] * 50, ["0"] * 50)
            publisher.publish_many(["red"], [str(number)])
            found += numbers_in(next(reader))
            time.sleep(0.5 * number)
        publisher.publish_many(["green"] * 50, ["0"] * 50)
        threading.Timer(3, reader.stop).start()
        assert list(reader) == []
        assert found == list(range(6))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_stream_that_is_made_again_is_an_error(stream: Streamed, rows: int) -> None:
    stream.publish_singly(["0", "1"])
    with follower(stream, start="next", timeout_s=8) as reader:
        threading.Timer(0.5, stream.publish_singly, [["2"]]).start()
        assert numbers_in(next(reader)) == [2]
        stream.make_again()
        stream.publish_singly(["x"] * rows)
        with pytest.raises((MissingRowsError, UnreachableError) if not rows else MissingRowsError):
            next(reader)
    with follower(stream, timeout_s=8) as reader:
        with stream.connection(None) as connection:
            connection.delete_stream("s")
        with pytest.raises(NotFoundError):
            list(reader)


def test_rows_that_retention_removed_are_an_error_or_counted(vhost: RunningBroker) -> None:
    small = Streamed(vhost, "t", {"max-length-bytes": "40000", "stream-max-segment-size-bytes": "10000"})
    for on_missing in ("raise", "count"):
        with follower(small, on_missing=on_missing, batch_rows=1, start="next") as reader:
            small.publish_singly(["x" * 1_000] * 20)
            next(reader)
            reader._reading.disconnect()
            small.publish_singly(["x" * 1_000] * 149 + ["last"])
            _wait_until_removed(small, reader.next_offset)
            timer = threading.Timer(60, reader.stop)
            timer.start()
            if on_missing == "raise":
                with pytest.raises(MissingRowsError):
                    list(reader)
                timer.cancel()
                continue
            assert any(batch["value"][-1].as_py() == b"last" for batch in reader)
            timer.cancel()
            assert reader.missing > 0


def _wait_until_removed(stream: Streamed, offset: int) -> None:
    """Wait until retention, which comes after the rows, has removed the row at an offset."""
    deadline = time.monotonic() + 60
    while True:
        with StreamReader(stream.broker.stream_url, stream.name) as reader:
            if reader.start_offset > offset:
                return
        assert time.monotonic() < deadline, "nothing is removed"
        time.sleep(0.05)


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

    with written(stream, 300, pause_s=0.005):
        assert asyncio.run(main()) == list(range(300))


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
