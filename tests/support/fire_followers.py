"""A named follower of a stream under fire, in a process: it writes each batch into a file before it stores the offset.

A program: it follows until SIGTERM.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bounded import until
from delivery_checker import Judge
from fire_streams import StreamRun, numbers_in, stored

from rabbit_chx import StreamReader
from rabbit_chx.streams import ReadLimits
from rabbit_chx.streams.nodes import open_at, settings_of

_NAME = "follower"
_BATCH_ROWS = 1_000
#: `StreamReader.store_offset`: a stored offset is written after so many rows or seconds.
_DUE_ROWS = 10_000
_DUE_S = 5.0
#: A thousand rows a second, so that the seconds limit the repeats and not the rows.
_ROWS = 50
_PAUSE_S = 0.05
_END_S = 60.0


class Batch(NamedTuple):
    """A batch that the follower was given: its process, the monotonic time, the last offset, and the numbers of the rows."""

    process: int
    at: float
    offset: int
    numbers: list[int]


@dataclass
class Follower:
    """The follower, and what it has read.

    Attributes:
        urls: where it connects to.
        folder: for what it writes.
        addresses: where the addresses that the nodes advertise are.
        processes: the process, and those that were killed before.
    """

    urls: Sequence[str]
    folder: Path
    addresses: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that follows now."""
        return self.processes[-1]

    @property
    def batches(self) -> list[Batch]:
        """What it was given, in this order."""
        file = self.folder / "batches"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [Batch(*json.loads(line)) for line in lines if line.endswith("\n")]

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "log").read_text()

    @property
    def interruptions(self) -> int:
        """How often it has lost its connection, at the first batch or at more rows of a batch."""
        return self.log.count("trying again") + self.log.count("the batch is returned first")

    def start(self) -> None:
        """Start a process."""
        command = [sys.executable, __file__, str(self.folder / "batches"), json.dumps(dict(self.addresses))]
        with (self.folder / "log").open("ab") as log:
            self.processes.append(subprocess.Popen([*command, *self.urls], stderr=log))

    def restart(self) -> None:
        """Kill the process, and start another one."""
        self.process.kill()
        self.process.wait()
        self.start()

    def wait_for(self, number: int, within_s: float) -> None:
        """Wait until it was given a row."""

        def is_given() -> bool:
            assert self.process.poll() is None, self.log
            return any(batch.numbers[-1] >= number for batch in self.batches[-1:])

        until(is_given, f"it was given the row {number}", within_s)

    def stop(self) -> None:
        """Stop it in good order."""
        self.process.terminate()
        assert self.process.wait(_END_S) == 0, self.log

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            process.kill()  # also one that is stopped
            process.wait()


def follow(
    follower: Follower,
    publish_to: str | Sequence[str],
    make_fault: Callable[[StreamRun], None],
    record: Judge,
    *,
    path: str = "StreamReader",
    **words: Any,
) -> None:
    """Let a fault happen while rows are written and followed; check what the follower was given, and record it.

    Args:
        follower: it has not begun.
        publish_to: the URL of the publisher.
        make_fault: makes the fault; when it returns, it is over.
        record: checks the run, and records it.
        path: what reads, and on how many nodes.
        words: what happened, and what is promised under it, for the record.
    """
    run, began = StreamRun(), 0.0

    def happen(run: StreamRun) -> None:
        nonlocal began
        follower.wait_for(1, 60)
        began = time.monotonic()
        make_fault(run)

    with ExitStack() as stack:
        stack.callback(follower.end)
        follower.start()
        run.publish(
            publish_to, happen, follow=False, rows=_ROWS, pause_s=_PAUSE_S, addresses=follower.addresses
        )
        follower.wait_for(run.handed, 60)
        follower.stop()
    assert run.error is None
    assert run.fault_ended is not None
    batches = follower.batches
    numbers = [number for batch in batches for number in batch.numbers]
    _check(follower, batches, run.handed)
    assert stored(publish_to, addresses=follower.addresses) == list(range(1, run.handed + 1))
    times = [began, *(batch.at for batch in batches if batch.at > began)]
    record(
        run.history(numbers, repeats=_most_repeats(batches)),
        path=path,
        recover_s=next(at for at in times if at > run.fault_ended) - run.fault_ended,
        outcome=f"complete; longest pause {max(later - at for at, later in pairwise(times)):.1f} s",
        **words,
    )


def _check(follower: Follower, batches: Sequence[Batch], handed: int) -> None:
    """Check that each process was given rows in order without a gap, and that the broker has the position of the last row."""
    by_process: dict[int, list[int]] = defaultdict(list)
    for batch in batches:
        by_process[batch.process] += batch.numbers
    end = 0
    for numbers in by_process.values():
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[0] <= end + 1, "rows were skipped"
        end = numbers[-1]
    assert end == handed
    settings = settings_of(follower.urls)
    with closing(open_at(settings, "s", leader=True, addresses=follower.addresses, timeout_s=30)) as leader:
        assert leader.query_offset(_NAME, "s") == batches[-1].offset


def _most_repeats(batches: Sequence[Batch]) -> int:
    """Return how many rows the processes after the first may repeat: those of the last seconds before a kill, and a batch."""
    most = 0
    for process in list(dict.fromkeys(batch.process for batch in batches))[:-1]:
        given = [batch for batch in batches if batch.process == process]
        late = sum(len(batch.numbers) for batch in given if batch.at > given[-1].at - _DUE_S)
        most += min(late, _DUE_ROWS) + _BATCH_ROWS
    return most


def _follow(file: str, addresses: str, *urls: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with StreamReader(
        list(urls),
        "s",
        name=_NAME,
        end="never",
        limits=ReadLimits(batch_rows=_BATCH_ROWS),
        addresses=json.loads(addresses),
    ) as reader:
        signal.signal(signal.SIGTERM, lambda *_: reader.stop())
        for batch in reader:
            given = Batch(os.getpid(), time.monotonic(), batch["offset"][-1].as_py(), numbers_in(batch))
            os.write(out, f"{json.dumps(given)}\n".encode())
            reader.store_offset(batch)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("rabbit_chx.streams.chunk_readers").setLevel(logging.DEBUG)
    _follow(*sys.argv[1:])
