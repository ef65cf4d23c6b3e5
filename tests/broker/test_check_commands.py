"""Checks of a live broker by the command line: its policies, and what is behind its rings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary import CANARY, canary_user
from checked_orders import live_ring, share_lost
from declared import with_login
from exchange_types import CHX, FANOUT
from pika.exchange_type import ExchangeType
from shop import Shop

from rabbit_chx.cli import main
from rabbit_chx.routing import ExchangeRef, Release

pytestmark = pytest.mark.broker


def test_the_policies_that_the_broker_applies_are_found(orders: Shop, answer: Callable[..., Any]) -> None:
    """Classic queues have no delivery limit, so the broker applies the policy of the lower priority to them.

    Before 3.10 a policy with any setting applies to a classic queue, even one without effect.
    """
    for kind, name, priority, definition in (
        ("operator-policies", "caps", 0, {"max-length": 2}),
        ("policies", "above", 9, {"delivery-limit": 5}),
        ("policies", "below", 1, {"message-ttl": 1000}),
    ):
        body = {
            "pattern": "^orders\\.1$",
            "apply-to": "queues",
            "priority": priority,
            "definition": definition,
        }
        orders.management.request("PUT", kind, orders.settings.vhost, name, body=body)
    found = answer("check", "orders", *orders.live, *orders.via, code=1)["findings"]
    assert {finding["destination"] for finding in found} == {"orders.1"}
    said = {finding["kind"]: finding["message"] for finding in found}
    assert "at most 2 messages by the operator policy caps" in said.pop("dropping-destination")
    if Release(orders.broker.version).numbers >= (3, 10, 0):
        assert "TTL of 1,000 ms by the policy below" in said.pop("expiring-destination")
    assert said == {}


@pytest.mark.parametrize("alternate", [False, True])
def test_the_predicted_share_of_the_keys_is_lost(
    orders: Shop, answer: Callable[..., Any], *, alternate: bool
) -> None:
    """An exchange behind the ring, next to a queue, has no binding, and may have an alternate exchange."""
    channel, behind = orders.channel, ExchangeRef("behind")
    channel.exchange_declare("rest", FANOUT, durable=True)
    channel.queue_bind("orders.3", "rest", "")
    arguments = {"alternate-exchange": "rest"} if alternate else {}
    channel.exchange_declare(behind.name, ExchangeType("direct"), durable=True, arguments=arguments)
    channel.exchange_declare("front", CHX, durable=True)
    channel.queue_bind("orders.2", "front", "1")
    channel.exchange_bind(behind.name, "front", "2")
    ring = live_ring(orders, "front")
    count = ring.counts(f"key-{n}" for n in range(2000))[behind]

    words = ("check", "front", "--without", "consumers", *orders.live, *orders.via)
    found = answer(*words, code=0 if alternate else 1)["findings"]
    predicted = [] if alternate else [("unroutable-share", ring.shares()[behind])]
    assert [(finding["kind"], finding["share"]) for finding in found] == predicted
    assert share_lost(orders, "front") == (0 if alternate else count / 2000)
    there = channel.queue_declare("orders.3", passive=True).method.message_count
    assert there == (count if alternate else 0)


def test_a_user_of_management_only_gets_what_needs_no_order(
    orders: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with canary_user(orders.management, orders.settings.vhost, tags="management", read="^$") as user:
        live = [with_login(text, user, CANARY) if "//" in text else text for text in orders.live]
        assert main(["check", "orders", *live]) == 3
        said = capsys.readouterr()
        assert "not determined: orders" in said.out
        assert "the order of orders is unknown: " in said.err
        orders.channel.queue_declare("late", durable=True, arguments={"x-expires": 600_000})
        orders.channel.queue_bind("late", "orders", "1")
        found = answer("check", "orders", *live, "--ignore", "odd-member", code=1)["findings"]
        assert [(each["kind"], each["destination"], each["share"]) for each in found] == [
            ("expiring-destination", "late", 0.2)
        ]
