"""The mirror held against a live broker by the command line: a scratch copy, and real traffic under the tracer."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.compat import long
from pika.exceptions import AMQPError
from pika.exchange_type import ExchangeType

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.traffic import compare_traffic
from rabbit_chx.broker import Broker, TracedRing, pika_parameters
from rabbit_chx.broker.firehose import trace_exchange, tracing
from rabbit_chx.broker.live_exchange import read_exchange, read_reach, read_ring
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.ring_source import DiagnosticsRing
from rabbit_chx.cli import main
from rabbit_chx.errors import RingSourceError
from rabbit_chx.routing import ExchangeRef, HashRing
from rabbit_chx.testing import docker_broker, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from rabbit_chx.routing import Destination
    from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

PROGRAM = str(Path(sys.executable).with_name("rabbit-chx"))
CHX: Any = "x-consistent-hash"
BINDINGS: list[tuple[Destination, int]] = [("q3", 2), ("q1", 10), ("q2", 1), (ExchangeRef("slot"), 3)]
BUCKETS = tuple(destination for destination, weight in BINDINGS for _ in range(weight))


@dataclass(frozen=True, slots=True)
class Shop:
    """A vhost with the exchange `orders`, which has the ring BUCKETS."""

    broker: RunningBroker
    management: Management
    settings: ConnectionSettings
    channel: BlockingChannel

    @property
    def live(self) -> tuple[str, ...]:
        """The options that name the broker."""
        return ("--url", self.broker.url, "--management-url", str(self.broker.management_url))

    @property
    def via(self) -> tuple[str, ...]:
        """The option that reads its ring."""
        return ("--ring-via", shlex.join(self.ring_via))

    @property
    def ring_via(self) -> tuple[str, ...]:
        """What stands before a command of the broker's tools."""
        assert self.broker.ring_via is not None, "these tests read rings: set RABBIT_CHX_TEST_RING_VIA"
        return self.broker.ring_via

    def is_traced(self) -> bool:
        """Whether the tracer is on."""
        return bool(self.management.request("GET", "vhosts", self.settings.vhost)["tracing"])

    def scratch_vhosts(self) -> set[str]:
        """Vhosts made by us but that of the test, which has such a name as well."""
        names = {vhost["name"] for vhost in self.management.request("GET", "vhosts")}
        return {name for name in names if name.startswith("rabbit_chx-")} - {self.settings.vhost}


@pytest.fixture
def shop(vhost: RunningBroker) -> Iterator[Shop]:
    assert vhost.management_url is not None, "these tests need RABBIT_CHX_TEST_MANAGEMENT_URL"
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        declare(channel, "orders")
        yield Shop(vhost, Management(vhost.management_url), ConnectionSettings.from_uri(vhost.url), channel)


def declare(channel: BlockingChannel, exchange: str, arguments: dict[str, Any] | None = None) -> None:
    channel.exchange_declare("slot", ExchangeType("fanout"), durable=True, internal=True)
    channel.queue_declare("q4", durable=True)
    channel.queue_bind("q4", "slot")
    channel.exchange_declare(exchange, CHX, durable=True, arguments=arguments)
    for destination, weight in BINDINGS:
        if isinstance(destination, ExchangeRef):
            channel.exchange_bind(destination.name, exchange, str(weight))
        else:
            channel.queue_declare(destination, durable=True)
            channel.queue_bind(destination, exchange, str(weight))


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with ``--output json``, expects an exit code, gives the document."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--output", "json"]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    return run


@contextmanager
def traffic(
    shop: Shop, messages: Iterable[tuple[str, pika.BasicProperties | None]], exchange: str = "orders"
) -> Iterator[None]:
    """Publishes messages as soon as the vhost is traced."""

    def publish() -> None:
        deadline = time.monotonic() + 30
        while not shop.is_traced() and time.monotonic() < deadline:
            time.sleep(0.05)
        with pika.BlockingConnection(pika_parameters(shop.broker.url)) as connection:
            channel = connection.channel()
            for key, properties in messages:
                channel.basic_publish(exchange, key, b"body", properties)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    assert not thread.is_alive()


def numbered(count: int) -> list[tuple[str, None]]:
    return [(f"user-{n}", None) for n in range(count)]


def test_the_true_ring_is_shown(shop: Shop, answer: Callable[..., Any]) -> None:
    document = answer("ring", "show", "orders", *shop.live, *shop.via)
    ring = HashRing.from_json(json.dumps(document))
    assert (ring.buckets, ring.provenance) == (BUCKETS, "read")
    assert ring.release.version == shop.broker.version
    assert (
        answer("ring", "show", "orders", "--url", shop.live[1], *shop.via)["buckets"] == document["buckets"]
    )


def test_without_a_ring_source_the_ring_is_assumed(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer("ring", "show", "orders", *shop.live)
    assert document["provenance"] == "assumed"
    assert sorted(map(str, document["buckets"])) == sorted(
        "{'exchange': 'slot'}" if isinstance(place, ExchangeRef) else place for place in BUCKETS
    )
    assert main(["ring", "show", "orders", *shop.live]) == 0
    assert "whose order no API shows: give --ring-via" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"hash-header": "tenant"},
        {"hash-property": "message_id"},
        {"hash-property": "correlation_id"},
        {"hash-property": "timestamp"},
    ],
)
def test_a_scratch_copy_agrees_and_is_removed(
    shop: Shop, answer: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    declare(shop.channel, "x", arguments)
    document = answer("verify", "x", *shop.live, *shop.via, "--pattern", "{n}", "--count", "2000")
    assert (document["compared"], document["mismatches"], document["examples"]) == (2000, 0, [])
    assert document["arguments"] == arguments
    assert document["ring"]["provenance"] == "read"
    assert all(row["messages"] == row["predicted"] > 0 for row in document["destinations"])
    assert shop.scratch_vhosts() == set()
    assert all(
        shop.channel.queue_declare(queue, passive=True).method.message_count == 0
        for queue in ("q1", "q2", "q3", "q4")
    )


def test_real_traffic_agrees_and_gives_the_ring_away(shop: Shop, answer: Callable[..., Any]) -> None:
    metadata = {"description": "mine", "tags": "a,b"}
    shop.management.request("PUT", "vhosts", shop.settings.vhost, body=metadata)
    before = shop.management.request("GET", "vhosts", shop.settings.vhost).get("metadata")
    with traffic(shop, numbered(600)):
        document = answer("verify", "orders", *shop.live, *shop.via, "--passive", "--messages", "500")
    assert (document["compared"], document["mismatches"]) == (500, 0)
    inferred = document["inferred"]
    assert (inferred["unknown"], inferred["contradicted"]) == ([], [])
    assert inferred["buckets"] == inferred["buckets_by_bindings"] == len(BUCKETS)
    assert HashRing.from_json(json.dumps(inferred["ring"])).buckets == BUCKETS
    after = shop.management.request("GET", "vhosts", shop.settings.vhost)
    assert (after["tracing"], after.get("metadata")) == (False, before)


def test_an_assumed_order_is_found_out(shop: Shop, answer: Callable[..., Any]) -> None:
    with traffic(shop, numbered(600)):
        document = answer("verify", "orders", *shop.live, "--passive", "--messages", "500", code=1)
    assert document["ring"]["provenance"] == "assumed"
    assert document["mismatches"] > 100
    assert HashRing.from_json(json.dumps(document["inferred"]["ring"])).buckets == BUCKETS


def test_no_traffic_proves_nothing(shop: Shop, answer: Callable[..., Any]) -> None:
    document = answer("verify", "orders", *shop.live, "--passive", "--seconds", "0.5", code=3)
    assert (document["compared"], document["inferred"]["ring"]) == (0, None)
    assert main(["ring", "show", "orders", *shop.live, "--passive", "--seconds", "0.5"]) == 70


def test_the_traced_ring_is_a_ring_source(shop: Shop) -> None:
    urls = (shop.broker.url, str(shop.broker.management_url))
    source = TracedRing(*urls, messages=500)
    with traffic(shop, numbered(600)), Broker(shop.broker.url, ring_source=source) as broker:
        ring = broker.ring("orders")
    assert (ring.buckets, ring.provenance) == (BUCKETS, "read")
    with (
        traffic(shop, numbered(3)),
        pytest.raises(RingSourceError, match=r"proves \d of 16 buckets"),
    ):
        TracedRing(*urls, seconds=30, messages=3).read(shop.settings.vhost, "orders")


def test_a_tracer_that_was_on_stays_on(shop: Shop) -> None:
    with tracing(shop.management, shop.settings.vhost) as was_on:
        assert not was_on
        with tracing(shop.management, shop.settings.vhost) as was_on_before:
            assert was_on_before
        assert shop.is_traced()
    assert not shop.is_traced()


HEADERS: list[Any] = [
    "a", "naïve", b"\xff\x00", 5, -1, 2**31, long(5), True, False, None, Decimal("3.14"),
    datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), ["a", 1], [1], {"k": 1, "a": "b"},
]  # fmt: skip


def test_typed_headers_copies_and_unroutable_messages_are_understood(shop: Shop) -> None:
    declare(shop.channel, "typed", {"hash-header": "h", "alternate-exchange": "amq.fanout"})
    live = read_exchange(shop.management, shop.settings.vhost, "typed")
    ring = read_ring(live, DiagnosticsRing(shop.ring_via))
    reach = read_reach(shop.management, live)
    messages = [
        ("k", pika.BasicProperties(headers={"h": value, "CC": ["other"], "BCC": ["more"]}, message_id="m"))
        for value in HEADERS
    ]
    with traffic(shop, messages, "typed"):
        found = trace_exchange(shop.settings, shop.management, live, seconds=30, messages=len(HEADERS))
    assert len(found) == len(HEADERS)
    assert compare_traffic(found, ring, reach) == []
    assert len({one.seed for one in found}) > 10


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_tracer_is_off_after_a_signal(shop: Shop, number: signal.Signals) -> None:
    with subprocess.Popen(
        [PROGRAM, "verify", "orders", *shop.live, "--passive"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_until(shop.is_traced)
        process.send_signal(number)
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)
    assert not shop.is_traced()
    assert (process.returncode, out) == (130, b"")
    assert errors.endswith(b"rabbit-chx: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_the_scratch_vhost_is_gone_after_a_signal(shop: Shop, number: signal.Signals, wait_s: float) -> None:
    command = [PROGRAM, "verify", "orders", *shop.live, "--pattern", "{n}", "--count", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: bool(shop.scratch_vhosts()))
        time.sleep(wait_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert shop.scratch_vhosts() == set()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("ring", "show", "gone"), 77, "there is no exchange 'gone'"),
        (("ring", "show", "amq.fanout"), 77, "is of type fanout, not x-consistent-hash"),
        (("ring", "show", "orders", "--url", ""), 2, "there is no broker"),
        (
            ("verify", "orders", "--url", "amqp://guest:c4nary@127.0.0.1:1/{vhost}"),
            69,
            "nobody answers there",
        ),
        (
            ("verify", "orders", "--management-url", "http://u:c4nary@127.0.0.1:1"),
            69,
            "no answer from the HTTP API",
        ),
        (("verify", "orders", "--management-url", "http://guest:c4nary@{where}"), 77, "answered 401"),
        (("verify", "orders", "--ring-via", "false"), 70, "the ring was not read"),
        (("verify", "orders", "--passive", "--pattern", "{n}"), 2, "leave --keys, --pattern and --count out"),
    ],
)
def test_an_error_is_one_line_without_a_password(
    shop: Shop, capsys: pytest.CaptureFixture[str], change: tuple[str, ...], code: int, words: str
) -> None:
    where, name = shop.live[3].rpartition("@")[2], shop.live[1].rpartition("/")[2]
    given = [part.replace("{where}", where).replace("{vhost}", name) for part in change]
    assert main([*given[:2], *shop.live, *given[2:]]) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert re.fullmatch(rf"rabbit-chx: [^\n]*{re.escape(words)}[^\n]*\n", found.err, re.IGNORECASE)
    assert "c4nary" not in found.err


def test_without_a_management_url_it_says_what_to_give(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (("ring", "show"), ("verify",)):
        assert main([*command, "orders", *shop.live[:2]]) == 2
        assert "give --management-url http://user:password@host:15672" in capsys.readouterr().err


def test_a_copy_of_a_guess_does_not_look_like_success(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify", "orders", *shop.live, "--count", "200", "--output", "json"]
    assert main(command) == 3
    found = capsys.readouterr()
    document = json.loads(found.out)
    assert (document["ring"]["provenance"], document["mismatches"]) == ("assumed", 0)
    assert found.err.startswith(
        "rabbit-chx: the ring of 'orders' is a guess, as the order of its bindings was not read"
    )
    assert "give --ring-via PREFIX" in found.err
    assert main([*command, *shop.via]) == 0
    assert capsys.readouterr().err == ""


def test_traffic_that_proves_an_assumed_ring_is_success(shop: Shop, answer: Callable[..., Any]) -> None:
    shop.channel.exchange_declare("one", CHX, durable=True)
    shop.channel.queue_bind("q1", "one", "5")
    with traffic(shop, numbered(200), "one"):
        document = answer("verify", "one", *shop.live, "--passive", "--messages", "150")
    assert (document["ring"]["provenance"], document["mismatches"]) == ("assumed", 0)
    with traffic(shop, numbered(2), "one"):
        document = answer("verify", "one", *shop.live, "--passive", "--messages", "2", code=3)
    assert len(document["inferred"]["unknown"]) >= 3


def test_a_binding_without_buckets_is_found(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("x", CHX, durable=True)
    for queue, weight in (("q1", "10"), ("q2", "2"), ("q2", "3")):
        shop.channel.queue_bind(queue, "x", weight)
    (second,) = answer("verify", "x", *shop.live, *shop.via, "--count", "100", code=1)["findings"]
    assert (second["kind"], second["destination"]) == ("second-binding", "q2")
    shop.channel.queue_unbind("q2", "x", "3")
    document = answer("verify", "x", *shop.live, *shop.via, "--count", "100", code=1)
    assert document["mismatches"] == 0
    (silent,) = (one for one in document["findings"] if one["kind"] == "silent-binding")
    assert silent == {
        "kind": "silent-binding",
        "destination": "q2",
        "share": 0.0,
        "says": "q2 is bound with weight 2 and has no bucket: no message comes to it",
    }
    assert main(["ring", "show", "x", *shop.live, *shop.via]) == 0
    assert f"rabbit-chx: exchange 'x': {silent['says']}\n" in capsys.readouterr().err


def test_an_exchange_to_which_nothing_is_bound(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("none", CHX, durable=True)
    nothing = "nothing is bound: every message is unroutable"
    for options in ((*shop.live, *shop.via), (*shop.live[:2], *shop.via), shop.live):
        assert main(["ring", "show", "none", *options]) == 0
        assert capsys.readouterr().err == f"rabbit-chx: exchange 'none': {nothing}\n"
    (found,) = answer("verify", "none", *shop.live, *shop.via, code=1)["findings"]
    assert (found["kind"], found["share"], found["says"]) == ("hole", 1.0, nothing)
    assert main(["verify", "none", *shop.live, "--passive"]) == 2
    assert "nothing is bound to exchange 'none'" in capsys.readouterr().err


def test_a_shown_ring_says_what_is_hashed(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    declare(shop.channel, "x", {"hash-header": "tenant"})
    document = answer("ring", "show", "x", *shop.live, *shop.via)
    assert document["arguments"] == {"hash-header": "tenant"}
    assert answer("ring", "show", "orders", *shop.live, *shop.via)["arguments"] == {}
    assert answer("ring", "show", "x", *shop.live[:2], *shop.via)["arguments"] is None
    assert main(["ring", "show", "x", *shop.live, *shop.via]) == 0
    assert "hashes    hash-header 'tenant'" in capsys.readouterr().out
    path = tmp_path / "ring.json"
    path.write_text(json.dumps(document))
    assert main(["route", "--ring", str(path), "k", "--explain"]) == 0
    found = capsys.readouterr()
    assert "header 'tenant'" in found.out
    assert "the exchange of this ring hashes hash-header 'tenant'" in found.err


def test_a_vhost_may_be_named_apart(shop: Shop, answer: Callable[..., Any]) -> None:
    elsewhere = shop.live[1].rpartition("/")[0]
    url = ("--url", f"{elsewhere}/no-such-vhost", "--vhost", shop.settings.vhost)
    for options in ((*url, *shop.via), (*url, *shop.live[2:])):
        assert len(answer("ring", "show", "orders", *options)["buckets"]) == len(BUCKETS)


@pytest.mark.docker
def test_holes_are_found_with_the_share_of_keys_that_goes_nowhere(
    answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    need("docker")
    says = "3 of 5 buckets without a destination: 100.000% of all keys go nowhere"
    with (
        docker_broker("3.8") as broker,
        pika.BlockingConnection(pika_parameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        channel.exchange_declare("holes", CHX, durable=True)
        for queue, weight in (("q1", "1"), ("q2", "2"), ("q1", "3"), ("q3", "2")):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "holes", weight)
        channel.queue_unbind("q1", "holes", "3")
        shop = Shop(
            broker,
            Management(str(broker.management_url)),
            ConnectionSettings.from_uri(broker.url),
            channel,
        )
        assert main(["ring", "show", "holes", *shop.live[:2], *shop.via]) == 0
        shown = capsys.readouterr()
        document = answer("verify", "holes", *shop.live, *shop.via, "--count", "500", code=1)
        assert main(["verify", "holes", *shop.live, *shop.via, "--count", "500"]) == 1
    assert shown.err == f"rabbit-chx: exchange 'holes': {says}\n"
    assert document["mismatches"] == 0
    assert document["destinations"][0] == {"destination": None, "messages": 500, "predicted": 500}
    assert {(one["kind"], one["destination"]) for one in document["findings"]} == {
        ("hole", None),
        ("silent-binding", "q1"),
        ("silent-binding", "q2"),
        ("silent-binding", "q3"),
    }
    assert document["findings"][0]["share"] == 1.0
    assert f"finding     hole: {says}" in capsys.readouterr().out


@pytest.mark.docker
@pytest.mark.restarts
def test_buckets_of_a_queue_that_is_gone_are_found_by_their_traffic(answer: Callable[..., Any]) -> None:
    need("docker")
    with docker_broker("4.3") as broker:
        assert broker.management_url is not None
        bound: list[tuple[str, str, bool]] = [("q1", "3", False), ("gone", "2", True), ("q2", "4", False)]
        with suppress(AMQPError), pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("x", CHX, durable=True)
            for queue, weight, exclusive in bound:
                channel.queue_declare(queue, durable=not exclusive, exclusive=exclusive)
                channel.queue_bind(queue, "x", weight)
            broker.restart()
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            settings = ConnectionSettings.from_uri(broker.url)
            shop = Shop(broker, Management(broker.management_url), settings, connection.channel())
            with traffic(shop, numbered(300), "x"):
                document = answer(
                    "verify", "x", *shop.live, *shop.via, "--passive", "--messages", "300", code=1
                )
    inferred = document["inferred"]
    assert (inferred["buckets"], inferred["buckets_by_bindings"]) == (9, 7)
    assert [row["destination"] for row in inferred["proven"]] == ["q1"] * 3 + ["gone"] * 2 + ["q2"] * 4
    assert (inferred["unbound"], document["mismatches"]) == (["gone"], 0)
