"""What the broker hashes of messages of AMQP 0-9-1 and 1.0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import aio_pika
import numpy as np
import pika
import pyarrow as pa
import pytest
from hash_exchanges import CRASHING, NEW, OLD, answers, by_header, ring

from rabbit_chx.amqp import Amqp10Value, AmqpField
from rabbit_chx.errors import ChannelClosedError, InputError, NotDeterminedError, RowError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.message import property_seconds

PROPERTIES: Any = pika.BasicProperties


def test_a_missing_header_crashes_3_13_0_to_3_13_6() -> None:
    for buckets in (1, 10):
        with pytest.raises(
            ChannelClosedError, match=r"the header 't' is missing: RabbitMQ 3\.13\.6"
        ) as error:
            by_header(CRASHING, buckets).route("k")
        assert error.value.reply_code == 541
    assert by_header(CRASHING, 0).route("k") is None
    assert by_header(Release("3.13.7")).route("k") == "b491"


def test_of_a_header_given_twice_the_first_or_the_last_counts() -> None:
    pairs = [("t", "a"), ("u", 1), ("t", "key-1")]
    assert answers(by_header(OLD), headers=pairs)[0] == '{longstr,<<"a">>}'
    assert answers(by_header(NEW), headers=pairs)[0] == '<<"key-1">>'


def test_the_header_s_name_may_be_any_text() -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-header": AmqpField("longstr", "é")})
    assert exchange.route("k", {"é": "a"}) == exchange.route("k", [(b"\xc3\xa9", "a")]) == "b47"
    assert by_header(NEW, name="").route("k", {"": "a"}) == "b47"


def test_aio_pika_cuts_long_names_so_the_header_is_missing() -> None:
    exchange = by_header(NEW, name="n" * 129)
    assert exchange.route("k", {"n" * 129: "a"}) == "b47"
    assert exchange.route("k", {"n" * 129: "a"}, client="aio-pika") == "b491"


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_an_id_is_hashed_as_text_and_a_missing_one_as_undefined(name: str) -> None:
    """On each release: the recorded routes have all three."""
    exchange = ConsistentHashExchange("x", ring(1000, CRASHING), {"hash-property": name})
    for properties in ({name: "a"}, {name: b"a", "timestamp": 5}, PROPERTIES(**{name: "a"})):
        assert answers(exchange, properties=properties) == ('<<"a">>', 112802447, "b47")
    for missing in (None, {}, {name: None}, PROPERTIES(headers={"t": 1})):
        assert answers(exchange, properties=missing) == ("undefined", 45914356, "b491")
    assert answers(exchange, properties={name: ""})[0] == "<<>>"
    if name == "correlation_id":
        assert answers(exchange, properties={name: ""}, client="aio-pika")[0] == "undefined"


@pytest.mark.parametrize("properties", [None, {"message_id": ""}, {"correlation_id": "a"}])
def test_aio_pika_makes_up_message_ids(properties: dict[str, str] | None) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-property": "message_id"})
    with pytest.raises(NotDeterminedError, match="aio-pika gives a message without message_id a random one"):
        exchange.route(properties=properties, client="aio-pika")
    with pytest.raises(RowError, match="a random one"):
        exchange.indices([""], client="aio-pika")


def test_headers_in_the_properties_count() -> None:
    exchange = by_header(NEW)
    assert exchange.route("k", properties=PROPERTIES(headers={"t": "a"})) == "b47"
    assert exchange.route("k", properties={"headers": {"t": "a"}}) == "b47"
    assert exchange.route("k", {"t": "a"}, PROPERTIES(message_id="m")) == "b47"


NOT_OF_AMQP_10: list[dict[str, Any]] = [
    {"bcc": ["a"]},
    {"cc": "a"},
    {"cc": 5},
    *(
        {"properties": given}
        for given in ({"timestamp": 5}, {"app_id": "a"}, {"creation_time": 1.5}, object())
    ),
    {"properties": {"creation_time": Amqp10Value("ulong", 1)}},
    *({"properties": {"message_annotations": given}} for given in ({"tenant": 1}, {"x-cc": ["a"]})),
    {"headers": {"a": 1j}},
    {"routing_key": 5},
]


@pytest.mark.parametrize(
    "message",
    [
        {"headers": {"t": "a"}, "properties": pika.BasicProperties(headers={"u": "a"})},
        {"headers": {"CC": ["a"]}, "cc": ["b"]},
        {"headers": {"BCC": ["a"]}, "bcc": ["b"]},
        {"properties": pika.BasicProperties(headers={"CC": ["a"]}), "cc": ["b"]},
        {"cc": "b"},
        {"cc": None},
        {"bcc": [5]},
        {"cc": ["c" * 256]},
        {"headers": "t"},
        {"headers": {"t": ...}},
        {"headers": {"n" * 256: 1}},
        {"properties": {"mesage_id": "a"}},
        {"properties": "message_id"},
        {"properties": {"message_id": 5}},
        {"properties": {"message_id": "m" * 256}},
        {"properties": {"message_id": "\ud800"}, "client": "aio-pika"},
        {"properties": {"timestamp": float("nan")}, "client": "aio-pika"},
        {"properties": {"timestamp": timedelta(1)}, "client": "aio-pika"},
        {"properties": {"timestamp": -1}},
        {"properties": {"timestamp": 2**64}},
        {"properties": {"timestamp": True}},
        {"properties": {"timestamp": 1.5}},
        {"client": "kombu"},
        {"client": ["pika"]},
        {"routing_key": "k" * 256},
        {"routing_key": 5},
        {"routing_key": "\ud800"},
        *({"client": "amqp-1.0", **given} for given in NOT_OF_AMQP_10),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_sent_is_refused(message: dict[str, Any]) -> None:
    exchange = ConsistentHashExchange("x", ring(10, NEW))
    with pytest.raises(InputError):
        exchange.route(**{"routing_key": "k", **message})


def test_a_duration_is_no_timestamp_since_it_depends_on_when_it_is_sent() -> None:
    with pytest.raises(InputError, match="depends on when it is sent: pass a datetime"):
        property_seconds(timedelta(1), "aio-pika")


LAST_S = 253_402_300_799  # the last second of the year 9999
AIO_PIKA_PROPERTIES: list[Any] = [
    *({name: value} for name in ("message_id", "correlation_id") for value in ("a", "", b"a", b"", 5, 0, 1.5, True)),
    *({"timestamp": value} for value in (0, True, 5, 1.5, 0.9999999, 0.9999994, 5.9999996, -0.5, 2**37, 1e11, LAST_S, LAST_S + 1)),
    {"timestamp": datetime(2023, 11, 14, 22, 13, 20, 999_999, tzinfo=UTC)},
    {"timestamp": 2**40}, {"timestamp": 1e12}, {"timestamp": -1}, {"timestamp": float("inf")}, {"timestamp": "5"},
]  # fmt: skip


@pytest.mark.parametrize("properties", AIO_PIKA_PROPERTIES, ids=str)
def test_properties_are_what_aio_pika_sends(properties: dict[str, Any]) -> None:
    ((name, value),) = properties.items()
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-property": name})
    try:
        sent = pika.BasicProperties()
        sent.decode(aio_pika.Message(b"", **properties).properties.marshal())
    except Exception:  # noqa: BLE001 - the library raises whatever it meets
        with pytest.raises(InputError):
            exchange.route("k", properties=properties, client="aio-pika")
        return
    if name == "message_id" and sent.message_id is None:  # its channel then makes one up
        with pytest.raises(NotDeterminedError):
            exchange.route("k", properties=properties, client="aio-pika")
    else:
        expected = exchange.route("k", properties=sent)
        assert exchange.route("k", properties=properties, client="aio-pika") == expected
        values: Any = [value]
        assert exchange.ring.destinations[exchange.indices(values, client="aio-pika")[0]] == expected


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize(("value", "type_"), [("a", "longstr"), (None, "void"), ({}, "table")])
def test_cc_that_is_not_an_array_closes_the_channel(name: str, value: Any, type_: str) -> None:
    exchange = ConsistentHashExchange("x", ring(0, NEW))
    with pytest.raises(ChannelClosedError, match=f"the header {name} is a {type_}") as error:
        exchange.route("k", {name: value})
    assert error.value.reply_code == 406


def test_cc_can_be_hashed_and_bcc_cannot() -> None:
    assert answers(by_header(OLD, name="CC"), cc=["a"])[0] == '{array,[{longstr,<<"a">>}]}'
    assert answers(by_header(OLD, name="BCC"), bcc=["a"])[0] == "undefined"


RING = HashRing.from_bindings([(f"q{number}", 1 + number % 3) for number in range(7)])
SOME_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
BY_HEADER = ConsistentHashExchange("x", RING, {"hash-header": "x-tenant"})
BY_ID = ConsistentHashExchange("x", RING, {"hash-property": "message_id"})
BY_TIME = ConsistentHashExchange("x", RING, {"hash-property": "timestamp"})


def term(exchange: ConsistentHashExchange, **given: Any) -> str | None:
    return exchange.explain(**given, client="amqp-1.0").term


def test_the_first_of_two_properties_counts_and_the_last_of_two_annotations() -> None:
    """Read in the broker's source: no client for Python sends a name twice."""
    twice = [("x-tenant", 1), ("x-tenant", 2)]
    assert term(BY_HEADER, headers=twice) == "1"
    assert term(BY_HEADER, properties={"message_annotations": twice}) == "2"


def test_before_4_0_a_plugin_converts_without_a_finding() -> None:
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


def test_a_column_that_cannot_be_sent_says_where() -> None:
    with pytest.raises(RowError, match="position 1"):
        BY_ID.indices(["a", -1], client="amqp-1.0")
    with pytest.raises(InputError, match="pass Amqp10Values"):
        BY_HEADER.indices([1], client="amqp-1.0", field_type="long")
