"""One dialogue of 200 messages, and its connection cut at one byte after the other, in both directions.

`make test` takes every fourth byte of the handshake and every hundredth of the rest. `make long WHAT=simulate` takes all.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from simulated_run import simulate
from simulated_scenarios import Fault, Program, Scenario

STRIDE = int(os.environ.get("SIMULATION_STRIDE", "100"))
HANDSHAKE = 700  # bytes, of either direction
GOODBYE = 26
BLOCKS = 16
DIALOGUE = Scenario(
    seed=7,
    program=Program(rows=200, calls=4, body=200, keys=7),
    publisher={"max_in_flight": 80, "retry_first_connection": True, "backoff_s": 0.01},
    must_complete=True,
    frame_max=(4096,),
    confirm_s=0.004,
    tick_s=0.001,
)


def test_the_dialogue_is_long_enough() -> None:
    up, down = simulate(DIALOGUE).carried
    assert up > 29_000
    assert down > 2_000


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_cut_at_any_byte_loses_nothing_and_repeats_only_what_is_counted(direction: str, block: int) -> None:
    up, down = simulate(DIALOGUE).carried
    last = up if direction == "up" else down
    places = [*range(1, HANDSHAKE, -(-STRIDE // 25)), *range(HANDSHAKE, last + 1, STRIDE)]
    for byte in places[block::BLOCKS]:
        kind = "cut up" if direction == "up" else "cut down"
        outcome = simulate(replace(DIALOGUE, faults=(Fault(kind, 0, byte=byte),)))  # type: ignore[arg-type]
        assert not outcome.faults, f"{kind} at byte {byte}: {outcome}"
        if byte < last - GOODBYE:
            assert outcome.connections == 2, f"{kind} at byte {byte}: {outcome}"
        assert outcome.report.confirmed == 200
