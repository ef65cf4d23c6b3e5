"""Changes that are tried on a copy, and watched in real traffic."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT
from command_line import PROGRAM
from quick_rings import quick_prefix
from shop import Shop

from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

EXAMPLE = ROOT / "examples/topology_change"
FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{{ queue = "orders.{members}" }}]
[[queues]]
name = "orders.{members}"
"""
SLOTS = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
slots = 4
members = [{ queue = "orders.{members}" }]
[[queues]]
name = "orders.{1..2}"
type = "quorum"
arguments = { x-single-active-consumer = true, x-delivery-limit = -1 }
"""
#: What each script begins with.
HEAD = """
import os, time, pika
connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
channel = connection.channel()

def ready(queue):
    return channel.queue_declare(queue, passive=True).method.message_count

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
"""
#: The messages of a queue are held in one that only this connection reads, and published again behind newer ones, some twice.
REORDERING = """
channel.queue_declare("hold", exclusive=True)
channel.queue_bind("hold", "orders", "1")
channel.queue_unbind("orders.1", "orders", "1")
until(lambda: ready("hold") >= 50)
channel.queue_bind("orders.1", "orders", "1")
channel.queue_unbind("hold", "orders", "1")
time.sleep(1)
held = []
while (got := channel.basic_get("hold", auto_ack=True))[0]:
    held.append(got[2])
for body in held + held[:5]:
    channel.basic_publish("", "orders.1", body)
"""
#: A queue goes with all that waits in it, and for a time no queue is bound.
LOSING = """
until(lambda: ready("orders.1") >= 10)
channel.queue_delete("orders.1")
channel.queue_unbind("orders.2", "orders", "1")
time.sleep(0.2)
channel.queue_bind("orders.2", "orders", "1")
"""


def script(folder: Path, text: str) -> list[str]:
    path = folder / "change.py"
    path.write_text(HEAD + text)
    return ["--", sys.executable, str(path)]


def written(path: Path, text: str, members: str) -> str:
    path.write_text(text.replace("{{", "{").replace("}}", "}").replace("{members}", members))
    return str(path)


def definitions(shop: Shop) -> list[Any]:
    vhost = shop.settings.vhost
    return [shop.management.request("GET", kind, vhost) for kind in ("definitions", "bindings")]


@pytest.fixture
def drill(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command, expects an exit code, gives the document."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main(["drill", "--output", "json", *arguments]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def before(tmp_path: Path) -> str:
    return written(tmp_path / "before.toml", FILE, "{1..2}")


def test_queues_are_added_without_loss_and_nothing_else_is_touched(
    shop: Shop, tmp_path: Path, drill: Callable[..., Any]
) -> None:
    found = definitions(shop)
    change = 'channel.queue_declare("q5", durable=True)\nchannel.queue_bind("q5", "orders", "4")\n'
    run = ["--exchange", "orders", *shop.live, *shop.via, "--seconds", "0.5"]
    document = drill(*run, *script(tmp_path, change))
    totals = document["totals"]
    assert totals["published"] == totals["confirmed"] > 100
    assert (totals["lost"], totals["doubled"], totals["out_of_order"], document["broken"]) == (0, 0, 0, {})
    assert 0 < document["moved_at_end"] == document["moved_keys"] < document["keys"] == 100
    assert (document["left"], document["command"]["exit_code"]) == ({}, 0)
    assert definitions(shop) == found
    assert all(
        shop.channel.queue_declare(f"q{n}", passive=True).method.message_count == 0 for n in range(1, 5)
    )
    assert not shop.scratch_vhosts()


def test_the_example_without_a_gap(vhost: RunningBroker, drill: Callable[..., Any]) -> None:
    before, after = (str(EXAMPLE / name) for name in ("before.toml", "after_without_gap.toml"))
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--ring-via"]
    via = shlex.join(quick_prefix(vhost))
    change = [PROGRAM, "topology", "apply", after, "--yes", "--allow-moved", "1"]
    moving = ["--seconds", "0.5", "--allow", "out-of-order"]
    document = drill("--topology", before, *at, via, *moving, "--", *change)
    assert (document["totals"]["unroutable"], document["totals"]["lost"], document["left"]) == (0, 0, {})
    assert 20 < document["moved_at_end"] < 80


def test_what_is_lost_and_what_no_queue_takes_breaks_the_promise(
    vhost: RunningBroker, before: str, tmp_path: Path, drill: Callable[..., Any]
) -> None:
    slow = ["--work", "0.02", "--seconds", "0.6"]
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url)]
    document = drill("--topology", before, *at, *slow, *script(tmp_path, LOSING), code=1)
    totals = document["totals"]
    assert {"lost", "unroutable"} <= document["broken"].keys()
    assert totals["lost"] >= 10
    assert totals["confirmed"] + totals["unroutable"] == totals["published"]
    assert document["moved_at_end"] > 0
    assert any(example.startswith("lost: message ") for example in document["examples"])


def test_messages_that_are_overtaken_or_come_twice_are_counted(
    vhost: RunningBroker, before: str, tmp_path: Path, drill: Callable[..., Any]
) -> None:
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--seconds", "0.2"]
    document = drill("--topology", before, *at, "--count", "10", *script(tmp_path, REORDERING), code=1)
    totals = document["totals"]
    assert document["broken"] == {"out-of-order": totals["out_of_order"]}
    assert totals["out_of_order"] >= 40
    assert totals["doubled"] == 5


def test_slots_that_change_hands_in_order(
    vhost: RunningBroker, tmp_path: Path, drill: Callable[..., Any]
) -> None:
    old, new = (
        written(tmp_path / name, SLOTS, members)
        for name, members in (("old.toml", "1"), ("new.toml", "{1..2}"))
    )
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--ring-via"]
    via = shlex.join(quick_prefix(vhost))
    change = [PROGRAM, "topology", "apply", new, "--yes", "--allow-moved", "1", "--hand-over", "in-order"]
    busy = ["--group", "--work", "0.005", "--rate", "100", "--seconds", "0.5"]
    document = drill("--topology", old, *at, via, *busy, "--", *change)
    assert document["broken"] == {}
    assert document["moved_at_end"] > 0
    assert document["totals"]["doubled"] == 0


def test_a_command_that_fails_or_takes_too_long_shows_little(
    vhost: RunningBroker, before: str, drill: Callable[..., Any]
) -> None:
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--seconds", "0"]
    assert drill("--topology", before, *at, "--", "false", code=3)["command"]["exit_code"] == 1
    long = ["--timeout", "0.2", "--", "sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60"]
    document = drill("--topology", before, *at, "--rate", "20", *long, code=3)
    assert document["command"]["exit_code"] is None
    assert document["totals"]["lost"] == 0


def test_an_exchange_that_is_away_refuses_what_is_published_meanwhile(
    vhost: RunningBroker, before: str, tmp_path: Path, drill: Callable[..., Any]
) -> None:
    replaced = (
        'channel.exchange_delete("orders")\ntime.sleep(0.5)\n'
        'channel.exchange_declare("orders", "x-consistent-hash", durable=True)\n'
        'channel.queue_bind("orders.1", "orders", "1")\n'
    )
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--seconds", "1"]
    document = drill("--topology", before, *at, *script(tmp_path, replaced), code=1)
    assert "refused" in document["broken"]  # and unroutable, before the queue is bound
    assert document["by_second"][-1]["confirmed"] > 0


def test_all_types_of_queues_are_consumed(
    vhost: RunningBroker, tmp_path: Path, drill: Callable[..., Any]
) -> None:
    path = tmp_path / "types.toml"
    path.write_text(
        '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\narguments = { hash-header = "tenant" }\n'
        'ring = [{ queue = "classic" }, { queue = "quorum" }, { queue = "stream" }, { exchange = "both" }]\n'
        '[[exchanges]]\nname = "both"\ntype = "fanout"\n[[bindings]]\nsource = "both"\nqueue = "classic"\n'
        '[[bindings]]\nsource = "both"\nqueue = "audit"\n[[queues]]\nname = "classic"\n'
        '[[queues]]\nname = "quorum"\ntype = "quorum"\n[[queues]]\nname = "stream"\ntype = "stream"\n'
        '[[queues]]\nname = "audit"\narguments = { x-single-active-consumer = true }\n'
    )
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url), "--seconds", "0.7"]
    document = drill("--topology", str(path), *at, "--", "true")
    assert (document["keys"], document["totals"]["doubled"], document["left"]) == (100, 0, {})


def test_the_group_needs_queues_that_are_fit_for_it(
    vhost: RunningBroker, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url)]
    assert main(["drill", "--topology", before, *at, "--group", "--", "true"]) == 77
    assert "a group needs quorum queues with a single active consumer" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(
    shop: Shop, before: str, tmp_path: Path, number: signal.Signals
) -> None:
    alive = tmp_path / "alive"
    change = script(tmp_path, f"open({str(alive)!r}, 'w').write(str(os.getpid()))\ntime.sleep(120)\n")
    command = [PROGRAM, "drill", "--topology", before, *shop.live, "--seconds", "0.2", *change]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "COMMAND begins" in line:
                break
        assert len(shop.scratch_vhosts()) == 1
        process.send_signal(number)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), errors
    assert errors.endswith("rabbit-chx: interrupted\n")
    assert not shop.scratch_vhosts()
    assert not alive.exists() or not Path(f"/proc/{alive.read_text()}").exists()
