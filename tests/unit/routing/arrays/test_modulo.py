"""Flows between two numberings, held against each hash on its own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.routing.arrays.seeds import ModuloFlows

NUMBERED = st.lists(st.sampled_from("abcd"), max_size=7)


def count(before: list[str], after: list[str], hashes: int) -> Counter[tuple[str | None, str | None]]:
    """Return the number of hashes of each pair of destinations; without numbers the place is None."""
    return Counter(
        (before[h % len(before)] if before else None, after[h % len(after)] if after else None)
        for h in range(hashes)
    )


@given(NUMBERED, NUMBERED, st.integers(1, 100), st.integers(1, 5))
def test_flows_totals_and_moves_are_those_of_each_hash(
    before: list[str], after: list[str], hashes: int, most: int
) -> None:
    flows = ModuloFlows(before, after, hashes)
    counted = count(before, after, hashes)
    assert dict(flows) == {pair: number / hashes for pair, number in counted.items()}
    assert len(flows) == len(counted)
    moves = [number for (source, target), number in counted.items() if source != target]
    assert flows.moved * hashes == pytest.approx(sum(moves))
    assert flows.move_count == len(moves)
    largest = [share * hashes for *_, share in flows.largest_moves(most)]
    assert largest == pytest.approx(sorted(moves, reverse=True)[:most])
    for side, sums in enumerate((flows.before_totals(), flows.after_totals())):
        summed = Counter(pair[side] for pair in counted.elements())
        totals = {place: share * hashes for place, share in sums.items() if share}
        assert totals == pytest.approx(dict(summed))


def test_a_pair_without_a_hash_has_no_flow() -> None:
    flows = ModuloFlows(["a", "b"], ["a", "b"], 8)
    assert ("a", "b") not in flows
    with pytest.raises(KeyError):
        flows["a", "b"]
