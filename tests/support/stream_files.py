"""The source of a stream that is replayed: files of numbers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bounded import until

_EPOCH = 1_700_000_000


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """Files of the numbers of rows, a micro-batch each.

    Attributes:
        folder: it gets them, and the checkpoint of the query.
        count: how many files there are.
        rows_each: how many rows each of them has.
    """

    folder: Path
    count: int = 5
    rows_each: int = 16_000

    @property
    def rows(self) -> int:
        """How many rows all of them have."""
        return self.count * self.rows_each

    @property
    def source(self) -> Path:
        """The folder of the files."""
        return self.folder / "source"

    @property
    def checkpoint(self) -> Path:
        """The folder of the query's checkpoint."""
        return self.folder / "checkpoint"

    def write(self) -> None:
        """Write the files, so that Spark takes them in their order."""
        self.source.mkdir(parents=True)
        for number in range(self.count):
            rows = range(number * self.rows_each, (number + 1) * self.rows_each)
            path = self._path(number)
            path.write_text("\n".join(map(str, rows)) + "\n")
            os.utime(path, (_EPOCH + number, _EPOCH + number))

    @contextmanager
    def last_withheld(self) -> Iterator[None]:
        """Put the last file there only at the end of the block."""
        last, aside = self._path(self.count - 1), self.folder / "withheld"
        last.rename(aside)
        yield
        aside.rename(last)

    def wait_for_commit(self, batch: int, within_s: float) -> None:
        """Wait until the query has committed a batch."""
        until((self.checkpoint / "commits" / str(batch)).exists, f"batch {batch} is there", within_s)

    def batches_with_copies(self, found: Mapping[str, Sequence[int]]) -> set[int]:
        """Return the batches of which a row was found more than once."""
        copies = Counter(row for rows in found.values() for row in rows)
        return {row // self.rows_each for row, count in copies.items() if count > 1}

    def _path(self, number: int) -> Path:
        return self.source / f"{number}.txt"
