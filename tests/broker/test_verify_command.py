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
        document = answer("verify", exchange, *shop.live, *shop.via, "--keys", "{1..2000}")
        assert (document["compared"], document["mismatches"], document["examples"]) == (2000, 0, [])
        assert document["arguments"] == arguments
        assert document["ring"]["provenance"] == "read"
        assert all(row["messages"] == row["predicted"] > 0 for row in document["destinations"])
    assert shop.scratch_vhosts() == set()
    for queue in ("q1", "q2", "q3", "q4"):
        assert shop.channel.queue_declare(queue, passive=True).method.message_count == 0


@pytest.mark.parametrize(("number", "wait_s"), [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.3)])
def test_the_scratch_vhost_is_deleted_after_a_signal(
    shop: Shop, tmp_path: Path, number: signal.Signals, wait_s: float
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("\n".join(map(str, range(300_000))))
    command = [PROGRAM, "verify", "orders", *shop.live, "--keys", str(keys)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(shop.scratch_vhosts, "the scratch vhost exists")
        time.sleep(wait_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert shop.scratch_vhosts() == set()
