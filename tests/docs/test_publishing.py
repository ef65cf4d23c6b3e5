"""Every Python block of docs/publishing.md, run as written but for the address of the broker."""

from __future__ import annotations

import re

import pytest
from blocks import page, python_blocks, run_blocks
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

PAGE = "docs/publishing.md"
URL = "amqp://guest:guest@localhost"


def test_the_blocks_run_and_print_the_output_of_the_page(
    channel: BlockingChannel, vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    channel.exchange_declare("orders", CHX)
    channel.queue_bind("q1", "orders", "1")
    assert len(python_blocks(PAGE)) == page(PAGE).count("```") / 2

    def check(block: str) -> None:
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"print\(.*\)  # (.*)", block)
        assert not promised or printed == promised
        if "def show" in block:
            assert "of 100,000" in printed[-1]
        channel.queue_purge("q1")

    assert vhost.ring_via is not None, "the page reads a ring: set RABBIT_CHX_TEST_RING_VIA"
    words = {
        f'{URL}"': f'{vhost.url}"',
        "docker exec rabbitmq": " ".join(vhost.ring_via),
    }
    run_blocks(PAGE, words, after=check)
