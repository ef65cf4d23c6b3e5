"""Every Python block of docs/streams.md, run as written but for the address of the broker."""

from __future__ import annotations

import re

import pytest
from blocks import page, python_blocks, run_blocks
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

PAGE = "docs/streams.md"


def test_the_blocks_run_and_print_what_the_page_says(
    channel: BlockingChannel, vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vhost.stream_url is not None
    assert vhost.ring_via is not None
    channel.exchange_declare("orders", CHX, durable=True)
    for stream in ("orders-0", "orders-1"):
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(stream, "orders", "1")
    assert len(python_blocks(PAGE)) == page(PAGE).count("```") / 2

    def check(block: str) -> None:
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"print\(.*\)  # (.*)", block)
        assert not promised or printed == promised
        if "ring=ring" in block:
            assert re.fullmatch(r"\{'orders-0': \d+, 'orders-1': \d+\}", printed[0])

    words = {
        "rabbitmq-stream://guest:guest@localhost:5552": vhost.stream_url,
        'amqp://guest:guest@localhost"': f'{vhost.url}"',
        '["docker", "exec", "rabbitmq"]': repr(list(vhost.ring_via)),
    }
    run_blocks(PAGE, words, after=check)
