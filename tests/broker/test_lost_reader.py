"""Whether a change is made does not depend on who reads the output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rabbit_chx.broker import Broker
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..20}" }]
[[queues]]
name = "orders.{1..20}"
"""
PROGRAM = "import sys; from rabbit_chx.cli import main; sys.exit(main())"


@pytest.mark.parametrize("also_stderr", [False, True])
def test_an_apply_without_a_reader_makes_all_changes(
    vhost: RunningBroker, tmp_path: Path, *, also_stderr: bool
) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(FILE)
    reading, writing = os.pipe()
    os.close(reading)  # as with `| true`
    at = ["--url", vhost.url, "--management-url", str(vhost.management_url)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "apply", str(file), "--yes", *at],
            stdout=writing,
            stderr=writing if also_stderr else subprocess.PIPE,
            timeout=200,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == 141, done.stderr
    with Broker(vhost.url, vhost.management_url) as broker:
        (orders,) = broker.topology().exchanges
        assert len(orders.ring or ()) == 20
