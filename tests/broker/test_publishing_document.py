"""Every Python block of docs/publishing.md, run as written but for the address of the broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from publishing_support import CHX

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

pytestmark = pytest.mark.broker

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "publishing.md").read_text(encoding="utf-8")
URL = "amqp://guest:guest@localhost"


def test_the_blocks_run_and_print_what_the_page_says(
    channel: BlockingChannel, vhost_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    channel.exchange_declare("orders", CHX)
    channel.queue_bind("q1", "orders", "1")
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == TEXT.count("```") / 2
    names: dict[str, Any] = {}
    for block in blocks:
        code = block.replace(f"{URL}:5671", "amqp://guest:guest@127.0.0.1:1").replace(
            f'{URL}"', f'{vhost_url}"'
        )
        exec(compile(code, "docs/publishing.md", "exec"), names)  # noqa: S102  # that is the point
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"print\(.*\)  # (.*)", block)
        assert not promised or printed == promised
        if "def show" in block:
            assert "of 100,000" in printed[-1]
        channel.queue_purge("q1")
