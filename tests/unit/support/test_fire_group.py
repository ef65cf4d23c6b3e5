"""The figures of a group under fire."""

from __future__ import annotations

from effect_store import Effect
from fire_group import repeats_at_change


def test_the_repeats_are_those_of_the_generation_that_repeats_most() -> None:
    handled = [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 3), (3, 4)]
    assert (
        repeats_at_change(Effect(0.0, "g.0", number, "a", generation) for generation, number in handled) == 2
    )
