"""The limit of a sink in Spark: the same stage, but each task pushes ready-made bytes through one socket.

The bytes are made before the clock starts. The task encodes, checks and keeps nothing. It pulls the rows from
Spark as Arrow batches, as the connector does. For each row it sends one message of the same size, confirmed,
with the same window.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

WINDOW, WINDOW_BYTES = 1000, 8 << 20  # as in the connector


def raw_sink(url: str, exchange: str, body_bytes: int) -> Callable[[DataFrame, int], None]:
    """Return a function that writes one message of `body_bytes` bytes for each row of a DataFrame."""
    from raw_socket import ready_made

    window = max(1, min(WINDOW, WINDOW_BYTES // (body_bytes + 100)))
    chunk = max(1, min(500, window // 2))
    keys = [f"order-{i:08}" for i in range(chunk * max(1, min(20, WINDOW_BYTES // (chunk * body_bytes))))]
    body = b"x" * body_bytes
    chunks = ready_made(exchange, keys, body, chunk)
    folder = str(Path(__file__).parent)

    def push(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        sys.path.append(folder)  # on this machine the executors see the same files
        from raw_socket import RawSocket, ready_made

        def of_rows() -> Iterator[tuple[bytes, int]]:
            due = 0
            for batch in batches:
                due += batch.num_rows
                while due >= chunk:
                    yield next(turns)
                    due -= chunk
            yield from ready_made(exchange, keys[:due], body, chunk)

        turns = cycle(chunks)
        connection = RawSocket(url)
        sent = connection.push(of_rows(), window)
        connection.close()
        yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

    def write(rows: DataFrame, count: int) -> None:
        sent = sum(row.sent for row in rows.mapInArrow(push, "sent long").collect())
        if sent != count:
            raise SystemExit(f"the raw sink sent {sent} messages instead of {count}")

    return write
