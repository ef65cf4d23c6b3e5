"""A process that forks while a client is open: the child is refused, every row is sent once, and the parent keeps its connection."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed

from rabbit_chx import Broker, ConsumerGroup, StreamGroup
from rabbit_chx.errors import InputError
from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

FIT = {"x-queue-type": "quorum", "x-single-active-consumer": True}
FORKING = """
import os, sys
from rabbit_chx import Publisher
from rabbit_chx.errors import InputError

with Publisher(sys.argv[1], "x") as publisher:
    publisher.publish_many(["k"], ["before the fork"])
    if os.fork():
        os.wait()
        print(publisher.publish_many(["k"], ["after the fork"]).reconnects)
    else:
        try:
            publisher.publish_many(["k"], ["in the child"])
        except InputError as error:
            print(error, flush=True)
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AbstractContextManager[None]]:
    """Makes a block one of a child, which is refused the use of a client. A copy of the client is that of the child."""

    @contextmanager
    def refused(name: str) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            with pytest.raises(InputError, match=f"{name}.* was opened by process .* after the fork"):
                yield

    return refused


def test_a_child_sends_no_row_of_a_publisher(vhost_url: str, consumed: Consumed) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, vhost_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused, reconnects = done.stdout.splitlines()
    assert refused.startswith("the Publisher of exchange 'x' was opened by process")
    assert reconnects == "0"
    assert [message.body for message in consumed()] == [b"before the fork", b"after the fork"]


def test_a_child_does_not_use_or_close_a_broker(live: Broker, child: Any) -> None:
    with child("the Broker"), closing(copy.copy(live)) as copied:
        copied.declare("y", {})
    assert live.declare("y", {"q": 1}).bound


@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_child_does_not_use_or_close_a_reader(
    vhost: RunningBroker, channel: BlockingChannel, child: Any
) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    with StreamPublisher(vhost.stream_url, stream="s") as publisher:
        publisher.publish_many(["k"] * 3_000, ["x"] * 3_000)
    with StreamReader(vhost.stream_url, "s", batch_rows=1_000, name="r") as reader:
        first = next(reader).num_rows
        with child("the StreamReader"), closing(copy.copy(reader)) as copied:
            next(copied)
        assert first + sum(batch.num_rows for batch in reader) == 3_000


@pytest.mark.chx_broker(">=3.11", "streams with a single active consumer")
@pytest.mark.parametrize("kind", ["ConsumerGroup", "StreamGroup"])
def test_a_child_does_not_run_or_close_a_group(
    vhost: RunningBroker, channel: BlockingChannel, child: Any, kind: str
) -> None:
    is_streams = kind == "StreamGroup"
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "stream"} if is_streams else FIT)
    made: Any = (
        StreamGroup(vhost.stream_url, streams=["q"], name="g")
        if is_streams
        else ConsumerGroup(vhost.url, ["q"])
    )

    async def handle(*_: object) -> None:
        """Handle nothing."""

    async def story() -> None:
        async with made as group:
            copied = copy.copy(group)
            with child(f"the {kind}"):
                try:
                    await copied.run(handle)
                finally:
                    await copied.__aexit__(None, None, None)
            group.stop()
            await group.run(handle)

    asyncio.run(story())
