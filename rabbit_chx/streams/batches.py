"""Iterators over record batches in an asyncio loop, and as an Arrow C stream."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pyarrow as pa


class Batches(ABC):
    """An iterator over record batches of one schema."""

    _pending: Future[pa.RecordBatch | None] | None = None  # the batch that a cancelled task has waited for

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of each batch."""

    @abstractmethod
    def __iter__(self) -> Self: ...

    @abstractmethod
    def __next__(self) -> pa.RecordBatch: ...

    @abstractmethod
    def stop(self) -> None:
        """End the iteration soon; another thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Release what the iterator holds."""

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
            self._pending = Future()
            # A daemon: a program that ends does not wait for a batch, as it does for a thread of an executor.
            threading.Thread(
                target=self._take, args=(self._pending,), name="rabbit_chx next batch", daemon=True
            ).start()
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

    def _take(self, batch: Future[pa.RecordBatch | None]) -> None:
        try:
            batch.set_result(next(self, None))
        except BaseException as cause:  # noqa: BLE001  # the waiting task raises it
            batch.set_exception(cause)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the remaining batches as an Arrow C stream: the Arrow PyCapsule interface."""
        import pyarrow as pa

        stream = pa.RecordBatchReader.from_batches(self.schema, self)
        return stream.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
