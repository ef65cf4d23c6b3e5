"""What the commands find and mend on 3.8.9, whose rings change in other ways; and what 3.10 lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from checked_orders import finding_kinds, live_ring, share_lost, shop_of
from exchange_types import CHX
from found_broker import need
from shop import Shop

from rabbit_chx import InputError, StreamGroup
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker, docker_broker, temporary_vhost

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.timeout(400)]

on_3_8 = pytest.mark.parametrize("other", ["3.8"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def other(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker of another release."""
    need("docker")
    with docker_broker(request.param) as broker:
        yield broker


@pytest.fixture
def its_shop(other: RunningBroker) -> Iterator[Shop]:
    """A vhost without anything in it."""
    with (
        temporary_vhost(other) as inside,
        pika.BlockingConnection(pika_parameters(f"{inside.url}?heartbeat=0")) as connection,
    ):
        yield shop_of(inside, connection.channel())


@on_3_8
def test_an_exchange_of_which_all_messages_are_unroutable(its_shop: Shop, answer: Callable[..., Any]) -> None:
    shop = its_shop
    # A queue that is bound twice: the unbinding of one binding takes all buckets, and the other stays listed.
    shop.channel.queue_declare("q1", durable=True)
    for exchange, also in (("empty", ""), ("rest", "spare")):
        arguments = {"alternate-exchange": also} if also else {}
        shop.channel.exchange_declare(exchange, CHX, durable=True, arguments=arguments)
        shop.channel.queue_bind("q1", exchange, "1")
        shop.channel.queue_bind("q1", exchange, "3")
        shop.channel.queue_unbind("q1", exchange, "1")
    declare_holes(shop)
    found = {}
    for name in ("empty", "holes", "rest"):
        found[name] = answer("ring", "check", name, *shop.live, *shop.via, code=1)
        first = found[name]["findings"][0]
        assert (first["kind"], first["share"]) == ("unroutable-share", share_lost(shop, name, 300))
        assert first["share"] == 1
    kinds = [("unroutable-share", None), ("hole", None), ("silent-binding", "q1")]
    assert finding_kinds(found["empty"]) == kinds
    assert "spare leads to no queue" in found["rest"]["findings"][0]["message"]
    assert [kind for kind, _ in finding_kinds(found["holes"])].count("hole") == 1


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


@pytest.mark.parametrize("other", ["3.10"], indirect=True)
def test_a_stream_group_needs_3_11(other: RunningBroker) -> None:
    async def enter() -> None:
        async with StreamGroup(other.stream_url, name="billing", streams=["s"]):
            pass

    with pytest.raises(InputError, match=r"RabbitMQ 3\.10.* upgrade to 3\.11 or newer"):
        asyncio.run(enter())
