"""Movement: the laws of the matrix, and what is known of plain rings."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.analysis import movement, simulate
from rabbit_chx.routing import (
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    SlotTable,
    SuperStream,
    modulus_exchange,
)
from rabbit_chx.routing.bindings import Flows
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import StreamClient

TEN = HashRing.from_bindings([(f"q{n}", 1) for n in range(10)])
KEYS = [f"key-{n}" for n in range(2000)]

places = st.one_of(st.none(), st.sampled_from(["a", "b", "c", ExchangeRef("a")]))
SLOT = ExchangeRef("a")
rings = st.builds(HashRing.from_buckets, st.lists(places, max_size=8))
tables = st.builds(lambda ring: SlotTable(ring, {SLOT: "c"} if SLOT in ring.destinations else {}), rings)
maps = rings | tables


@pytest.mark.extended
@settings(max_examples=15, deadline=None)
@given(before=maps, after=maps)
def test_sums_are_the_exact_shares_and_what_is_off_the_diagonal_moves(before: KeyMap, after: KeyMap) -> None:
    matrix = movement(before, after)
    assert matrix.before_totals() == (before.shares() or {None: 1.0})
    assert matrix.after_totals() == (after.shares() or {None: 1.0})
    assert matrix.moved == before.share_moved(after)
    assert matrix.moved == sum(amount for (old, new), amount in matrix.items() if old != new)
    assert matrix.least <= matrix.moved
    assert movement(before, before).moves() == []


@settings(max_examples=20, deadline=None)
@given(before=maps, after=maps)
def test_the_matrix_of_keys_counts_the_destinations_of_each_key(before: KeyMap, after: KeyMap) -> None:
    if not before.destinations or not after.destinations:
        return
    expected: dict[object, int] = {}
    for key in KEYS[:200]:
        pair = (before.destination_for(key), after.destination_for(key))
        expected[pair] = expected.get(pair, 0) + 1
    change = simulate(before, KEYS[:200], changed=after).change
    assert change is not None
    assert change.messages is not None
    assert dict(change.messages) == expected


def test_unbinding_the_first_of_ten_moves_nearly_all_and_a_new_last_one_the_least() -> None:
    added = movement(TEN, TEN.bind("new"))
    assert {target for _, target, _ in added.moves()} == {"new"}
    assert added.moved == added.least == pytest.approx(1 / 11, rel=1e-3)
    matrix = movement(TEN, TEN.unbind("q0"))
    assert matrix.moved == pytest.approx(0.989, abs=5e-4)
    assert matrix.least == TEN.shares()["q0"]
    assert matrix.moves()[0] == ("q0", "q1", TEN.shares()["q0"])


def test_destinations_stand_in_ring_order_and_holes_last() -> None:
    matrix = movement(HashRing.from_buckets(["b", None, "a"]), HashRing.from_buckets(["c"]))
    assert (matrix.before, matrix.after) == (("b", "a", None), ("c",))


@pytest.mark.parametrize("destinations", [5, 2_000])
def test_flows_modulo_a_number_that_are_computed_as_they_are_read_have_the_sums_of_counted_ones(
    monkeypatch: pytest.MonkeyPatch, destinations: int
) -> None:
    """That the flows are exact is shown in `routing/arrays/test_modulo.py`."""
    monkeypatch.setattr(modulus_exchange, "_HASHES", 1_000)
    maps = [
        ModulusHashExchange("e", [(f"q{n % destinations}", f"{n}") for n in range(count)])
        for count in (0, 1, 3, 60, 1_001)
    ]
    for before, after in itertools.permutations(maps, 2):
        matrix = movement(before, after)
        whole = Flows(matrix.before, matrix.after, dict(matrix))
        sizes = sorted((amount for *_, amount in whole.moves()), reverse=True)
        assert list(matrix) == list(whole.row_by_row())
        assert (len(matrix), matrix.move_count) == (len(whole), len(sizes))
        assert matrix.moved == pytest.approx(sum(sizes))
        assert matrix.before_totals() == pytest.approx(whole.before_totals())
        assert matrix.after_totals() == pytest.approx(whole.after_totals())
        moves = matrix.largest_moves(7)
        assert [amount for *_, amount in moves] == pytest.approx(sizes[:7])
        assert all(source != to and matrix[source, to] == amount for source, to, amount in moves)


@pytest.mark.parametrize("client", ["java", "rstream"])
@pytest.mark.parametrize(("before", "after"), [(3, 4), (7, 5), (100, 101), (499, 503)])
def test_all_shares_of_a_movement_add_up_to_1(client: StreamClient, before: int, after: int) -> None:
    def of(count: int) -> SuperStream:
        return SuperStream([f"s-{n}" for n in range(count)], client=client)

    matrix = movement(of(before), of(after))
    assert abs(math.fsum(matrix.values()) - 1) < 1e-15
    assert matrix.before_totals() == pytest.approx(of(before).shares(), rel=1e-14)
    assert matrix.after_totals() == pytest.approx(of(after).shares(), rel=1e-14)
