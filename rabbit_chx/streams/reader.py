"""Read rows of a stream as Arrow record batches, up to an end that is fixed when the reader is opened, or as they arrive.

`rabbit_chx.streams.chunk_readers` explains where the chunks come from. A reader makes batches of their rows.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rabbit_chx.checks import shown
from rabbit_chx.connection.blocking_connection import UsageGuard
from rabbit_chx.connection.failures import call_in_thread, interruption
from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.options import check_options, documented, takes
from rabbit_chx.streams.chunk_readers import ATTEMPT_S, ChunkReader, FollowingChunkReader, RangeChunkReader
from rabbit_chx.streams.chunks import Piece
from rabbit_chx.streams.frames import check_range
from rabbit_chx.streams.options import BATCH_BYTES, RangeOptions, ReaderOptions
from rabbit_chx.streams.rows import columns_in, schema_of

if TYPE_CHECKING:
    import pyarrow as pa


@documented(ReaderOptions)
class StreamReader:
    """An iterator over the rows of a stream, as `pyarrow.RecordBatch`. The columns are offset, timestamp, key and value.

    ``offset`` is int64. ``timestamp`` is the broker's time of the row's chunk (us, UTC). ``key`` and ``value`` are binary; the key is
    the routing key, where the row has one.

    The constructor connects and fixes the end; rows that are written later are not read, unless `end` is ``"never"``. The rows are in the
    order of the stream, each once, also after lost connections and leader changes. At most some megabytes are read ahead. The loop may be
    slow: heartbeats are sent meanwhile. A reader is not thread-safe, except for `stop`. In a forked process reading raises InputError.

    ``async for`` also returns the batches, each awaited in a thread: a batch has thousands of rows, so that costs little. A cancelled wait
    loses no batch. ``async with`` closes the reader in a thread, too. The other methods and the constructor block: call them by
    ``await asyncio.to_thread(StreamReader, ...)``. A reader is an Arrow stream (``__arrow_c_stream__``): DuckDB, Polars, pandas and
    DataFusion read it as a table.

    Attributes:
        stream: the stream's name.
        start_offset: the first offset to read.
        end_offset: the first offset that is not read; 2^63 - 1 for ``"never"``.
        next_offset: the offset after the returned batches; a later reader may start there.
        end_fingerprint: the fingerprint of the last chunk of rows at the time of opening; None without rows.
        fingerprint: the fingerprint of the last returned chunk; before the first one it is `expect`.
        chunks: the number of returned chunks; the broker writes a chunk at once.
        rows_read: the rows of the batches before the reader applied `filters` to them.
        rows_returned: the rows of the returned batches.

    Raises:
        InputError: an argument is not valid.
        MissingRowsError, NotFoundError: the stream lacks a part of the range, or does not exist.
        BrokerRefusedError, UnreachableError: the broker refuses the user, the vhost or the stream, or no node answers in time.

    Example::

        with StreamReader("rabbitmq-stream://localhost", "orders-0") as reader:
            print(sum(batch.num_rows for batch in reader))
    """

    _pending: Future[pa.RecordBatch | None] | None = None  # the batch that a cancelled task has waited for

    @takes(ReaderOptions)
    def __init__(self, options: ReaderOptions) -> None:
        self._begin(options)

    def _begin(self, options: ReaderOptions) -> None:
        stream = options.stream
        include = options.include
        name = options.name
        check_range(options.start, options.end, options.expect)
        check_options(options)
        if name is not None and (options.expect is not None or isinstance(options, RangeOptions)):
            raise InputError(
                f"the name is {shown(name)}, and expect or landmarks is given: the broker keeps the position, or the application does"
            )
        if not isinstance(stream, str):
            raise InputError(f"the stream is {shown(stream)}: pass its name")

        schema_of(include if isinstance(include, str) else tuple(include))  # raises for unknown columns
        self._guard = UsageGuard(f"the StreamReader of {stream!r:.80}")
        self.stream = stream
        self._include = tuple(include)
        self._batch_rows = options.limits.batch_rows
        self._timeout_s = options.limits.timeout_s
        self._failure: Exception | None = None
        self.chunks = self.rows_read = self.rows_returned = 0
        is_endless = options.end == "never" and not isinstance(options, RangeOptions)
        self._reading: ChunkReader = (
            FollowingChunkReader(options) if is_endless else RangeChunkReader(options)
        )
        self.end_fingerprint = self._reading.open_range(options)
        progress = self._reading.progress
        self.fingerprint = options.expect
        progress.last = options.expect or progress.last
        self.start_offset = self.next_offset = progress.next
        self.end_offset = progress.end

    @property
    def schema(self) -> pa.Schema:
        """The schema of each batch."""
        return schema_of(self._include)

    @property
    def missing(self) -> int:
        """The number of missing offsets between start and end so far, with ``on_missing="count"``."""
        return self._reading.progress.missing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch.

        Raises:
            MissingRowsError: rows before the end were removed, or the log was rewritten.
            UnreachableError: no chunk arrived within the timeout.
            InputError: this is a forked process.
            RabbitChxError: reading failed. Each later call raises it again.
        """
        self._guard.check()
        if self._failure is not None:
            raise self._failure

        try:
            batch = self._next_batch()
            while batch is not None and self._reading.filters and not batch.num_rows:
                batch = self._next_batch()
        except BaseException as cause:
            self._reading.disconnect()
            if self._reading.is_stopped and isinstance(cause, RabbitChxError):
                raise StopIteration from None
            # Also after an interruption: a later call would skip the chunks that were already taken.
            where = f"the reader of stream {self.stream!r}"
            self._failure = cause if isinstance(cause, Exception) else interruption(where, cause)
            raise

        if batch is None:
            self._reading.disconnect()
            raise StopIteration

        self.rows_returned += batch.num_rows
        return batch

    def store_offset(self, batch: pa.RecordBatch) -> None:
        """Store that the rows up to the end of `batch` are processed, under the reader's name.

        The broker gets it with the next 10,000 rows, within 5 seconds, or at `close`, which waits until the leader has it. A program that
        is killed reads the rows since then again. A batch without rows stores nothing.

        Raises:
            InputError: the reader has no name, or is closed, or the batch has no column ``offset``.
        """
        self._guard.check()
        stored = self._reading.stored
        connection = self._reading.connection
        if stored is None:
            raise InputError(f"the reader of stream {self.stream!r} has no name, or is closed: pass name=")
        stored.note(batch)
        if connection is not None:
            with suppress(RabbitChxError):  # the next connection writes it
                stored.write_if_due(connection)

    def stop(self) -> None:
        """End the iteration: the batch that is being filled is returned, and no further one. Another reader may start at `next_offset`.

        Another thread and a signal handler may call it. The loop ends within a fraction of a second, or some seconds while it reconnects.
        """
        self._reading.is_stopped = True

    def close(self) -> None:
        """Store the offset, and close the connection; may be called again. In a forked process it does nothing."""
        if not self._guard.is_this_process:
            return
        self.stop()
        self._reading.disconnect()
        reading = self._reading
        stored = reading.stored
        reading.stored = None
        if stored is not None:
            stored.finish(lambda: reading.open(time.monotonic() + ATTEMPT_S, leader=True))
        self._failure = self._failure or InputError(
            f"the reader of stream {self.stream!r} is closed: open a new one"
        )

    # -- in an asyncio loop, and as an Arrow C stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it in a thread, once no other thread takes a batch."""
        from asyncio import to_thread

        self.stop()
        pending = self._pending

        def close() -> None:
            if pending is not None:
                wait([pending])
            self.close()

        await to_thread(close)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        """Return the next batch, which a thread takes; after a cancelled wait the one that was waited for."""
        from asyncio import CancelledError, shield, wrap_future

        if self._pending is None:
            # Not in an executor: a program that ends does not wait for a batch.
            self._pending = call_in_thread(lambda: next(self, None), repr(self))
        try:
            batch = await shield(wrap_future(self._pending))
        except CancelledError:
            raise
        except BaseException:
            self._pending = None
            raise
        self._pending = None
        if batch is None:
            raise StopAsyncIteration
        return batch

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the remaining batches as an Arrow C stream: the Arrow PyCapsule interface."""
        import pyarrow as pa

        stream = pa.RecordBatchReader.from_batches(self.schema, self)
        return stream.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    # -- reading

    def _next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end."""
        reading = self._reading
        progress = reading.progress
        pieces_left = reading.subscription.pieces
        taken = list[Piece]()
        rows = 0
        size = 0
        deadline = time.monotonic() + self._timeout_s

        while rows < self._batch_rows and size < BATCH_BYTES and not reading.is_stopped:
            if not pieces_left:
                if progress.next >= progress.end or (taken and not reading.has_more()):
                    break
                deadline = reading.take_chunk(deadline)
                continue

            piece = pieces_left[0]
            if taken and size + piece.size > BATCH_BYTES:
                break

            taken.append(pieces_left.popleft())
            rows += piece.records
            size += piece.size
            if reading.unreturned_chunk is not None:
                self.fingerprint = reading.unreturned_chunk.fingerprint
                reading.unreturned_chunk = None
                self.chunks += 1

        columns = None
        if taken:
            filters = reading.filters
            include = self._include if filters is None else filters.columns(self._include)
            columns = columns_in(taken, self.start_offset, self.end_offset, include)
            self.rows_read += columns.num_rows
            if filters is not None:
                columns = filters.select(columns, self._include)

        # Only now: `columns_in` fails for a damaged chunk, and rows that were not returned must not be skipped.
        self.next_offset = reading.offset_after(taken, self.next_offset)
        return columns


@documented(RangeOptions)
class RangeReader(StreamReader):
    """A `StreamReader` of a range that the caller has found, as Spark's driver does for its tasks: `start` and `end` are offsets.

    The constructor does not connect, one connection is enough, and the range is verified only if no rows arrive.

    Raises:
        InputError: an argument is not valid.
    """

    @takes(RangeOptions)
    def __init__(self, options: RangeOptions) -> None:
        self._begin(options)
