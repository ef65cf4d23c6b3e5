"""Every block of docs/dataframes.md, run as written except for the address of the broker."""

from __future__ import annotations

import re

import pytest
from blocks import page, python_blocks, run_blocks
from streamed import Streamed

from rabbit_chx.streams import StreamPublisher
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

PAGE = "docs/dataframes.md"


def test_the_blocks_run_and_print_the_output_of_the_page(
    vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    Streamed(vhost, "orders-0", {})
    assert len(python_blocks(PAGE)) == page(PAGE).count("```") / 2
    with StreamPublisher(vhost.stream_url, stream="orders-0") as publisher:
        publisher.publish_many([f"customer-{n % 200}" for n in range(10_000)], ["order"] * 10_000)

    def check(block: str) -> None:
        printed = capsys.readouterr().out.splitlines()
        assert printed == re.findall(r"print\(.*\)  # (.*)", block)

    run_blocks(PAGE, {"rabbitmq-stream://guest:guest@localhost:5552": vhost.stream_url}, {}, after=check)
