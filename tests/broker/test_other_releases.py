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


@pytest.fixture
def other(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A vhost of a broker of another release."""
    need("docker")
    with docker_broker(request.param) as broker, temporary_vhost(broker) as inside:
        yield inside


@pytest.fixture
def its_shop(other: RunningBroker) -> Iterator[Shop]:
    """The vhost, without anything in it."""
    with pika.BlockingConnection(pika_parameters(f"{other.url}?heartbeat=0")) as connection:
        yield shop_of(other, connection.channel())


@pytest.mark.parametrize("other", ["3.8"], indirect=True)
def test_what_unbinding_broke_is_found_and_needs_a_new_exchange(
    its_shop: Shop, answer: Callable[..., Any]
) -> None:
    shop, channel = its_shop, its_shop.channel
    for queue in ("q1", "q2", "q3"):
        channel.queue_declare(queue, durable=True)
    # A queue that is bound twice: the unbinding of one binding takes all buckets, and the other stays listed.
    for exchange, also in (("empty", ""), ("rest", "spare")):
        arguments = {"alternate-exchange": also} if also else {}
        channel.exchange_declare(exchange, CHX, durable=True, arguments=arguments)
        channel.queue_bind("q1", exchange, "1")
        channel.queue_bind("q1", exchange, "3")
        channel.queue_unbind("q1", exchange, "1")
    # An unbinding moves the buckets behind it by the wrong number, and leaves holes where keys go.
    channel.exchange_declare("holes", CHX, durable=True)
    for queue, weight in (("q1", "1"), ("q2", "2"), ("q1", "3"), ("q3", "2")):
        channel.queue_bind(queue, "holes", weight)
    channel.queue_unbind("q1", "holes", "3")
    found = {}
    for name in ("empty", "holes", "rest"):
        found[name] = answer("ring", "check", name, *shop.live, *shop.via, code=1)
        first = found[name]["findings"][0]
        assert (first["kind"], first["share"], share_lost(shop, name, 300)) == ("unroutable-share", 1, 1)
    kinds = [("unroutable-share", None), ("hole", None), ("silent-binding", "q1")]
    assert finding_kinds(found["empty"]) == kinds
    assert "spare leads to no queue" in found["rest"]["findings"][0]["message"]
    assert [kind for kind, _ in finding_kinds(found["holes"])].count("hole") == 1

    # 3.8.9 also counts wrong where the next bucket begins, so that what is bound to the empty ring gets no key.
    for name in ("empty", "holes"):
        repair = ("ring", "repair", name, *shop.live, *shop.via, "--apply")
        refused = answer(*repair, code=4)
        assert [refusal["allow_with"] for refusal in refused["refusals"]] == ["--allow-delete"]
        done = answer(*repair, "--allow-delete")
        assert (done["state"], done["left"]) == ("applied", [])
        assert share_lost(shop, name, 300) == 0
    assert set(live_ring(shop, "empty").buckets) == {"q1"}
    assert sorted(map(str, live_ring(shop, "holes").buckets)) == ["q1", "q2", "q2", "q3", "q3"]


@pytest.mark.parametrize("other", ["3.10"], indirect=True)
def test_a_stream_group_needs_3_11(other: RunningBroker) -> None:
    async def enter() -> None:
        async with StreamGroup(other.stream_url, name="billing", streams=["s"]):
            pass

    with pytest.raises(InputError, match=r"RabbitMQ 3\.10.* upgrade to 3\.11 or newer"):
        asyncio.run(enter())
