"""Rings on two releases."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import Binding, HashRing, Release
from rabbit_chx.topology.upgrade_exchange import heavy_bindings, ring_on, upgraded_rings

THREE: tuple[Binding, ...] = (("a", "1"), ("b", "2"), ("c", "1"))
OLD, NEW = Release("3.12.14"), Release("4.3.6")


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        (OLD, NEW, "lost"),
        (Release("4.0.9"), NEW, "lost"),  # on Mnesia
        (Release("4.0.9", "khepri"), NEW, "kept"),
        (Release("4.2.9"), NEW, "kept"),
        (Release("4.2.9", "mnesia"), NEW, "lost"),
        (Release("3.8.9"), Release("3.10.25"), "lost"),
    ],
)
def test_khepri_alone_keeps_the_order(before: Release, after: Release, order: str) -> None:
    rings = upgraded_rings(THREE, None, before, after)
    assert rings.order == order
    assert rings.before.buckets == rings.after.buckets == ("a", "b", "b", "c")
    assert rings.restart.store == rings.decided_by.store


def test_one_destination_has_no_order() -> None:
    assert upgraded_rings((("a", "5"),), None, OLD, NEW).order == "none"
    assert upgraded_rings((), None, OLD, NEW).order == "none"


def test_a_ring_that_was_read_is_the_one_before() -> None:
    read = HashRing.from_buckets(["a", "b", "b", "c"], OLD)
    rings = upgraded_rings(THREE, read, OLD, NEW)
    assert (rings.before.provenance, rings.as_bound) == ("read", True)


def test_khepri_keeps_ghosts_and_mnesia_does_not() -> None:
    ghost = ["a", "gone", "b", "b", "c"]
    khepri = Release("4.2.9")
    kept = upgraded_rings(THREE, HashRing.from_buckets(ghost, khepri), khepri, NEW)
    assert (kept.after.buckets, kept.as_bound) == (tuple(ghost), False)
    made = upgraded_rings(THREE, HashRing.from_buckets(ghost, OLD), OLD, NEW)
    assert (made.before.buckets, made.after.buckets) == (tuple(ghost), ("a", "b", "b", "c"))


def test_an_assumed_ring_stays_assumed() -> None:
    rings = upgraded_rings(THREE, HashRing.from_bindings(THREE, OLD, "assumed"), OLD, NEW)
    assert (rings.before.provenance, rings.after.provenance) == ("assumed", "assumed")


def test_a_binding_that_is_older_than_its_rule_has_its_buckets() -> None:
    heavy: tuple[Binding, ...] = (("a", "10001"), ("b", "1"), ("a", "2"))
    assert ring_on(heavy, NEW).bucket_count == 10_002
    assert heavy_bindings(heavy, NEW) == (("a", "10001"),)
    assert heavy_bindings(heavy, OLD) == ()
    with pytest.raises(InputError):
        ring_on((("a", "x"),), NEW)
