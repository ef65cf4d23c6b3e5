"""``rabbit-chx verify`` on a real broker: a scratch copy."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shop import Shop, declare

from rabbit_chx.cli import main

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


def test_the_share_of_the_heaviest_key_is_shown(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("a\nb\na\na\n")
    sampled = ("verify", "orders", *shop.live, *shop.via, "--keys", str(keys))
    assert answer(*sampled)["heaviest_key"] == {"key": "a", "share": 0.75}
    main(list(sampled))
    assert "heaviest key  'a': 75.000% of the messages, to one destination" in capsys.readouterr().out


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


NEW = """
[[exchanges]]
name = "new"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
slots = 8
members = [{ queue = "new.{1..3}", weight = 1 }]
[[queues]]
name = "new.{1..3}"
type = "quorum"
"""


def test_a_file_that_the_broker_does_not_have_is_applied_in_a_temporary_vhost(
    shop: Shop, answer: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "new.toml"
    file.write_text(NEW)
    document = answer("verify", "--topology", str(file), *shop.live, "--count", "6000")
    assert (document["way"], document["compared"], document["mismatches"]) == ("applied", 6000, 0)
    assert all(row["messages"] == row["predicted"] > 0 for row in document["destinations"])
    assert shop.scratch_vhosts() == set()
    exchanges = shop.management.request("GET", "exchanges", shop.settings.vhost)
    assert "new" not in {exchange["name"] for exchange in exchanges}


def test_it_says_that_a_temporary_vhost_needs_the_management_api(
    shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "new.toml"
    file.write_text(NEW)
    assert main(["verify", "--topology", str(file), "--url", shop.broker.url]) == 2
    assert "--management-url" in capsys.readouterr().err


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(("number", "wait_s"), [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.3)])
def test_the_scratch_vhost_is_deleted_after_a_signal(
    shop: Shop, tmp_path: Path, number: signal.Signals, wait_s: float, *, applied: bool
) -> None:
    file = tmp_path / "new.toml"
    file.write_text(NEW)
    compared = ["--topology", str(file)] if applied else ["orders"]
    command = [PROGRAM, "verify", *compared, *shop.live, "--pattern", "{n}", "--count", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: bool(shop.scratch_vhosts()))
        time.sleep(wait_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert shop.scratch_vhosts() == set()


def test_a_copy_of_a_topology_file_says_nothing_of_the_real_ring(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A copy made from the file says nothing of the ring of the exchange, so this is no success."""
    assert main(["topology", "export", "--exchange", "orders", *shop.live, *shop.via]) == 0
    file = tmp_path / "topology.toml"
    file.write_text(capsys.readouterr().out)
    document = answer("verify", "--topology", str(file), *shop.live, "--count", "200", code=3)
    assert (document["ring"]["provenance"], document["mismatches"], document["findings"]) == (
        "replayed",
        0,
        [],
    )
    assert document["determined"] is False
    file.write_text(file.read_text().replace("weight = 10", "weight = 9"))
    document = answer("verify", "--topology", str(file), *shop.live, "--count", "200", code=1)
    assert [finding["kind"] for finding in document["findings"]] == ["different"]
