"""Whether the memory of processes grows: samples while they run, and the slope of a line through them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

from process_table import Process

_MB = 1e6
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How one process, or one other quantity, grew.

    Attributes:
        what: the role of the process.
        pid: its number; 0 for what is no process.
        samples: how many samples the line goes through.
        minutes: from the first of them to the last.
        mean_mb: the mean memory, in MB (10^6 bytes).
        mb_per_hour: the slope of the memory.
        mean_files: the mean number of open files; None for what is no process.
        files_per_hour: the slope of the number of open files.
    """

    what: str
    pid: int
    samples: int
    minutes: float
    mean_mb: float
    mb_per_hour: float
    mean_files: float | None = None
    files_per_hour: float | None = None


class Samples:
    """Samples of processes, each with the time at which it was taken.

    Args:
        role_of: names the role of a process.
    """

    def __init__(self, role_of: Callable[[Process], str]) -> None:
        self._role_of = role_of
        self._memory: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        self._files: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)

    def add(self, at_s: float, processes: Iterable[Process], others: Mapping[str, float]) -> None:
        """Add what was seen at one moment.

        Args:
            at_s: the moment, in seconds.
            processes: the processes.
            others: bytes of what is no process, by name.
        """
        for process in processes:
            place = self._role_of(process), process.pid
            self._memory[place].append((at_s, process.resident_bytes))
            self._files[place].append((at_s, process.files))
        for what, size in others.items():
            self._memory[what, 0].append((at_s, size))

    def growth(self, after_s: float, least_s: float) -> list[Growth]:
        """Return how each process grew that lived long enough.

        Args:
            after_s: samples before this moment are left out.
            least_s: seconds from the first sample to the last that a process must have.
        """
        found = []
        for place, samples in sorted(self._memory.items()):
            memory = [sample for sample in samples if sample[0] >= after_s]
            if not memory or memory[-1][0] - memory[0][0] < least_s:
                continue
            files = [sample for sample in self._files[place] if sample[0] >= after_s]
            found.append(
                Growth(
                    what=place[0],
                    pid=place[1],
                    samples=len(memory),
                    minutes=round((memory[-1][0] - memory[0][0]) / 60, 1),
                    mean_mb=round(fmean(size for _, size in memory) / _MB, 1),
                    mb_per_hour=round(slope_per_hour(memory) / _MB, 2),
                    mean_files=round(fmean(number for _, number in files), 1) if files else None,
                    files_per_hour=round(slope_per_hour(files), 1) if files else None,
                )
            )
        return found


def slope_per_hour(samples: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line of least squares.

    Args:
        samples: moments in seconds, and what was measured at each.
    """
    moments, values = zip(*samples, strict=True)
    return linear_regression(moments, values).slope * _HOUR_S
