"""Rings from observed keys and their queues."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from rabbit_chx import Atom, ExchangeRef, HashRing, Release, jump_consistent_hash
from rabbit_chx.errors import ContradictedError, InputError, NotDeterminedError
from rabbit_chx.routing.observations import Observation, distinct_keys_needed

RELEASES = ("3.10.5", "3.10.8", "3.12.4", "4.0.5", "4.2.6", "4.3.6")
FOUR = [("q1", 1), ("q2", 20), ("q3", 4), ("q4", 5)]


@cache
def keys_of_buckets(count: int) -> dict[int, str]:
    """Return one key for each bucket."""
    keys = [f"key-{number}" for number in range(count * (12 + count.bit_length()))]
    buckets = HashRing.from_buckets(map(str, range(count))).indices(keys).tolist()
    found = dict(zip(buckets, keys, strict=True))
    assert len(found) == count
    return found


def pairs_of(ring: HashRing) -> list[tuple[str, Any]]:
    """Return one pair for each bucket."""
    return [(key, ring.buckets[bucket]) for bucket, key in keys_of_buckets(ring.bucket_count).items()]


def enough_pairs(ring: HashRing) -> list[tuple[str, Any]]:
    """Return pairs that determine a ring: also one of a key that shows its end, and as many as must agree."""
    count = ring.bucket_count
    more = [f"more-{number}" for number in range(max(20, count))]
    end = next(key for n in itertools.count() if jump_consistent_hash(key := f"end-{n}", count + 1) == count)
    keys = dict.fromkeys([*keys_of_buckets(count).values(), end, *more])
    return [(key, ring.destination_for(key)) for key in [*keys][: count + len(more)]]


def random_rings(count: int) -> Iterator[tuple[HashRing, random.Random]]:
    """Yield rings of 1 to 40 members with weights from 1 to 30, of binds and unbinds."""
    for seed in range(count):
        rng = random.Random(seed)  # noqa: S311
        ring = HashRing.from_bindings([], Release(rng.choice(RELEASES)))
        members = rng.randint(1, 40)
        for number in range(members + rng.randint(0, 6)):
            if len(ring.destinations) > 1 and rng.random() < 0.2:
                ring = ring.unbind(rng.choice(ring.destinations))
            place = ExchangeRef(f"x{number}") if rng.random() < 0.1 else f"q{number}"
            ring = ring.bind(place, rng.randint(1, 30))
        while len(ring.destinations) > members:
            ring = ring.unbind(rng.choice(ring.destinations))
        yield ring, rng


def test_200_random_rings_are_recovered() -> None:
    for ring, rng in random_rings(200):
        bindings = rng.sample(ring.bindings or (), len(ring.bindings or ()))
        pairs = enough_pairs(ring)
        rng.shuffle(pairs)
        observed = HashRing.from_observations(bindings, pairs, ring.release)
        assert observed == ring, ring
        assert (observed.provenance, observed.bindings) == ("observed", ring.bindings)
        again = HashRing.from_json(observed.to_json())
        assert (again, again.provenance, again.end_known) == (ring, "observed", observed.end_known)


def test_a_ring_of_too_few_pairs_is_never_another_ring() -> None:
    rejected = 0
    for ring, rng in random_rings(60):
        pairs = enough_pairs(ring)
        chosen = rng.sample(pairs, rng.randint(0, len(pairs)))
        bindings = list(ring.bindings or ())[::-1]
        try:
            assert HashRing.from_observations(bindings, chosen, ring.release) == ring
        except InputError:
            rejected += 1
    assert rejected > 30


def test_too_few_pairs_name_the_buckets_and_the_number_of_keys() -> None:
    ring, keys = HashRing.from_bindings(FOUR), keys_of_buckets(30)
    with pytest.raises(NotDeterminedError, match=r"^28 of 30 buckets were not seen \(2, 3, .*\)") as caught:
        HashRing.from_observations(FOUR, [(key, ring.destination_for(key)) for key in (keys[0], keys[1])])
    assert "they are of q2, q3, q4, or holes, whose messages are lost" in str(caught.value)
    assert "2 distinct keys do not determine the ring: pass about 101 more" in str(caught.value)
    assert (distinct_keys_needed(30), distinct_keys_needed(2)) == (103, 22)


@pytest.mark.parametrize(("bindings", "beyond"), [([("a", 1), ("b", 1)], 20), (FOUR, 30)])
def test_as_many_pairs_as_the_rule_says_agree_beyond_those_that_fix_the_ring(
    bindings: list[tuple[str, int]], beyond: int
) -> None:
    ring = HashRing.from_bindings(bindings)
    pairs = enough_pairs(ring)
    enough = ring.bucket_count + beyond
    assert len(pairs) == enough
    assert HashRing.from_observations(bindings, pairs) == ring
    for lacking in (1, 3):
        again = [*pairs[: enough - lacking], *pairs[:5]]  # the same key says nothing new
        with pytest.raises(NotDeterminedError, match=f"pass {lacking} pairs? more with other keys"):
            HashRing.from_observations(bindings, again)


def test_keys_that_are_not_what_is_hashed_make_no_ring() -> None:
    """Of 300 random files of each size; two queues have only two orders, of which one fits few pairs by chance."""
    two, accepted = [("a", 1), ("b", 1)], 0
    for size in (*range(2, 24, 3), 60, 200):
        for seed in range(300):
            rng = random.Random(1000 * size + seed)  # noqa: S311
            pairs = [(f"key-{rng.random()}", rng.choice("ab")) for _ in range(size)]
            try:
                HashRing.from_observations(two, pairs)
            except InputError:
                continue
            accepted += 1
    assert accepted == 0


def test_every_bucket_is_shown_because_it_may_be_a_hole() -> None:
    ring = HashRing.from_bindings(FOUR)
    pairs = [pair for pair in enough_pairs(ring) if ring.buckets.index("q2") != _bucket_of(ring, pair[0])]
    with pytest.raises(
        NotDeterminedError, match=r"1 of 30 buckets were not seen \(1\): they are of q2, or holes"
    ):
        HashRing.from_observations(FOUR, pairs)
    with pytest.raises(NotDeterminedError, match="1 of 1 buckets were not seen"):
        HashRing.from_observations([("only", 1)], [])
    with pytest.raises(InputError, match="a ring of 10000001 buckets is too large: pass smaller weights"):
        HashRing.from_observations([("a", 10_000_000), ("b", 1)], [], Release("3.13.7"))
    with pytest.raises(InputError, match="the bindings make no bucket"):
        HashRing.from_observations([], [])


def _bucket_of(ring: HashRing, key: str) -> int:
    return HashRing.from_buckets([str(number) for number in range(ring.bucket_count)]).indices([key])[0]


@pytest.mark.parametrize("ghosts", [1, 2, 5])
def test_buckets_behind_the_bindings_whose_messages_are_lost_are_not_overlooked(ghosts: int) -> None:
    """As those of an exclusive queue after a restart of 4.3: no key that arrives contradicts the ring of the bindings."""
    bindings = [("a", 1), ("b", 2)]
    ring = HashRing.from_buckets(["a", "b", "b", *["gone"] * ghosts])
    keys = [f"key-{number}" for number in range(400)]
    arrived = [(key, queue) for key in keys if (queue := ring.destination_for(key)) != "gone"]
    with pytest.raises(
        NotDeterminedError, match="bucket 3, behind the last one of the bindings, may be a hole"
    ):
        HashRing.from_observations(bindings, arrived)


@pytest.mark.parametrize("seed", range(20))
def test_traced_keys_show_ghost_buckets_and_name_holes(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    runs = [("a", 1), ("b", 3), ("c", 2), ("gone", rng.randint(1, 3)), ("away", rng.randint(0, 9))]
    rng.shuffle(runs)
    bound = {"c": 2, "a": 1, "b": 3}
    ring = HashRing.from_buckets([place for place, weight in runs for _ in range(weight)])
    arrived = [(key, ring.destination_for(key)) for key in map(str, range(400))]
    pairs = [Observation(key, place, is_traced=True) for key, place in arrived]
    traced = HashRing.from_observations(bound, pairs)
    assert traced == ring
    assert traced.bindings == tuple((place, str(weight)) for place, weight in runs if place in bound)
    with pytest.raises(ContradictedError, match="which is not bound"):
        HashRing.from_observations(bound, arrived)
    unnamed = [each if each.queue in bound else each._replace(queue=None) for each in pairs]
    with pytest.raises(ContradictedError) as caught:
        HashRing.from_observations(bound, unnamed)
    lost = [str(number) for number, place in enumerate(ring.buckets) if place not in bound]
    assert f"{len(lost)} bucket" in str(caught.value)
    assert f" of {ring.bucket_count} " in str(caught.value)
    assert f"({', '.join(lost[:8])}" in str(caught.value)
    for some in (unnamed[:4], pairs[:9], pairs[:20]):
        with pytest.raises(NotDeterminedError, match=r"cannot show which|buckets were not seen"):
            HashRing.from_observations(bound, some)


def test_holes_at_the_end_of_an_old_release_do_not_show() -> None:
    old = Release("3.10.5")
    holes = HashRing.from_bindings([("a", 1), ("b", 1), ("c", 1), ("b", 2)], old).unbind("b", 1)
    assert holes.buckets.count(None)
    sound = HashRing.from_bindings([("a", 1), ("c", 2)], old)
    observed = HashRing.from_observations([("a", 1), ("c", 2)], enough_pairs(sound), old)
    assert observed == sound
    assert not observed.end_known


def test_contradictions_name_the_pairs_the_bucket_and_the_times() -> None:
    keys = keys_of_buckets(30)
    ring = HashRing.from_bindings(FOUR)
    pairs: list[Any] = [*enough_pairs(ring), (keys[7], "q3", "2026-11-26T03:02:00Z")]
    with pytest.raises(ContradictedError) as caught:
        HashRing.from_observations(FOUR, pairs)
    assert (
        f"bucket 7 of 30 is contradicted: the key {keys[7]!r} reached q2, and the key {keys[7]!r} reached q3 (2026-11-26T03:02:00Z)."
        in str(caught.value)
    )


def test_more_buckets_than_the_weight_are_another_ring() -> None:
    """A second binding that was bound first makes fewer buckets than those of the list."""
    ring = HashRing.from_bindings([("a", 1), ("b", 3)])
    pairs = [(f"key-{number}", ring.destination_for(f"key-{number}")) for number in range(50)]
    with pytest.raises(InputError, match=r"contradicted|is seen in \d buckets, and its weight is"):
        HashRing.from_observations([("a", 1), ("b", 2)], pairs)
    with pytest.raises(InputError, match="b is seen in 3 buckets, and its weight is 2"):
        HashRing.from_observations([("a", 2), ("b", 2)], pairs_of(ring))


def test_second_bindings_are_observed_where_the_release_appends_and_refused_where_it_does_not() -> None:
    twice: list[Any] = [("a", 1), ("b", 2), ("a", 2)]
    appended = HashRing.from_bindings(twice, Release("3.10.5"))
    observed = HashRing.from_observations(set(twice), enough_pairs(appended), Release("3.10.5"))
    assert (observed, observed.bindings) == (appended, None)
    same: list[Any] = [("a", "2"), ("b", 1), ("a", "02")]
    ring = HashRing.from_bindings(same)
    assert HashRing.from_observations(same, enough_pairs(ring)) == ring


def test_a_key_is_any_hashed_value() -> None:
    ring = HashRing.from_bindings([("a", 2), ("b", 2)], Release("3.10.8"))
    terms = [(Atom("longstr"), str(number).encode()) for number in range(40)]
    pairs = [(term, ring.destination_for_term(term)) for term in terms]
    assert HashRing.from_observations({"b": 2, "a": 2}, pairs, Release("3.10.8")) == ring


ONE = [("q1", 1)]
REFUSED: list[tuple[Any, Any, str]] = [
    (ONE, [("k", None)], "reached no queue: the ring has a bucket without a queue"),
    (ONE, ["kq"], "'kq' is not a .key, queue. pair"),
    (ONE, [("k",)], "is not a .key, queue. pair"),
    (ONE, "kq", "is not a list"),
    (ONE, [("k", 5)], "is not a destination"),
    (ONE, [(b"k", "")], "name"),
    (ONE, [(object(), "q1")], "not an Erlang term"),
    (FOUR, [("k", "q9"), ("l", "q8")], "^the key 'k' reached q9, which is not bound, and 1 more queue is not bound: "),
    ([(ExchangeRef("slot-1"), 1)], [("k", "q9")], "an exchange is bound, whose queues share its buckets"),
    ([("a", 1), ("b", 2), ("a", 2)], [], "a is bound with the weights 1 and 2, of which RabbitMQ 4.3.6 uses the one"),
    ([("a", 2), ("b", 1)], enough_pairs(HashRing.from_buckets(["a", "b", "a"])), "^a is bound once, and its buckets are in 2 places"),
]  # fmt: skip


@pytest.mark.parametrize(("bindings", "pairs", "says"), REFUSED)
def test_what_makes_no_ring_is_named(bindings: Any, pairs: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        HashRing.from_observations(bindings, pairs)
    assert bindings is not FOUR or caught.value.queue == "q9"


def test_changes_of_an_observed_ring_are_replayed() -> None:
    ring = HashRing.from_observations([("a", 1)], enough_pairs(HashRing.from_bindings([("a", 1)])))
    assert ring.bind("b").provenance == "replayed"
    assert "observed from keys and their queues" in ring.facts()
