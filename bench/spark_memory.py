"""Measure the memory of the Python worker that writes: it is the same after 5,000,000 rows as after 500,000.

There is one partition, so one worker writes all rows. Its resident memory is read from /proc four times a
second. The queues keep only the last messages, so that the broker's memory does not grow with the rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

from spark_write import EXCHANGE, QUEUES, bench_exchange, spark_on

from rabbit_chx.rendering import TableColumn, render_table

MIB = 1 << 20


def workers() -> dict[int, int]:
    """Return the resident bytes of each Python worker that this Spark has started, by process id."""
    processes: dict[int, tuple[int, int, bytes]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # the process has ended
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            resident = int(fields.get("VmRSS", "0 kB").split()[0]) << 10
            processes[int(entry.name)] = (int(fields["PPid"]), resident, command)
    own = {os.getpid()}
    for pid in sorted(processes):  # children have higher ids than their parents
        if processes[pid][0] in own:
            own.add(pid)
    return {
        pid: processes[pid][1] for pid in own & processes.keys() if b"pyspark.daemon" in processes[pid][2]
    }


class Watch(threading.Thread):
    """Record the largest resident memory of a worker until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        """Read the memory four times a second."""
        while not self._over.wait(0.25):
            self.peak = max(self.peak, *workers().values(), 0)

    def stop(self) -> int:
        """Stop, and return the peak in bytes."""
        self._over.set()
        self.join()
        return self.peak


def peak_of(rows: int) -> int:
    """Return the peak resident bytes of a worker while a Spark of its own writes `rows` rows."""
    with bench_exchange() as (place, channel):
        for queue in QUEUES:
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10_000})
            channel.queue_bind(queue, EXCHANGE, "1")
        spark = spark_on(1)
        frame = spark.range(0, rows, 1, 1).selectExpr(
            "concat('order-', lpad(id, 8, '0')) AS key", "encode(repeat('x', 100), 'utf-8') AS value"
        )
        watch = Watch()
        watch.start()
        frame.write.format("rabbitmq").options(url=place.url, exchange=EXCHANGE).mode("append").save()
        spark.stop()
        return watch.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, for a look")
    scale = 10 if parser.parse_args().quick else 1
    if not Path("/proc").is_dir():
        sys.exit("this script reads /proc: run it on Linux")
    peaks = {rows: peak_of(rows) for rows in (500_000 // scale, 5_000_000 // scale)}
    few, many = peaks.values()
    print(
        render_table(
            (TableColumn("rows"), TableColumn("peak MiB of the worker")),
            [(rows, f"{peak / MIB:.1f}") for rows, peak in peaks.items()],
        )
    )
    print(f"difference: {(many - few) / MIB:+.1f} MiB")


if __name__ == "__main__":
    main()
