"""``rabbit-chx verify`` on a real broker: a scratch copy, and real traffic under the tracer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exchange_types import CHX
from shop import BUCKETS, Shop, declare, numbered, traffic

from rabbit_chx.cli import main
from rabbit_chx.routing import HashRing

pytestmark = pytest.mark.broker

PROGRAM = str(Path(sys.executable).with_name("rabbit-chx"))


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


def test_the_ring_of_a_topology_file_against_copy_and_traffic(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A copy made from the file says nothing of the exchange; traffic shows whether the file is right."""
    assert main(["topology", "export", "--exchange", "orders", *shop.live, *shop.via]) == 0
    file, swapped = tmp_path / "topology.toml", tmp_path / "swapped.toml"
    file.write_text(capsys.readouterr().out)
    members = re.compile(r"(ring = \[\s*)(\{[^}]*\})(,\s*)(\{[^}]*\})")
    swapped.write_text(members.sub(r"\1\4\3\2", file.read_text()))
    document = answer("verify", "--topology", str(file), *shop.live, "--count", "200", code=3)
    assert (document["ring"]["provenance"], document["mismatches"], document["findings"]) == (
        "replayed",
        0,
        [],
    )
    for path, code in ((file, 0), (swapped, 1)):
        with traffic(shop, numbered(600)):
            command = (
                "verify",
                "orders",
                "--topology",
                str(path),
                *shop.live,
                "--passive",
                "--messages",
                "500",
            )
            assert bool(answer(*command, code=code)["mismatches"]) == bool(code)
    file.write_text(file.read_text().replace("weight = 10", "weight = 9"))
    document = answer("verify", "--topology", str(file), *shop.live, "--count", "200", code=1)
    assert [finding["kind"] for finding in document["findings"]] == ["different"]
