"""Compare the forms of rows in one stream: single rows, sub-entries, compressed ones; and a filter that selects 1% of a million rows.

One process writes and reads with Arrow columns; bodies are 100 random hexadecimal digits. A run counts only if every row is confirmed and
read back.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa

from rabbit_chx import StreamPublisher, StreamReader
from rabbit_chx.errors import NotFoundError
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import find_broker, temporary_vhost

ROWS, ROUNDS, FILTERED = 600_000, 3, 1_000_000
FORMS: dict[str, dict[str, Any]] = {"single rows": {}} | {
    f"sub-entries of 1,000 rows, {codec}": {"sub_entry_rows": 1_000, "compression": codec}
    for codec in ("none", "lz4", "zstd")
}


def clear(url: str) -> None:
    """Make the stream empty."""
    with closing(StreamConnection(stream_settings(url))) as connection:
        with suppress(NotFoundError):
            connection.delete_stream("s")
        connection.create_stream("s")


def read(url: str, **how: Any) -> tuple[int, int, float]:
    """Return the rows, the received bytes and the seconds."""
    started = time.perf_counter()
    with StreamReader(url, "s", **how) as reader:
        rows = sum(batch.num_rows for batch in reader)
        received = reader._reading.subscription.bytes_received  # noqa: SLF001
        return rows, received, time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    keys: Any = pa.array([f"order-{i:08}" for i in range(ROWS)])
    bodies: Any = pa.array([os.urandom(50).hex() for _ in range(ROWS)])
    with find_broker() as broker, temporary_vhost(broker) as place:
        url = place.stream_url
        written: dict[str, list[float]] = {form: [] for form in FORMS}
        found: dict[str, list[float]] = {form: [] for form in FORMS}
        for _ in range(ROUNDS):
            for form, how in FORMS.items():
                clear(url)
                started = time.perf_counter()
                with StreamPublisher(url, stream="s", **how) as publisher:
                    confirmed = publisher.publish_many(keys, bodies).confirmed
                written[form].append(ROWS / (time.perf_counter() - started))
                rows, _, seconds = read(url)
                found[form].append(ROWS / seconds)
                if not confirmed == rows == ROWS:
                    raise SystemExit(f"{form}: {confirmed} rows confirmed, {rows} read")
        for form in FORMS:
            print(
                f"{form}: {statistics.median(written[form]):,.0f} rows/s written, "
                f"{statistics.median(found[form]):,.0f} read"
            )
        clear(url)
        with StreamPublisher(url, stream="s", filter_value="key") as publisher:
            for group in range(100):
                publisher.publish_many([f"g{group}"] * (FILTERED // 100), ["x" * 100] * (FILTERED // 100))
        for filters in ([], ["g50"]):
            rows, size, seconds = min(
                (read(url, filters=filters) for _ in range(3)), key=lambda each: each[2]
            )
            print(f"filters {filters}: {rows:,} rows, {size:,} bytes, {seconds:.2f} s")


if __name__ == "__main__":
    main()
