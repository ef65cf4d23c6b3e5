"""The x-modulus-hash exchange: the order of its bindings, its routes, shares, JSON and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pika
import pyarrow as pa
import pytest

from rabbit_chx.amqp import AmqpField
from rabbit_chx.erlang import phash2
from rabbit_chx.errors import EmptyRingError, InputError, NotDeterminedError, RowError
from rabbit_chx.routing import ExchangeRef, ModulusHashExchange, Release

MNESIA, KHEPRI, NEW = Release("4.2.9", "mnesia"), Release("4.2.9", "khepri"), Release("4.3.6")
BINDINGS: list[Any] = [("q1", "9"), ("q2", "10"), ("q3", "é"), (ExchangeRef("z"), "10"), ("q1", 5)]


@pytest.mark.parametrize(
    ("release", "order"),
    [
        (Release("3.10.0"), (ExchangeRef("z"), "q2", "q1", "q1", "q3")),
        (MNESIA, (ExchangeRef("z"), "q2", "q1", "q1", "q3")),
        (NEW, (ExchangeRef("z"), "q1", "q1", "q2", "q3")),
        (None, (ExchangeRef("z"), "q1", "q1", "q2", "q3")),
    ],
)
def test_bindings_are_ordered_as_the_release_does(release: Release | None, order: tuple[Any, ...]) -> None:
    x = ModulusHashExchange("m", [*BINDINGS, ("q1", "5")], release)
    assert x.destinations == order
    for key in ("a", "b", "c", "d", "e"):
        assert x.route(key) == order[phash2([key]) % 5]


def test_names_stand_by_their_bytes() -> None:
    names = ["é", "a", "Z", "ab", "\U0001f600", "\uffff"]
    x = ModulusHashExchange("m", [(name, "1") for name in names], NEW)
    assert x.destinations == ("Z", "a", "ab", "é", "\uffff", "\U0001f600")


X_JSON = ModulusHashExchange("m", [("q", "")], NEW, "read").to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not an x-modulus-hash exchange"),
        ("[]", "is not an x-modulus-hash exchange"),
        ('{"format": "rabbit-chx/ring", "format_version": 1}', "it lacks the format 'rabbit-chx/modulus'"),
        (X_JSON.replace('"read"', '"guessed"'), "the provenance is 'guessed'"),
        (X_JSON.replace("4.3.6", "4"), "is not a RabbitMQ version"),
    ],
)
def test_json_that_is_not_a_modulus_exchange(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModulusHashExchange.from_json(text)


def test_without_bindings_a_message_has_no_destination() -> None:
    assert ModulusHashExchange("m", []).route("a") is None
    assert ModulusHashExchange("m", [], KHEPRI).route("a") is None
    with pytest.raises(EmptyRingError, match="'m' has no bindings"):
        ModulusHashExchange("m", []).destination_for("a")


def test_an_order_that_is_not_known_is_an_error_unless_it_does_not_matter() -> None:
    with pytest.raises(
        NotDeterminedError, match=r"x-modulus-hash 'm' on RabbitMQ 4\.2\.9 \(khepri\)"
    ) as error:
        ModulusHashExchange("m", BINDINGS, KHEPRI).route("a")
    assert error.value.exchange == "m"
    assert ModulusHashExchange("m", [("q1", "1"), ("q1", "2")], KHEPRI).route("a") == "q1"


@pytest.mark.parametrize(
    ("bindings", "release", "says"),
    [
        (["q1"], NEW, "is not a binding"),
        ([("q1",)], NEW, "is not a binding"),
        ([(5, "1")], NEW, "is not a destination"),
        ([("", "1")], NEW, "name"),
        ([("q1", "k" * 256)], NEW, "256 bytes"),
        *(([("q1", key), ("q2", "a")], MNESIA, "neither int nor text") for key in (b"2", None, 1.5, True)),
        (None, NEW, "is not a list: pass"),
        ("ab", NEW, "is not a list: pass"),
        ([], "4.3.6", "pass a Release"),
    ],
)
def test_what_makes_no_exchange_is_refused(bindings: Any, release: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ModulusHashExchange("m", bindings, release)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_of_two_headers_with_routes_the_first_counts(name: str) -> None:
    """``rabbit_misc:table_lookup/2`` in ``rabbit_basic:header_routes/1`` finds the first."""
    x = ModulusHashExchange("mod", [(f"q{n}", "1") for n in range(50)])
    first, second = (AmqpField("array", [AmqpField("longstr", key)]) for key in ("b", "c"))
    b, c = (x.route("a", **{name.lower(): [key]}) for key in ("b", "c"))  # type: ignore[arg-type]
    assert b != c
    assert x.route("a", [(name, first), (name, second)]) == b
    assert x.route("a", [(name, second), (name, first)]) == c
    assert x.route("a", properties=pika.BasicProperties(headers={name: ["b"]})) == b


MANY = [f"key {n}" * (n % 9) for n in range(500)] + ["é", ""]


@pytest.mark.parametrize(
    "as_array", [list, np.array, pa.array, lambda keys: pa.chunked_array([keys[:7], keys[7:]])]
)
def test_many_keys_of_a_modulus_exchange_reach_the_destinations_of_single_ones(as_array: Any) -> None:
    x = ModulusHashExchange("m", [("q2", "a"), ("q1", "b"), ("q2", "c"), (ExchangeRef("e"), "d")], NEW)
    assert x.destinations == (ExchangeRef("e"), "q1", "q2", "q2")
    indices = x.indices(as_array(MANY))

    assert [x.destinations[index] for index in indices] == [x.route(key) for key in MANY]
    assert set(indices.tolist()) == {0, 1, 2}  # 3 is q2 again
    assert x.shares() == {ExchangeRef("e"): 0.25, "q1": 0.25, "q2": 0.5}


def test_shares_of_a_modulus_exchange_count_every_hash() -> None:
    shares = ModulusHashExchange("m", [(f"q{n}", "") for n in range(3)], NEW).shares()

    assert [share * 2**27 for share in shares.values()] == [44_739_243, 44_739_243, 44_739_242]
    assert ModulusHashExchange("m", []).shares() == {}


def test_keys_that_no_modulus_exchange_hashes_are_refused() -> None:
    x = ModulusHashExchange("m", BINDINGS, NEW)
    with pytest.raises(RowError, match="position 1"):
        x.indices(["a", "b" * 256])
    with pytest.raises(RowError, match="position 0 is null"):
        x.indices([None])
    with pytest.raises(EmptyRingError, match="'m' has no bindings"):
        ModulusHashExchange("m", []).indices(["a"])
    with pytest.raises(NotDeterminedError):
        ModulusHashExchange("m", BINDINGS, KHEPRI).indices(["a"])


def test_the_provenance_of_bindings_is_that_of_their_list_unless_their_order_is_not_known() -> None:
    assert ModulusHashExchange("m", BINDINGS, NEW).provenance == "replayed"
    assert ModulusHashExchange("m", BINDINGS, NEW, "read").provenance == "read"
    assert ModulusHashExchange("m", BINDINGS, MNESIA, "read").provenance == "read"
    assert ModulusHashExchange("m", BINDINGS, KHEPRI, "read").provenance is None
    assert ModulusHashExchange("m", BINDINGS, NEW) == ModulusHashExchange("m", BINDINGS, NEW, "read")
    with pytest.raises(InputError, match="the provenance is 'seen'"):
        ModulusHashExchange("m", BINDINGS, NEW, "seen")  # type: ignore[arg-type]
