"""A broker is asked for its rings by tracing of live messages, which is off again however that ends."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest
from background import beside

from rabbit_chx import AmqpField, ConsistentHashExchange, HashRing, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, ConnectionLostError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]
QUEUES = [("c", 2), ("a", 3), ("b", 1)]
METADATA = {"description": "prod & co", "tags": "one,two"}
SLOTS = """
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 4
members = [{ queue = "left" }, { queue = "right" }]
[[queues]]
name = "left"
[[queues]]
name = "right"
"""


class Traced:
    """A vhost with the exchange `orders`, to which messages are published."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.name = ConnectionSettings.from_uri(broker.url).vhost
        self.api = Management(str(broker.management_url))
        self.api.put("vhosts", self.name, body=METADATA)
        with self.open() as live:
            live.declare("orders", QUEUES, records=False)

    def open(self) -> Broker:
        return Broker(self.broker.url, self.broker.management_url)

    @property
    def is_on(self) -> bool:
        return bool(self.api.get("vhosts", self.name)["tracing"])

    def is_as_before(self) -> bool:
        now = self.api.get("vhosts", self.name)
        kept = now["tracing"], now["description"], now["tags"]
        signs = [each["name"] for each in self.api.get("exchanges", self.name) if "trace" in each["name"]]
        return kept == (False, "prod & co", ["one", "two"]) and signs == ["amq.rabbitmq.trace"]

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.1)

    @contextmanager
    def published(
        self, exchange: str = "orders", every_s: float = 0.001, **properties: Callable[[int], Any]
    ) -> Iterator[None]:
        """Publish a thousand messages each second, or fewer, with the keys key-0, key-1 and so on."""

        def publish(stop: Event) -> None:
            with pika.BlockingConnection(pika_parameters(self.broker.url)) as connection:
                channel = connection.channel()
                for number in count():
                    if stop.wait(every_s):
                        return
                    made: Any = {name: value(number) for name, value in properties.items()}
                    channel.basic_publish(exchange, f"key-{number}", b"", pika.BasicProperties(**made))

        with beside(publish):
            yield

    def command(self, *arguments: str) -> tuple[str, ...]:
        return (*arguments, "--url", self.broker.url, "--management-url", str(self.broker.management_url))


@pytest.fixture
def site(vhost: RunningBroker) -> Traced:
    return Traced(vhost)


@pytest.fixture
def run(site: Traced, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any, str]]:
    """Runs a command, and returns its exit code, its JSON and stderr."""

    def run_command(*arguments: str) -> tuple[int, Any, str]:
        code = main([*site.command(*arguments), "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out or "null"), err

    return run_command


def ring(bindings: Sequence[tuple[str, int]]) -> HashRing:
    return HashRing.from_bindings(bindings)


def test_pairs_are_those_of_the_ring_and_the_vhost_is_as_before(site: Traced) -> None:
    with site.open() as live, site.published():
        pairs = live.trace("orders", 2)
    assert len({value for value, _ in pairs}) > 100
    assert {queues for _, queues in pairs} == {("a",), ("b",), ("c",)}
    assert all((ring(QUEUES).destination_for(str(value)),) == queues for value, queues in pairs)
    assert site.is_as_before()


@pytest.mark.parametrize(
    ("arguments", "properties", "value"),
    [
        (
            {"hash-header": "tenant"},
            {"headers": lambda number: {"tenant": number} if number % 2 else {}},
            lambda number: AmqpField("signedint", number),
        ),
        (
            {"hash-property": "message_id"},
            {"message_id": lambda number: f"m{number}"},
            lambda number: f"m{number}",
        ),
        ({"hash-property": "timestamp"}, {"timestamp": lambda number: number}, lambda number: number),
    ],
)
def test_hashed_headers_and_properties_have_their_wire_types(
    site: Traced, arguments: dict[str, str], properties: dict[str, Any], value: Callable[[int], object]
) -> None:
    with site.open() as live:
        live.declare("hashes", QUEUES, arguments=arguments, records=False)
        exchange = ConsistentHashExchange("hashes", ring(QUEUES).with_release(live.release), arguments)
        with site.published("hashes", **properties):
            pairs = live.trace("hashes", 1.5)
    found = {each for each, _ in pairs}
    assert found & {value(number) for number in range(1, 5_000, 2)}
    assert (None in found) == ("hash-header" in arguments)
    for each, queues in pairs:
        if "hash-header" in arguments:
            headers = {} if each is None else {"tenant": each}
            assert (exchange.route(headers=headers),) == queues
        else:
            assert (exchange.route(properties={arguments["hash-property"]: each}),) == queues


def test_a_record_is_made_of_live_traffic_and_a_change_by_another_program_contradicts_it(
    site: Traced, run: Callable[..., tuple[int, Any, str]]
) -> None:
    with site.published():
        code, _, err = run("record", "orders", "--trace", "2")
        assert (code, "agree with --yes" in err, site.is_on) == (4, True, False)
        code, document, _ = run("record", "orders", "--trace", "2", "--yes")
        assert (code, [each["origin"] for each in document["recorded"]]) == (0, ["observed"])
        with site.open() as live:
            assert live.ring("orders").buckets == ring(QUEUES).buckets
        code, document, _ = run("verify", "orders", "--trace", "2", "--yes")
        assert (code, document["mismatches"], document["compared"] > 100) == (0, 0, True)

        with pika.BlockingConnection(pika_parameters(site.broker.url)) as connection:
            channel = connection.channel()
            channel.queue_unbind("c", "orders", "2")
            channel.queue_bind("c", "orders", "2")
        # The bindings are those of before; nobody consumes what is published.
        assert run("check", "orders", "--without", "consumers")[0] == 0
        code, document, _ = run("verify", "orders", "--trace", "2", "--yes")
        (finding,) = document["findings"]
        assert (code, finding["kind"]) == (1, "contradicted")
        assert (
            "another program has changed the ring: store what the broker does now with `rabbit-chx record orders --trace 2"
            in finding["fix"]
        )
        code, document, _ = run("verify", "orders", "--trace", "2", "--yes")
        assert (code, document["mismatches"] > 0) == (1, True)
        assert run("record", "orders", "--trace", "2", "--yes")[0] == 0
    with site.open() as live:
        assert live.ring("orders").buckets == ring([*QUEUES[1:], QUEUES[0]]).buckets
    assert site.is_as_before()


def test_a_trace_of_too_few_keys_says_how_long_the_others_take_and_a_second_one_adds_to_it(
    site: Traced, run: Callable[..., tuple[int, Any, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with site.published(every_s=0.3):
        code, _, err = run("record", "orders", "--trace", "2", "--yes")
    assert (code, "at this rate the " in err) == (3, True), err
    (kept,) = tmp_path.iterdir()
    advised = re.search(
        rf"rabbit-chx record orders --trace (\d+) --observed {re.escape(str(kept))} --waited 0", err
    )
    assert advised is not None, err
    assert int(advised[1]) > 2
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    before = kept.read_text().splitlines()
    assert before[0] == "key,queue,time,exchange,count"
    assert 3 < len(before) < 9
    with site.published():
        advice = ("--trace", "2", "--observed", str(kept), "--waited", "0")
        code, document, err = run("record", "orders", *advice, "--yes")
    assert code == 0, err
    assert [each["origin"] for each in document["recorded"]] == ["observed"]
    with site.open() as live:
        assert live.ring("orders").buckets == ring(QUEUES).buckets


def test_slots_show_the_queue_behind_and_holes_no_queue(
    site: Traced, run: Callable[..., tuple[int, Any, str]]
) -> None:
    with site.open() as live:
        live.apply(plan(Topology.from_toml(SLOTS), live.topology()))
        table = live.slots("events")
        with site.published("events"):
            pairs = live.trace("events", 1.5)
            assert pairs
            assert all((table.destination_for(str(value)),) == queues for value, queues in pairs)
            code, document, _ = run("verify", "events", "--trace", "1", "--yes")
            assert (code, document["mismatches"]) == (0, 0)
            slot = next(iter(table.owners))
            with pika.BlockingConnection(pika_parameters(site.broker.url)) as connection:
                connection.channel().queue_unbind(table.owners[slot], slot.name, "")
            pairs = live.trace("events", 1.5)
    assert () in {queues for _, queues in pairs} or {"events.park"} & {
        name for _, queues in pairs for name in queues
    }


def test_without_traffic_nothing_is_known(site: Traced, run: Callable[..., tuple[int, Any, str]]) -> None:
    code, _, err = run("record", "orders", "--trace", "0.5", "--yes")
    assert (code, "no message was published to exchange 'orders'" in err) == (3, True)
    assert site.is_as_before()


def test_tracing_of_somebody_else_is_read_and_stays_on(
    site: Traced, run: Callable[..., tuple[int, Any, str]]
) -> None:
    site.api.put("vhosts", site.name, body={"tracing": True, **METADATA})
    with site.published():
        code, document, err = run("record", "orders", "--trace", "2")  # it asks nothing
    assert (code, document["recorded"][0]["origin"], "still on" in err) == (0, "observed", False)
    assert site.is_on


def started(site: Traced) -> subprocess.Popen[bytes]:
    """Start a command that traces for a minute."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rabbit_chx", *site.command("record", "orders", "--trace", "60", "--yes")],
        stderr=subprocess.DEVNULL,
    )
    site.until(lambda: site.is_on)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_switches_it_off(site: Traced, number: signal.Signals) -> None:
    process = started(site)
    os.kill(process.pid, number)
    assert process.wait(20) == 130
    assert site.is_as_before()


def test_what_a_killed_command_leaves_on_the_next_one_says_and_offers_to_switch_off(
    site: Traced, run: Callable[..., tuple[int, Any, str]]
) -> None:
    process = started(site)
    code, _, err = run("show", "orders")
    assert "still on" not in err  # a process traces at this moment
    with site.open() as live, pytest.raises(BrokerRefusedError, match="another process traces the vhost"):
        live.trace("orders", 0.1)
    process.kill()
    process.wait()
    site.until(lambda: all(each["name"] != "rabbit-chx.trace" for each in site.api.get("queues", site.name)))
    assert site.is_on
    code, _, err = run("show", "orders")
    assert f"tracing of vhost {site.name!r} is still on, and costs each of its messages a copy" in err
    assert "to switch it off: `rabbit-chx check --yes" in err
    assert site.is_on
    run("check", "orders", "--yes")
    assert site.is_as_before()
    assert "still on" not in run("show", "orders")[2]
    assert code == 3, "the order is not known"


def test_the_sign_of_tracing_that_a_restart_has_switched_off_goes(
    site: Traced, run: Callable[..., tuple[int, Any, str]]
) -> None:
    process = started(site)
    process.kill()
    process.wait()
    site.until(lambda: all(each["name"] != "rabbit-chx.trace" for each in site.api.get("queues", site.name)))
    site.api.put("vhosts", site.name, body={"tracing": False, **METADATA})  # as a restart leaves it
    assert "still on" not in run("show", "orders")[2]
    assert site.is_as_before()
    site.api.put("vhosts", site.name, body={"tracing": True, **METADATA})  # by somebody else
    run("check", "orders", "--yes")
    assert site.is_on


def test_a_lost_connection_switches_it_off(site: Traced) -> None:
    def connections() -> list[str]:
        """Return the connections of the consumers; the broker lists a consumer before it knows its connection."""
        details = [each["channel_details"] for each in site.api.get("consumers", site.name)]
        return [each["connection_name"] for each in details if each]

    def cut() -> None:
        site.until(lambda: bool(site.is_on and connections()))
        for name in connections():
            site.api.delete("connections", name)

    listed = Thread(target=cut)
    listed.start()
    with site.open() as live, pytest.raises((ConnectionLostError, BrokerRefusedError)):
        live.trace("orders", 60)
    listed.join()
    assert site.is_as_before()


FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "c", weight = 2 }, { queue = "a", weight = 3 }, { queue = "b" }]
[[queues]]
name = "a"
[[queues]]
name = "b"
[[queues]]
name = "c"
"""
#: The ring is of unknown order: where "reordered" is, the file has another one.
OF_UNKNOWN_ORDER = [
    ["check", "orders"],
    ["record", "orders"],
    ["route", "orders", "k"],
    ["compare", "orders"],
    ["show", "orders"],
    ["verify", "orders", "--keys", "key-{1..3}"],
    ["export"],
    ["plan", "FILE"],
    ["apply", "FILE", "--yes"],
    ["plan", "REORDERED"],
    ["apply", "REORDERED", "--yes"],
    ["arrange", "REORDERED"],
]


def test_a_user_with_the_tag_is_told_of_it(
    site: Traced, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, reordered = tmp_path / "file.toml", tmp_path / "reordered.toml"
    file.write_text(FILE)
    reordered.write_text(FILE.replace("weight = 2", "weight = 3"))
    for command in OF_UNKNOWN_ORDER:
        given = {"FILE": str(file), "REORDERED": str(reordered)}
        assert main([*site.command(*(given.get(word, word) for word in command))]) in (0, 2, 3, 4), command
        said = " ".join(" ".join(capsys.readouterr()).split())
        assert "rabbit-chx record orders --trace 10" in said, command


def test_a_user_without_the_tag_gets_one_sentence(site: Traced, capsys: pytest.CaptureFixture[str]) -> None:
    user = f"plain-{site.name}"
    site.api.put("users", user, body={"password": "p", "tags": "management"})
    site.api.put("permissions", site.name, user, body=dict.fromkeys(("configure", "write", "read"), ".*"))
    try:
        login = f"{user}:p@"
        for_user = Traced.__new__(Traced)
        for_user.broker = replace(
            site.broker,
            url=site.broker.url.replace("guest:guest@", login),
            management_url=str(site.broker.management_url).replace("guest:guest@", login),
        )
        assert urlsplit(for_user.broker.url).username == user
        with (
            for_user.open() as live,
            pytest.raises(
                AccessRefusedError,
                match="this needs the tag administrator, which an administrator gives with rabbitmqctl set_user_tags USER administrator",
            ),
        ):
            live.trace("orders", 1)
        for verb in ("record", "verify"):
            assert main([*for_user.command(verb, "orders", "--trace", "1", "--yes")]) in (3, 77)
            said = capsys.readouterr().err
            assert "rabbitmqctl set_user_tags" not in said, "a command that this user does not have"
            assert f"rabbit-chx {verb} orders --observed FILE" in said or verb == "verify", said
        assert main([*for_user.command("check", "orders")]) == 3
        said = capsys.readouterr().err
        assert "--ring-via" in said
        assert "--trace" not in said
    finally:
        site.api.delete("users", user)
    assert site.is_as_before()
