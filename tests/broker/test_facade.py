"""A `Broker` opened and closed, and called with asyncio."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from declared import BINDINGS
from quick_rings import quick_prefix

from rabbit_chx import Topology
from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker

WANTED = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q.{1..30}" }]
[[queues]]
name = "q.{1..30}"
"""


def test_open_and_close(vhost_url: str) -> None:
    broker = Broker(vhost_url).open()
    assert broker.open() is broker
    assert broker.release.version
    broker.declare("x", BINDINGS)
    broker.close()
    broker.close()
    with pytest.raises(InputError, match="not connected"):
        broker.declare("x", BINDINGS)
    with broker.open() as again:
        assert again.release.version


def test_an_apply_in_a_thread_ends_after_its_task_is_cancelled(vhost: RunningBroker) -> None:
    """As docs/topology.md has it. A task that is cancelled leaves the application to its thread, which ends it."""
    wanted = Topology.from_toml(WANTED)
    begun = threading.Event()

    async def cancelled(broker: Broker) -> None:
        made = plan(wanted, await asyncio.to_thread(broker.topology))
        apply = partial(broker.apply, made, progress=lambda *_: begun.set())
        task = asyncio.create_task(asyncio.to_thread(apply))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Broker(vhost.url, vhost.management_url, quick_prefix(vhost)) as broker:
        asyncio.run(cancelled(broker))  # which waits for the threads in the end
        assert plan(wanted, broker.topology()).changes == ()
