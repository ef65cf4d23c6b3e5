"""Pages that are typed from top to bottom on a real broker."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from quick_rings import quick_prefix
from terminal import type_page

from rabbit_chx.testing import RunningBroker


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize(
    "name",
    [
        "change-an-exchange",
        "adopt-an-exchange",  # as managed-brokers
        "managed-brokers",  # of which only AMQP and the management API are known
    ],
)
def test_the_page_runs_from_top_to_bottom(vhost: RunningBroker, tmp_path: Path, name: str) -> None:
    words = {
        "amqp://localhost": vhost.url,
        "http://localhost:15672": str(vhost.management_url),
        "docker exec rabbitmq": shlex.join(quick_prefix(vhost)),
    }
    type_page(f"docs/operate/{name}.md", tmp_path, words)
