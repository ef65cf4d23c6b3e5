"""Messages of AMQP 0-9-1 as the broker sees them, by client and release."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
import pika
import pytest
from hash_exchanges import CRASHING, NEW, OLD, answers, basic_properties, by_header, ring

from rabbit_chx.amqp import AmqpField
from rabbit_chx.errors import ChannelClosedError, InputError, NotDeterminedError, RowError
from rabbit_chx.routing import ConsistentHashExchange, Release


@pytest.mark.parametrize("release", [OLD, NEW])
@pytest.mark.parametrize("headers", [None, {}, {"T": "a"}, [("u", 1)]])
def test_a_missing_header_is_the_atom_undefined(release: Release, headers: Any) -> None:
    assert answers(by_header(release), headers=headers) == ("undefined", 45914356, "b491")


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


def test_the_client_decides_what_a_bare_int_is() -> None:
    assert answers(by_header(OLD), headers={"t": 5})[0] == "{signedint,5}"
    assert answers(by_header(OLD), headers={"t": 5}, client="aio-pika")[0] == "{byte,5}"
    with pytest.raises(InputError, match=r"cannot send 1\.5"):
        by_header(NEW).route("k", {"t": 1.5})
    assert answers(by_header(NEW), headers={"t": 1.5}, client="aio-pika")[0] == "1.5"


def test_the_header_s_name_may_be_any_text() -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-header": AmqpField("longstr", "é")})
    assert exchange.route("k", {"é": "a"}) == exchange.route("k", [(b"\xc3\xa9", "a")]) == "b47"
    assert by_header(NEW, name="").route("k", {"": "a"}) == "b47"


def test_aio_pika_cuts_long_names_so_the_header_is_missing() -> None:
    exchange = by_header(NEW, name="n" * 129)
    assert exchange.route("k", {"n" * 129: "a"}) == "b47"
    assert exchange.route("k", {"n" * 129: "a"}, client="aio-pika") == "b491"


@pytest.mark.parametrize("release", [OLD, CRASHING, NEW])
@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_ids(release: Release, name: str) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, release), {"hash-property": name})
    for properties in ({name: "a"}, {name: b"a", "timestamp": 5}, basic_properties(**{name: "a"})):
        assert answers(exchange, properties=properties) == ('<<"a">>', 112802447, "b47")
    for missing in (None, {}, {name: None}, pika.BasicProperties(headers={"t": 1})):
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


def test_aio_pika_ends_with_the_year_9999() -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-property": "timestamp"})
    last = 253_402_300_799
    assert answers(exchange, properties={"timestamp": last}, client="aio-pika")[0] == f'<<"{last}">>'
    with pytest.raises(InputError, match="9999"):
        exchange.route(properties={"timestamp": last + 1}, client="aio-pika")


def test_headers_in_the_properties_count() -> None:
    exchange = by_header(NEW)
    assert exchange.route("k", properties=pika.BasicProperties(headers={"t": "a"})) == "b47"
    assert exchange.route("k", properties={"headers": {"t": "a"}}) == "b47"
    assert exchange.route("k", {"t": "a"}, pika.BasicProperties(message_id="m")) == "b47"


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
        {"properties": {"timestamp": 2**40}, "client": "aio-pika"},
        {"properties": {"timestamp": float("nan")}, "client": "aio-pika"},
        {"properties": {"timestamp": timedelta(1)}, "client": "aio-pika"},
        {"properties": {"timestamp": "5"}, "client": "aio-pika"},
        {"properties": {"timestamp": -1}},
        {"properties": {"timestamp": 2**64}},
        {"properties": {"timestamp": True}},
        {"properties": {"timestamp": 1.5}},
        {"client": "kombu"},
        {"client": ["pika"]},
        {"routing_key": "k" * 256},
        {"routing_key": 5},
        {"routing_key": "\ud800"},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_sent_is_refused(message: dict[str, Any]) -> None:
    exchange = ConsistentHashExchange("x", ring(10, NEW))
    with pytest.raises(InputError):
        exchange.route(**{"routing_key": "k", **message})


AIO_PIKA_PROPERTIES: list[Any] = [
    *({name: value} for name in ("message_id", "correlation_id") for value in ("a", "", b"a", b"", 5, 0, 1.5, True)),
    *({"timestamp": value} for value in (0, True, 5, 1.5, 0.9999999, 0.9999994, 5.9999996, -0.5, 2**37, 1e11)),
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
def test_cc_that_is_no_array_closes_the_channel(name: str, value: Any, type_: str) -> None:
    exchange = ConsistentHashExchange("x", ring(0, NEW))
    with pytest.raises(ChannelClosedError, match=f"the header {name} is a {type_}") as error:
        exchange.route("k", {name: value})
    assert error.value.reply_code == 406


def test_cc_can_be_hashed_and_bcc_cannot() -> None:
    assert answers(by_header(OLD, name="CC"), cc=["a"])[0] == '{array,[{longstr,<<"a">>}]}'
    assert answers(by_header(OLD, name="BCC"), bcc=["a"])[0] == "undefined"
