"""docs/operate/sharding.md: its file makes the shards that it says, and its programs run."""

from __future__ import annotations

import re
from typing import Any

import pytest
from blocks import page, python_blocks, replaced

from rabbit_chx import Broker, Topology
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

PAGE = "docs/operate/sharding.md"

pytestmark = pytest.mark.broker


def test_the_page_runs(vhost: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert vhost.management_url is not None
    (file,) = re.findall(r"^```toml\n(.*?)^```$", page(PAGE), re.DOTALL | re.MULTILINE)
    with Broker(vhost.url, vhost.management_url) as broker:
        broker.apply(plan(Topology.from_toml(file), broker.topology()))
    here = {
        "amqp://localhost:5672/shop": vhost.url,
        "http://guest:guest@localhost:15672": vhost.management_url,
    }
    names: dict[str, Any] = {}
    for block in python_blocks(PAGE):
        exec(compile(replaced(block, here), PAGE, "exec"), names)  # noqa: S102  # that is what is tested
    printed = capsys.readouterr().out
    assert len(re.findall(r"^sharding: images - \S+ - [0-3] \S+ 0 0$", printed, re.MULTILINE)) == 4
    assert re.search(r"^unconsumed 4 of 4 shards have no consumer", printed, re.MULTILINE)
