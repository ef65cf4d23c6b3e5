"""Rows as columns of bytes."""

from __future__ import annotations

import pytest

from rabbit_chx.publishing.rows import Rows

FULL = Rows([b"k0", b"k1", b"k2"], [b"b0", b"b1", b"b2"], [b"p0", b"p1", b"p2"], [b"x0", b"x1", b"x2"])


@pytest.mark.parametrize("places", [[1], [0, 2], [2, 0], []], ids=str)
def test_picked_rows_keep_all_that_is_theirs(places: list[int]) -> None:
    picked = FULL.pick(places)
    assert len(picked) == len(places)
    for name in ("keys", "bodies", "properties", "exchanges"):
        assert getattr(picked, name) == [getattr(FULL, name)[i] for i in places]


def test_rows_without_properties_and_exchanges_of_their_own_get_none_by_picking() -> None:
    picked = Rows([b"k0", b"k1"], [b"b0", b"b1"]).pick([1])
    assert picked == Rows([b"k1"], [b"b1"], None, None)


def test_all_rows_are_the_same_rows() -> None:
    assert FULL.pick([0, 1, 2]) is FULL
