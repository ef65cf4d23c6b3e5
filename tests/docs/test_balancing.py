"""docs/balancing.md: its Python does what it says, on a real broker."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from blocks import run_blocks
from slotted import declare_slots

from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import RunningBroker


@pytest.mark.broker
def test_the_python_of_the_page(vhost: RunningBroker) -> None:
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        declare_slots(connection.channel(), "events", 16, ("events.1", "events.2"))
    names: dict[str, Any] = {
        "url": vhost.url,
        "management_url": vhost.management_url,
        "ring_source": vhost.ring_via,
        "keys": [f"key-{n}" for n in range(1_000)],
    }
    run_blocks("docs/balancing.md", {}, names)
    proposal = names["proposal"]
    assert proposal.state == "proposed"
    assert {member.destination for member in proposal.members("events")} == {"events.1", "events.2"}
