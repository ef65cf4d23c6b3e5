"""What the commands find and mend on releases whose rings change in other ways: 3.8.9 and 3.10.8."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pika
import pytest
from checked_orders import declare_orders, finding_kinds, live_ring, moved_to_the_end, share_lost, shop_of
from exchange_types import CHX
from exposition import parsed_exposition
from found_broker import need
from shop import Shop
from slotted import declare_slots

from rabbit_chx import InputError, Publisher, StreamGroup
from rabbit_chx.broker import pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker, docker_broker, temporary_vhost
from spark_connector.reading.queue_consumer import QueueConsumer

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.timeout(400)]

on_3_8 = pytest.mark.parametrize("other", ["3.8"], indirect=True, scope="module")
on_3_10 = pytest.mark.parametrize("other", ["3.10"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def other(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker of another release."""
    need("docker")
    with docker_broker(request.param) as broker:
        yield broker


@pytest.fixture
def inside(other: RunningBroker) -> Iterator[RunningBroker]:
    """The broker, with a fresh vhost in its URL."""
    with temporary_vhost(other) as inside:
        yield inside


@pytest.fixture
def its_shop(inside: RunningBroker) -> Iterator[Shop]:
    """The vhost, without anything in it."""
    with pika.BlockingConnection(pika_parameters(f"{inside.url}?heartbeat=0")) as connection:
        yield shop_of(inside, connection.channel())


@on_3_8
def test_an_exchange_of_which_all_messages_are_unroutable(
    its_shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop, vhost = its_shop, its_shop.settings.vhost
    # A queue that is bound twice: the unbinding of one binding takes all buckets, and the other stays listed.
    shop.channel.queue_declare("q1", durable=True)
    for exchange, also in (("empty", ""), ("rest", "spare")):
        arguments = {"alternate-exchange": also} if also else {}
        shop.channel.exchange_declare(exchange, CHX, durable=True, arguments=arguments)
        shop.channel.queue_bind("q1", exchange, "1")
        shop.channel.queue_bind("q1", exchange, "3")
        shop.channel.queue_unbind("q1", exchange, "1")
    declare_holes(shop)
    found = {
        name: answer("ring", "check", name, *shop.live, *shop.via, code=1)
        for name in ("empty", "holes", "rest")
    }
    lost = {name: share_lost(shop, name, 300) for name in found}
    everywhere = answer("ring", "list", "--all-vhosts", *shop.live, *shop.via)["exchanges"]
    (finding, *_) = answer("ring", "check", "--all-vhosts", *shop.live, *shop.via, code=1)["findings"]
    assert main(["ring", "check", "empty", *shop.live, *shop.via, "--output", "prometheus"]) == 1
    metrics = parsed_exposition(capsys.readouterr().out)
    assert lost == {"empty": 1.0, "holes": 1.0, "rest": 1.0}
    assert {(ring["vhost"], ring["exchange"]) for ring in everywhere} == {(vhost, name) for name in found}
    assert (finding["vhost"], finding["exchange"]) == (vhost, "empty")
    for document in found.values():
        assert (finding_kinds(document)[0], document["findings"][0]["share"]) == (
            ("unroutable-share", None),
            1.0,
        )
    assert finding_kinds(found["empty"]) == [
        ("unroutable-share", None),
        ("hole", None),
        ("silent-binding", "q1"),
    ]
    assert "spare leads to no queue" in found["rest"]["findings"][0]["message"]
    assert Counter(kind for kind, _ in finding_kinds(found["holes"]))["hole"] == 1
    assert metrics["rabbit_chx_unroutable_share_ratio"].value(exchange="empty") == 1


def declare_holes(shop: Shop) -> None:
    """An unbinding moves the buckets behind it by the wrong number, and leaves holes where keys go."""
    shop.channel.exchange_declare("holes", CHX, durable=True)
    for queue, weight in (("q1", "1"), ("q2", "2"), ("q1", "3"), ("q3", "2")):
        shop.channel.queue_declare(queue, durable=True)
        shop.channel.queue_bind(queue, "holes", weight)
    shop.channel.queue_unbind("q1", "holes", "3")


@on_3_8
def test_what_unbinding_broke_needs_a_new_exchange(its_shop: Shop, answer: Callable[..., Any]) -> None:
    shop = its_shop
    declare_holes(shop)
    shop.channel.exchange_declare("empty", CHX, durable=True)
    for weight in ("1", "3"):
        shop.channel.queue_bind("q1", "empty", weight)
    shop.channel.queue_unbind("q1", "empty", "1")
    # 3.8.9 also counts wrong where the next bucket begins, so that what is bound to the empty ring gets no key.
    for name in ("empty", "holes"):
        repair = ("ring", "repair", name, *shop.live, *shop.via, "--apply")
        refused = answer(*repair, code=4)
        assert [refusal["allow_with"] for refusal in refused["refusals"]] == ["--allow-delete"]
        done = answer(*repair, "--allow-delete")
        assert (done["state"], done["left"]) == ("applied", [])
    rings = {name: live_ring(shop, name).buckets for name in ("empty", "holes")}
    lost = {name: share_lost(shop, name, 300) for name in rings}
    assert set(rings["empty"]) == {"q1"}
    assert sorted(map(str, rings["holes"])) == ["q1", "q2", "q2", "q3", "q3"]
    assert lost == {"empty": 0.0, "holes": 0.0}


@on_3_10
def test_a_bound_queue_without_a_bucket_and_the_order_are_found(
    its_shop: Shop, orders_file: str, answer: Callable[..., Any]
) -> None:
    declare_orders(its_shop.channel)
    check_what_is_found(its_shop, orders_file, answer)


def test_a_bound_queue_without_a_bucket_and_the_order_are_found_on_the_newest(
    orders: Shop, orders_file: str, answer: Callable[..., Any]
) -> None:
    check_what_is_found(orders, orders_file, answer)


def check_what_is_found(shop: Shop, orders_file: str, answer: Callable[..., Any]) -> None:
    assert answer("topology", "check", orders_file, *shop.live, *shop.via)["findings"] == []
    shop.channel.queue_bind("orders.2", "orders", "5")
    twice = answer("topology", "check", orders_file, *shop.live, *shop.via, code=1)
    shop.channel.queue_unbind("orders.2", "orders", "5")
    silent = answer("topology", "check", orders_file, *shop.live, *shop.via, code=1)
    assert share_lost(shop, "orders", 500) == 0
    shop.channel.queue_unbind("orders.2", "orders", "2")
    shop.channel.queue_bind("orders.2", "orders", "2")
    order = answer("topology", "check", orders_file, *shop.live, *shop.via, code=1)
    assert finding_kinds(twice) == [("second-binding", "orders.2"), ("different", "orders.2")]
    assert finding_kinds(silent) == [("silent-binding", "orders.2"), ("different", None)]
    assert finding_kinds(order) == [("order", None)]


@on_3_10
def test_which_queue_is_a_stream(its_shop: Shop) -> None:
    """The words of the refusal that tells it are those of other releases."""
    for kind in ("classic", "quorum", "stream"):
        its_shop.channel.queue_declare(kind, durable=True, arguments={"x-queue-type": kind})
        with closing(QueueConsumer(its_shop.settings)) as consumer:
            assert consumer.is_stream(kind) is (kind == "stream")


@on_3_8
def test_a_release_without_streams_publishes_and_consumes(its_shop: Shop) -> None:
    its_shop.channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    with Publisher(its_shop.settings, exchange="") as publisher:
        publisher.publish_many(["q"], [b"1"])
    with closing(QueueConsumer(its_shop.settings)) as consumer:
        assert (consumer.ready("q"), consumer.is_stream("q")) == (1, False)
        assert [message.body for message in consumer.take("q", 10, 1_000)] == [b"1"]


@pytest.mark.slow
@on_3_10
@pytest.mark.restarts
def test_the_order_that_a_restart_changed_is_restored(
    inside: RunningBroker, orders_file: str, answer: Callable[..., Any]
) -> None:
    with pika.BlockingConnection(pika_parameters(inside.url)) as connection:
        declare_orders(connection.channel())
        declare_slots(connection.channel(), "events", 16, ["events.1", "events.2"])
        before = live_ring(shop_of(inside, connection.channel()))
    inside.restart()
    with pika.BlockingConnection(pika_parameters(inside.url)) as connection:
        shop = shop_of(inside, connection.channel())
        # A restart may by chance leave the order as it was.
        if live_ring(shop) == before:
            moved_to_the_end(shop, "orders.2", "2")
        found = answer("topology", "check", orders_file, *shop.live, *shop.via, code=1)
        repair = ("ring", "repair", "orders", "--file", orders_file, *shop.live, *shop.via)
        assert answer(*repair, "--apply")["state"] == "applied"
        assert live_ring(shop) == before
        assert answer("topology", "check", orders_file, *shop.live, *shop.via)["findings"] == []
        repair = ("ring", "repair", "events", *shop.live, *shop.via)
        answer(*repair, "--apply")  # the restart may have changed the order of the slots in any way
        shop.channel.exchange_unbind("events.slot.08", "events", "1")
        shop.channel.exchange_bind("events.slot.08", "events", "1")
        slots = answer("ring", "check", "events", *shop.live, *shop.via, code=1)
        assert answer(*repair, "--apply")["left"] == []
    assert finding_kinds(found) == finding_kinds(slots) == [("order", None)]
    assert 0 < slots["findings"][0]["share"] < 1  # the slots before it stay


@on_3_10
def test_a_stream_group_needs_3_11(inside: RunningBroker) -> None:
    async def enter() -> None:
        async with StreamGroup(inside.stream_url, name="billing", streams=["s"]):
            pass

    with pytest.raises(InputError, match=r"RabbitMQ 3\.10.* upgrade to 3\.11 or newer"):
        asyncio.run(enter())
