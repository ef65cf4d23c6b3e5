"""Seeds for StreamPublisher, Spark's stream tasks and StreamReader: rows are stored once and in order, offsets given once, and every run ends.

Of several writers of one name: what is reported as confirmed is stored.
"""

from __future__ import annotations

import os

import pytest
import simulated_streams

_AT_ONCE = 20
#: More by `make long WHAT=simulate`.
_SEEDS = int(os.environ.get("STREAM_SEEDS", "20"))


@pytest.mark.parametrize("first", range(0, _SEEDS, _AT_ONCE))
@pytest.mark.parametrize(
    "run",
    [
        simulated_streams.publish,
        simulated_streams.write,
        simulated_streams.read,
        simulated_streams.share,
        simulated_streams.repeat,
    ],
)
def test_whatever_happens_to_streams(run, first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"again: simulated_streams.{run.__name__}({seed})")
            raise
