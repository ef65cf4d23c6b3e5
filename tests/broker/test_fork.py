"""A process that forks while a publisher is open: every row is sent once, and the parent keeps its connection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import forked_publisher
import pytest

from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


def fork_with(kind: str, url: str, **arguments: str) -> list[str]:
    """Run the program and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", forked_publisher.__file__],
        input=json.dumps([kind, url, arguments]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_publisher(consumed: Callable[[], list[Any]], vhost_url: str) -> None:
    child, parent = fork_with("Publisher", vhost_url, exchange="x")
    assert "the Publisher of exchange 'x' was opened by process" in child
    assert parent == "reconnects: 0"
    assert [message.body for message in consumed()] == [b"before the fork", b"after the fork"]


@pytest.mark.chx_broker(">=3.9", "streams")
def test_stream_publisher(vhost: RunningBroker) -> None:
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_stream("s")
    child, parent = fork_with("StreamPublisher", vhost.stream_url, stream="s")
    assert "the StreamPublisher of 's' was opened by process" in child
    assert parent == "reconnects: 0"
    with StreamReader(vhost.stream_url, "s") as reader:
        bodies = [body for batch in reader for body in batch["value"].to_pylist()]
    assert bodies == [b"before the fork", b"after the fork"]
