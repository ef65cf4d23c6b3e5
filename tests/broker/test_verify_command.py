"""``rabbit-chx verify`` on a real broker: a scratch copy."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bounded import until
from command_line import PROGRAM
from shop import Shop, declare

pytestmark = pytest.mark.broker


def test_a_scratch_copy_agrees_and_is_removed(shop: Shop, answer: Callable[..., Any]) -> None:
    for number, arguments in enumerate(({"hash-header": "tenant"}, {"hash-property": "message_id"})):
        exchange = f"x{number}"
        declare(shop.channel, exchange, arguments)
        document = answer("verify", exchange, *shop.live, *shop.via, "--pattern", "{n}", "--count", "2000")
        assert (document["compared"], document["mismatches"], document["examples"]) == (2000, 0, [])
        assert document["arguments"] == arguments
        assert document["ring"]["provenance"] == "read"
        assert all(row["messages"] == row["predicted"] > 0 for row in document["destinations"])
    assert shop.scratch_vhosts() == set()
    for queue in ("q1", "q2", "q3", "q4"):
        assert shop.channel.queue_declare(queue, passive=True).method.message_count == 0


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


@pytest.mark.parametrize(
    ("applied", "number", "wait_s"), [(False, signal.SIGINT, 0.0), (True, signal.SIGTERM, 0.3)]
)
def test_the_scratch_vhost_is_deleted_after_a_signal(
    shop: Shop, tmp_path: Path, number: signal.Signals, wait_s: float, *, applied: bool
) -> None:
    file = tmp_path / "new.toml"
    file.write_text(NEW)
    compared = ["--topology", str(file)] if applied else ["orders"]
    command = [PROGRAM, "verify", *compared, *shop.live, "--pattern", "{n}", "--count", "300000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(shop.scratch_vhosts, "the scratch vhost exists")
        time.sleep(wait_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert shop.scratch_vhosts() == set()
