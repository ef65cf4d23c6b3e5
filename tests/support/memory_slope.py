"""Whether the memory of processes grows: samples while they run, and the slope of a line through them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, linear_regression
from typing import Any

from process_table import Process

_MB = 1e6
_HOUR_S = 3600.0


class Samples:
    """Samples of processes, each with the time at which it was taken.

    Args:
        role_of: names the role of a process.
    """

    def __init__(self, role_of: Callable[[Process], str]) -> None:
        self._role_of = role_of
        self._samples: dict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)

    def add(self, at_s: float, processes: Iterable[Process], others: Mapping[str, float]) -> None:
        """Add what was seen at one moment.

        Args:
            at_s: the moment, in seconds.
            processes: the processes.
            others: bytes that do not belong to a process, by name.
        """
        for process in processes:
            sample = (at_s, process.resident_bytes, process.files)
            self._samples[self._role_of(process), process.pid].append(sample)
        for what, size in others.items():
            self._samples[what, 0].append((at_s, size))

    def growth(self, after_s: float, least_s: float) -> list[dict[str, Any]]:
        """Return how each process grew that lived long enough.

        - what, pid: the role of the process, and its number; 0 if it is not a process.
        - samples, minutes: how many samples the line goes through, and the time from the first of them to the last.
        - mean_mb, mb_per_hour: the mean memory, in MB (10^6 bytes), and its slope.
        - mean_files, files_per_hour: the same of the number of open files; None if it is not a process.

        Args:
            after_s: samples before this moment are left out.
            least_s: seconds from the first sample to the last that a process must have.
        """
        found = []
        for (what, pid), samples in sorted(self._samples.items()):
            late = [sample for sample in samples if sample[0] >= after_s]
            if not late or late[-1][0] - late[0][0] < least_s:
                continue
            moments, sizes, *files = zip(*late, strict=True)
            found.append(
                {
                    "what": what,
                    "pid": pid,
                    "samples": len(late),
                    "minutes": round((moments[-1] - moments[0]) / 60, 1),
                    "mean_mb": round(fmean(sizes) / _MB, 1),
                    "mb_per_hour": round(_slope_per_hour(moments, sizes) / _MB, 2),
                    "mean_files": round(fmean(files[0]), 1) if files else None,
                    "files_per_hour": round(_slope_per_hour(moments, files[0]), 1) if files else None,
                }
            )
        return found


def _slope_per_hour(moments: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line of least squares through the values at moments in seconds."""
    return linear_regression(moments, values).slope * _HOUR_S
