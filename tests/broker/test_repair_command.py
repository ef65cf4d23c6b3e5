"""Repairs of live rings: shown first, done on one channel, compared afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
import pytest
from broker_faults import faults_of
from checked_orders import live_ring, share_lost, shop_of
from exchange_types import CHX
from found_broker import need
from numbered_load import numbered_load
from pika.exceptions import AMQPError
from shop import Shop

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.testing import docker_broker

pytestmark = pytest.mark.broker


def test_a_dry_run_changes_nothing_and_a_repair_restores_the_order_of_the_record(
    orders: Shop, answer: Callable[..., Any]
) -> None:
    before = live_ring(orders)
    answer("record", "orders", *orders.live, *orders.via)
    orders.channel.queue_unbind("orders.1", "orders", "1")
    orders.channel.queue_bind("orders.1", "orders", "1")  # its bucket is the last one now
    there = live_ring(orders)
    command = ("repair", "orders", *orders.live, *orders.via)
    document = answer(*command, "--dry-run", code=1)
    assert (document["state"], document["changes"]) == ("planned", [])
    assert document["plan"]["rings"][0]["moved"] == there.share_moved(before)
    assert live_ring(orders) == there
    applied = answer(*command, "--yes")
    assert (applied["state"], applied["left"]) == ("applied", [])
    assert live_ring(orders) == before
    assert answer(*command, "--yes")["state"] == "unchanged"


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
            faults_of(broker).restart()
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            shop = shop_of(broker, connection.channel())
            found = answer("check", orders_file, "--without", "consumers", *shop.live, *shop.via, code=1)
            ghosts, lost = live_ring(shop), share_lost(shop, "orders")
            with numbered_load(broker.url, "orders"):
                traced = answer("verify", "orders", *shop.live, *shop.via, "--trace", "2", "--yes", code=1)
                answer("record", "orders", *shop.live, "--trace", "2", "--yes")
                with Broker(broker.url, broker.management_url) as without_source:
                    assert without_source.ring("orders").buckets == ghosts.buckets
                repaired = answer("repair", "orders", *shop.live, "--yes")
            sound = answer("check", orders_file, "--without", "consumers", *shop.live, *shop.via)
            ring, left = live_ring(shop), share_lost(shop, "orders")
    kinds = [(finding["kind"], finding["destination"]) for finding in found["findings"]]
    assert kinds == [("unroutable-share", None), ("ghost-bucket", "gone"), ("different", None)]
    assert [finding["kind"] for finding in traced["findings"]] == ["ghost-bucket"]
    assert found["findings"][0]["share"] == ghosts.shares()["gone"]
    assert lost == pytest.approx(ghosts.shares()["gone"], abs=0.05)
    of_rings = [kind for kind in repaired["left"] if kind != "no-consumer"]  # nobody consumes the load
    assert (repaired["state"], of_rings, sound["findings"], left) == ("applied", [], [], 0)
    assert ring.buckets == ("orders.1", "orders.2", "orders.2", "orders.3")
