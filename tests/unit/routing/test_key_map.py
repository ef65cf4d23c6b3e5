"""The laws of everything that maps keys to destinations, and the exact shares of hashes modulo a number."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbit_chx.errors import InputError, NotDeterminedError, RowError
from rabbit_chx.routing import (
    ConsistentHashExchange,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    OrderKnowledge,
    Provenance,
    Release,
    SlotTable,
    SuperStream,
)
from rabbit_chx.routing.key_map import KeyMap, check_key_map
from rabbit_chx.routing.key_map_json import key_map_from_json

_KEYS = [f"k{n}" for n in range(300)]
_SLOT = ExchangeRef("slot")


def ring(places: list[str]) -> HashRing:
    return HashRing.from_buckets(places)


def table(places: list[str]) -> SlotTable:
    buckets = [_SLOT, *map(ExchangeRef, places)]
    return SlotTable(
        HashRing.from_buckets(buckets), {ExchangeRef(place): place.rstrip("'") for place in places}
    )


def gapped(places: list[str]) -> SlotTable:
    """The table of slots of which the last one, and all named d, have no queue."""
    owners = dict(table(places).owners)
    owners.pop(ExchangeRef("d"), None)
    owners.pop(ExchangeRef(places[-1]), None)
    return SlotTable(table(places).ring, owners)


def holed(places: list[str]) -> HashRing:
    """The ring in which d is a hole."""
    return HashRing.from_buckets([None if place == "d" else place for place in places])


def modulus(places: list[str]) -> ModulusHashExchange:
    return ModulusHashExchange("x", [(place, f"{n:03}") for n, place in enumerate(places)])


def java(places: list[str]) -> SuperStream:
    return SuperStream(places, name="s")


def rstream(places: list[str]) -> SuperStream:
    return SuperStream(places, name="s", client="rstream")


def by_key(places: list[str]) -> SuperStream:
    """The super stream by binding key, in which each partition has some of `_KEYS`, and others have none."""
    return SuperStream(places, [f"k{n}" for n in range(len(places))], name="s", routing="key")


_HASHED = (ring, holed, table, gapped, modulus, java, rstream)
_OF_SEEDS = {ring, holed, table, gapped}
_MAKERS = (*_HASHED, by_key)
makers = pytest.mark.parametrize("make", _MAKERS)
hashed = pytest.mark.parametrize("make", _HASHED)
_PLACES = st.lists(st.sampled_from(["a", "b", "c", "d'", "d"]), min_size=1, max_size=7)


@hashed
@settings(max_examples=5)
@given(before=_PLACES, after=_PLACES)
def test_shares_and_flows_describe_the_same_map(
    make: Callable[[list[str]], KeyMap], before: list[str], after: list[str]
) -> None:
    old, new = make(before), make(after)
    flows = old.flows(new)
    assert min(flows.values()) > 0
    for key_map, side in ((old, 0), (new, 1)):
        totals: Counter[Any] = Counter()
        for pair, share in flows.items():
            totals[pair[side]] += share  # type: ignore[assignment]
        shares = {place: share for place, share in key_map.shares().items() if share} or {None: 1.0}
        assert totals == pytest.approx(shares)
        assert sum(shares.values()) == pytest.approx(1)
    assert {source == target for source, target in old.flows(old)} == {True}
    moved = sum(share for (source, target), share in flows.items() if source != target)
    assert old.share_moved(new) == pytest.approx(moved)
    assert new.share_moved(old) == pytest.approx(old.share_moved(new))
    assert old.share_moved(old) == 0


def test_shares_of_keys_that_are_not_hashed_are_not_known() -> None:
    before, after = by_key(["a", "b"]), by_key(["a", "b", "c"])
    for ask in (before.shares, lambda: before.flows(after), lambda: before.share_moved(after)):
        with pytest.raises(InputError, match="the shares of the keys are not known"):
            ask()


@makers
def test_each_way_to_ask_gives_the_same_destination(make: Callable[[list[str]], KeyMap]) -> None:
    key_map = make(["a", "b", "c", "b", "d"])
    check_key_map(key_map)
    names = (*key_map.destinations, None)
    assert [names[index] for index in key_map.indices(_KEYS).tolist()] == list(
        map(key_map.destination_for, _KEYS)
    )
    assert {place for place in key_map.buckets if place is not None} == set(key_map.destinations)
    holes = key_map.buckets.count(None) if make is holed else 0  # a slot without a queue is a bucket
    assert key_map.bucket_count == len(key_map.buckets) - holes
    route = getattr(key_map, "route", None)
    if route is not None:
        assert [route(routing_key=key) for key in _KEYS] == [*map(key_map.destination_for, _KEYS)]


@makers
def test_a_key_that_is_none_is_an_error_with_its_position(make: Callable[[list[str]], KeyMap]) -> None:
    for wrong in (None, 5):
        with pytest.raises(RowError, match="position 1"):
            make(["a", "b"]).indices(["k", wrong, "k"])


@makers
def test_nulls_count_as_the_key_that_is_given(make: Callable[[list[str]], KeyMap]) -> None:
    key_map, keys = make(["a", "b", "c"]), ["k0", None, "k2", None]
    filled = ["k1" if key is None else key for key in keys]
    expected = key_map.indices(filled).tolist()
    for column in (keys, np.array(keys, object), pa.array(keys)):
        assert key_map.indices(column, fill_null="k1").tolist() == expected
        assert key_map.counts(column, fill_null="k1") == key_map.counts(filled)
        found = key_map.destinations_for(column, fill_null=b"k1").tolist()
        assert found == list(map(key_map.destination_for, filled))


@makers
def test_a_map_is_the_value_of_its_buckets_hash_ground_and_slots(
    make: Callable[[list[str]], KeyMap],
) -> None:
    made, other = make(["a", "b", "c", "b"]), make(["c", "b"])
    slots = None if made.slots is None else {slot: made.queue_of(slot) for slot in made.slots}
    value = KeyMap(made.underlying.buckets, made.hashing, made.order, slots)  # type: ignore[arg-type]
    names = ("kind", "buckets", "destinations", "bucket_count", "slots", "provenance", "index_of_bucket")
    for name in names:
        assert getattr(value, name) == getattr(made, name)
    assert list(map(value.destination_for, _KEYS)) == list(map(made.destination_for, _KEYS))
    assert value.indices(_KEYS).tolist() == made.indices(_KEYS).tolist()
    assert value == KeyMap(made.underlying.buckets, made.hashing, OrderKnowledge(None), slots)  # type: ignore[arg-type]
    if make is not by_key:
        assert (value.shares(), value.share_moved(made)) == (made.shares(), 0)
        assert value.flows(other) == made.flows(other)


def test_a_key_of_no_partition_has_no_destination_and_one_of_two_is_refused() -> None:
    stream = SuperStream(["a", "b", "c"], ["one", "two", "two"], name="s", routing="key")
    assert stream.indices(["one", b"none", "one"]).tolist() == [0, -1, 0]
    asks = (stream.destination_for, stream.partition_for, lambda key: stream.route(routing_key=key))
    for ask in asks:
        assert (ask("one"), ask("none")) == ("a", None)
        with pytest.raises(
            InputError, match="2 partitions are bound with the key 'two', b and c: unbind all but one"
        ):
            ask("two")
    with pytest.raises(RowError, match="the key at position 1: 2 partitions are bound"):
        stream.indices(["one", "two"])
    assert stream.partitions_bound_with("two") == ("b", "c")
    # The client of a call hashes, whatever the others do.
    assert stream.partition_for("two", client="rstream") == rstream(["a", "b", "c"]).partition_for("two")
    twice = SuperStream(["a", "a", "b"], ["one", "one", "two"], routing="key")
    assert (twice.destination_for("one"), twice.indices(["one", "two"]).tolist()) == ("a", [0, 2])


@pytest.mark.parametrize("make", [java, rstream, by_key])
def test_a_changed_super_stream_routes_as_before(make: Callable[[list[str]], SuperStream]) -> None:
    before = make(["a", "b", "c"])
    again = before.bind("d", "k3").unbind("d")
    assert again.hashing == before.hashing
    assert again == before
    assert again.indices(_KEYS).tolist() == before.indices(_KEYS).tolist()
    assert before.unbind("a").hashing == before.hashing


@makers
def test_the_map_of_the_broker_has_the_release_and_ground_and_none_beneath(
    make: Callable[[list[str]], KeyMap],
) -> None:
    key_map = make(["a", "b", "d"])
    underlying = key_map.underlying
    assert underlying.underlying is underlying
    assert (underlying.release, underlying.order) == (key_map.release, key_map.order)
    assert underlying.hashing.exchange_type == key_map.hashing.exchange_type
    # Only where destinations can change without the map of the broker, there is a map beneath.
    assert (underlying is not key_map) == (key_map.slots is not None)


@makers
def test_a_change_that_does_not_determine_the_map_is_refused(make: Callable[[list[str]], KeyMap]) -> None:
    key_map = make(["a", "b"])
    if not key_map.slots is not None:
        assert "new" in key_map.bind("new", "9").destinations
        assert "a" not in key_map.unbind("a").destinations
        return
    with pytest.raises(
        InputError, match=r"a bind of new=9 does not determine which slots move: .*plan\(wanted"
    ):
        key_map.bind("new", "9")
    with pytest.raises(InputError, match="an unbind of a does not determine which slots move"):
        key_map.unbind("a")


@makers
def test_json_keeps_the_map(make: Callable[[list[str]], KeyMap]) -> None:
    key_map = make(["a", "b"])
    assert key_map_from_json(key_map.to_json()) == key_map
    assert key_map_from_json(key_map.to_json().encode()).provenance == key_map.provenance


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                '{"format": "rabbit-chx/ring", "format_version": 1, "release": {"version": "3.10.5", "store": "mnesia", "store_known": true}, '
                '"provenance": null, "buckets": ["a", {"exchange": "x"}, null], "bindings": [["a", "1"]], "doubt": "two orders fit"}'
            ),
            HashRing.from_buckets(["a", ExchangeRef("x"), None], Release("3.10.5")),
        ),
        (
            (
                '{"format": "rabbit-chx/ring", "format_version": 1, "release": {"version": "4.3.6", "store": "khepri", "store_known": true}, '
                '"provenance": "read", "buckets": [{"exchange": "slot"}, {"exchange": "a"}], "bindings": null, "slots": {"slot": null, "a": "a"}}'
            ),
            table(["a"]),
        ),
        (
            (
                '{"format": "rabbit-chx/modulus", "format_version": 1, "name": "x", "release": {"version": "4.3.6", "store": "khepri"}, '
                '"provenance": "read", "destinations": ["a", "b", "b"]}'
            ),
            modulus(["a", "b", "b"]),
        ),
        (
            (
                '{"format": "rabbit-chx/super-stream", "format_version": 1, "name": "s", "client": "rstream", "provenance": "replayed", '
                '"partitions": ["a", "b"], "binding_keys": ["0", "1"]}'
            ),
            rstream(["a", "b"]),
        ),
    ],
)
def test_json_that_earlier_versions_wrote_is_read(text: str, expected: KeyMap) -> None:
    assert key_map_from_json(text) == expected
    assert key_map_from_json(text).provenance == json.loads(text)["provenance"]
    assert pickle.loads(pickle.dumps(expected)) == expected  # noqa: S301


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(_MAKERS, 2)])
def test_only_maps_with_one_hash_are_compared(
    first: Callable[[list[str]], KeyMap], second: Callable[[list[str]], KeyMap]
) -> None:
    maps = first(["a"]), second(["a", "b"])
    if {first, second} <= _OF_SEEDS:
        assert sum(maps[0].flows(maps[1]).values()) == 1
        return
    with pytest.raises(InputError, match="hash keys differently: compare two maps of one type"):
        maps[0].share_moved(maps[1])
    with pytest.raises(InputError, match="hash keys differently: compare two maps of one type"):
        maps[0].flows(maps[1])


def test_what_does_not_map_keys() -> None:
    for wrong in (None, "orders", {"a": "b"}, ExchangeRef("x")):
        with pytest.raises(InputError, match="is not a ring: pass a HashRing"):
            check_key_map(wrong)
        with pytest.raises(InputError, match="is not a ring: pass a HashRing"):
            ConsistentHashExchange("x", wrong)  # type: ignore[arg-type]
    for text in ("", "[]", "{}", '{"slots": {}}', '{"format": "rabbit-chx/super-stream"}', "nonsense"):
        with pytest.raises(InputError, match=r"is not a (ring|super stream)"):
            key_map_from_json(text)


def test_bindings_go_and_come() -> None:
    bindings = (("q2", "1"), ("q1", "10"), (ExchangeRef("x"), "2"), ("q2", "3"))
    exchange = ModulusHashExchange("e", bindings)
    assert exchange.unbind("q2", "3").bindings == bindings[:3]
    assert exchange.unbind("q2").bindings == bindings[1:3]
    assert exchange.bind("q9", "").bindings[-1] == ("q9", "")
    for wrong in (("q3", None), ("q1", "11")):
        with pytest.raises(InputError, match="is not bound to e"):
            exchange.unbind(*wrong)
    stream = java(["s-0", "s-1"]).bind("s-2", "2")
    assert stream.unbind("s-1") == SuperStream(["s-0", "s-2"], ["0", "2"])
    with pytest.raises(InputError, match="a partition of a super stream is a stream"):
        stream.bind(ExchangeRef("x"), "0")
    with pytest.raises(InputError, match="has no partition"):
        java(["s-0"]).unbind("s-0")


@pytest.mark.parametrize("before", ["read", "recorded", "observed", "replayed", None])
def test_a_change_of_a_map_that_was_read_is_replayed_and_a_guess_stays_one(before: Provenance) -> None:
    bindings = [("a", 1), ("b", 1)]
    after = None if before is None else "replayed"
    for key_map in (
        replace(HashRing.from_bindings(bindings), order=OrderKnowledge(before)),
        ModulusHashExchange("x", bindings, provenance=before),
        SuperStream(["a", "b"], name="s", provenance=before),
    ):
        assert key_map.provenance == key_map.order.origin == before
        assert key_map.bind("c", "2").provenance == key_map.unbind("a").provenance == after


def test_without_an_order_there_are_shares_and_neither_indices_nor_flows() -> None:
    unordered = modulus(["a", "b"]).with_release(Release("4.0.5", store="khepri"))
    assert sum(unordered.shares().values()) == pytest.approx(1)
    for use in (lambda: unordered.indices(_KEYS), lambda: unordered.flows(modulus(["a"]))):
        with pytest.raises(NotDeterminedError):
            use()


def test_a_super_stream_hashes_the_routing_key_alone_on_all_releases() -> None:
    stream = java(["s-0", "s-1"])
    assert stream.route(routing_key="k") == stream.partition_for("k")
    with pytest.raises(InputError, match="hashes the routing key alone"):
        stream.route(routing_key="k", headers={})
    with pytest.raises(InputError, match="on all releases alike"):
        stream.with_release(Release("4.3"))
