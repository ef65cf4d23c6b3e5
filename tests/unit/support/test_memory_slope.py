"""The slope of memory, on made-up samples."""

from __future__ import annotations

import random

import pytest
from memory_slope import Samples, slope_per_hour
from process_table import Process

MB = 1_000_000


def a_process(pid: int, size: float, files: int = 9) -> Process:
    return Process(pid, 1, f"python {pid}", int(size), files)


def test_the_slope_of_a_line() -> None:
    assert slope_per_hour([(10.0, 5.0), (20.0, 6.0), (40.0, 8.0)]) == pytest.approx(360.0)


@pytest.mark.parametrize("leak", [0.0, 12.0, -12.0])
def test_a_leak_is_found_in_noise(leak: float) -> None:
    """24 minutes, a sample every 10 s, and a MB of noise."""
    noise = random.Random(5)  # noqa: S311  # no secret
    samples = Samples(lambda process: process.command)
    for at in range(0, 1_440, 10):
        size = 150 * MB + leak * MB * at / 3_600 + noise.gauss(0, MB)
        samples.add(float(at), [a_process(7, size, 9 + at % 2)], {})
    (growth,) = samples.growth(0.0, 1_300.0)
    assert growth.what == "python 7"
    assert growth.samples == 144
    assert growth.mb_per_hour == pytest.approx(leak, abs=3.0)
    assert growth.files_per_hour == pytest.approx(0.0, abs=0.1)


def test_what_came_before_and_who_did_not_live_long_do_not_count() -> None:
    samples = Samples(lambda process: f"role {process.pid}")
    for at in range(0, 100, 10):
        warm = MB if at < 50 else 9 * MB
        short = [a_process(2, MB)] if at > 70 else []
        samples.add(float(at), [a_process(1, warm), *short], {"live heap": 2.0 * MB})
    growth = {process.what: process for process in samples.growth(50.0, 40.0)}
    assert set(growth) == {"role 1", "live heap"}
    assert (growth["role 1"].mb_per_hour, growth["role 1"].mean_mb, growth["role 1"].minutes) == (
        0.0,
        9.0,
        0.7,
    )
    assert growth["live heap"].mean_files is None
