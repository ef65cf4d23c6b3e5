"""docs/managed-brokers.md, typed from top to bottom on a real broker of which only AMQP and the management API are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import type_page

from rabbit_chx.testing import RunningBroker


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.chx_broker(">=4.3", "x-modulus-hash without a plugin")
def test_it_runs_from_top_to_bottom(vhost: RunningBroker, tmp_path: Path) -> None:
    assert vhost.management_url is not None
    words = {"amqp://localhost": vhost.url, "http://localhost:15672": vhost.management_url}
    type_page("docs/managed-brokers.md", tmp_path, words)
