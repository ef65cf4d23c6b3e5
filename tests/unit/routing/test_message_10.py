"""Messages of AMQP 1.0 publishers; what real brokers did with thousands of them is in the recorded routes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from naming import name_of

from rabbit_chx.amqp import Amqp10Value
from rabbit_chx.errors import InputError, NotDeterminedError, RowError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release

RING = HashRing.from_bindings([(f"q{number}", 1 + number % 3) for number in range(7)])
SOME_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
BY_HEADER = ConsistentHashExchange("x", RING, {"hash-header": "x-tenant"})
BY_ID = ConsistentHashExchange("x", RING, {"hash-property": "message_id"})
BY_TIME = ConsistentHashExchange("x", RING, {"hash-property": "timestamp"})


def term(exchange: ConsistentHashExchange, **given: Any) -> str | None:
    return exchange.explain(**given, client="amqp-1.0").term


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", '<<"a">>'),
        (Amqp10Value("symbol", "a"), '<<"a">>'),
        (5, "5"),
        (Amqp10Value("ubyte", 5), "5"),
        (Amqp10Value("char", "é"), "233"),
        (Amqp10Value("timestamp", 1_700_000_000_123), "1700000000123"),
        (True, "true"),
        (None, "undefined"),
        ([1], "undefined"),
        (float("nan"), "undefined"),
        (Amqp10Value("decimal32"), "undefined"),
    ],
)
def test_an_application_property(value: Any, expected: str) -> None:
    assert term(BY_HEADER, headers={"x-tenant": value}) == expected


def test_an_annotation_wins_but_for_booleans_and_nulls() -> None:
    def with_annotation(value: Any) -> str | None:
        return term(
            BY_HEADER, headers={"x-tenant": "p"}, properties={"message_annotations": {"x-tenant": value}}
        )

    assert with_annotation("a") == '<<"a">>'
    assert with_annotation(5) == "5"
    assert {with_annotation(value) for value in (True, False, None, [1])} == {'<<"p">>'}
    assert term(BY_HEADER, properties={"message_annotations": {"x-tenant": True}}) == "undefined"


def test_the_first_of_two_properties_counts_and_the_last_of_two_annotations() -> None:
    """Read in the broker's source: no client for Python sends a name twice."""
    twice = [("x-tenant", 1), ("x-tenant", 2)]
    assert term(BY_HEADER, headers=twice) == "1"
    assert term(BY_HEADER, properties={"message_annotations": twice}) == "2"


def test_an_id_goes_by_its_type() -> None:
    ids = (SOME_ID, SOME_ID.bytes, str(SOME_ID), 5, "5")
    terms = [term(BY_ID, properties={"message_id": id_}) for id_ in ids]
    assert terms[0] == terms[1] != terms[2]
    assert terms[3:] == ["5", '<<"5">>']
    assert term(BY_ID) == "undefined"


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0, "0"), (999, "0"), (1999, "1"), (-999, "0"), (-1500, "-1"), (1_700_000_000_999, "1700000000")],
)
def test_a_creation_time_is_hashed_in_whole_seconds(milliseconds: int, expected: str) -> None:
    for value in (milliseconds, Amqp10Value("timestamp", milliseconds)):
        assert term(BY_TIME, properties={"creation_time": value}) == f'<<"{expected}">>'


@pytest.mark.parametrize(
    "given",
    [
        {"bcc": ["a"]},
        {"cc": "a"},
        {"cc": 5},
        {"properties": {"timestamp": 5}},
        {"properties": {"app_id": "a"}},
        {"properties": {"creation_time": 1.5}},
        {"properties": {"creation_time": Amqp10Value("ulong", 1)}},
        {"properties": {"message_annotations": {"tenant": 1}}},
        {"properties": {"message_annotations": {"x-cc": ["a"]}}},
        {"properties": object()},
        {"headers": {"a": 1j}},
        {"routing_key": 5},
    ],
    ids=name_of,
)
def test_what_cannot_be_sent_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        BY_HEADER.route(**given, client="amqp-1.0")


def test_before_4_0_a_plugin_converts_and_nothing_is_said() -> None:
    old = ConsistentHashExchange("x", RING.with_release(Release("3.13.7")))
    for ask in (lambda: old.route("k", client="amqp-1.0"), lambda: old.indices(["k"], client="amqp-1.0")):
        with pytest.raises(NotDeterminedError, match=r"3\.13\.7 has AMQP 1\.0 by a plugin"):
            ask()


def test_x_cc_counts_from_4_1_on() -> None:
    def route(version: str, cc: list[str]) -> Any:
        bindings = [(f"q{number}", "") for number in range(50)]
        exchange = ModulusHashExchange(
            "m", bindings, Release(version, "khepri" if version > "4.3" else "mnesia")
        )
        return exchange.route("k", cc=cc, client="amqp-1.0"), exchange.route("k", cc=cc)

    assert route("4.0.5", ["a"])[0] == route("4.0.5", [])[1]
    for version in ("4.1.0", "4.3.6"):
        over_10, over_091 = route(version, ["a"])
        assert over_10 == over_091 != route(version, [])[0]


COLUMNS: list[tuple[ConsistentHashExchange, Any]] = [
    (BY_HEADER, ["a", "é", ""]),
    (BY_HEADER, [b"a", b"\xff"]),
    (BY_HEADER, [5, -5, True, 1.5, SOME_ID, Amqp10Value("char", "a"), [1]]),
    (BY_HEADER, np.arange(-500, 500)),
    (BY_HEADER, pa.array(["a", "b"])),
    (BY_ID, ["a", "t" * 300]),
    (BY_ID, [SOME_ID, 5, b"a", "a", 2**64 - 1]),
    (BY_TIME, [0, 1500, -1500, 1_700_000_000_999]),
]


@pytest.mark.parametrize(("exchange", "values"), COLUMNS)
def test_a_column_goes_where_its_values_go(exchange: ConsistentHashExchange, values: Any) -> None:
    def routed(value: Any) -> Any:
        if exchange is BY_HEADER:
            return exchange.route(headers={"x-tenant": value}, client="amqp-1.0")
        name = "message_id" if exchange is BY_ID else "creation_time"
        return exchange.route(properties={name: value}, client="amqp-1.0")

    plain = values.tolist() if hasattr(values, "tolist") else values
    one_by_one = [routed(value) for value in plain]
    indices = exchange.indices(values, client="amqp-1.0").tolist()
    assert [RING.destinations[index] for index in indices] == one_by_one


def test_a_routing_key_may_be_longer_than_a_short_string() -> None:
    exchange = ConsistentHashExchange("x", RING)
    key = "k" * 300
    assert exchange.route(key, client="amqp-1.0") == RING.destination_for(key)
    assert exchange.indices([key], client="amqp-1.0").tolist() == RING.indices([key]).tolist()
    with pytest.raises(InputError, match="300 bytes"):
        exchange.route(key)


def test_nulls_in_a_column() -> None:
    missing = RING.destinations.index(BY_ID.route(client="amqp-1.0"))
    assert BY_ID.indices([None], client="amqp-1.0", missing_nulls=True).tolist() == [missing]
    filled = BY_ID.indices(["a", None], client="amqp-1.0", fill_null="a").tolist()
    assert filled[0] == filled[1]
    with pytest.raises(RowError, match="null"):
        BY_ID.indices(["a", None], client="amqp-1.0")


def test_a_column_that_cannot_be_sent_says_where() -> None:
    with pytest.raises(RowError, match="position 1"):
        BY_ID.indices(["a", -1], client="amqp-1.0")
    with pytest.raises(InputError, match="give Amqp10Values"):
        BY_HEADER.indices([1], client="amqp-1.0", field_type="long")
