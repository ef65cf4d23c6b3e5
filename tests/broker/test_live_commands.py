"""`route`, `simulate`, `compare` and `keys` ask a live exchange, and say what the broker does with real messages."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import pytest
from command_line import PROGRAM
from exchange_types import CHX, DIRECT, MODULUS
from shop import Shop, declare

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.cli import main
from rabbit_chx.routing import SuperStream

pytestmark = pytest.mark.broker

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tenants": {"hash-header": "tenant"},
    "ids": {"hash-property": "message_id"},
}
VALUES = [f"value-{n}" for n in range(60)]
QUEUES = ("q1", "q2", "q3", "q4")


def got(shop: Shop, queue: str) -> Any:
    """The next message of a queue; None where there is none. The stubs of pika take it for text."""
    return shop.channel.basic_get(queue, auto_ack=True)[2]


def publish(shop: Shop, exchange: str, values: Iterable[str]) -> dict[str, Any]:
    """Publish a message for each value, as what the exchange hashes, and return the destination of each."""
    for queue in QUEUES:
        shop.channel.queue_purge(queue)
    shop.channel.confirm_delivery()
    for value in values:
        key, properties = "the same for all", pika.BasicProperties()
        if exchange == "tenants":
            properties.headers = {"tenant": value}
        elif exchange == "ids":
            properties.message_id = value
        else:
            key = value
        shop.channel.basic_publish(exchange, key, value.encode(), properties, mandatory=True)
    found: dict[str, Any] = {}
    for queue in QUEUES:
        while (body := got(shop, queue)) is not None:
            found[body.decode()] = queue
    return found


def key_file(path: Path) -> str:
    """A file of the values."""
    path.write_text("\n".join(VALUES))
    return str(path)


@pytest.mark.parametrize("exchange", KINDS)
def test_each_command_agrees_with_where_the_broker_puts_messages(
    shop: Shop,
    answer: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    exchange: str,
) -> None:
    declare(shop.channel, exchange, KINDS[exchange])
    of = ("--exchange", exchange, *shop.live, *shop.via)
    sample = ("--keys", key_file(tmp_path / "keys"))
    found = publish(shop, exchange, VALUES)
    assert sorted(found) == sorted(VALUES)

    routed = answer("route", *of, *VALUES)
    assert {answer["key"]: answer["destination"] for answer in routed["answers"]} == found
    assert {answer["destination"] for answer in routed["answers"] if answer["slot"] == "slot"} == {"q4"}
    assert routed["ring"]["slots"] == {"slot": "q4"}
    assert routed["ring"]["provenance"] == "read"
    assert routed["ring"]["release"]["version"] == shop.broker.version

    simulated = answer("simulate", *of, *sample)["sample"]["destinations"]
    assert Counter({str(share["destination"]): share["messages"] for share in simulated}) == Counter(
        map(str, found.values())
    )

    chosen = answer("keys", *of, "q2", "--count", "3")["keys"]
    assert set(publish(shop, exchange, chosen).values()) == {"q2"}

    # The same bindings in another order are another ring, and the broker itself says which values move.
    other = f"{exchange}-2"
    shop.channel.exchange_declare(other, CHX, arguments=KINDS[exchange])
    for queue, weight in (("q1", 3), ("q2", 2), ("q3", 4)):
        shop.channel.queue_bind(queue, other, str(weight))
    code = main(["compare", *of, "--to-exchange", other, *sample, "--output", "json"])
    moves = {move["key"]: move for move in json.loads(capsys.readouterr().out)["sample"]["moves"]}
    if exchange == "plain":
        after = publish(shop, other, VALUES)
        assert {key: (move["before"], move["after"]) for key, move in moves.items()} == {
            key: (found[key], after[key]) for key in VALUES if found[key] != after[key]
        }
    assert (code, all(move["before"] == found[key] for key, move in moves.items())) == (1, True)


@pytest.mark.extended
def test_routing_keys_are_not_hashed_in_silence(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    declare(shop.channel, "tenants", KINDS["tenants"])
    of = ("compare", "--pattern", "{n}", "--exchange", "tenants", "--to-exchange", "tenants")
    hashed = (
        "the exchange of this ring hashes hash-header 'tenant', so the keys are its values, not routing keys"
    )
    assert main([*of, *shop.live, *shop.via, "--no-record"]) == 0
    assert hashed in capsys.readouterr().err
    assert main([*of, *shop.live[:2], *shop.via]) == 3
    assert (
        "not determined: AMQP alone does not show the arguments of exchange 'tenants', so the routing key is assumed: otherwise "
        "pass --hash-header or --hash-property, or read it with --management-url"
    ) in capsys.readouterr().err
    assert main([*of, *shop.live[:2], *shop.via, "--assume"]) == 0
    # The shares of a ring depend on no key.
    assert main(["simulate", "--exchange", "tenants", *shop.live[:2], *shop.via]) == 0
    capsys.readouterr()
    assert main([*of, *shop.live[:2], *shop.via, "--hash-header", "tenant"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("AMQP alone does not show the queues of the exchanges in the ring" in line for line in lines)
    assert main([*of, *shop.live]) == 3
    said = capsys.readouterr().err
    assert (
        "not determined: the ring of exchange 'tenants' is assumed (its bindings are listed without their order): pass --ring-via"
        in said
    )
    assert hashed in said


def test_an_answer_by_the_binding_list_is_not_determined(
    shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    declare(shop.channel, "other", {})
    shop.channel.exchange_declare("plain", CHX)
    of = ["--exchange", "plain", *shop.live]
    assert main(["route", *of, "k"]) == 1
    assert "(nowhere)" in capsys.readouterr().out
    for queue, weight in (("q3", 1), ("q1", 2), ("q2", 3)):
        shop.channel.queue_bind(queue, "plain", str(weight))
    commands = (
        ["route", *of, "k"],
        ["simulate", *of],
        ["compare", *of, "--to-exchange", "plain"],
        ["keys", *of, "q1"],
    )
    for command in commands:
        assert main([*command, "--output", "json"]) == 3, command
        found = capsys.readouterr()
        document = json.loads(found.out)
        assert document["determined"] is False
        ring = document["before" if command[0] == "compare" else "ring"]
        assert (ring["provenance"], ring["doubt"]) == (
            "assumed",
            "its bindings are listed without their order",
        )
        assert "not determined: the ring of exchange 'plain' is assumed" in found.err
        assert main([*command, "--assume"]) == 0
        assert "not determined" not in capsys.readouterr().err
        assert main([*command, *shop.via, "--no-record", "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["determined"] is True
    saved = tmp_path / "ring.json"
    assert main(["ring", "show", "plain", *shop.live, "--output", "json"]) == 0
    saved.write_text(capsys.readouterr().out)
    assert main(["route", "--ring", str(saved), "k"]) == 3
    capsys.readouterr()
    assert main(["route", *of, *shop.via, "k"]) == 0


def test_an_exchange_of_another_type_is_named_and_modulus_hash_is_routed(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", "--exchange", "amq.fanout", *shop.live, "k"]) == 2
    assert "'amq.fanout'" in (said := capsys.readouterr().err)
    assert "is of type fanout, which does not hash" in said
    if tuple(map(int, shop.broker.version.split(".")[:2])) < (4, 3):
        return  # x-modulus-hash is a plugin there, and its order is not known
    shop.channel.exchange_declare("shards", MODULUS)
    for queue in QUEUES:
        shop.channel.queue_bind(queue, "shards", queue)
    found = publish(shop, "shards", VALUES)
    routed = answer("route", "--exchange", "shards", *shop.live, *VALUES)
    assert {answer["key"]: answer["destination"] for answer in routed["answers"]} == found
    assert routed["ring"] is None
    simulated = answer("simulate", "--exchange", "shards", *shop.live, "--unbind", QUEUES[0])
    assert simulated["modulus"] == routed["modulus"]
    assert [share["buckets"] for share in simulated["shares"]] == [1] * len(QUEUES)
    compared = answer("compare", "--exchange", "shards", "--to-release", "4.3.6", *shop.live)
    assert compared["exact"]["moved"] == 0


@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_super_stream_is_routed_by_the_order_of_its_partitions(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("invoices", DIRECT, durable=True, arguments={"x-super-stream": True})
    names = ["invoices-c", "invoices-a", "invoices-b"]
    for name in names:
        shop.channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    for order, name in reversed(list(enumerate(names))):
        shop.channel.queue_bind(name, "invoices", str(order), {"x-stream-partition-order": order})
    stream = SuperStream(names)
    document = answer("route", "--exchange", "invoices", *shop.live, *VALUES)
    assert document["super_stream"] == {
        "exchange": "invoices",
        "provenance": "read",
        "client": "java",
        "routing": None,
        "partitions": names,
    }
    by_key = answer("route", "--exchange", "invoices", "--exchange-type", "super-stream/key", *shop.live, "1")
    assert (by_key["super_stream"]["routing"], by_key["answers"][0]["destination"]) == ("key", names[1])
    assert [answer["destination"] for answer in document["answers"]] == list(
        map(stream.partition_for, VALUES)
    )
    document = answer(
        "route", "--exchange", "invoices", "--exchange-type", "super-stream/rstream", *shop.live, *VALUES
    )
    expected = [stream.partition_for(value, client="rstream") for value in VALUES]
    assert [answer["destination"] for answer in document["answers"]] == expected
    simulated = answer("simulate", "--exchange", "invoices", *shop.live)
    assert [share["destination"] for share in simulated["shares"]] == names
    assert main(["route", "--exchange", "invoices", "--release", "4.3.6", *shop.live, "k"]) == 2
    assert "the client chooses its partitions, on all releases alike" in capsys.readouterr().err


def test_an_alternate_exchange_is_reported_if_the_ring_is_empty(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("empty", CHX, arguments={"alternate-exchange": "amq.fanout"})
    assert main(["route", "--exchange", "empty", *shop.live, *shop.via, "k"]) == 0
    found = capsys.readouterr()
    assert "(nowhere)" in found.out
    assert "nothing is bound: every message goes to the alternate exchange 'amq.fanout'" in found.err


CANARY = "c4n@ry/%2F"


@pytest.fixture
def secret(shop: Shop) -> dict[str, str]:
    """The environment that names the broker, with the login of a user of its own."""
    user = f"user-{shop.settings.vhost}"
    shop.management.request("PUT", "users", user, body={"password": CANARY, "tags": "monitoring"})
    rights = {"configure": "", "write": "", "read": ".*"}
    shop.management.request("PUT", "permissions", shop.settings.vhost, user, body=rights)
    api, amqp = urlsplit(str(shop.broker.management_url)), ConnectionSettings.from_uri(shop.broker.url)
    return {
        "AMQP_URL": f"amqp://{user}:{quote(CANARY, safe='')}@{amqp.host}:{amqp.port}/{amqp.vhost}",
        "RABBIT_CHX_MANAGEMENT_URL": f"http://{api.hostname}:{api.port}",
        "RABBIT_CHX_RING_VIA": shop.via[1],
    }


def command_lines() -> str:
    """The command lines of all processes, as `ps` shows them."""
    return subprocess.run(
        ["ps", "-eww", "-o", "args"], capture_output=True, text=True, timeout=30, check=True
    ).stdout


def test_a_password_of_the_environment_shows_nowhere(secret: dict[str, str]) -> None:
    arguments = [PROGRAM, "route", "--exchange", "orders", "--no-record", "-"]
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | secret,
    ) as process:
        assert process.stdin is not None
        seen = ""
        deadline = time.monotonic() + 5
        while "rabbitmqctl" not in seen and time.monotonic() < deadline:
            seen += command_lines()
        out, errors = process.communicate(b"k\n", timeout=60)
    assert "route --exchange orders" in seen
    said = [line for line in errors.decode().splitlines() if "at work for" not in line]  # on a slow machine
    assert (process.returncode, said) == (0, [])
    assert out.startswith(b"k\t")
    for shown in (seen, out.decode()):
        assert "c4n" not in shown
