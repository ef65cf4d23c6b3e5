"""Every Python block of docs/deduplication.md, run as written but for the address of the broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import page, python_blocks, run_blocks
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

pytestmark = pytest.mark.broker

PAGE = "docs/deduplication.md"


def test_the_blocks_run_and_print_the_output_of_the_page(
    channel: BlockingChannel,
    vhost_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    channel.exchange_declare("orders", CHX)
    channel.queue_declare("orders.1")
    channel.queue_bind("orders.1", "orders", "1")
    assert len(python_blocks(PAGE)) == page(PAGE).count("```") / 2

    def check(block: str) -> None:
        promised = re.findall(r"^(?:print\(.*\)  )?# (.*)", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == promised

    run_blocks(PAGE, {'amqp://guest:guest@localhost"': f'{vhost_url}"'}, after=check)
