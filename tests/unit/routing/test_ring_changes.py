"""What becomes of a ring: restarts, deletions, and what goes with an unbind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing import ExchangeRef, HashRing, OrderKnowledge, Release
from rabbit_chx.routing.release import NEWEST_COMPARED

APPENDS = Release("3.10.5")
KEYS = [f"key-{n}" for n in range(200)]

# Read on real brokers before and after `docker restart`.
MEASURED: list[Any] = [("q3", 2), ("q1", 10), ("q2", 1)]


def runs(ring: HashRing) -> list[Any]:
    return [(name, ring.buckets.count(name)) for name in ring.destinations]


@pytest.mark.parametrize("release", [Release("4.3.6"), Release("4.0.5", "khepri"), Release("4.2.0")], ids=str)
def test_khepri_keeps_the_ring(release: Release) -> None:
    for ring in (HashRing.from_bindings(MEASURED, release), HashRing.from_buckets(["a", None, "b"], release)):
        assert ring.restarted() == ring
    # The store of 4.2.0 is only what a fresh broker has.
    assert HashRing.from_bindings(MEASURED, release).restarted().provenance == (
        "replayed" if release.store_known else None
    )


def test_khepri_gives_bindings_without_buckets_theirs_at_the_end() -> None:
    ring = HashRing.from_bindings([("b", "9"), ("b", "10"), ("a", 1)], Release("4.3.6")).unbind("b", 9)
    assert runs(ring) == [("a", 1)]
    assert runs(ring.restarted()) == [("a", 1), ("b", 10)]
    named = HashRing.from_bindings([("b", 9), ("b", 10), ("10", 1)], Release("4.3.6")).unbind("b", 9)
    assert runs(named.restarted()) == [("10", 1), ("b", 10)], "a queue may have the name of a binding key"
    two = HashRing.from_bindings([("b", 2), ("b", 3), ("a", 2), ("a", 4), ("c", 1)], Release("4.3.6"))
    assert runs(two.unbind("b", 2).unbind("a", 4).restarted()) == [("c", 1), ("a", 2), ("b", 3)]


@pytest.mark.parametrize("version", ["3.10.0", "3.10.8", "3.12.14", "4.0.5"])
def test_mnesia_determines_the_order_of_one_binding_alone(version: str) -> None:
    release = Release(version)
    two, read = HashRing.from_bindings([("a", 3), ("b", 1)], release), HashRing.from_buckets(["a"], release)
    for ring in (two, read):
        with pytest.raises(NotDeterminedError, match="read the ring after the restart"):
            ring.restarted()
    one = HashRing.from_bindings([("a", 3)], release)
    assert one.restarted() == one
    assert HashRing.from_bindings([], release).restarted().buckets == ()


def test_deleting_a_destination_removes_all_its_bindings() -> None:
    ring = HashRing.from_bindings([("a", 1), ("b", 2), ("a", 3), ("c", 1)], Release("4.3.6"))
    assert ring.delete_destination("a").buckets == ("b", "b", "c")
    assert ring.delete_destination("a").bindings == (("b", "2"), ("c", "1"))
    assert ring.delete_destination("z") is ring
    twice = HashRing.from_bindings([("a", 1), ("a", 3), ("b", 1)], APPENDS)
    assert twice.unbind("a") == twice.unbind("a", 1)  # the first of them takes all


@pytest.mark.parametrize("ring", [HashRing.from_bindings(MEASURED), HashRing.from_buckets(["a"])])
def test_deleting_the_exchange_leaves_nothing(ring: HashRing) -> None:
    gone = ring.delete_exchange()
    assert (gone.buckets, gone.bindings, gone.release, gone.provenance) == ((), (), ring.release, "replayed")


def test_a_binding_that_stands_is_added_whatever_its_weight() -> None:
    """The cap of 10,000 is for new bindings: one from before an update keeps its weight."""
    before = HashRing.from_bindings([("a", 1), ("q", 1), ("q", 10_001)], Release("4.2.5", "khepri"))
    updated = before.unbind("q", 1).with_release(Release("4.3.6"))
    assert runs(updated) == [("a", 1)]
    assert runs(updated.restarted()) == [("a", 1), ("q", 10_001)]


NOTHING_BOUND: list[tuple[HashRing, tuple[object, ...], str]] = [
    (HashRing.from_bindings([("orders.1", 2), ("x", 1)]), ("ordres.1",), r"'ordres.1' is not bound: did you mean 'orders.1'\?"),
    (HashRing.from_bindings([("a", 2)]), ("b",), "'b' is not bound: pass a destination of the ring, or missing_ok=True"),
    (HashRing.from_bindings([("a", 2)]), ("a", 3), "a is bound with the key 2, and not with 3: pass a key that is bound"),
    (HashRing.from_bindings([("a", 2)]), ("a", "02"), "a is bound with the key 2, and not with 02"),
    (HashRing.from_bindings([(ExchangeRef("a"), 2)]), ("a",), r"'a' is not bound: did you mean ExchangeRef\(name='a'\)\?"),
    (HashRing.from_buckets(["a", None]), ("b",), "'b' is not bound: pass"),
    (HashRing.from_bindings([]), ("b",), "'b' is not bound: pass"),
    (HashRing(("a", "b"), NEWEST_COMPARED, OrderKnowledge(None), (("a", "1"),)), ("b",), "'b' has buckets and no binding: no unbind takes them away"),
]  # fmt: skip


@pytest.mark.parametrize(("ring", "unbound", "says"), NOTHING_BOUND)
def test_where_nothing_is_bound_an_unbind_is_an_error_or_changes_nothing(
    ring: HashRing, unbound: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        ring.unbind(*unbound)
    assert ring.unbind(*unbound, missing_ok=True) is ring


def test_interleaved_duplicates_take_others_with_them() -> None:
    ring = HashRing.from_bindings([("z", 1), ("a", 1), ("b", 2), ("a", 2), ("c", 1)], APPENDS)
    assert ring.buckets == ("z", "a", "b", "b", "a", "a", "c")
    # Last bucket of a is 5, so c moves from 6 by 3; both buckets of b are lost.
    after = ring.unbind("a")
    assert after.buckets == ("z", None, None, "c")
    assert after.bindings == (("z", "1"), ("b", "2"), ("c", "1"))
    assert {after.destination_for(key) for key in KEYS} == {"z", None}  # two buckets exist: 0, and 1, a hole
    assert after.bind("d", 1).buckets == ("z", None, None, "c", "d")


@pytest.mark.parametrize("release", [NEWEST_COMPARED, APPENDS])
def test_a_doubt_survives_each_change(release: Release) -> None:
    doubt = OrderKnowledge(None, "two orders fit")
    ring = replace(HashRing.from_bindings([("a", 1), ("b", 2)], NEWEST_COMPARED), order=doubt)
    for after in (
        ring.bind("c", 1),
        ring.unbind("a"),
        ring.delete_destination("b"),
        ring.delete_exchange(),
        ring.restarted(),
        ring.with_release(release),
        HashRing.from_json(ring.bind("c", 1).to_json()),
    ):
        assert after.order == doubt
    assert str(doubt) == "of an unknown order (two orders fit)"


def test_a_guess_has_its_reason() -> None:
    read = HashRing.from_buckets(["a"], APPENDS)
    assert read.bind("b", 1).order == OrderKnowledge(
        None, "an earlier unbind on RabbitMQ 3.10.5 may have left holes behind its last bucket"
    )
    moved = read.with_release(NEWEST_COMPARED)
    assert (moved.release, moved.buckets) == (NEWEST_COMPARED, read.buckets)
    assert moved.order == OrderKnowledge("replayed")
    kept = HashRing.from_buckets(["a"], NEWEST_COMPARED)
    assert kept.restarted().buckets == kept.buckets
    assert kept.restarted().order == OrderKnowledge(None, "its bindings are not known")
    unknown = HashRing.from_bindings([("a", 1)], Release("4.0.5"))
    assert unknown.restarted().order == OrderKnowledge(None, "the store of the broker is not known")
    with pytest.raises(InputError, match="is read and has a doubt"):
        OrderKnowledge("read", "two orders fit")
    with pytest.raises(InputError, match="the provenance is 'heard'"):
        OrderKnowledge("heard")  # type: ignore[arg-type]
