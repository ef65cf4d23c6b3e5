"""Read a stream, process its rows, and write the results to another stream, each result exactly once.

The id of a result is the offset of its source row plus 1. A program that was killed starts again after the offset that the broker keeps,
and publishes some results again: the broker drops them, since their ids are not above the last one. So `process` must be deterministic,
and one process at a time may run for a source and a target.

python examples/read_process_write.py URL SOURCE TARGET    (Control-C or SIGTERM ends it)
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx import StreamPublisher, StreamReader
from rabbit_chx.streams import ReadLimits


def process(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the large payments (10,000 cents and more) with a fee of 2%: none or one row for each source row."""
    cents = batch["value"].cast(pa.string()).cast(pa.int64())
    fee = pc.divide(pc.multiply(cents, 2), 100)
    results = batch.set_column(3, "value", pc.add(cents, fee).cast(pa.string()))
    return results.filter(pc.greater_equal(cents, pa.scalar(10_000)))


def run(
    url: str | Sequence[str],
    source: str,
    target: str,
    *,
    batch_rows: int = 65_536,
    addresses: Mapping[str, str] | None = None,
) -> None:
    """Process the rows of a stream as they arrive, until a signal ends the program."""
    name = f"large-payments-of-{source}"
    with (
        StreamReader(
            url, source, name=name, end="never", limits=ReadLimits(batch_rows=batch_rows), addresses=addresses
        ) as reader,
        StreamPublisher(url, stream=target, name=name, addresses=addresses) as publisher,
    ):
        for end in (signal.SIGINT, signal.SIGTERM):
            signal.signal(end, lambda *_: reader.stop())
        for batch in reader:
            results = process(batch)
            if results.num_rows:
                ids = results["offset"].to_numpy() + 1
                keys = results.column("key").fill_null(b"")  # rows that were published without a routing key
                publisher.publish_many(keys, results["value"], ids=ids)
            reader.store_offset(batch)  # after all results are confirmed


if __name__ == "__main__":
    run(*sys.argv[1:])
