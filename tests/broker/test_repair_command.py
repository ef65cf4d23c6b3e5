"""Repairs of live rings: shown first, done on one channel, compared afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pika
import pytest
from checked_orders import finding_kinds, live_ring, moved_to_the_end, share_lost, shop_of
from exchange_types import CHX
from found_broker import need
from pika.exceptions import AMQPError
from shop import Shop

from rabbit_chx.broker import pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker, docker_broker

pytestmark = pytest.mark.broker


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
    assert "at the peak" in shown
    assert "Nothing was changed: --apply makes the changes." in shown
    applied = answer(*command, "--apply")
    assert (applied["state"], applied["left"]) == ("applied", [])
    assert applied["longest_gap"]["operations"] >= 1
    assert 0 < applied["longest_gap"]["seconds"] < 60
    assert live_ring(orders) == before
    assert answer("topology", "check", orders_file, *orders.live, *orders.via)["findings"] == []
    again = answer(*command, "--apply")
    assert (again["state"], again["plan"]["changes"]) == ("unchanged", [])


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
    refusal = document["refusals"][0]["message"]
    assert "queue mine is exclusive, and only the connection that declared it" in refusal
    assert live_ring(orders) == there


@pytest.mark.slow
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


def test_an_empty_ring_is_sound_for_neither_command(
    orders: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    orders.channel.exchange_declare("empty", CHX, durable=True)
    of = ["empty", *orders.live, *orders.via]
    kinds = [finding["kind"] for finding in answer("ring", "check", *of, code=1)["findings"]]
    assert kinds == ["unroutable-share", "hole"]
    repaired = answer("ring", "repair", *of, code=1)
    assert (repaired["state"], repaired["left"]) == ("unchanged", kinds)
    assert main(["ring", "repair", *of]) == 1
    shown = capsys.readouterr().out
    assert "100.000% of all keys end in no queue" in shown
    assert "sound" not in shown
    assert main(["ring", "repair", "orders", *orders.live, *orders.via]) == 0
    assert "nothing to do: the ring is sound" in capsys.readouterr().out
