"""A hash exchange in front of exchanges that pass only some messages on: the predicted losses are those of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from checked_orders import live_ring, share_lost
from exchange_types import CHX
from pika.exchange_type import ExchangeType
from shop import Shop

from rabbit_chx.routing import ExchangeRef

pytestmark = pytest.mark.broker

_KEYS = 2000


def _declare(orders: Shop, type_: Literal["direct", "topic"], **arguments: str) -> float:
    """Put an exchange behind a hash exchange, next to a queue; return its share of the published keys."""
    channel = orders.channel
    channel.exchange_declare("behind", ExchangeType(type_), durable=True, arguments=arguments)
    channel.queue_bind("orders.1", "behind", "bound.#")
    channel.exchange_declare("front", CHX, durable=True)
    channel.queue_bind("orders.2", "front", "1")
    channel.exchange_bind("behind", "front", "2")
    ring = live_ring(orders, "front")
    return ring.counts(f"key-{n}" for n in range(_KEYS))[ExchangeRef("behind")] / _KEYS


@pytest.fixture
def found(orders: Shop, answer: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Returns the only finding of a check of the exchange."""

    def check(code: int) -> dict[str, Any]:
        (finding,) = answer("ring", "check", "front", *orders.live, *orders.via, code=code)["findings"]
        assert finding["kind"] == "unroutable-share"
        return dict(finding)

    return check


def test_the_keys_that_a_direct_exchange_does_not_know_are_lost(
    orders: Shop, found: Callable[..., dict[str, Any]]
) -> None:
    share = _declare(orders, "direct")
    finding = found(1)
    assert share_lost(orders, "front", _KEYS) == share
    assert finding["share"] == pytest.approx(share, abs=0.05)
    assert finding["share"] == live_ring(orders, "front").shares()[ExchangeRef("behind")]


def test_the_alternate_exchange_gets_the_keys_that_a_direct_exchange_does_not_know(
    orders: Shop, found: Callable[..., dict[str, Any]]
) -> None:
    orders.channel.exchange_declare("rest", ExchangeType("fanout"), durable=True)
    orders.channel.queue_bind("orders.3", "rest", "")
    share = _declare(orders, "direct", **{"alternate-exchange": "rest"})
    finding = found(1)
    assert (finding["share"], "goes to its alternate exchange rest" in finding["message"]) == (0.0, True)
    assert share_lost(orders, "front", _KEYS) == 0.0
    there = orders.channel.queue_declare("orders.3", passive=True).method.message_count
    assert there == share * _KEYS


def test_a_topic_exchange_is_a_warning_and_its_share_is_unknown(
    orders: Shop, found: Callable[..., dict[str, Any]]
) -> None:
    share = _declare(orders, "topic")
    assert found(1)["share"] is None
    assert share_lost(orders, "front", _KEYS) == share
