"""Hashes modulo a number of bindings: exact shares and movement, counted by brute force on a small hash."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
from rabbit_chx.analysis.modulo_map import ModuloMap, StreamClient

from rabbit_chx.analysis import modulo_map, movement, simulate
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing import ExchangeRef, ModulusHashExchange, Release, SuperStream

SMALL = 1_000
BINDINGS = (("q2", "1"), ("q1", "10"), (ExchangeRef("x"), "2"), ("q2", "3"))
KEYS = [f"k{n}" for n in range(300)]


def modulus(*bindings: Any, release: Release | None = None) -> ModuloMap:
    return ModuloMap("e", "x-modulus-hash", bindings, release)


def test_routes_are_those_of_the_mirrors() -> None:
    messages: list[dict[str, Any]] = [{"routing_key": key} for key in KEYS]
    exchange = ModulusHashExchange("e", BINDINGS)
    assert modulus(*BINDINGS).route_all(messages) == list(map(exchange.route, KEYS))
    pairs = (("s-1", "1"), ("s-0", "0"))
    stream = SuperStream(["s-1", "s-0"], ["1", "0"])
    clients: tuple[StreamClient, ...] = ("java", "rstream")
    for client in clients:
        found = ModuloMap("s", "super-stream", pairs, client=client).route_all(messages)
        assert found == [stream.partition_for(key, client) for key in KEYS]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_shares_are_exact(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(modulo_map, "_PHASH2", SMALL)
    given = modulus(*((f"q{n % 2}", str(n)) for n in range(count)))
    numbered = given.numbered
    counted = Counter(numbered[hash_ % count] for hash_ in range(SMALL))
    assert given.shares() == {place: number / SMALL for place, number in counted.items()}
    assert modulus().shares() == {}


@pytest.mark.parametrize("destinations", [5, 2_000])
@pytest.mark.parametrize(("before", "after"), [*itertools.product([0, 1, 3, 4, 60, 1_001], repeat=2)])
def test_movement_is_exact(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, destinations: int
) -> None:
    monkeypatch.setattr(modulo_map, "_PHASH2", SMALL)
    old, new = (
        modulus(*((f"q{n % destinations}", f"{n}") for n in range(count))) for count in (before, after)
    )

    places = [of.numbered or (None,) for of in (old, new)]
    counted = Counter(
        (places[0][hash_ % len(places[0])], places[1][hash_ % len(places[1])]) for hash_ in range(SMALL)
    )
    sizes = sorted((number for (source, to), number in counted.items() if source != to), reverse=True)
    for few in (SMALL, 0):  # all flows at once, and computed when they are read
        monkeypatch.setattr(modulo_map, "_FEW", few)
        matrix = movement(old, new)
        assert dict(matrix.amounts) == {pair: number / SMALL for pair, number in counted.items()}
        assert len(matrix.amounts) == len(counted)
        assert matrix.moved == pytest.approx(sum(sizes) / SMALL)
        assert matrix.move_count == len(sizes)
        for side, totals in enumerate((matrix.before_totals(), matrix.after_totals())):
            ends = [pair[side] for pair in counted.elements()]
            assert totals == pytest.approx({place: ends.count(place) / SMALL for place in places[side]})
        for most in (1, 7, len(sizes)):
            moves = matrix.largest_moves(most)
            assert [amount * SMALL for *_, amount in moves] == pytest.approx(sizes[:most])
            assert len({(source, to) for source, to, _ in moves}) == len(moves)
            assert all(source != to and matrix.amounts[source, to] == amount for source, to, amount in moves)


@pytest.mark.parametrize("client", ["java", "rstream"])
@pytest.mark.parametrize(("before", "after"), [(3, 4), (7, 5), (100, 101), (499, 503)])
def test_all_shares_of_a_movement_add_up_to_1(client: StreamClient, before: int, after: int) -> None:
    def of(count: int) -> ModuloMap:
        return ModuloMap("s", "super-stream", tuple((f"s-{n}", str(n)) for n in range(count)), client=client)

    matrix = movement(of(before), of(after))
    assert abs(math.fsum(matrix.amounts.values()) - 1) < 1e-15
    assert matrix.before_totals() == pytest.approx(of(before).shares(), rel=1e-14)
    assert matrix.after_totals() == pytest.approx(of(after).shares(), rel=1e-14)


def test_movement_of_the_real_hashes() -> None:
    given = modulus(("q1", ""), ("q2", ""))
    assert movement(given, given.bind("q3", "")).moved == pytest.approx(2 / 3)
    stream = ModuloMap("s", "super-stream", (("s-0", "0"), ("s-1", "1")), client="rstream")
    assert movement(stream, stream.bind("s-2", "2")).moved == pytest.approx(2 / 3)
    assert movement(stream, stream).moved == 0


def test_bindings_go_and_come() -> None:
    given = modulus(*BINDINGS)
    assert given.unbind("q2", "3").bindings == BINDINGS[:3]
    assert given.unbind("q2").bindings == BINDINGS[1:3]
    assert given.bind("q9", "").bindings[-1] == ("q9", "")
    for wrong in (("q3", None), ("q1", "11")):
        with pytest.raises(InputError, match="is not bound to e"):
            given.unbind(*wrong)


def test_a_sample() -> None:
    keys = ["hot"] * 50 + KEYS
    given = modulus(*BINDINGS)
    simulation = simulate(given, keys, changed=given.unbind("q1"), heaviest=1)
    sample, change = simulation.sample, simulation.change
    assert sample is not None
    assert (sample.messages, sample.keys) == (350, 301)
    assert [(key.value, key.messages, key.place) for key in sample.heaviest] == [
        ("hot", 50, given.route_all([{"routing_key": "hot"}])[0])
    ]
    assert sum(sample.messages_of.values()) == 350
    assert change is not None
    assert change.messages is not None
    after = given.unbind("q1").route_all([{"routing_key": key} for key in keys])
    before = given.route_all([{"routing_key": key} for key in keys])
    assert change.messages.moved == sum(old != new for old, new in zip(before, after, strict=True))


def test_what_cannot_be() -> None:
    unordered = modulus(*BINDINGS, release=Release("4.0.5", store="khepri"))
    assert sum(unordered.shares().values()) == pytest.approx(1)
    with pytest.raises(NotDeterminedError):
        unordered.route_all([{"routing_key": "k"}])
    with pytest.raises(InputError, match="a partition of a super stream is a stream"):
        ModuloMap("s", "super-stream", ((ExchangeRef("x"), "0"),)).shares()
    with pytest.raises(InputError, match="at least one partition"):
        ModuloMap("s", "super-stream", ()).shares()
    with pytest.raises(InputError, match="hashes the routing key alone"):
        ModuloMap("s", "super-stream", (("s-0", "0"),)).route_all([{"routing_key": "k", "headers": {}}])
    streams = (("s-0", "0"), ("s-1", "1"))
    java, rstream = (ModuloMap("s", "super-stream", streams, client=client) for client in ("java", "rstream"))
    with pytest.raises(InputError, match="the clients java and rstream hash otherwise"):
        movement(java, rstream)
