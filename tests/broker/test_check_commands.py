"""Checks of a live broker by the command line: what is wrong is found, with the share of keys that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from checked_orders import finding_kinds, share_lost
from declared import with_login
from exchange_types import CHX
from exposition import parsed_exposition
from found_broker import need
from pika.exchange_type import ExchangeType
from shop import Shop

from rabbit_chx.broker import Broker
from rabbit_chx.cli import main
from rabbit_chx.routing import Release
from rabbit_chx.testing import docker_broker

pytestmark = pytest.mark.broker


def test_another_order_is_found_with_its_exact_share(
    orders: Shop, orders_file: str, answer: Callable[..., Any]
) -> None:
    orders.channel.queue_unbind("orders.1", "orders", "1")
    orders.channel.queue_bind("orders.1", "orders", "1")
    assert answer("ring", "check", "orders", *orders.live, *orders.via)["findings"] == []
    (order,) = answer("topology", "check", orders_file, *orders.live, *orders.via, code=1)["findings"]
    assert (order["kind"], order["exchange"], order["destination"]) == ("order", "orders", None)
    with Broker(orders.broker.url, ring_source=orders.ring_via) as live:
        ring = live.ring("orders")
    wanted = ring.unbind("orders.2", 2).unbind("orders.3", 1).bind("orders.2", 2).bind("orders.3")
    assert order["share"] == ring.share_moved(wanted)
    assert order["fix"].startswith(f"run: rabbit-chx ring repair orders --file {orders_file} --url amqp://")


def test_an_operator_policy_that_makes_a_queue_drop_messages(
    orders: Shop, answer: Callable[..., Any]
) -> None:
    policy = {"pattern": "^orders\\.1$", "definition": {"max-length": 2}, "apply-to": "queues"}
    orders.management.request("PUT", "operator-policies", orders.settings.vhost, "caps", body=policy)
    document = answer("ring", "check", "orders", *orders.live, *orders.via, code=1)
    assert finding_kinds(document) == [("dropping-destination", "orders.1")]
    assert "at most 2 messages by the operator policy caps" in document["findings"][0]["message"]


def test_a_policy_that_the_broker_passes_over_does_not_hide_the_one_below_it(
    orders: Shop, answer: Callable[..., Any]
) -> None:
    """Classic queues have no delivery limit, so the broker applies the policy of the lower priority to them.

    Before 3.10 a policy with any setting applies to a classic queue, even one without effect.
    """
    for name, priority, definition in (
        ("above", 9, {"delivery-limit": 5}),
        ("below", 1, {"message-ttl": 1000}),
    ):
        policy = {
            "pattern": "^orders\\.1$",
            "apply-to": "queues",
            "priority": priority,
            "definition": definition,
        }
        orders.management.request("PUT", "policies", orders.settings.vhost, name, body=policy)
    if Release(orders.broker.version).numbers < (3, 10, 0):
        assert answer("ring", "check", "orders", *orders.live, *orders.via)["findings"] == []
        return
    document = answer("ring", "check", "orders", *orders.live, *orders.via, code=1)
    assert finding_kinds(document) == [("expiring-destination", "orders.1")]
    assert "TTL of 1,000 ms by the policy below" in document["findings"][0]["message"]


def test_an_argument_that_the_broker_ignores_is_found(orders: Shop, answer: Callable[..., Any]) -> None:
    """LavinMQ's argument for the hashed header, and a misspelled one of a queue."""
    orders.channel.exchange_declare("other", CHX, durable=True, arguments={"x-hash-on": "tenant"})
    orders.channel.queue_declare("other.1", durable=True, arguments={"x-ttl": 1000})
    orders.channel.queue_bind("other.1", "other", "1")
    document = answer("ring", "check", "other", *orders.live, *orders.via, code=1)
    assert finding_kinds(document) == [("ignored-argument", None), ("ignored-argument", "other.1")]
    version = orders.broker.version
    assert [finding["message"] for finding in document["findings"]] == [
        f"exchange other has the argument x-hash-on, which RabbitMQ {version} ignores",
        f"queue other.1 has the argument x-ttl, which RabbitMQ {version} ignores",
    ]
    code = main(["ring", "check", "other", "--ignore", "ignored-argument", *orders.live, *orders.via])
    assert code == 0


def test_all_exchanges_are_checked_and_listed(orders: Shop, answer: Callable[..., Any]) -> None:
    orders.channel.exchange_declare("empty", CHX, durable=True)
    read = (*orders.live, *orders.via, "--no-record")
    document = answer("ring", "check", "--all", *read, code=1)
    assert {finding["exchange"] for finding in document["findings"]} == {"empty"}
    listed = answer("ring", "list", *read)["exchanges"]
    found = {ring["exchange"]: (ring["members"], ring["buckets"], ring["findings"]) for ring in listed}
    assert found == {"orders": (3, 4, []), "empty": (0, 0, ["unroutable-share", "hole"])}
    assumed = answer("ring", "list", *orders.live)["exchanges"]
    assert {(ring["provenance"], ring["findings"]) for ring in assumed} == {("assumed", None)}


@pytest.fixture
def user(shop: Shop) -> Iterator[str]:
    """A user with the tag management and without permissions."""
    name = shop.settings.vhost
    shop.management.request("PUT", "users", name, body={"password": "pw", "tags": "management"})
    yield name
    shop.management.request("DELETE", "users", name)


@pytest.mark.parametrize("command", [("ring", "check", "--all"), ("ring", "list")])
def test_a_vhost_without_hash_exchanges_is_not_sound(
    shop: Shop, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    vhost = shop.settings.vhost
    shop.channel.exchange_delete("orders")
    assert main([*command, *shop.live, *shop.via]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert f"vhost {vhost} has no exchange of type x-consistent-hash or x-modulus-hash" in found.err


def test_metrics_of_a_check_of_nothing_are_a_failure(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.channel.exchange_delete("orders")
    assert main(["ring", "check", "--all", "--output", "prometheus", *shop.live, *shop.via]) == 2
    values = parsed_exposition(capsys.readouterr().out)
    assert set(values["rabbit_chx_check_success"].values.values()) == {0.0}
    assert "rabbit_chx_check_findings" not in values


def test_a_user_without_permissions_has_checked_nothing(
    shop: Shop, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, management_url = (
        with_login(str(url), user, "pw") for url in (shop.broker.url, shop.broker.management_url)
    )
    of = ["--url", url, "--management-url", management_url]
    for command in (["ring", "check", "--all-vhosts"], ["ring", "list", "--all-vhosts"]):
        assert main([*command, *of]) == 2
        assert f"the user {user!r} may access no vhost: grant it permissions" in capsys.readouterr().err
    assert main(["ring", "check", "--all", *of]) == 77
    assert "grant the user permissions on the vhost" in capsys.readouterr().err


def test_an_exchange_that_does_not_hash_is_named_as_what_it_is(
    orders: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["ring", "check"], ["ring", "repair"], ["ring", "show"]):
        assert main([*command, "amq.direct", *orders.live, *orders.via]) == 2
        assert "is of type direct, not x-consistent-hash: pass another one" in capsys.readouterr().err
    assert main(["topology", "export", "--exchange", "amq.direct", *orders.live, *orders.via]) == 2
    assert "is a direct exchange that each broker has" in capsys.readouterr().err
    orders.channel.queue_bind("orders.1", "amq.direct", "first")
    assert main(["topology", "export", "--exchange", "amq.direct", *orders.live, *orders.via]) == 0
    assert 'source = "amq.direct"' in capsys.readouterr().out


def test_a_member_that_leads_to_no_queue(orders: Shop, answer: Callable[..., Any]) -> None:
    orders.channel.exchange_declare("slot", ExchangeType("fanout"), durable=True)
    orders.channel.exchange_bind("slot", "orders", "4")
    document = answer("ring", "check", "orders", *orders.live, *orders.via, code=1)
    assert finding_kinds(document) == [("unroutable-share", None)]
    assert document["findings"][0]["share"] == pytest.approx(share_lost(orders, "orders"), abs=0.04)
    queue = orders.channel.queue_declare("", exclusive=True).method.queue
    orders.channel.queue_bind(str(queue), "slot")
    assert answer("ring", "check", "orders", *orders.live, *orders.via)["findings"] == []
    assert share_lost(orders, "orders") == 0


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.restarts
def test_a_broker_without_the_plugin_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    need("docker")
    with docker_broker("4.3") as broker:
        broker.run("rabbitmq-plugins", "-q", "disable", "rabbitmq_consistent_hash_exchange")
        of = ["--url", broker.url, "--management-url", str(broker.management_url)]
        for command in (["ring", "check", "--all"], ["ring", "list"]):
            assert main([*command, *of]) == 2
            said = capsys.readouterr().err
            assert "enable its plugin with rabbitmq-plugins enable rabbitmq_consistent_hash_exchange" in said
