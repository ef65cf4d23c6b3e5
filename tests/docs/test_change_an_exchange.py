"""docs/change-an-exchange.md, typed from top to bottom on a real broker."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from quick_rings import quick_prefix
from terminal import type_page

from rabbit_chx.testing import RunningBroker


@pytest.mark.slow
@pytest.mark.broker
def test_it_runs_from_top_to_bottom(vhost: RunningBroker, tmp_path: Path) -> None:
    assert vhost.management_url is not None
    words = {
        "amqp://localhost": vhost.url,
        "http://localhost:15672": vhost.management_url,
        "docker exec rabbitmq": shlex.join(quick_prefix(vhost)),
    }
    type_page("docs/change-an-exchange.md", tmp_path, words)
