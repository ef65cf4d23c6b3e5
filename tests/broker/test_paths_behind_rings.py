"""A hash exchange in front of exchanges that pass only some messages on: the predicted losses are those of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from checked_orders import live_ring, share_lost
from exchange_types import CHX, FANOUT
from pika.exchange_type import ExchangeType
from shop import Shop

from rabbit_chx.routing import ExchangeRef

pytestmark = pytest.mark.broker

_KEYS = 2000


@pytest.mark.parametrize(
    ("type_", "alternate"), [("direct", False), ("direct", True), ("topic", False), ("fanout", False)]
)
def test_the_predicted_share_of_the_keys_is_lost(
    orders: Shop, answer: Callable[..., Any], type_: Literal["direct", "topic", "fanout"], *, alternate: bool
) -> None:
    """An exchange behind the ring, next to a queue, knows no key, and may have an alternate exchange."""
    channel, behind = orders.channel, ExchangeRef("behind")
    channel.exchange_declare("rest", FANOUT, durable=True)
    channel.queue_bind("orders.3", "rest", "")
    arguments = {"alternate-exchange": "rest"} if alternate else {}
    channel.exchange_declare(behind.name, ExchangeType(type_), durable=True, arguments=arguments)
    if type_ != "fanout":
        channel.queue_bind("orders.1", behind.name, "bound.#")
    channel.exchange_declare("front", CHX, durable=True)
    channel.queue_bind("orders.2", "front", "1")
    channel.exchange_bind(behind.name, "front", "2")
    ring = live_ring(orders, "front")
    share = ring.counts(f"key-{n}" for n in range(_KEYS))[behind] / _KEYS

    (finding,) = answer("ring", "check", "front", *orders.live, *orders.via, code=1)["findings"]
    predicted = 0.0 if alternate else ring.shares()[behind]
    assert (finding["kind"], finding["share"]) == (
        "unroutable-share",
        None if type_ == "topic" else predicted,
    )
    assert ("goes to its alternate exchange rest" in finding["message"]) is alternate
    assert share_lost(orders, "front", _KEYS) == (0 if alternate else share)
    there = channel.queue_declare("orders.3", passive=True).method.message_count
    assert there == (share * _KEYS if alternate else 0)
