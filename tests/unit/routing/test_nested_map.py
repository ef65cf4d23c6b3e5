"""Exchanges that hash behind one another: a key and a share are followed as the broker routes, exchange by exchange."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import (
    ConsistentHashExchange,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    SlotTable,
    modulus_exchange,
)
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.jump import SEEDS, bucket_of_seed
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.routing.nested_map import NestedMap

KEYS = [f"user-{n}" for n in range(3_000)]
FRONT = ExchangeRef("front")


def hashing(kind: str, name: str, places: list[str | ExchangeRef]) -> KeyMap:
    """Return the map of an exchange of a type by itself, with weights that rise."""
    if kind == "modulus":
        return ModulusHashExchange(name, [(place, "1") for place in places])
    return HashRing.from_bindings([(place, 1 + number % 2) for number, place in enumerate(places)])


def nested(*levels: tuple[str, int, Mapping[str, str]], name: str = "front") -> NestedMap:
    """Return exchanges behind one another: the type, the number of destinations and the arguments of each level."""
    (kind, count, arguments), *inner = levels
    if not inner:
        return NestedMap(
            ExchangeRef(name), hashing(kind, name, [f"{name}.{n}" for n in range(count)]), arguments
        )
    refs = [ExchangeRef(f"{name}.{number}") for number in range(count)]
    behind = {ref: nested(*inner, name=ref.name) for ref in refs}
    return NestedMap(ExchangeRef(name), hashing(kind, name, [*refs]), arguments, behind)


def route(node: NestedMap, key: str) -> Place:
    """Route a message from exchange to exchange."""
    exchange = (
        node.outer
        if isinstance(node.outer, ModulusHashExchange)
        else ConsistentHashExchange(node.name, node.outer, node.arguments)  # type: ignore[arg-type]
    )
    place = exchange.route(key, headers={"h": key})
    return route(node.behind[place], key) if place in node.behind else place  # type: ignore[index]


def all_ends(node: NestedMap) -> Iterator[str]:
    """Yield all queues behind an exchange."""
    for place in node.outer.destinations:
        yield from all_ends(node.behind[place]) if isinstance(place, ExchangeRef) else [place]


SHAPES: dict[str, list[tuple[str, int, Mapping[str, str]]]] = {
    "2 x 2": [("chx", 2, {}), ("chx", 2, {})],
    "2 x 3": [("chx", 2, {}), ("chx", 3, {})],
    "4 x 4": [("chx", 4, {}), ("chx", 4, {})],
    "three levels": [("chx", 3, {}), ("chx", 2, {}), ("chx", 4, {})],
    "a header twice": [("chx", 3, {"hash-header": "h"}), ("chx", 3, {"hash-header": "h"})],
    "modulus": [("modulus", 4, {}), ("modulus", 6, {})],
    "modulus, three levels": [("modulus", 2, {}), ("modulus", 3, {}), ("modulus", 4, {})],
    "modulus behind a ring": [("chx", 3, {}), ("modulus", 3, {})],
    "a ring behind modulus": [("modulus", 3, {}), ("chx", 3, {})],
    "a ring, modulus, a ring": [("chx", 2, {}), ("modulus", 2, {}), ("chx", 2, {})],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_are_followed_as_exchange_after_exchange_routes_them(shape: str) -> None:
    front = nested(*SHAPES[shape])
    found = [route(front, key) for key in KEYS]
    assert [front.destination_for(key) for key in KEYS] == found
    for keys in (KEYS, np.array(KEYS), pa.array(KEYS)):
        assert list(front.destinations_for(keys)) == found
    assert front.counts(KEYS) == dict.fromkeys(front.destinations, 0) | Counter(found)
    assert set(front.destinations) == set(front.ends) == set(all_ends(front))
    shares, counts = front.shares(), Counter(found)
    assert sum(shares.values()) == pytest.approx(1)
    for place, share in shares.items():
        assert share == pytest.approx(counts[place] / len(KEYS), abs=0.05)
        assert bool(share) >= bool(counts[place])


@pytest.mark.parametrize(("outer", "inner", "starved"), [(2, 2, 2), (2, 3, 2), (4, 4, 12), (4, 3, 6)])
def test_of_equal_weights_the_same_bucket_is_reached_again(outer: int, inner: int, starved: int) -> None:
    refs = [ExchangeRef(str(number)) for number in range(outer)]
    behind = {
        ref: NestedMap(ref, HashRing.from_bindings([(f"{ref.name}.{n}", 1) for n in range(inner)]), {})
        for ref in refs
    }
    front = NestedMap(FRONT, HashRing.from_bindings([(ref, 1) for ref in refs]), {}, behind)
    assert sum(not share for share in front.shares().values()) == starved
    assert len(front.shares()) == outer * inner
    assert all(ideal == pytest.approx(1 / outer / inner) for _, ideal in front.ideals().values())


def test_shares_are_those_of_all_seeds_and_of_all_hashes() -> None:
    front = nested(("chx", 2, {}), ("chx", 3, {}))
    buckets = [front.outer.bucket_count, front.behind[ExchangeRef("front.0")].bucket_count]
    counts: Counter[Place] = Counter()
    for seed in range(0, SEEDS, 512):  # a sample of seeds, each counted by itself
        hop = front.behind[front.outer.buckets[bucket_of_seed(seed, buckets[0])]]  # type: ignore[index]
        counts[hop.outer.buckets[bucket_of_seed(seed, buckets[1])]] += 1
    shares = front.shares()
    assert all((share * SEEDS).is_integer() for share in shares.values())
    assert {place for place, share in shares.items() if share} == set(counts)

    residues = nested(("modulus", 4, {}), ("modulus", 6, {}))
    exact = residues.shares()
    assert {round(1 / share) for share in exact.values() if share} == {12}
    assert sum(map(Fraction, exact.values())) == pytest.approx(1)


def test_a_value_that_is_not_known_ends_the_route_and_a_whole_message_goes_on() -> None:
    front = nested(("chx", 2, {}), ("chx", 2, {"hash-header": "h"}))
    place = front.destination_for("k")
    assert isinstance(place, ExchangeRef)
    assert front.destinations[front.indices(["k"])[0]] == place
    message = {"routing_key": "k", "headers": {"h": "k"}}
    assert front.end_of(place, message, is_whole=False) == place
    assert front.end_of(place, message, is_whole=True) == route(front, "k")
    # Two values are independent: each queue has its part of the part.
    outer, inner = front.outer.shares(), front.behind[ExchangeRef("front.0")].shares()
    assert front.shares()["front.0.1"] == outer[ExchangeRef("front.0")] * inner["front.0.1"]
    assert not set(front.shares()) & set(front.behind)


def test_what_moves_is_what_ends_elsewhere() -> None:
    front = nested(("chx", 3, {}), ("chx", 2, {}))
    after = front.bind("late", 2)
    moved = {key for key in KEYS if front.destination_for(key) != after.destination_for(key)}
    assert front.share_moved(after) == pytest.approx(len(moved) / len(KEYS), abs=0.05)
    assert front.flows(after).moved == front.share_moved(after) > 0
    assert {to for (before, to) in front.flows(after) if before != to} == {"late"}
    assert front.share_moved(front) == 0
    plain = HashRing.from_bindings([("front.0.0", 1)])
    assert front.share_moved(plain) == plain.share_moved(front) == 1 - front.shares()["front.0.0"]
    assert front.unbind(ExchangeRef("front.0")).shares().keys() == set(all_ends(front)) - {
        "front.0.0",
        "front.0.1",
    }


def test_slots_behind_an_exchange_and_a_visited_exchange() -> None:
    slots = {ExchangeRef(f"slot.{n}"): f"q{n % 2}" for n in range(4)}
    table = SlotTable(HashRing.from_bindings([(slot, 1) for slot in slots]), slots)
    inner = NestedMap(ExchangeRef("inner"), table, {})
    back = NestedMap(FRONT, HashRing.from_bindings(()), {})
    outer = HashRing.from_bindings([(inner.ref, 1), (FRONT, 1)])
    front = NestedMap(FRONT, outer, {}, {inner.ref: inner, FRONT: back})
    shares = front.shares()
    assert shares[None] == outer.shares()[FRONT]  # a broker visits no exchange twice
    assert sum(shares.values()) == 1
    for key in KEYS[:200]:
        is_inner = outer.destination_for(key) == inner.ref
        assert front.destination_for(key) == (table.destination_for(key) if is_inner else None)


def test_behind_another_exchange_shares_are_of_the_keys_that_come() -> None:
    front = nested(("chx", 4, {}), ("chx", 4, {}))
    first = front.behind[ExchangeRef("front.0")]
    source = NestedMap(FRONT, front.outer, {})
    reached = NestedMap(first.ref, first.outer, {}, None, [source])
    all_shares = front.shares()
    total = sum(all_shares[f"front.0.{n}"] for n in range(4))
    assert reached.shares() == {
        f"front.0.{n}": pytest.approx(all_shares[f"front.0.{n}"] / total) for n in range(4)
    }
    assert reached.members.shares() == reached.shares()
    assert reached.destination_for("k") == first.destination_for(
        "k"
    )  # as of a message that is published to it


def test_a_guess_on_the_way_makes_the_whole_a_guess() -> None:
    front = nested(("chx", 2, {}), ("chx", 2, {}))
    ref = ExchangeRef("front.1")
    guess = HashRing.unordered([("a", 1), ("b", 1)])
    unsure = NestedMap(FRONT, front.outer, {}, {**front.behind, ref: NestedMap(ref, guess, {})})
    assert front.ground == Ground("replayed")
    assert not front.guesses
    assert unsure.ground == Ground(None, "the order of front.1 is not known")
    assert unsure.guesses == {"front.1": guess}
    assert unsure.facts()[0] == unsure.ground.text
    assert unsure.summary()["doubt"] == unsure.ground.doubt


@pytest.mark.parametrize("kinds", [*itertools.product(["chx", "modulus"], repeat=2)], ids="-".join)
def test_its_json_has_the_maps_of_all_exchanges(kinds: tuple[str, str]) -> None:
    front = nested((kinds[0], 3, {"hash-header": "h"}), (kinds[1], 2, {"hash-header": "h"}))
    first = front.behind[ExchangeRef("front.0")]
    reached = NestedMap(first.ref, first.outer, first.arguments, None, [NestedMap(FRONT, front.outer, {})])
    for made in (front, reached):
        again = key_map_from_json(made.to_json())
        assert (again, again.ground) == (made, made.ground)
        assert again.shares() == made.shares()
        assert [*map(again.destination_for, KEYS)] == [*map(made.destination_for, KEYS)]
    guess = HashRing.unordered([("a", 1), ("b", 1)])
    unsure = NestedMap(FRONT, front.outer, {}, {**front.behind, first.ref: NestedMap(first.ref, guess, {})})
    assert not key_map_from_json(unsure.to_json()).ground.is_known


@pytest.mark.parametrize(
    "nested_",
    [1, {}, {"name": "x", "arguments": {}, "behind": [{}], "sources": []}, {"name": 1, "arguments": 1}],
)
def test_damaged_json_is_refused(nested_: object) -> None:
    written = json.loads(HashRing.from_bindings([("q", 1)]).to_json()) | {"nested": nested_}
    with pytest.raises(InputError, match="write the JSON again with to_json"):
        key_map_from_json(json.dumps(written))


def test_too_many_residues_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modulus_exchange, "_MOST_RESIDUES", 41)
    assert len(nested(("modulus", 5, {}), ("modulus", 8, {})).shares()) == 40
    with pytest.raises(InputError, match="with 42 residues together, and at most 41 are followed"):
        nested(("modulus", 6, {}), ("modulus", 7, {})).shares()
