"""The sketch of heavy keys: its bounds, against an exact count of each key."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.analysis import KeySketch
from rabbit_chx.analysis.slot_load import KeyCount
from rabbit_chx.errors import InputError

STREAMS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=200)


def exact(stream: list[tuple[int, int]]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for key, messages in stream:
        counts[key] += messages
    return counts


@given(STREAMS, st.integers(1, 12))
def test_the_bounds_hold_for_each_key(stream: list[tuple[int, int]], counters: int) -> None:
    sketch, counts = KeySketch(counters), exact(stream)
    for key, messages in stream:
        sketch.add(key, messages)
    heaviest_held = sketch.heaviest(counters)
    assert [*heaviest_held] == sorted(heaviest_held, key=lambda count: (-count.least, -count.most))
    held = {count.key: count for count in heaviest_held}
    assert sketch.messages == sum(counts.values())
    assert len(held) == min(counters, len(counts))
    for key, messages in counts.items():
        if key in held:
            assert held[key].least <= messages <= held[key].most
            assert held[key].most - held[key].least <= sketch.unseen_at_most
        else:
            assert messages <= sketch.unseen_at_most
    heaviest = [0, *(messages for _, messages in counts.most_common())]
    for j in range(min(counters, len(heaviest))):
        assert sketch.unseen_at_most * (counters - j) <= sketch.messages - sum(heaviest[: j + 1])
    assert {key for key, messages in counts.items() if messages * counters > sketch.messages} <= set(held)


def test_no_counter_is_taken_over_while_there_is_a_free_one() -> None:
    sketch = KeySketch(3)
    for key in "abcaab":
        sketch.add(key)
    assert sketch.heaviest(2) == (KeyCount("a", 3, 3), KeyCount("b", 2, 2))
    assert sketch.unseen_at_most == 1


@pytest.mark.parametrize("counters", [0, -1, 1.5, True])
def test_a_sketch_needs_counters(counters: int) -> None:
    with pytest.raises(InputError, match="pass a whole number from 1"):
        KeySketch(counters)
