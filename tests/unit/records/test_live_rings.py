"""The ring of a live exchange: what is bound to it, and in which order as far as that is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rabbit_chx.records.live_rings import (
    PendingApply,
    PlannedSteps,
    RingChange,
    find_live_ring,
    make_members,
    make_ring,
    pending_arguments,
    read_pending,
)
from rabbit_chx.records.ring_records import make_record, unseal
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import UNORDERED
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, RingMember, Topology, check, plan

NEWEST = Release("4.3.6")
A, B = RingMember("a", "2"), RingMember("b")
LISTED = ExchangeDefinition("x", "x-consistent-hash", ring=(B, A))


def live(**rings: HashRing) -> LiveTopology:
    return LiveTopology((LISTED, ExchangeDefinition("t", "topic")), release=NEWEST).with_rings(rings)


def test_buckets_show_their_members() -> None:
    assert make_members(["a", "a", None, "b"]) == (A, B)


def test_an_exchange_that_is_missing_or_of_another_type_has_an_empty_ring() -> None:
    for name in ("t", "missing"):
        found = find_live_ring(live(), live().exchange(name), name)
        assert (found.ring.buckets, found.bound) == ((), ())


def test_a_ring_that_was_not_read_has_the_order_of_its_members() -> None:
    found = find_live_ring(live(), LISTED, "x")
    assert (found.ring.provenance, found.ring.buckets) == ("replayed", ("b", "a", "a"))
    assert found.is_wanted((B, A), any_order=True)
    assert not found.is_made_by((A, B))


def test_a_ring_that_was_read_is_the_ring_whatever_is_listed() -> None:
    read = HashRing.from_buckets(["a", "a", "b"], NEWEST)
    there = live(x=read)
    found = find_live_ring(there, there.exchange("x"), "x")
    assert found.ring.buckets == read.buckets
    assert found.is_made_by((A, B))


@pytest.mark.parametrize("version", ["3.10.5", "3.10.8", "4.3.6"])
def test_a_ring_of_one_member_is_not_known_by_its_binding(version: str) -> None:
    """Its queue may have been bound twice, and the first binding be gone; or the buckets of another one may have stayed."""
    release = Release(version)
    changed = HashRing.from_bindings([("a", 1), ("a", 2)], release).unbind("a", 1)
    assert changed.bindings == (("a", "2"),)
    assert changed.buckets != ("a", "a")

    sole = ExchangeDefinition("x", "x-consistent-hash", ring=(A,))
    listed = replace(HashRing.from_bindings([("a", 2)], release), order=UNORDERED)
    there = LiveTopology((sole,), release=release).with_rings({"x": listed})
    assert check(there).not_determined
    assert plan(Topology((sole,)), there).refusals


@pytest.mark.parametrize(
    ("word", "members", "change", "gives_up_order"),
    [
        ("by-order", (A, B), "by-order", False),
        ("new", (), "remake", False),
        ("replaced", (A, B), "remake", False),
        ("reset", (A, B), "remake", True),
        ("reset", (), "remake", True),
        ("deleted", (A, B), "delete", False),
        ("unchanged", (A, B), "keep", False),
    ],
)
def test_the_change_of_a_ring_is_stored_in_a_word_of_the_format(
    word: str, members: tuple[RingMember, ...], change: RingChange, *, gives_up_order: bool
) -> None:
    record = make_record("x", make_ring(members, NEWEST), members)
    planned = PlannedSteps(record, ((True, ("c", "1")),), 0, change, gives_up_order)
    pending = PendingApply("file", "checksum", "2026-01-01T00:00:00Z", "me", ("bind",), {"x": planned}, {})

    arguments = pending_arguments(pending, 131_072)

    assert arguments is not None
    rings = unseal("rabbit-chx/apply", 4, "an apply", arguments)[5]
    assert rings["x"][3] == word
    assert read_pending(arguments) == pending
