"""Rings: building, changing, asking, saving."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.erlang import Atom
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import NEWEST, ExchangeRef, HashRing, Release

FIRST_WINS = Release("4.3.6")
APPENDS = Release("3.9.20")
SHIFTS_BY_WEIGHT = Release("3.8.9")
KEYS = [f"key-{n}" for n in range(200)]

queues = st.sampled_from(["q1", "q2", "q3", "q4", "é", ExchangeRef("q1"), ExchangeRef("x")])
weights = st.one_of(st.integers(1, 12), st.sampled_from(["1", "007", "+5", "3"]))
bindings = st.lists(st.tuples(queues, weights), max_size=12)
releases = st.sampled_from([Release(v) for v in ("3.7.10", "3.8.9", "3.8.24", "3.10.5", "3.10.6", "4.3.6")])
buckets = st.lists(st.one_of(st.none(), queues), max_size=30)


def test_buckets_stand_in_bind_order() -> None:
    ring = HashRing.from_bindings([("q3", 2), ("q1", "3"), (ExchangeRef("q1"), "+1")])
    assert ring.buckets == ("q3", "q3", "q1", "q1", "q1", ExchangeRef("q1"))
    assert ring.destinations == ("q3", "q1", ExchangeRef("q1"))
    assert ring.bindings == (("q3", "2"), ("q1", "3"), (ExchangeRef("q1"), "+1"))
    assert (ring.release, ring.provenance) == (NEWEST, "replayed")


@pytest.mark.parametrize("release", [FIRST_WINS, APPENDS, SHIFTS_BY_WEIGHT])
def test_the_same_binding_again_is_one_binding_on_every_release(release: Release) -> None:
    ring = HashRing.from_bindings([("q1", 7), ("q2", 1), ("q1", "7")], release)
    assert ring.buckets == ("q1",) * 7 + ("q2",)
    assert ring.bindings == (("q1", "7"), ("q2", "1"))
    assert ring.bind("q1", 7) is ring


def test_a_second_binding_of_a_destination_is_ignored_or_appended() -> None:
    pairs: list[tuple[str, int | str]] = [("q1", 1), ("q2", 1), ("q1", "01")]
    ignored = HashRing.from_bindings(pairs, FIRST_WINS)
    appended = HashRing.from_bindings(pairs, APPENDS)
    assert ignored.buckets == ("q1", "q2")
    assert appended.buckets == ("q1", "q2", "q1")
    assert ignored.bindings == appended.bindings == (("q1", "1"), ("q2", "1"), ("q1", "01"))


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("007", 7), ("+5", 5), (3, 3), ("10000", 10_000)])
def test_weights_that_the_broker_takes(text: int | str, count: int) -> None:
    assert len(HashRing.from_bindings([("q", text)]).buckets) == count


@pytest.mark.parametrize(
    "weight",
    [
        "0",
        "-1",
        "1.5",
        "",
        " 1",
        "1 ",
        "1\n",
        "abc",
        "1_0",
        "0x1",
        "++1",
        "٣",
        "9" * 300,
        0,
        -3,
        1.0,
        True,
        None,
    ],
)
def test_weights_that_the_broker_refuses(weight: Any) -> None:
    with pytest.raises(InputError, match="queue 'q9' is bound with the weight") as caught:
        HashRing.from_bindings([("q9", weight)])
    assert caught.value.queue == "q9"
    with pytest.raises(InputError, match="queue 'q9'"):
        HashRing.from_buckets([]).bind("q9", weight)


def test_the_cap_is_a_matter_of_release() -> None:
    assert len(HashRing.from_bindings([("q", 10_001)], Release("4.2.5")).buckets) == 10_001
    with pytest.raises(InputError, match=r"4\.2\.6 takes at most 10000"):
        HashRing.from_bindings([("q", 10_001)], Release("4.2.6"))


def test_a_binding_over_the_cap_can_still_go() -> None:
    old = HashRing.from_bindings([("big", 10_001), ("q", 1)], Release("4.2.5"))
    assert old.with_release(FIRST_WINS).unbind("big", 10_001).buckets == ("q",)


def test_a_ring_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(InputError, match="divide all weights"):
        HashRing.from_bindings([("q", 10**12)], Release("4.0.5"))


@pytest.mark.parametrize("name", ["", 5, None, b"q", "q" * 256, "\ud800", ["q"]])
def test_what_is_no_destination_is_refused(name: Any) -> None:
    with pytest.raises(InputError):
        HashRing.from_bindings([(name, 1)])
    if name is not None:
        with pytest.raises(InputError):
            HashRing.from_buckets(["q", name])
    with pytest.raises(InputError):
        HashRing.from_buckets(["q"]).unbind(name)
    with pytest.raises(InputError):
        ExchangeRef(name)


@pytest.mark.parametrize("pairs", [["q1"], [("q1", 1, 1)], ["q1", ("q2", 1)]])
def test_what_is_no_pair_is_refused(pairs: Any) -> None:
    with pytest.raises(InputError, match="pairs"):
        HashRing.from_bindings(pairs)


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations() -> None:
    ring = HashRing.from_bindings([("x", 1), (ExchangeRef("x"), 1)])
    assert ring.unbind("x").buckets == (ExchangeRef("x"),)
    assert ring.destinations == ("x", ExchangeRef("x"))


# ---- unbind


def test_unbinding_renumbers_the_buckets_behind() -> None:
    ring = HashRing.from_bindings([("a", 2), ("b", 1), ("c", 2)])
    assert ring.unbind("b").buckets == ("a", "a", "c", "c")
    assert ring.unbind("a", 2).buckets == ("b", "c", "c")
    assert ring.unbind("a", "2").bindings == (("b", "1"), ("c", "2"))


def test_nothing_bound_is_nothing_unbound() -> None:
    ring = HashRing.from_bindings([("a", 2)])
    assert ring.unbind("b") is ring
    assert ring.unbind("a", 3) is ring
    assert ring.unbind("a", "02") is ring
    read = HashRing.from_buckets(["a"])
    assert read.unbind("b") is read


def test_removing_one_of_two_bindings_empties_the_ring() -> None:
    ring = HashRing.from_bindings([("a", 1), ("a", 3), ("b", 1)])
    emptied = ring.unbind("a", 3)
    assert emptied.buckets == ("b",)
    assert emptied.bindings == (("a", "1"), ("b", "1"))
    assert emptied.bind("a", 1) is emptied
    assert emptied.unbind("a").bind("a", 1).buckets == ("b", "a")


def test_interleaved_duplicates_take_others_with_them() -> None:
    ring = HashRing.from_bindings([("z", 1), ("a", 1), ("b", 2), ("a", 2), ("c", 1)], APPENDS)
    assert ring.buckets == ("z", "a", "b", "b", "a", "a", "c")
    # Last bucket of a is 5, so c moves from 6 by 3; both buckets of b are lost.
    after = ring.unbind("a")
    assert after.buckets == ("z", None, None, "c")
    assert after.bindings == (("z", "1"), ("b", "2"), ("c", "1"))
    assert {after.destination_for(key) for key in KEYS} == {"z", None}  # two buckets exist: 0, and 1, a hole
    assert after.bind("d", 1).buckets == ("z", None, None, "c", "d")


def test_old_releases_shift_by_the_weight_of_the_binding() -> None:
    ring = HashRing.from_bindings([("a", 1), ("a", 3), ("b", 1)], SHIFTS_BY_WEIGHT)
    assert ring.buckets == ("a", "a", "a", "a", "b")
    assert ring.unbind("a", 1).buckets == (None, None, None, "b")
    assert ring.unbind("a", 3).buckets == (None, "b")
    assert ring.unbind("a") == ring.unbind("a", 1)  # the first of them takes all


def test_old_releases_that_would_move_buckets_over_others_are_not_mirrored() -> None:
    ring = HashRing.from_bindings([("a", 3), ("a", 1), ("b", 1)], SHIFTS_BY_WEIGHT)
    rebound = ring.unbind("a", 1).bind("a", 2)
    with pytest.raises(InputError, match="read the ring again"):
        rebound.unbind("a", 3)


def test_a_read_ring_of_an_old_release_needs_the_weight() -> None:
    ring = HashRing.from_buckets(["a", "b", "a"], SHIFTS_BY_WEIGHT)
    with pytest.raises(InputError, match="give the weight"):
        ring.unbind("a")
    assert ring.unbind("a", 1).buckets == (None, None)
    assert ring.unbind("c") is ring


def test_the_unsorted_ends_of_the_oldest_releases_are_not_mirrored() -> None:
    ring = HashRing.from_bindings([("a", 33), ("b", 32)], Release("3.7.9"))
    with pytest.raises(InputError, match="read the ring again"):
        ring.unbind("a")
    assert ring.unbind("b").buckets == ("a",) * 33


def test_a_read_ring_does_not_know_its_bindings() -> None:
    ring = HashRing.from_buckets(["a", "b"])
    assert (ring.bindings, ring.provenance, ring.release) == (None, "read", NEWEST)
    assert ring.unbind("a", 4).buckets == ("b",)
    assert ring.bind("c", 2).buckets == ("a", "b", "c", "c")
    assert ring.bind("c", 2).bindings is None


def test_provenance() -> None:
    read = HashRing.from_buckets(["a"])
    assumed = HashRing.from_bindings([("a", 1)], provenance="assumed")
    assert read.bind("b", 1).provenance == read.unbind("a").provenance == "replayed"
    assert assumed.bind("b", 1).provenance == assumed.unbind("a").provenance == "assumed"
    moved = read.with_release(APPENDS)
    assert (moved.provenance, moved.release, moved.buckets) == ("assumed", APPENDS, read.buckets)


# ---- answers


def test_holes_and_the_count_of_buckets_that_exist() -> None:
    ring = HashRing.from_buckets(["a", None, "b", "c"])
    three = HashRing.from_buckets(["a", "hole", "b"])
    expected = [three.destination_for(key) for key in KEYS]
    assert [ring.destination_for(key) for key in KEYS] == [None if d == "hole" else d for d in expected]
    assert ring.shares() == {
        "a": three.shares()["a"],
        "b": three.shares()["b"],
        "c": 0.0,
        None: three.shares()["hole"],
    }


@pytest.mark.parametrize("ring", [HashRing.from_buckets([]), HashRing.from_buckets([None, None])])
def test_an_empty_ring_has_no_answers(ring: HashRing) -> None:
    with pytest.raises(EmptyRingError, match="no buckets"):
        ring.destination_for("k")
    with pytest.raises(EmptyRingError):
        ring.destination_for_term(5)
    assert ring.shares() == {}
    assert ring.share_moved(HashRing.from_buckets(["a"])) == 1.0
    assert ring.share_moved(HashRing.from_buckets([])) == 0.0


def test_terms_are_hashed_as_the_server_does() -> None:
    ring = HashRing.from_buckets([str(n) for n in range(1000)])
    assert ring.destination_for_term(5) == ring.destination_for_term(2**21 + 5) == "125"
    assert ring.destination_for_term((Atom("signedint"), 5)) == "796"
    assert ring.destination_for_term("key-1") == ring.destination_for("key-1") == "935"


def test_shares_are_exact() -> None:
    ring = HashRing.from_bindings([("a", 1), ("b", 2)])
    shares = ring.shares()
    assert sum(shares.values()) == 1.0
    assert all(share * 2**21 % 1 == 0 for share in shares.values())
    assert shares["b"] == pytest.approx(2 / 3, abs=0.01)


# Ten queues of weight 1, one unbound: the share of keys whose queue changes.
@pytest.mark.parametrize(("unbound", "moved"), [(0, 0.989), (1, 0.889), (4, 0.589), (8, 0.189), (9, 0.100)])
def test_share_moved_by_an_unbind(unbound: int, moved: float) -> None:
    ring = HashRing.from_bindings([(f"q{n}", 1) for n in range(10)])
    after = ring.unbind(f"q{unbound}")
    assert ring.share_moved(after) == pytest.approx(moved, abs=0.001)
    assert after.share_moved(ring) == ring.share_moved(after)
    assert ring.share_moved(ring) == 0.0


# ---- values


def test_equality_is_by_buckets_and_release() -> None:
    read, replayed = HashRing.from_buckets(["a", "b"]), HashRing.from_bindings([("a", 1), ("b", 1)])
    assert read == replayed
    assert hash(read) == hash(replayed)
    assert read != HashRing.from_buckets(["a", "b"], APPENDS)
    assert read != HashRing.from_buckets(["b", "a"])
    assert read != HashRing.from_buckets(["a", ExchangeRef("b")])
    assert read != ("a", "b")


def test_a_ring_shows_itself_briefly() -> None:
    ring = HashRing.from_buckets([f"q{n}" for n in range(1000)])
    assert len(repr(ring)) < 200
    assert repr(HashRing.from_buckets(["a", "a", None, ExchangeRef("x")])) == (
        "<HashRing read, 4.3.6 (khepri), 4 buckets: a x2, None x1, exchange x x1>"
    )


def test_json_has_the_documented_shape() -> None:
    ring = HashRing.from_buckets(["q1", ExchangeRef("slot-7"), None], Release("4.0.5"))
    assert json.loads(ring.to_json()) == {
        "format": "rabbit-chx/ring",
        "format_version": 1,
        "release": {"version": "4.0.5", "store": "mnesia", "store_known": False},
        "provenance": "read",
        "buckets": ["q1", {"exchange": "slot-7"}, None],
        "bindings": None,
    }


@settings(deadline=None)
@given(bindings, releases)
def test_json_and_pickle_keep_a_ring_whole(pairs: list[Any], release: Release) -> None:
    ring = HashRing.from_bindings(pairs, release, provenance="assumed")
    for copy in (HashRing.from_json(ring.to_json()), pickle.loads(pickle.dumps(ring))):  # noqa: S301
        assert copy == ring
        assert (copy.bindings, copy.provenance) == (ring.bindings, ring.provenance)
        assert copy.release.store_known == ring.release.store_known


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "no ring"),
        ({"format_version": 2}, "format version 2"),
        ({"provenance": "heard"}, "heard"),
        ({"buckets": "abc"}, "no list"),
        ({"buckets": [5]}, "no destination"),
        ({"buckets": [{"queue": "q"}]}, "damaged"),
        ({"release": "4.3.6"}, "damaged"),
        ({"release": {"version": "4.3.6", "store": "mnesia", "store_known": True}}, "cannot have"),
        ({"bindings": [["q"]]}, "damaged"),
        ({"bindings": [["q", 5]]}, "text"),
        ({"bindings": [["q", "0"]]}, "at least 1"),
    ],
)
def test_json_that_is_no_ring_is_refused(change: dict[str, Any], message: str) -> None:
    whole = json.loads(HashRing.from_bindings([("q", 1)]).to_json())
    with pytest.raises(InputError, match=message):
        HashRing.from_json(json.dumps(whole | change))
    del whole[next(iter(change))]
    with pytest.raises(InputError):
        HashRing.from_json(json.dumps(whole))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff"])
def test_text_that_is_no_ring_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match="no ring"):
        HashRing.from_json(text)


# ---- laws


@settings(deadline=None)
@given(buckets)
def test_a_ring_of_the_same_buckets_routes_alike(listed: list[Any]) -> None:
    ring = HashRing.from_buckets(listed)
    again = HashRing.from_buckets(ring.buckets)
    if any(listed):
        assert [ring.destination_for(key) for key in KEYS] == [again.destination_for(key) for key in KEYS]


@settings(deadline=None)
@given(bindings, queues, st.integers(1, 5))
def test_a_new_destination_takes_keys_and_gives_none(pairs: list[Any], name: Any, weight: int) -> None:
    before = HashRing.from_bindings(pairs).unbind(name)
    after = before.bind(name, weight)
    for key in KEYS if before.buckets else ():
        assert after.destination_for(key) in (before.destination_for(key), name)


@given(bindings, queues)
def test_unbinding_where_the_first_binding_wins_is_as_if_it_had_never_been(
    pairs: list[Any],
    name: Any,
) -> None:
    ring = HashRing.from_bindings(pairs, FIRST_WINS)
    never = HashRing.from_bindings([pair for pair in pairs if pair[0] != name], FIRST_WINS)
    assert ring.unbind(name) == never
    assert ring.unbind(name).bindings == never.bindings


@given(bindings, releases, queues)
def test_bind_one_by_one_is_from_bindings(pairs: list[Any], release: Release, name: Any) -> None:
    ring = HashRing.from_bindings([], release)
    for pair in pairs:
        ring = ring.bind(*pair)
    assert ring == HashRing.from_bindings(pairs, release)
    assert name not in ring.unbind(name).destinations
