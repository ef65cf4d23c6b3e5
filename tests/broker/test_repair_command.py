"""Repairs of live rings: shown first, done on one channel, compared afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pika
import pytest
from checked_orders import ORDERS_FILE, declare_orders, finding_kinds, share_lost, shop_of
from exchange_types import CHX
from pika.exceptions import AMQPError
from shop import Shop
from slotted import declare_slots

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.routing import HashRing
from rabbit_chx.testing import RunningBroker, docker_broker, need

pytestmark = pytest.mark.broker


def live_ring(shop: Shop, exchange: str = "orders") -> HashRing:
    with Broker(shop.broker.url, ring_source=shop.ring_via) as live:
        return live.ring(exchange)


def moved_to_the_end(shop: Shop, queue: str, weight: str) -> None:
    shop.channel.queue_unbind(queue, "orders", weight)
    shop.channel.queue_bind(queue, "orders", weight)


def test_a_dry_run_changes_nothing_and_apply_restores_the_order(
    orders: Shop, orders_file: str, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = live_ring(orders)
    moved_to_the_end(orders, "orders.1", "1")
    there = live_ring(orders)
    command = ("ring", "repair", "orders", "--file", orders_file, *orders.live, *orders.via)
    document = answer(*command, code=1)
    assert (document["state"], document["done"], document["longest_gap"]["seconds"]) == ("planned", 0, None)
    (ring,) = document["plan"]["rings"]
    assert ring["moved"] == there.share_moved(before)
    assert live_ring(orders) == there
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert "at the worst moment" in shown
    assert "Nothing was changed: --apply does it." in shown
    applied = answer(*command, "--apply")
    assert (applied["state"], applied["left"]) == ("applied", [])
    assert applied["longest_gap"]["operations"] >= 1
    assert 0 < applied["longest_gap"]["seconds"] < 60
    assert live_ring(orders) == before
    assert answer("topology", "check", orders_file, *orders.live, *orders.via)["findings"] == []
    again = answer(*command, "--apply")
    assert (again["state"], again["plan"]["changes"]) == ("unchanged", [])


def test_the_limit_of_the_file_holds_and_the_refusal_names_the_flag(
    orders: Shop,
    orders_file: str,
    tmp_path: Path,
    answer: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    strict = tmp_path / "strict.toml"
    strict.write_text(f"max_share_moved = 0.1\n{ORDERS_FILE}")
    moved_to_the_end(orders, "orders.1", "1")
    there = live_ring(orders)
    command = ("ring", "repair", "orders", "--file", str(strict), *orders.live, *orders.via)
    assert main([*command, "--apply", "--output", "json"]) == 4
    shown = capsys.readouterr()
    assert "the repair is refused, and nothing was changed" in shown.err
    assert live_ring(orders) == there
    (refusal,) = answer(*command, code=4)["refusals"]
    assert answer(*command, "--apply", *refusal["allow_with"].split())["state"] == "applied"
    assert answer("topology", "check", orders_file, *orders.live, *orders.via)["findings"] == []


def test_a_binding_without_a_bucket_is_healed_without_a_file(
    orders: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    orders.channel.queue_bind("orders.1", "orders", "9")
    orders.channel.queue_unbind("orders.1", "orders", "9")
    assert main(["ring", "repair", "orders", *orders.live, *orders.via, "--apply"]) == 0
    shown = capsys.readouterr().out
    assert "check     sound" in shown
    assert live_ring(orders).buckets == ("orders.2", "orders.2", "orders.3", "orders.1")
    assert answer("ring", "check", "orders", *orders.live, *orders.via)["findings"] == []
    assert share_lost(orders, "orders") == 0


def test_an_exclusive_queue_is_not_bound_by_another_connection(
    orders: Shop, answer: Callable[..., Any]
) -> None:
    orders.channel.queue_declare("mine", exclusive=True)
    for weight in ("1", "2"):
        orders.channel.queue_bind("mine", "orders", weight)
    there = live_ring(orders)
    document = answer("ring", "repair", "orders", *orders.live, *orders.via, "--apply", code=4)
    assert document["state"] == "refused"
    assert (
        "queue mine is exclusive, and only the connection that declared it" in document["refusals"][0]["says"]
    )
    assert live_ring(orders) == there


def test_a_repair_needs_the_true_ring_and_a_hash_exchange(
    orders: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ring", "repair", "orders", *orders.live]) == 2
    assert "give --ring-via PREFIX" in capsys.readouterr().err
    for exchange, says in (("other", "there is no exchange 'other'"), ("amq.topic", "is of type topic")):
        assert main(["ring", "repair", exchange, *orders.live, *orders.via]) != 0
        assert says in capsys.readouterr().err


@pytest.mark.docker
@pytest.mark.restarts
def test_ghosts_of_an_exclusive_queue_after_a_restart_are_found_and_cured(
    orders_file: str, answer: Callable[..., Any]
) -> None:
    need("docker")
    with docker_broker("4.3") as broker:
        with suppress(AMQPError), pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("orders", CHX, durable=True)
            for queue, weight in (("orders.1", "1"), ("gone", "2"), ("orders.2", "2"), ("orders.3", "1")):
                channel.queue_declare(queue, durable=queue != "gone", exclusive=queue == "gone")
                channel.queue_bind(queue, "orders", weight)
            broker.restart()
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            shop = shop_of(broker, connection.channel())
            found = answer("topology", "check", orders_file, *shop.live, *shop.via, code=1)
            ghosts, lost = live_ring(shop), share_lost(shop, "orders")
            with under_load(broker):
                repaired = answer("ring", "repair", "orders", *shop.live, *shop.via, "--apply")
            sound = answer("topology", "check", orders_file, *shop.live, *shop.via)
            ring, left = live_ring(shop), share_lost(shop, "orders")
            queues = list(map(str, ring.destinations))
            for name in queues:
                shop.channel.queue_purge(name)
            for n in range(1000):
                shop.channel.basic_publish("orders", f"user-{n}", b"")
            arrived = {name: keys_in(shop, name) for name in queues}
    assert finding_kinds(found) == [("unroutable-share", None), ("ghost-bucket", "gone"), ("different", None)]
    assert found["findings"][0]["share"] == ghosts.shares()["gone"]
    assert lost == pytest.approx(ghosts.shares()["gone"], abs=0.05)
    assert (repaired["state"], repaired["left"], sound["findings"], left) == ("applied", [], [], 0)
    assert ring.buckets == ("orders.1", "orders.2", "orders.2", "orders.3")
    predicted = {f"user-{n}": ring.destination_for(f"user-{n}") for n in range(1000)}
    assert {key: name for name, keys in arrived.items() for key in keys} == predicted


@contextmanager
def under_load(broker: RunningBroker) -> Iterator[None]:
    """Publish to `orders` as fast as it goes, while the block runs."""
    done = threading.Event()

    def publish() -> None:
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            channel = connection.channel()
            for n in count():
                channel.basic_publish("orders", f"key-{n}", b"")
                if done.is_set():
                    return

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(30)


def keys_in(shop: Shop, queue: str) -> set[str]:
    """Take all messages out of a queue, and return their keys."""
    keys: set[str] = set()
    while True:
        method, _, _ = shop.channel.basic_get(queue, auto_ack=True)
        if method is None:
            return keys
        keys.add(str(method.routing_key))


@pytest.mark.docker
@pytest.mark.restarts
@pytest.mark.parametrize("series", ["3.10", "4.0"])
def test_the_order_that_a_restart_changed_is_restored(
    series: str, orders_file: str, answer: Callable[..., Any]
) -> None:
    need("docker")
    with docker_broker(series) as broker:
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            declare_orders(connection.channel())
            declare_slots(connection.channel(), "events", 16, ["events.1", "events.2"])
            before = live_ring(shop_of(broker, connection.channel()))
        broker.restart()
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            shop = shop_of(broker, connection.channel())
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


@pytest.mark.docker
def test_on_3_8_what_unbinding_broke_needs_a_new_exchange(answer: Callable[..., Any]) -> None:
    need("docker")
    with (
        docker_broker("3.8") as broker,
        pika.BlockingConnection(pika_parameters(broker.url)) as connection,
    ):
        shop = shop_of(broker, connection.channel())
        for exchange in ("empty", "holes"):
            shop.channel.exchange_declare(exchange, CHX, durable=True)
        for queue in ("q1", "q2", "q3"):
            shop.channel.queue_declare(queue, durable=True)
        for weight in ("1", "3"):
            shop.channel.queue_bind("q1", "empty", weight)
        shop.channel.queue_unbind("q1", "empty", "1")
        for queue, weight in (("q1", "1"), ("q2", "2"), ("q1", "3"), ("q3", "2")):
            shop.channel.queue_bind(queue, "holes", weight)
        shop.channel.queue_unbind("q1", "holes", "3")
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
