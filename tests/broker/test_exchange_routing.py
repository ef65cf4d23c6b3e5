"""Messages of every kind that pika can send are found where the mirror says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from pika.compat import long
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, UnroutableError

from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.rules import EMPTY_LIST_CRASHES
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

MODULUS: Any = "x-modulus-hash"
WEIGHTS = {"q1": 3, "q2": 10, "q3": 7, "q4": 1}
HEADER_VALUES: list[Any] = [
    "", "a", "tenant-7", "naïve", "日本語", "0123456789ab", "0123456789abc",
    b"", b"a", b"\xff\x00",
    0, 1, 5, -1, -5, 127, 128, 40_000, 2**27 - 1, 2**27, -(2**27), -(2**27) - 1, 2**31 - 1, 2**31, -(2**31) - 1,
    2**63 - 1, -(2**63), long(5), long(-1),
    True, False, None,
    Decimal("3.14"), Decimal("-3.14"), Decimal(100), Decimal("0.10"), Decimal(0),
    datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
    ["a"], ["a", "b"], [1], [-1], [None], [True], [["a"], 1], [{"k": "v"}],
    {"k": "v"}, {"k": 1, "a": 2}, {"k": {"l": []}},
]  # fmt: skip


@pytest.fixture
def release(broker: RunningBroker) -> Release:
    return Release(broker.version)


@pytest.fixture
def channel(vhost_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in WEIGHTS:
            channel.queue_declare(queue)
        yield channel


@pytest.fixture
def found(channel: BlockingChannel) -> Callable[..., str | None]:
    """Publishes one message and says in which queue it is, or None if it came back."""

    def publish(exchange: str, key: str = "k", **properties: Any) -> str | None:
        try:
            channel.basic_publish(exchange, key, b"", pika.BasicProperties(**properties), mandatory=True)
        except UnroutableError:
            return None
        queues = [queue for queue in WEIGHTS if channel.basic_get(queue, auto_ack=True)[0]]
        assert len(queues) == 1
        return queues[0]

    return publish


def declared(
    channel: BlockingChannel, release: Release, arguments: dict[str, Any] | None = None
) -> ConsistentHashExchange:
    channel.exchange_declare("x", CHX, arguments=arguments)
    for queue, weight in WEIGHTS.items():
        channel.queue_bind(queue, "x", str(weight))
    return ConsistentHashExchange("x", HashRing.from_bindings(WEIGHTS.items(), release), arguments)


def test_routing_keys(channel: BlockingChannel, release: Release, found: Callable[..., str | None]) -> None:
    exchange = declared(channel, release)
    headers = {"CC": ["other"], "BCC": ["more"]}
    for key in ("", "k", "5", "user-42", "日本語", "k" * 255):
        assert found("x", key, headers=headers) == exchange.route(key, cc=["other"], bcc=["more"]), key


def test_header_values(channel: BlockingChannel, release: Release, found: Callable[..., str | None]) -> None:
    exchange = declared(channel, release, {"hash-header": "tenant"})
    wrong = []
    for value in HEADER_VALUES:
        headers = {"other": 1, "tenant": value, "x-more": "z"}
        queue = found("x", headers=headers)
        if queue != exchange.route("k", headers) or queue != exchange.explain("k", headers).destination:
            wrong.append((value, queue, exchange.explain("k", headers)))
    assert wrong == []


def test_missing_header(channel: BlockingChannel, release: Release, found: Callable[..., str | None]) -> None:
    exchange = declared(channel, release, {"hash-header": "tenant"})
    cases: tuple[dict[str, Any] | None, ...] = (None, {}, {"Tenant": "a"})
    for headers in cases:
        assert found("x", headers=headers) == exchange.route("k", headers), headers


def test_header_names_that_begin_with_x(
    channel: BlockingChannel, release: Release, found: Callable[..., str | None]
) -> None:
    exchange = declared(channel, release, {"hash-header": "x-tenant"})
    values = [f"t{n}" for n in range(30)]
    assert [found("x", headers={"x-tenant": value}) for value in values] == [
        exchange.route("k", {"x-tenant": value}) for value in values
    ]


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_cc_and_bcc_as_the_hashed_header(
    channel: BlockingChannel, release: Release, found: Callable[..., str | None], name: str
) -> None:
    exchange = declared(channel, release, {"hash-header": name})
    for value in (["a"], ["b"], ["c"], ["c", "d"]):
        assert found("x", headers={name: value}) == exchange.route("k", {name: value})


@pytest.mark.parametrize("value", [[], {}], ids=["array", "table"])
def test_empty_array_and_table(
    channel: BlockingChannel,
    release: Release,
    found: Callable[..., str | None],
    value: Any,
) -> None:
    exchange = declared(channel, release, {"hash-header": "tenant"})
    if not release.follows(EMPTY_LIST_CRASHES):
        assert found("x", headers={"tenant": value}) == exchange.route("k", {"tenant": value})
        return
    with pytest.raises(ChannelClosedError) as said:
        exchange.route("k", {"tenant": value})
    with pytest.raises(ConnectionClosedByBroker) as closed:
        found("x", headers={"tenant": value})
    assert closed.value.reply_code == said.value.reply_code


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["a", 5, None])
def test_cc_that_is_no_array_closes_the_channel(
    channel: BlockingChannel,
    release: Release,
    found: Callable[..., str | None],
    name: str,
    value: Any,
) -> None:
    exchange = declared(channel, release)
    with pytest.raises(ChannelClosedError) as said:
        exchange.route("k", {name: value})
    with pytest.raises(ChannelClosedByBroker) as closed:
        found("x", headers={name: value})
    assert closed.value.reply_code == said.value.reply_code


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_properties(
    channel: BlockingChannel, release: Release, found: Callable[..., str | None], name: str
) -> None:
    exchange = declared(channel, release, {"hash-property": name})
    values: list[Any] = (
        [0, 1, 1_700_000_000, 2**40]
        if name == "timestamp"
        else ["", "a", "m1", "日本語", "urn:uuid:550e8400-e29b-41d4-a716-446655440000", "i" * 255]
    )
    for value in values:
        properties = {name: value}
        expected = exchange.route("k", properties=properties)
        assert (
            found("x", **properties)
            == expected
            == exchange.route("k", properties=pika.BasicProperties(**properties))
        )
    assert found("x") == exchange.route("k")


@pytest.mark.parametrize(
    "arguments",
    [
        {"hash-header": 5},
        {"hash-header": b"tenant"},
        {"hash-header": None},
        {"hash-property": None},
        {"hash-property": "app_id"},
        {"hash-header": "tenant", "hash-property": "message_id"},
    ],
)
def test_arguments_that_both_refuse(
    channel: BlockingChannel, release: Release, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        ConsistentHashExchange("x", HashRing.from_bindings([], release), arguments)
    with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)):
        channel.exchange_declare("x", CHX, arguments=arguments)


def test_modulus_hash(channel: BlockingChannel, release: Release, found: Callable[..., str | None]) -> None:
    bindings = [("q3", "1"), ("q1", "10"), ("q2", "2"), ("q2", "9"), ("q4", "é")]
    channel.exchange_declare("m", MODULUS)
    for queue, key in bindings:
        channel.queue_bind(queue, "m", key)
    exchange = ModulusHashExchange("m", bindings, release)
    for number in range(20):
        key, cc, bcc = (
            f"k{number}",
            [f"c{n}" for n in range(number % 3)],
            [f"b{n}" for n in range(number % 2)],
        )
        headers = {"CC": cc, "BCC": bcc}
        assert (
            found("m", key, headers=headers)
            == exchange.route(key, cc=cc, bcc=bcc)
            == exchange.route(key, headers)
        )


def test_nothing_bound(channel: BlockingChannel, release: Release, found: Callable[..., str | None]) -> None:
    channel.exchange_declare("x", CHX)
    channel.exchange_declare("m", MODULUS)
    empty = ConsistentHashExchange("x", HashRing.from_bindings([], release))
    assert (
        found("x")
        is found("m")
        is empty.route("k")
        is ModulusHashExchange("m", [], release).route("k")
        is None
    )
