"""`route` and `compare` ask a live exchange, and say what the broker does with real messages; options that name a broker."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pika
import pytest
from exchange_types import CHX, FANOUT
from publishing_support import through
from shop import Shop, declare
from taken import taken
from tcp_proxy import Proxy

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker

HASHED = {"hash-header": "tenant"}
VALUES = [f"value-{n}" for n in range(60)]
QUEUES = ("q1", "q2", "q3", "q4")


def publish(shop: Shop, exchange: str, values: Iterable[str]) -> dict[str, Any]:
    """Publish a message for each value of the header, and return the destination of each."""
    for value in values:
        properties = pika.BasicProperties(headers={"tenant": value})
        shop.channel.basic_publish(exchange, "the same for all", value.encode(), properties, mandatory=True)
    return {body.decode(): queue for queue in QUEUES for _, _, body in taken(shop.channel, queue)}


def test_each_command_agrees_with_where_the_broker_puts_messages(
    shop: Shop, answer: Callable[..., Any], tmp_path: Path
) -> None:
    declare(shop.channel, "tenants", HASHED)
    shop.channel.confirm_delivery()
    of = ("tenants", *shop.live, *shop.via)
    keys = tmp_path / "keys"
    keys.write_text("\n".join(VALUES))
    found = publish(shop, "tenants", VALUES)
    assert sorted(found) == sorted(VALUES)

    routed = answer("route", "tenants", *VALUES, *of[1:])
    assert {answer["key"]: answer["destination"] for answer in routed["answers"]} == found
    ring = tmp_path / "ring.json"
    ring.write_text(json.dumps(answer("show", *of)))
    assert answer("route", str(ring), *VALUES)["answers"] == routed["answers"]
    ring.write_text(json.dumps(answer("show", "orders", *of)))
    assert answer("route", f"{ring}#tenants", *VALUES)["answers"] == routed["answers"]
    assert {answer["destination"] for answer in routed["answers"] if answer["slot"] == "slot"} == {"q4"}
    assert routed["ring"]["slots"] == {"slot": "q4"}
    assert routed["ring"]["provenance"] == "read"
    assert routed["ring"]["release"]["version"] == shop.broker.version

    simulated = answer("compare", *of, "--keys", str(keys))["sample"]["destinations"]
    counts = {str(share["destination"]): share["messages"] for share in simulated}
    assert counts == Counter(map(str, found.values()))

    chosen = answer("route", *of, "--reaching", "q2", "--keys", "k{1..60}")["keys"]
    assert set(publish(shop, "tenants", chosen).values()) == {"q2"}

    # The same bindings in another order are another ring, and the broker itself says which values move.
    shop.channel.exchange_declare("other", CHX, arguments=HASHED)
    for queue, weight in (("q1", 3), ("q2", 2), ("q3", 4)):
        shop.channel.queue_bind(queue, "other", str(weight))
    compared = answer("compare", *of, "--to", "other", "--keys", str(keys))
    moves = {move["key"]: (move["before"], move["after"]) for move in compared["change"]["moves"]}
    after = publish(shop, "other", VALUES)
    assert moves == {key: (found[key], after[key]) for key in VALUES if found[key] != after[key]}


def test_an_answer_by_the_binding_list_or_by_amqp_alone_is_not_determined(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    declare(shop.channel, "tenants", HASHED)
    of = ("tenants", *shop.live)
    doubt = "its bindings are listed without their order"
    for command in (("route", "tenants", "k", *shop.live), ("compare", *of, "--to", "tenants")):
        document = answer(*command, code=3)
        ring = document["ring"]
        assert (document["determined"], ring["provenance"], ring["doubt"]) == (False, None, doubt)
        assert answer(*command, *shop.via)["determined"] is True
    route = ("route", "tenants", "k", *of[1:3], *shop.via)
    assert main(route) == 3
    assert "AMQP alone does not show the arguments of exchange 'tenants'" in capsys.readouterr().err
    assert main(["compare", *of[:3], *shop.via]) == 0  # the shares of a ring depend on no key
    assert main([*route, "--hash-header", "tenant"]) == 0
    assert "AMQP alone does not show the queues of the exchanges in the ring" in capsys.readouterr().err


def test_it_waits_for_a_broker_that_is_starting(
    shop: Shop, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", "orders", "--url", through(shop.live[1], proxy.port), *shop.live[2:], *shop.via]
    proxy.refuse()
    assert main([*command, "--wait", "0.7"]) == 69
    assert "(after --wait 0.7)" in capsys.readouterr().err
    starts = threading.Timer(1.0, proxy.accept)
    starts.start()
    assert main([*command, "--wait", "30"]) == 0
    starts.join()


def test_an_exchange_in_the_ring_that_leads_to_no_queue_is_named(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("nowhere", FANOUT)
    shop.channel.exchange_declare("half", CHX)
    shop.channel.exchange_bind("nowhere", "half", "1")
    shop.channel.queue_bind("q1", "half", "1")
    commands = {
        ("route", "half", *VALUES): 1,
        ("verify", "half", "--keys", "k{1..9}"): 0,
        ("show", "half"): 0,
    }
    for command, code in commands.items():
        assert main([*command, *shop.live, *shop.via]) == code
        said = capsys.readouterr().err
        assert (
            "exchange nowhere leads to no queue, and is in the ring of exchange 'half': bind a queue" in said
        )
    shop.channel.queue_bind("q2", "nowhere", "")
    for command in commands:
        assert main([*command, *shop.live, *shop.via]) == 0
        assert "leads to no queue" not in capsys.readouterr().err
